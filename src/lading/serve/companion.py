"""A process beside a broker that reads through its admin endpoint: the broker starts, announces and ends it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final
from urllib.parse import quote

from ..endpoints.base.services import format_bound_address
from ..model.address import Address
from ..model.errors import LocalError
from ..settings.settings import Settings
from ..transports.secrets import PREFIX
from .local_server import listen

END_S: Final = 5.0


class Companion:
    """A companion that is not started yet: its socket is bound, so that a taken port is found before the broker starts.

    A broker whose admin endpoint asks for a token gives it to the companion, which then asks for a key itself. If
    that endpoint is encrypted, the companion trusts its certificate.
    """

    def __init__(self, name: str, option: str, address: Address, settings: Settings, more: Sequence[str] = ()) -> None:
        """``name`` is its command of ``lading``, ``option`` the one of ``lading serve`` that asks for it.

        Raises LocalError if the address is in use, or the companion could not ask the admin endpoint.
        """
        admin = settings.endpoints.admin
        if not admin.enabled:
            raise LocalError(f"{option} reads through the admin endpoint; set endpoints.admin.enabled=true")
        if admin.demands_certificate:
            raise LocalError(
                f"{option} has no certificate for endpoints.admin.tls.client_ca; start it by itself: "
                f"lading {name} --from 'lading://HOST:PORT?ca_file=FILE&certificate_file=FILE'"
            )
        self._name = name
        self._more = more
        self._settings = settings
        self._environment = dict(os.environ)
        if admin.token is not None:
            self._environment[f"{PREFIX}TOKEN"] = admin.token.get_secret_value()
        self._listener = listen(address, name, f"{option}-address")

    @contextmanager
    def run(self, endpoints: Mapping[str, str], beside: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
        """Run the companion for a broker with these ``endpoints`` until the block ends; yield its address by its name.

        ``beside`` has the addresses of companions that were started before.
        """
        handle = self._listener.fileno()
        url = f"lading://{endpoints['admin']}"
        if (tls := self._settings.endpoints.admin.tls).enabled:
            from ..endpoints.encryption.certificates import find_certificate

            trusted = find_certificate(tls, self._settings.data).certificate
            url += f"?ca_file={quote(str(trusted.absolute()))}"
        address = format_bound_address(self._listener)
        # its standard input is a pipe, which closes when the broker ends, however it ends
        process = subprocess.Popen(
            [sys.executable, "-m", "lading.cli.main", self._name, "--from", url, "--address", address,
             "--listener", str(handle), "--with-parent", *self._more, *_name_peers(self._name, beside)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=(handle,), env=self._environment,
        )  # fmt: skip
        self._listener.close()
        try:
            yield {self._name: address}
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()


def _name_peers(name: str, beside: Mapping[str, str]) -> list[str]:
    """Return the options of a companion that name other companions: the console shows the tables."""
    return ["--tables", f"http://{beside['tables']}"] if name == "console" and "tables" in beside else []


@contextmanager
def run_all(companions: Sequence[Companion], endpoints: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Run companions for a broker with these ``endpoints``; yields the addresses of all by name."""
    with ExitStack() as running:
        addresses: dict[str, str] = {}
        for companion in companions:
            addresses |= running.enter_context(companion.run(endpoints, addresses))
        yield addresses

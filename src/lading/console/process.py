"""The console as a process of its own that a broker starts, announces with its address and ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import quote

from ..endpoints.base.services import format_bound_address
from ..model.address import Address
from ..model.errors import LocalError
from ..settings.settings import Settings
from ..transports.secrets import PREFIX
from .server import NAME, listen

END_S: Final = 5.0


class ConsoleProcess:
    """A console that is not started yet: its socket is bound, so that a taken port is found before the broker starts.

    A broker whose admin endpoint asks for a token gives it to the console, which then asks for a key itself. Where that
    endpoint is encrypted, the console trusts its certificate.
    """

    def __init__(self, address: Address, settings: Settings) -> None:
        """Raises LocalError if the address is in use, or the console could not ask the admin endpoint."""
        admin = settings.endpoints.admin
        if not admin.enabled:
            raise LocalError("--console reads through the admin endpoint; set endpoints.admin.enabled=true")
        if admin.demands_certificate:
            raise LocalError(
                "--console has no certificate for endpoints.admin.tls.client_ca; start the console by itself: "
                "lading console --from 'lading://HOST:PORT?ca_file=FILE&certificate_file=FILE'"
            )
        self._settings = settings
        self._environment = dict(os.environ)
        if admin.token is not None:
            self._environment[f"{PREFIX}TOKEN"] = admin.token.get_secret_value()
        self._listener = listen(address, option="--console-address")

    @contextmanager
    def run(self, endpoints: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
        """Run it for a broker with these ``endpoints`` as long as the block runs; gives its own address by name."""
        handle = self._listener.fileno()
        url = f"lading://{endpoints['admin']}"
        if (tls := self._settings.endpoints.admin.tls).enabled:
            from ..endpoints.encryption.certificates import find_certificate

            trusted = find_certificate(tls, self._settings.data).certificate
            url += f"?ca_file={quote(str(trusted.absolute()))}"
        address = format_bound_address(self._listener)
        # its standard input is the pipe by which it notices that the broker is gone, however that ended
        process = subprocess.Popen(
            [sys.executable, "-m", "lading.cli.main", "console", "--from", url, "--address", address,
             "--listener", str(handle), "--with-parent"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=(handle,), env=self._environment,
        )  # fmt: skip
        self._listener.close()
        try:
            yield {NAME: address}
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()

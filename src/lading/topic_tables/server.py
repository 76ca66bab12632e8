"""The process of the tables: an HTTP server, which other sites' pages cannot use; on other machines with TLS only."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp

from ..columns.topic_columns import parse_topic_columns
from ..endpoints.encryption.authority import read_names
from ..endpoints.encryption.listener_tls import RenewedTls
from ..endpoints.http_shared.cross_site import CrossSiteGuard, HostNames
from ..kernels import engine
from ..model.address import Address
from ..model.cache_directory import find_cache_directory
from ..model.errors import LocalError
from ..runtime.metrics import Metrics
from ..runtime.owned_directory import own_directory
from ..serve.local_server import listen, print_ready, serve
from ..settings.sections import TlsSettings
from ..settings.settings import HttpSettings
from .callers import Callers
from .catalog import TableCatalog
from .file_store import FileStore, StoreAddress
from .keys import VendedKeys, load_secret
from .tables import LiveTables

NAME: Final = "tables"
ENDING_S: Final = 5.0
"""How long the process of a broker that was killed may take to end."""
PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class TablesSettings:
    """Settings of the process: whose topics, its address, typed columns by flat topic name, the directory of its files.

    Without ``state`` files are in the user's cache, in a directory of this source. Sealed files are put into ``store``.
    """

    url: str
    address: Address
    columns: Mapping[str, str]
    state: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    store: StoreAddress | None = None

    def make_tls(self) -> RenewedTls | None:
        """Return the TLS of the listener, None without a certificate. Raises LocalError for files it cannot use."""
        if self.certificate is None:
            return None
        tls = TlsSettings(enabled=True, certificate=self.certificate, key=self.key)
        return RenewedTls(tls, "tables", self.certificate.parent)


def run(
    settings: TablesSettings,
    *,
    output: str = "text",
    listener: socket.socket | None = None,
    print_note: Callable[[str], None] = lambda text: None,
) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit code 0.

    ``listener`` is a bound socket that was handed over; without one, the address of the settings is bound and announced
    by a ready line. Raises LocalError for an address that is taken or that others than this machine can reach, and
    SettingError for columns, or a store, that cannot be.
    """
    for words in settings.columns.values():
        parse_topic_columns(words)
    tls = settings.make_tls()
    store = None if settings.store is None else FileStore(settings.store)
    callers = Callers(settings.url, settings.columns, is_public=listener is None and not settings.address.loopback)
    bound = listener if listener is not None else listen(settings.address, NAME, is_public=tls is not None)
    address = Address(*bound.getsockname()[:2])
    engine.load_in_background()
    state = settings.state or _default_state(settings.url)
    held = own_state(state)
    tables = LiveTables(callers.own.url, state, os.cpu_count() or 1, store)

    def announce() -> None:
        if listener is None:
            print_ready(NAME, address, output)
        print_note(f"topics of {callers.own.url} as Iceberg tables: {'http' if tls is None else 'https'}://{address}")
        if callers.key is not None:
            print_note(f"engines show a token of their user, or this key as theirs: {callers.key}")

    try:
        names = [] if settings.certificate is None else read_names(settings.certificate)
        serve(
            NAME,
            make_app(callers, tables, bound, VendedKeys(load_secret(state / "secret")), names),
            bound,
            announce,
            tls,
        )
    finally:
        tables.close()
        callers.close()
        bound.close()
        held.close()
    return 0


def make_app(
    callers: Callers,
    tables: LiveTables,
    listener: socket.socket,
    keys: VendedKeys | None = None,
    names: Iterable[str] = (),
    clock: Callable[[], float] = time.time,
) -> ASGIApp:
    """Return the application for a listener. ``names`` are host names that requests may use besides its address.

    Without ``keys``, the keys that it vends are valid until the application ends.
    """
    hosts = HostNames(HttpSettings(), names)
    hosts.bind(listener)
    return CrossSiteGuard(TableCatalog(callers, tables, keys or VendedKeys(), clock), hosts, NAME, Metrics())


def own_state(state: Path, patience_s: float = ENDING_S) -> ExitStack:
    """Return the lock of a directory of tables. Raises LocalError if another process keeps it for ``patience_s``.

    Two processes would number the snapshots of a table side by side, and streams would read rows twice.
    """
    busy = LocalError(f"{state}: another process serves tables from this directory; end it, or give --state DIR")
    deadline_s = time.monotonic() + patience_s
    while True:
        held = ExitStack()
        try:
            held.enter_context(own_directory(state, "lock", what="the directory of tables", busy=busy))
            return held
        except LocalError as error:
            if error is not busy or time.monotonic() >= deadline_s:
                raise
        time.sleep(PAUSE_S)


def _default_state(url: str) -> Path:
    cache = find_cache_directory()
    # a directory of the source is another source somewhere else
    source = url if "://" in url else str(Path(url).absolute())
    if not cache.is_absolute():
        raise LocalError(f"{cache.parent}: the cache's directory has to be absolute; give --state DIR")
    return cache / "tables" / hashlib.sha256(source.encode()).hexdigest()[:16]

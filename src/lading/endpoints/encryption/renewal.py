"""New certificates without a restart: files that change are read again, and a broken one leaves the old in place."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Final

from ...model.errors import LocalError
from ...runtime.log_lines import origin
from ...runtime.metrics import Gauge, Labels
from ..base.services import Services

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""Interval at which the files are checked for changes."""

SOON_S: Final = 14 * 86_400
"""A certificate that expires within this is logged."""

_Stamp = tuple[tuple[int, ...] | None, ...]


class _ExpiryWarning(IntEnum):
    """The warning that was logged about a certificate's expiry."""

    GOOD = 0
    ENDS_SOON = 1
    EXPIRED = 2


_TOLD: Final = {
    _ExpiryWarning.ENDS_SOON: "certificate %s: expires on %s; replace the file, the broker need not be restarted",
    _ExpiryWarning.EXPIRED: "certificate %s: has expired on %s, clients refuse it; replace the file",
}


@dataclass(slots=True)
class _Listener:
    """A listener with a certificate."""

    name: str
    files: Callable[[], Sequence[Path]]
    renew: Callable[[], None]
    seen: _Stamp
    expires_s: float | None = None
    """When its certificate expires, in seconds since 1970; None before the first check, or if the file is
    unreadable."""
    age: _ExpiryWarning = _ExpiryWarning.GOOD


class CertificateRenewal:
    """The certificates of all listeners. Threads: ``look`` may run in a worker, one at a time."""

    def __init__(self) -> None:
        self._listeners: list[_Listener] = []

    @staticmethod
    def of(services: Services) -> CertificateRenewal:
        """Return the one of this broker."""
        found: CertificateRenewal | None = services.shared.get(CertificateRenewal)
        if found is None:
            found = services.shared[CertificateRenewal] = CertificateRenewal()
            services.metrics.add(
                Gauge(
                    "lading_certificate_expires_timestamp_seconds",
                    "When the certificate of a listener expires, since 1970.",
                    ("endpoint",), found._list_expiries,
                )
            )  # fmt: skip
        return found

    def add(self, name: str, files: Callable[[], Sequence[Path]], renew: Callable[[], None]) -> None:
        """Call ``renew`` when one of ``files`` has changed; it raises LocalError if they cannot be used.

        The first of them is the certificate.
        """
        self._listeners.append(_Listener(name, files, renew, _stamp(files())))

    def look(self, now_s: float | None = None) -> None:
        """Renew each listener whose files have changed since; a failure is logged once for each change.

        Certificates that expire soon, or have expired, are logged once each. The time is now by default.
        """
        for listener in self._listeners:
            self._renew_changed(listener)
            self._tell_age(listener, time.time() if now_s is None else now_s)

    def _renew_changed(self, listener: _Listener) -> None:
        try:
            seen = _stamp(listener.files())
            if seen == listener.seen:
                return
            # also if it fails: the next look would say the same again
            listener.seen = seen
            listener.renew()
        except LocalError as error:
            log.error("%s; new connections get the old certificate", error, extra=origin(listener.name))
        else:
            listener.expires_s, listener.age = None, _ExpiryWarning.GOOD
            log.info("new connections get the certificate that was changed", extra=origin(listener.name))

    def _tell_age(self, listener: _Listener, now_s: float) -> None:
        file = listener.files()[0]
        if listener.expires_s is None:
            listener.expires_s = _find_expiry(file)
        if listener.expires_s is None:
            return
        left_s = listener.expires_s - now_s
        age = (
            _ExpiryWarning.EXPIRED
            if left_s <= 0
            else _ExpiryWarning.ENDS_SOON
            if left_s < SOON_S
            else _ExpiryWarning.GOOD
        )
        if age > listener.age:
            date = datetime.fromtimestamp(listener.expires_s, UTC).date()
            log.warning(_TOLD[age], file, date, extra=origin(listener.name))
            listener.age = age

    def expiries(self) -> list[tuple[str, float]]:
        """Return the name of each listener with a certificate, and when that expires, in seconds since 1970."""
        return [(each.name, each.expires_s) for each in self._listeners if each.expires_s is not None]

    def _list_expiries(self) -> Iterator[tuple[Labels, float]]:
        for name, expires_s in self.expiries():
            yield (name,), expires_s

    async def watch(self, services: Services, wanted: asyncio.Event, on_done: Callable[[], None]) -> None:
        """Look every now and then, and at once when ``wanted`` is set, until cancelled.

        ``on_done`` is called after each look that was wanted.
        """
        loop = asyncio.get_running_loop()
        if self._listeners:
            # when clients are served already: the library that reads certificates takes 45 ms
            await loop.run_in_executor(services.workers, self.look)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S if self._listeners else None):
                    await wanted.wait()
            was_wanted = wanted.is_set()
            wanted.clear()
            # reading a file may take long
            await loop.run_in_executor(services.workers, self.look)
            if was_wanted:
                on_done()


def _stamp(files: Sequence[Path]) -> _Stamp:
    """Return the facts that show a change: times, sizes, and the identity of the files."""

    def look(file: Path) -> tuple[int, ...] | None:
        try:
            found = file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    return tuple(look(file) for file in files)


def _find_expiry(file: Path) -> float | None:
    """Return the earliest expiry of a chain's certificates, in seconds since 1970; None if it cannot be read."""
    from cryptography import x509

    try:
        chain = x509.load_pem_x509_certificates(file.read_bytes())
    except (OSError, ValueError):
        # a listener that cannot use it has reported that
        return None
    return min(each.not_valid_after_utc.timestamp() for each in chain)

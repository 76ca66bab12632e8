"""New certificates without a restart: files that change are read again, and a broken one leaves the old in place."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...log_lines import origin
from ...model.errors import LocalError
from ..base.services import Services

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""How often is looked whether the files have changed."""

_Stamp = tuple[tuple[int, ...] | None, ...]


@dataclass(slots=True)
class _Listener:
    """A listener with a certificate."""

    name: str
    files: Callable[[], Sequence[Path]]
    renew: Callable[[], None]
    seen: _Stamp


class CertificateRenewal:
    """The certificates of all listeners. Threads: ``look`` may run in a worker, one at a time."""

    def __init__(self) -> None:
        self._listeners: list[_Listener] = []

    @staticmethod
    def of(services: Services) -> CertificateRenewal:
        """Return the one of this broker."""
        found: CertificateRenewal = services.shared.setdefault(CertificateRenewal, CertificateRenewal())
        return found

    def add(self, name: str, files: Callable[[], Sequence[Path]], renew: Callable[[], None]) -> None:
        """Call ``renew`` when one of ``files`` has changed; it raises LocalError if they cannot be used."""
        self._listeners.append(_Listener(name, files, renew, _stamp(files())))

    def look(self) -> None:
        """Renew each listener whose files have changed since; what fails is logged once for each change."""
        for listener in self._listeners:
            try:
                seen = _stamp(listener.files())
                if seen == listener.seen:
                    continue
                # also if it fails: the next look would say the same again
                listener.seen = seen
                listener.renew()
            except LocalError as error:
                log.error("%s; new connections get the old certificate", error, extra=origin(listener.name))
            else:
                log.info("new connections get the certificate that was changed", extra=origin(listener.name))

    async def watch(self, services: Services, wanted: asyncio.Event, on_done: Callable[[], None]) -> None:
        """Look every now and then, and at once when ``wanted`` is set, until cancelled.

        ``on_done`` is called after each look that was wanted.
        """
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S if self._listeners else None):
                    await wanted.wait()
            was_wanted = wanted.is_set()
            wanted.clear()
            # a file may lie where reading takes long
            await asyncio.get_running_loop().run_in_executor(services.workers, self.look)
            if was_wanted:
                on_done()


def _stamp(files: Sequence[Path]) -> _Stamp:
    """Return what tells a change: times, sizes, and which files they are."""

    def look(file: Path) -> tuple[int, ...] | None:
        try:
            found = file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    return tuple(look(file) for file in files)

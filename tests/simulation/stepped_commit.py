"""A group commit for tests: syncs that end when the test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lading.log.catalog_wal import CatalogWal
from lading.log.disk import File
from lading.log.interface import Syncable

Done = Callable[[OSError | None], None]


class SteppedCommit:
    """Syncs that end one at a time, when ``complete`` is called."""

    instant = False

    def __init__(self, choose: Callable[[int], int] = lambda running: 0) -> None:
        """``choose`` picks which of the syncs under way ends next, given how many there are; the oldest if left out."""
        self._choose = choose
        self._running: list[tuple[Syncable, Sequence[File], list[Done]]] = []
        self._again: dict[Syncable, list[Done]] = {}

    def submit(self, log: Syncable, done: Done | None = None) -> None:
        """Begin a sync, or one more after that which is under way."""
        if done is None and isinstance(log, CatalogWal):
            # nobody waits for it, and a simulated power cut takes nothing of the catalog: it draws no number, so that
            # seeds stay the lives that they were before there was one
            log.begin_sync()
            return
        wanted = [] if done is None else [done]
        if any(one is log for one, _, _ in self._running):
            self._again.setdefault(log, []).extend(wanted)
        else:
            self._begin(log, wanted)

    def _begin(self, log: Syncable, done: list[Done]) -> None:
        files = log.begin_sync()
        if files:
            self._running.append((log, files, done))
        else:
            for callback in done:
                callback(None)

    def fileno(self) -> int | None:
        """Return None: there is no descriptor to wait for."""
        return None

    def complete(self) -> None:
        """End one sync."""
        if not self._running:
            return
        log, files, done = self._running.pop(self._choose(len(self._running)))
        failed: OSError | None = None
        try:
            for file in files:
                file.sync()
        except OSError as error:
            failed = error
        except ValueError as error:
            # the log was closed meanwhile
            failed = OSError(str(error))
        if failed is None:
            log.complete_sync()
        else:
            log.fail_sync(failed)
        for callback in done:
            callback(failed)
        if log in self._again:
            self._begin(log, self._again.pop(log))

    def drain(self, timeout_s: float = 30.0) -> bool:
        """End all syncs."""
        while self._running:
            self.complete()
        return True

    def close(self) -> None:
        """End all syncs."""
        self.drain()

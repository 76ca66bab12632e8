"""Group commit for the catalog's write-ahead log: many writes share one sync.

SQLite writes at level NORMAL without a sync. Writes that must be durable before they are acknowledged are made at that
level on the event loop, which costs microseconds, and then synced by a sync thread, like messages. All locks of SQLite
are on other files, so this descriptor of the log interferes with none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from .catalog_state import wal_path
from .disk import Disk, File


class CatalogWal:
    """The log file next to the catalog, as an argument of ``Commit.submit``."""

    def __init__(self, path: Path, disk: Disk, on_failed: Callable[[OSError], None]) -> None:
        """``on_failed`` is called with the error of a failed sync."""
        self._path = wal_path(path)
        self._disk = disk
        self._on_failed = on_failed
        self._file: File | None = None
        self.is_behind = False
        """Whether something was written since the last sync began."""
        self.on_synced: Callable[[], None] | None = None
        self.is_begun = True

    def begin_sync(self) -> Sequence[File]:
        """Return the file to sync."""
        if self._file is None:
            self._file = self._disk.open(self._path, write=True)
        self.is_behind = False
        return (self._file,)

    def complete_sync(self) -> None:
        """Record that everything written before ``begin_sync`` is on disk."""

    def fail_sync(self, error: OSError) -> None:
        """Note that the catalog may be unreliable: it is reopened before the next write."""
        self.reopen()
        self._on_failed(error)

    def reopen(self) -> None:
        """Close the file, since SQLite may create another one."""
        # a sync thread may still use it: it is closed with its last reference
        self._file = None

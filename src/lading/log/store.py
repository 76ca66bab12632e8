"""The storage of a broker: the logs of partitions, the catalog, and the commit that makes both durable."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ..runtime.clock import Dates
from .access_file import AccessFile
from .catalog import FILE_NAME, Catalog
from .directory import DataDirectory
from .disk import Disk, RealDisk
from .formats import GATE
from .found_files import FoundFiles
from .interface import Commit, PartitionLog
from .partition import open_partition


class LogStore(Protocol):
    """The interface of a broker's storage. Only the logs are read and written often."""

    @property
    def catalog(self) -> Catalog:
        """Everything but messages."""

    @property
    def access_file(self) -> AccessFile:
        """Users, tokens and rules."""

    @property
    def directory(self) -> DataDirectory:
        """The directories of topics and their descriptions."""

    @property
    def commit(self) -> Commit:
        """Makes flushed chunks durable."""

    @property
    def dates(self) -> Dates:
        """Converts the broker's times to dates; the broker sets it."""

    def open_log(self, path: Path, topic_id: bytes, first_epoch: int, now_us: int) -> PartitionLog:
        """Open the log of a directory, or create it with ``first_epoch``. Callable from any thread."""


class LocalLogStore:
    """A local data directory as a store: files for partitions, SQLite for the catalog, sync threads."""

    def __init__(
        self,
        data: Path,
        commit: Commit,
        *,
        segment_bytes: int,
        disk: Disk | None = None,
        found: FoundFiles | None = None,
    ) -> None:
        """Open ``data``, or create it; only one process at a time may.

        ``found`` is the result of the format gate, if the gate has already run on the locked directory.

        Raises CorruptLog if a later Lading has written it, or if its catalog is invalid.
        """
        self.disk = disk or RealDisk()
        self.commit = commit
        self.dates = Dates()
        self._segment_bytes = segment_bytes
        found = found or GATE.check_directory(data, self.disk)
        self.directory = DataDirectory(data, self.disk, found)
        self.access_file = AccessFile(data, self.disk)
        self.catalog = Catalog(data / FILE_NAME, self.disk, self.dates)

    def open_log(self, path: Path, topic_id: bytes, first_epoch: int, now_us: int) -> PartitionLog:
        """Open the log in the directory ``path``, or create it. Raises CorruptLog and OSError as ``open_partition``."""
        log = open_partition(
            self.disk, path, topic_id, segment_bytes=self._segment_bytes, now_us=now_us, first_epoch=first_epoch,
            files=self.directory.take_files(path),
        )  # fmt: skip
        log.dates = self.dates
        return log

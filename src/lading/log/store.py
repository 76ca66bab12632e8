"""The storage of a broker: the logs of partitions, the catalog, and the commit that makes both durable."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ..runtime.clock import Dates
from .access_file import AccessFile
from .catalog import Catalog
from .directory import DataDirectory
from .interface import Commit, PartitionLog


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

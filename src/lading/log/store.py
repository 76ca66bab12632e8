"""Where a broker keeps what it is given: logs of partitions, the catalog, and what makes both last."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ..clock import Dates
from .catalog import Catalog
from .directory import DataDirectory
from .interface import Commit, PartitionLog


class LogStore(Protocol):
    """What a broker asks of the place where everything lies. The logs are all that is read and written often."""

    @property
    def catalog(self) -> Catalog:
        """Everything that is no message."""

    @property
    def directory(self) -> DataDirectory:
        """Where topics lie, and what each says of itself."""

    @property
    def commit(self) -> Commit:
        """What makes flushed chunks last."""

    @property
    def dates(self) -> Dates:
        """Gives the date of a time that the broker was told; the broker sets it."""

    def open_log(self, path: Path, topic_id: bytes, first_epoch: int, now_us: int) -> PartitionLog:
        """Open the log of a directory, or create it with ``first_epoch``; from any thread."""

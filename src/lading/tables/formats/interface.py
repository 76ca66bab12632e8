"""What the engine asks of a form of tables, such as a directory of Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..manifest import DataFile

Rename = Callable[[Path, Path], Any]


class Table(Protocol):
    """One table. It is committed from a manifest that is written already, so that every step may be repeated."""

    directory: Path

    def claim(self, owner: str) -> None:
        """Make the table ``owner``'s own, or find that it is. Raises LocalError if somebody else's data lies there."""

    def staging_path(self, file: DataFile) -> Path:
        """Return where a staged file lies, which no reader of the table sees."""

    def commit(self, key: tuple[str, int], files: Sequence[DataFile], rename: Rename) -> None:
        """Show these files, once; ``key`` is the pipeline and the number of the manifest that lists them.

        Raises CorruptLog if a file is neither staged nor shown, or is not what the manifest says.
        """

    def sweep(self, needed: Collection[str]) -> int:
        """Delete staged files but those of these names; returns how many."""

    def file_bytes(self, file: DataFile) -> int | None:
        """Return the size of a published file, or None if it was deleted."""


class TableFormat(Protocol):
    """A form of tables."""

    name: str
    """What stands before the colon of a target: ``parquet``."""

    def open(self, directory: Path) -> Table:
        """Return the table at ``directory``, which need not be there yet."""

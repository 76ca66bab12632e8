"""What the engine asks of a form of tables, such as a directory of Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from ..manifest import DataFile

Rename = Callable[[Path, Path], Any]


@dataclass(frozen=True, slots=True)
class FileLayout:
    """What the files of a table hold: the columns, those whose values repeat, and how they are compressed."""

    schema: pa.Schema
    """The columns as they are handed to ``write``: of the table's types, or dictionaries of them."""
    types: Mapping[str, pa.DataType]
    """The types of the table."""
    repeating: Sequence[str]
    compression: str

    @property
    def plain_schema(self) -> pa.Schema:
        """The columns in the types of the table, without dictionaries."""
        return pa.schema([field.with_type(self.types[field.name]) for field in self.schema])


class TableFile(Protocol):
    """A file of a table that a task writes."""

    def write(self, rows: pa.Table) -> None:
        """Add some rows, at most ``GROUP_ROWS`` or about ``GROUP_BYTES``."""

    def close(self) -> None:
        """Complete the file; the sink stays open."""

    def abandon(self) -> None:
        """Write nothing more: the file is about to be deleted."""


class Table(Protocol):
    """One table. It is committed from a manifest that is written already, so that every step may be repeated."""

    directory: Path

    @property
    def form(self) -> str:
        """What stands before the colon of a target, such as ``parquet``; also the suffix of its files."""

    def open_file(self, sink: RawIOBase, layout: FileLayout) -> TableFile:
        """Begin a file that a task stages."""

    def claim(self, owner: str) -> None:
        """Claim the table for ``owner``. Raises LocalError if it holds data of another writer or form."""

    def staging_path(self, file: DataFile) -> Path:
        """Return the path of a staged file, which no reader of the table sees."""

    def commit(self, key: tuple[str, int], files: Sequence[DataFile], rename: Rename) -> None:
        """Show these files, once; ``key`` is the pipeline and the number of the manifest that lists them.

        Raises CorruptLog if a file is neither staged nor shown, or is not what the manifest says.
        """

    def sweep(self, needed: Collection[str]) -> int:
        """Delete staged files but those of these names; returns how many."""

    def file_bytes(self, file: DataFile) -> int | None:
        """Return the size of a published file, or None if it was deleted."""

    def file_hash(self, file: DataFile) -> str:
        """Return the hash of the bytes of a published file, as manifests hold it. OSError if it cannot be read."""

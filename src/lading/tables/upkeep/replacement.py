"""Replacing the rows of ranges of messages, in a table with their partitions and offsets, by a manifest's files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...model.errors import LocalError
from ...model.names import spellings
from ..formats.interface import AddedFile, Table, Wanted
from ..formats.logged import hash_files
from ..formats.manifest import DataFile
from ..formats.rollback import FILES, MANIFEST, PIPELINE
from ..plan.ranges import OffsetRange
from .deletion import Deletion, delete_rows, find_rows
from .optimize import UPKEEP


@dataclass(frozen=True)
class RowsOfRanges:
    """The rows of some ranges; ``by_topic`` is whether a table may have rows of other topics besides."""

    ranges: Sequence[OffsetRange]
    by_topic: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a table must have so that rows can be found by them."""
        return ("topic", "partition", "offset") if self.by_topic else ("partition", "offset")

    @property
    def wanted(self) -> Wanted:
        """The columns to read, and the bounds of values without which a file has no such row."""
        numbers = [piece.partition for piece in self.ranges]
        offsets = min(piece.start for piece in self.ranges), max(piece.end for piece in self.ranges) - 1
        bounds = {"partition": (min(numbers), max(numbers)), "offset": offsets}
        return Wanted(("stream", *self.columns) if self.by_topic else self.columns, bounds)

    def selects(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row whether its message is in one of the ranges."""
        compute: Any = pc
        found: Any = pa.repeat(pa.scalar(False), batch.num_rows)
        columns = {name: batch.column(name) for name in batch.schema.names if name in ("stream", *self.columns)}
        if missing := [name for name in self.columns if name not in columns]:
            raise LocalError(
                f"a file of the table has no column {missing[0]!r}, by which the rows of a range are found; a table "
                "that can be replaced has had it from its first row on"
            )
        # the value of a partition is text
        number = columns["partition"].cast(pa.int64())
        offset = columns["offset"].cast(pa.int64())
        for piece in self.ranges:
            there = compute.and_(compute.greater_equal(offset, piece.start), compute.less(offset, piece.end))
            there = compute.and_(there, compute.equal(number, piece.partition))
            if self.by_topic:
                there = compute.and_(there, self._is_of(piece.topic, columns))
            found = compute.or_(found, compute.fill_null(there, False))
        return found  # type: ignore[no-any-return]

    def _is_of(self, flat: str, columns: dict[str, Any]) -> Any:
        compute: Any = pc
        made: Any = None
        for stream, topic in spellings(flat):
            same = compute.equal(columns["topic"], topic)
            if "stream" in columns:
                same = compute.and_(same, compute.equal(columns["stream"], stream))
            made = same if made is None else compute.or_(made, same)
        return made


def find_rows_of_ranges(table: Table, rows: RowsOfRanges, check: Callable[[], None] = lambda: None) -> Deletion:
    """Return the rows of a table that belong to messages of the ranges."""
    return find_rows(table, rows.selects, rows.wanted, check=check)


def replace_rows(table: Table, key: tuple[str, int], files: Sequence[DataFile], rows: RowsOfRanges) -> None:
    """Put the files of a manifest, ``key``, in the place of the rows of ranges, in one commit; once.

    Raises RolledBack if another writer took back what the pipeline committed before.
    """
    if table.has_commit(key, files):
        return
    pipeline, number = key
    notes = {UPKEEP: "replace", PIPELINE: pipeline, MANIFEST: str(number), FILES: hash_files(files)}
    added = [
        AddedFile(table.staging_path(file), file.name, file.size_bytes, file.rows, file.partition) for file in files
    ]
    delete_rows(table, rows.selects, rows.wanted, notes, instead=added, key=key)

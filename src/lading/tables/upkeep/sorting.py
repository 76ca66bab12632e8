"""Rows in the order of some columns, in bounded memory: sorted pieces on disk, merged."""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

PIECE_BYTES: Final = 128 << 20
"""About this many bytes of Arrow are sorted at once; more are kept in sorted pieces on disk."""
MERGE_ROWS: Final = 8_192
"""Rows of each piece that are in memory while the pieces are merged."""

Key = tuple[tuple[int, Any], ...]
"""The values of a row that order it; NaN comes after all others, and null after NaN, as Arrow sorts them."""


def sort_batches(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str], scratch: Path | None, stem: str
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the order of ``columns``; those that a batch does not have are as if null.

    Pieces that do not fit into memory are in ``scratch``, in files whose names begin with ``stem``, or with the
    system's temporary files. The result has all columns that a batch has.
    """
    pieces: list[Path] = []
    waiting: list[pa.RecordBatch] = []
    size_bytes = 0
    with tempfile.TemporaryDirectory(prefix="lading-") as other:
        directory = scratch or Path(other)
        try:
            for batch in batches:
                waiting.append(batch)
                size_bytes += batch.nbytes
                if size_bytes >= PIECE_BYTES:
                    pieces.append(_write_piece(_sort(waiting, columns), directory / f"{stem}-{len(pieces)}.arrow"))
                    waiting, size_bytes = [], 0
            last = _sort(waiting, columns) if waiting else None
            if not pieces:
                if last is not None:
                    yield from last.to_batches(MERGE_ROWS * 8)
                return
            if last is not None:
                pieces.append(_write_piece(last, directory / f"{stem}-{len(pieces)}.arrow"))
            del last, waiting
            yield from _merge(pieces, columns)
        finally:
            for piece in pieces:
                piece.unlink(missing_ok=True)


def _sort(batches: Sequence[pa.RecordBatch], columns: Sequence[str]) -> pa.Table:
    plain = [pa.Table.from_batches([batch.replace_schema_metadata(None)]) for batch in batches]
    table = pa.concat_tables(plain, promote_options="permissive").combine_chunks()
    present = [name for name in columns if name in table.schema.names]
    if not present:
        return table
    keys: Any = [(name, "ascending") for name in present]
    return table.take(pc.sort_indices(table, sort_keys=keys))


def _write_piece(table: pa.Table, path: Path) -> Path:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        for batch in table.to_batches(MERGE_ROWS):
            writer.write_batch(batch)
    return path


class _SortedPiece:
    """A sorted piece of which some rows are in memory."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._file = pa.OSFile(str(path), "rb")
        self._reader = pa.ipc.open_stream(self._file)
        self._columns = columns
        self.schema = self._reader.schema
        self.batch: pa.RecordBatch | None = None
        self.load()

    def load(self) -> None:
        """Read the next rows; ``batch`` is None after the last."""
        try:
            self.batch = self._reader.read_next_batch()
            names = self.batch.schema.names
            held = [self.batch.column(name) if name in names else None for name in self._columns]
            rows = range(self.batch.num_rows)
            self._keys: list[Key] = [
                tuple(_sort_key(None if one is None else one[row]) for one in held) for row in rows
            ]
        except StopIteration:
            self.batch = None
            self._file.close()

    @property
    def last(self) -> Key:
        """The key of the last row in memory."""
        return self._keys[-1]

    def take(self, up_to: Key) -> pa.RecordBatch | None:
        """Return the rows up to this key; if no rows are left in memory, read the next ones."""
        assert self.batch is not None
        count = bisect_right(self._keys, up_to)
        taken = self.batch.slice(0, count)
        if count == self.batch.num_rows:
            self.load()
        else:
            self.batch, self._keys = self.batch.slice(count), self._keys[count:]
        return taken if taken.num_rows else None


def _sort_key(value: Any) -> tuple[int, Any]:
    held = None if value is None else value.value if hasattr(value, "value") else value.as_py()
    return (2, 0) if held is None else (1, 0) if held != held else (0, held)


def _merge(pieces: Sequence[Path], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    held = [_SortedPiece(path, columns) for path in pieces]
    # columns that came later would otherwise begin a new file wherever their rows do
    schema = pa.unify_schemas([piece.schema for piece in held], promote_options="permissive")
    while held := [piece for piece in held if piece.batch is not None]:
        up_to = min(piece.last for piece in held)
        taken = [rows for piece in held if (rows := piece.take(up_to)) is not None]
        merged = _sort(taken, columns)
        if merged.schema != schema:
            merged = pa.concat_tables([schema.empty_table(), merged], promote_options="permissive")
        yield from merged.to_batches()

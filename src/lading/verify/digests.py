"""Digest of a range of messages: equal for equal messages, however the ranges of reads cut them.

Each fact has hashes (SHA-256) of its own: one over the lengths of all values of the range, as little-endian int32, -1
for null, and one over their bytes, one after the other. Headers are hashed as the number of headers of each message,
then their keys and values likewise, and kinds as one byte each; times in milliseconds, which is all that Kafka keeps.
The digest of a range is the hash over the hashes in the order of ``settings.FACTS``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .settings import FACTS, Fact

if TYPE_CHECKING:
    from numpy.typing import NDArray

Hash = Any
NULL_LENGTH: Final = -1


class RangeDigest:
    """Digest of consecutive messages that come in pieces."""

    def __init__(self, facts: Collection[Fact], ignored_headers: Collection[str] = ()) -> None:
        self._facts = [fact for fact in FACTS if fact in facts]
        self._ignored = pa.array(sorted(ignored_headers), pa.string()) if ignored_headers else None
        self._hashes: dict[str, Hash] = {}
        self.count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add messages in the Batch schema."""
        self.count += batch.num_rows
        for name, part in self._iter_parts(batch):
            found = self._hashes.get(name)
            if found is None:
                found = self._hashes[name] = hashlib.sha256()
            found.update(part)

    def digest(self) -> bytes:
        """Return the digest of what was added, 32 bytes."""
        return hashlib.sha256(b"".join(found.digest() for found in self._hashes.values())).digest()

    def _iter_parts(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Any]]:
        """Yield the bytes to hash, each with the name of its hash, always in the same order."""
        for fact in self._facts:
            if fact in ("headers", "kinds"):
                continue
            column: Any = batch.column(fact)
            if fact == "timestamp":
                milliseconds = np.floor_divide(column.cast("int64").to_numpy(zero_copy_only=False), 1000)
                yield fact, np.ascontiguousarray(milliseconds, "<i8")
            elif fact == "state":
                yield fact, np.ascontiguousarray(column.to_numpy(zero_copy_only=False))
            else:
                yield from _iter_binary_parts(fact, column)
        if "headers" in self._facts or "kinds" in self._facts:
            counts, entries = select_headers(batch, self._ignored)
            keys, kinds, values = entries.flatten()
            yield "counts", counts.astype("<i4", copy=False)
            if "headers" in self._facts:
                yield from _iter_binary_parts("keys", keys)
                yield from _iter_binary_parts("values", values)
            if "kinds" in self._facts:
                yield "kinds", np.ascontiguousarray(kinds.to_numpy(zero_copy_only=False))


def select_headers(batch: pa.RecordBatch, ignored: Any) -> tuple[NDArray[np.int32], Any]:
    """Return how many headers each message has, and all headers one after the other, without the ``ignored`` keys."""
    column: Any = batch.column("headers")
    offsets = column.offsets.to_numpy()
    entries = column.flatten()
    if ignored is None:
        return np.diff(offsets), entries
    kept = pc.invert(pc.is_in(entries.field(0), ignored))
    before = np.concatenate([[0], np.cumsum(kept.to_numpy(zero_copy_only=False))])
    return np.diff(before[offsets - offsets[0]]).astype(np.int32), entries.filter(kept)


def _iter_binary_parts(name: str, column: Any) -> Iterator[tuple[str, Any]]:
    """Yield lengths and bytes of a binary or text column."""
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    if column.null_count:
        # the bytes of a null are whatever the buffer holds there
        empty = b"" if pa.types.is_binary(column.type) else ""
        present, column = column.is_valid().to_numpy(zero_copy_only=False), pc.fill_null(column, empty)
    else:
        present = None
    offset, count = column.offset, len(column)
    _, places, data = column.buffers()
    ends = np.frombuffer(places, np.int32, count + 1, 4 * offset) if count else np.zeros(1, np.int32)
    lengths = np.diff(ends)
    if present is not None:
        lengths = np.where(present, lengths, NULL_LENGTH)
    yield f"{name}.lengths", np.ascontiguousarray(lengths, "<i4")
    yield f"{name}.bytes", b"" if data is None else memoryview(data)[ends[0] : ends[-1]]

"""Marks of a mirrored message's origin, so that two mirrors of each other do not send it round and round.

The mark is a header that names the systems a message has passed, oldest first. A mirror leaves out messages whose mark
names its target, and with ``two_way`` marks what it sends.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..client.header_columns import with_header
from ..model.batch import HEADERS_TYPE

ORIGIN: Final = "lading-origin"
"""The header with the systems that a message has passed, separated by commas."""


def drop_returned(batch: pa.RecordBatch, target: str) -> pa.RecordBatch:
    """Return the messages that did not come from ``target``."""
    found = _find_marks(batch)
    if found is None:
        return batch
    rows, values = found
    keep = np.ones(batch.num_rows, np.bool_)
    keep[[row for row, value in zip(rows, values, strict=True) if target.encode() in value.split(b",")]] = False
    return batch if keep.all() else batch.filter(pa.array(keep))


def mark_origin(batch: pa.RecordBatch, source: str) -> pa.RecordBatch:
    """Return the messages with ``source`` added to their mark, which is their last header."""
    marks = [source.encode()] * batch.num_rows
    headers: Any = batch.column("headers")
    found = _find_marks(batch)
    if found is not None:
        for row, value in zip(*found, strict=True):
            marks[row] = value + b"," + source.encode()
        headers = _without_marks(headers)
    at = batch.schema.get_field_index("headers")
    return batch.set_column(at, batch.schema.field(at), with_header(headers, ORIGIN, pa.array(marks, pa.binary())))


def _find_marks(batch: pa.RecordBatch) -> tuple[list[int], list[bytes]] | None:
    """Return the rows that have marks, and these; None if no message has one."""
    headers: Any = batch.column("headers")
    entries = headers.flatten()
    is_mark = pc.equal(entries.field("key"), pa.scalar(ORIGIN))
    if not pc.any(is_mark, min_count=0).as_py():
        return None
    rows = pc.list_parent_indices(headers).filter(is_mark).to_pylist()
    return rows, [value or b"" for value in entries.field("value").filter(is_mark).to_pylist()]


def _without_marks(headers: Any) -> Any:
    entries = headers.flatten()
    keep = pc.not_equal(entries.field("key"), pa.scalar(ORIGIN))
    rows = pc.list_parent_indices(headers).filter(keep).to_numpy()
    ends = np.zeros(len(headers) + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=len(headers)), out=ends[1:])
    offsets: Any = pa.array(ends)
    return pa.ListArray.from_arrays(offsets, entries.filter(keep), type=HEADERS_TYPE)

"""Carriers of kinds, ids and times in bulk: nearly every message needs one on its way to and from Kafka."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...kernels import engine
from ...model.batch import HEADER_TYPE, ORIGIN_TIMESTAMP, SCHEMA
from . import fallback, layout
from .encoding import NAME
from .rows import Items, with_columns
from .targets import Losses, numpy_of

KERNEL_MODULE: Final = "lading.dialects.carrier.kernels"
_FACTS_BYTES: Final = layout.HEAD_BYTES + 2 * layout.TIME_BYTES + layout.ID_BYTES + 5 + layout.CRC_BYTES
MARKED_BYTES: Final = 5 + 1 + 5 + 5
"""Input of the fingerprint of a header, besides its name and value."""
_ID_TYPE: Any = SCHEMA.field("id").type
_TIME_TYPE: Any = SCHEMA.field("timestamp").type


def with_typed_carriers(batch: pa.RecordBatch, items: Items, lost: Losses) -> tuple[pa.RecordBatch, NDArray[np.bool_]]:
    """Return the Batch with carriers in rows whose headers are all shown, as raw; and which rows these are.

    It is for a target that keeps everything but kinds, ids and fine times. Rows with names that need an escape or are
    reserved, and with very many headers, are not done.
    """
    keys = items.array.field("key")
    odd = numpy_of(pc.or_(pc.starts_with(keys, "\\"), pc.starts_with(keys, NAME)))
    counts = np.bincount(items.rows, minlength=items.rows_count)
    fit = lost.headers & (counts <= layout.HEADERS_MAX) & ~lost.too_large
    fit[items.rows[odd]] = False
    rows = np.flatnonzero(fit)
    if not len(rows):
        return batch, fit
    columns = _read_columns(items)
    ids, id_valid = ids_of(batch.column("id"))
    times = np.ascontiguousarray(_times_us(batch, "timestamp"))
    origins = np.ascontiguousarray(_times_us(batch, ORIGIN_TIMESTAMP)) if lost.origin.any() else times
    plain_bytes = len(rows) * _FACTS_BYTES + (layout.ENTRY_BYTES + 1) * int(counts[rows].sum())
    room = 4 * plain_bytes // 3 + len(rows) * (layout.TEXT_PREFIX_BYTES + 1)
    target, ends = np.empty(room, np.uint8), np.empty(len(rows) + 1, np.int32)
    kernels = engine.select(KERNEL_MODULE, fallback, batch.nbytes)
    told = ids, id_valid, times, lost.time.view(np.uint8), origins, lost.origin.view(np.uint8)
    kernels.make(rows, *columns, *told, _allocate_scratch(columns), target, ends)
    binary: Any = pa.Array.from_buffers(pa.binary(), len(rows), [None, *map(pa.py_buffer, (ends.data, target.data))])
    kinds = np.where(fit[items.rows], layout.RAW, columns[3]).astype(np.int8)
    raw = Items(_with_kinds(items.array, kinds), items.rows, items.rows_count)
    changed: dict[str, Any] = {"headers": raw.with_raw(rows, NAME, binary).column()}
    if id_valid[rows].any():
        nothing: Any = pa.scalar(None, pa.null())
        changed["id"] = pc.if_else(pa.array(fit), nothing, batch.column("id"))
    return with_columns(batch, changed), fit


def without_typed_carriers(batch: pa.RecordBatch, items: Items, rows: NDArray[np.int64]) -> tuple[pa.RecordBatch, Any]:
    """Return the Batch with the carriers of ``with_typed_carriers`` undone; and which of ``rows`` are done.

    The last header of each of ``rows`` has the reserved name.
    """
    columns = _read_columns(items)
    found = columns[3].copy()
    ids, id_valid = ids_of(batch.column("id"))
    ids = ids.copy()
    times, origins = _times_us(batch, "timestamp").copy(), np.zeros(batch.num_rows, np.int64)
    changed, done = np.zeros(batch.num_rows, np.uint8), np.zeros(len(rows), np.uint8)
    kernels = engine.select(KERNEL_MODULE, fallback, batch.nbytes)
    kernels.undo(rows, *columns, _allocate_scratch(columns), found, ids, times, origins, changed, done)
    mended = rows[done == 1]
    if not len(mended):
        return batch, done == 1
    keep = np.ones(len(items.rows), np.bool_)
    keep[np.searchsorted(items.rows, mended, "right") - 1] = False
    kept = Items(_with_kinds(items.array, found), items.rows, items.rows_count).select(keep)
    fresh: dict[str, Any] = {"headers": kept.column()}
    if (changed & layout.TIME_FLAG).any():
        told: Any = pa.array(times).cast(_TIME_TYPE)
        fresh["timestamp"] = pc.if_else(pa.array(changed & layout.TIME_FLAG != 0), told, batch.column("timestamp"))
    if ORIGIN_TIMESTAMP in batch.schema.names and (changed & layout.ORIGIN_FLAG).any():
        sent: Any = pa.array(origins).cast(_TIME_TYPE)
        shown = batch.column(ORIGIN_TIMESTAMP)
        fresh[ORIGIN_TIMESTAMP] = pc.if_else(pa.array(changed & layout.ORIGIN_FLAG != 0), sent, shown)
    if (changed & layout.ID_FLAG).any():
        valid = (id_valid == 1) | (changed & layout.ID_FLAG != 0)
        bits = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
        fresh["id"] = pa.Array.from_buffers(_ID_TYPE, batch.num_rows, [bits, pa.py_buffer(ids.tobytes())])
    return with_columns(batch, fresh), done == 1


def _times_us(batch: pa.RecordBatch, name: str) -> NDArray[np.int64]:
    """Return a column of times, with 0 for null."""
    return numpy_of(batch.column(name).cast(pa.int64()).fill_null(0))


def _read_columns(items: Items) -> tuple[Any, ...]:
    """Return list ends, name ends, names, kinds, value ends, values and whether each value is present."""
    lists = np.zeros(items.rows_count + 1, np.int32)
    np.cumsum(np.bincount(items.rows, minlength=items.rows_count), out=lists[1:])
    names, kinds, values = (items.array.field(part) for part in range(3))
    valid = np.ascontiguousarray(numpy_of(values.is_valid().cast(pa.uint8())))
    return (lists, *_view_binary(names), np.ascontiguousarray(numpy_of(kinds)), *_view_binary(values), valid)


def _view_binary(array: Any) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    _, ends, data = array.buffers()
    if ends is None or not len(array):
        return np.zeros(len(array) + 1, np.int32), np.empty(0, np.uint8)
    octets = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return np.frombuffer(ends, np.int32, len(array) + 1, 4 * array.offset), octets


def _allocate_scratch(columns: tuple[Any, ...]) -> NDArray[np.uint8]:
    """Return memory for the input of the largest header's fingerprint."""
    sizes = np.diff(columns[1]).astype(np.int64) + np.diff(columns[4])
    return np.empty(int(sizes.max(initial=0)) + MARKED_BYTES, np.uint8)


def ids_of(column: Any) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return all ids one after another (undefined bytes for a null), and whether each is present."""
    if column.null_count == len(column):
        return np.zeros(layout.ID_BYTES * len(column), np.uint8), np.zeros(len(column), np.uint8)
    valid = np.ascontiguousarray(numpy_of(column.is_valid().cast(pa.uint8())))
    data = column.buffers()[1]
    start = layout.ID_BYTES * column.offset
    return np.frombuffer(data, np.uint8)[start : start + layout.ID_BYTES * len(column)], valid


def _with_kinds(array: Any, kinds: NDArray[np.int8]) -> Any:
    parts = [array.field("key"), pa.array(kinds), array.field("value")]
    return pa.StructArray.from_arrays(parts, fields=list(HEADER_TYPE))

"""Undoing carriers while header values are only located: directly on the records, without decoding twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...kernels import engine
from ...model.batch import ORIGIN_TIMESTAMP, SCHEMA
from ...model.run import Decoded, Located, Run
from ...model.scan_request import ScanRequest
from ..carrier import layout as carrier
from ..carrier.encoding import NAME
from ..carrier_decoding import decode_restored
from . import carrier_fallback
from .layout import SPARE_BYTES
from .messages import Noted, decode_columns, decode_noted

KERNEL_MODULE: Final = "lading.dialects.kafka.carrier_kernels"
_RESERVED: Final = np.frombuffer(NAME.encode() + bytes(SPARE_BYTES), np.uint8)
_ABSENT: Final = -1
_ID_TYPE: Any = SCHEMA.field("id").type
_TIME_TYPE: Any = SCHEMA.field("timestamp").type


def decode_located(run: Run, request: ScanRequest) -> Iterator[Decoded]:
    """Return the result of ``decode_restored``, for fields without ``headers``.

    Portions with another carrier than the plain one, of kinds, id and time, are passed to ``decode_restored``.
    """
    asked = tuple(dict.fromkeys(request.keys))
    if NAME in asked or ORIGIN_TIMESTAMP in request.fields:
        yield from decode_restored(decode_columns, run, request)
        return
    with_offset = request._replace(fields=request.fields | {"offset"}, keys=(*asked, NAME))
    for noted in decode_noted(run, with_offset):
        portion = noted.portion
        located = {key: portion.located[key] for key in asked}
        columns: dict[str, Any] = {name: column for name, column in portion.columns.items() if name in request.fields}
        if not (portion.located[NAME].length != _ABSENT).any():
            yield Decoded(portion.count, columns, located)
        elif (undone := _undo_carriers(noted, columns, located)) is not None:
            yield undone
        else:
            offsets: Any = portion.columns["offset"]
            span = request._replace(first=offsets[0].as_py(), end=offsets[-1].as_py() + 1)
            yield from decode_restored(decode_columns, run, span)


def _undo_carriers(noted: Noted, columns: dict[str, Any], located: dict[str, Located]) -> Decoded | None:
    count = noted.portion.count
    found = noted.portion.located[NAME]
    starts = np.array([each.start for each in located.values()], np.int64).reshape(len(located), count)
    kinds = np.array([each.kind for each in located.values()], np.int8).reshape(len(located), count)
    times = _writable_times(columns.get("timestamp"), count)
    ids = np.zeros(carrier.ID_BYTES * count, np.uint8)
    changed = np.zeros(count, np.uint8)
    kernels = engine.select(KERNEL_MODULE, carrier_fallback, int(found.length.sum()) * 8)
    if (
        kernels.undo(found.data, noted.rows, found.start, found.length, starts, _RESERVED, kinds, times, ids, changed)
        != -1
    ):
        return None
    if "timestamp" in columns and (changed & carrier.TIME_FLAG).any():
        columns["timestamp"] = pa.array(times).cast(_TIME_TYPE)
    if "id" in columns and (changed & carrier.ID_FLAG).any():
        bits = np.packbits(changed & carrier.ID_FLAG != 0, bitorder="little").tobytes()
        columns["id"] = pa.Array.from_buffers(_ID_TYPE, count, [pa.py_buffer(bits), pa.py_buffer(ids.tobytes())])
    return Decoded(
        count,
        columns,
        {
            key: Located(each.data, each.start, each.length, kinds[index])
            for index, (key, each) in enumerate(located.items())
        },
    )


def _writable_times(column: Any, count: int) -> Any:
    """Return times in a writable array; if the column was not requested, undefined zeros."""
    if column is None:
        return np.zeros(count, np.int64)
    return column.cast(pa.int64()).to_numpy(zero_copy_only=False).copy()

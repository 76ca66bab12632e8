"""Undoing carriers while decoding, for dialects whose messages may hold one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading.kernels.entries import locate
from lading.model.batch import FIELDS, ORIGIN_TIMESTAMP, schema_of_fields
from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from .carrier.encoding import NAME as CARRIER
from .carrier.restore import restore

DecodeColumns = Callable[[Run, ScanRequest], Iterator[Decoded]]
"""Decodes messages as they are stored, with their carriers."""

_ABSENT: Final = -1
_ALL_BYTES: Final = (1 << 31) - 64


def decode_restored(decode_columns: DecodeColumns, run: Run, request: ScanRequest) -> Iterator[Decoded]:
    """Yield what ``decode_columns`` yields, with every carrier undone if the request says so.

    For portions without a carrier, only the keys of their headers are looked at.
    """
    if not request.carrier:
        yield from decode_columns(run, request)
        return
    asked = dict.fromkeys(request.keys)
    # with the headers at hand a look at their keys is cheaper than locating one more in every message
    sought = {**asked, **({} if "headers" in request.fields else {CARRIER: None})}
    with_offset = request._replace(fields=request.fields | {"offset"}, keys=tuple(sought))
    for portion in decode_columns(run, with_offset):
        if _has_carrier(portion):
            yield from _restore_portion(decode_columns, run, portion, request)
        else:
            columns = {name: column for name, column in portion.columns.items() if name in request.fields}
            yield Decoded(portion.count, columns, {key: portion.located[key] for key in asked})


def _has_carrier(portion: Decoded) -> bool:
    if CARRIER in portion.located:
        return bool((portion.located[CARRIER].length != _ABSENT).any())
    headers: Any = portion.columns["headers"]
    keys = headers.values.field(0)
    ends = np.frombuffer(keys.buffers()[1], np.int32, len(keys) + 1)
    if not (ends[1:] - ends[:-1] == len(CARRIER)).any():
        return False
    return bool(pc.any(pc.equal(keys, pa.scalar(CARRIER)), min_count=0).as_py())


def _restore_portion(
    decode_columns: DecodeColumns, run: Run, portion: Decoded, request: ScanRequest
) -> Iterator[Decoded]:
    """Yield a portion with its carriers undone; if not all fields were decoded, it is decoded again with all."""
    wholes: Iterable[Decoded] = (portion,)
    needed = request.fields.intersection((ORIGIN_TIMESTAMP,)).union(FIELDS)
    if not portion.columns.keys() >= needed:
        offsets: Any = portion.columns["offset"]
        span = offsets[0].as_py(), offsets[-1].as_py() + 1
        wholes = decode_columns(run, ScanRequest(*span, needed, max_rows=portion.count, max_bytes=_ALL_BYTES))
    for whole in wholes:
        schema = schema_of_fields(whole.columns)
        columns = [whole.columns[name] for name in schema.names]
        batch = restore(pa.RecordBatch.from_arrays(columns, schema=schema))
        wanted = {name: batch.column(name) for name in batch.schema.names if name in request.fields}
        located = locate(batch.column("headers"), request.keys) if request.keys else {}
        yield Decoded(batch.num_rows, wanted, located)

"""Ids that say that a message has none: 16 zero bytes, and those that were derived for Iggy's readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from ...carrier.targets import zero_ids
from ...carrier_decoding import DecodeColumns
from .derived_ids import find_derived


def null_missing_ids(decode_columns: DecodeColumns, run: Run, request: ScanRequest) -> Iterator[Decoded]:
    """Yield the messages of ``decode_columns``, with null for an id of 16 zero bytes or a derived one.

    An id that really is zero bytes has a carrier, which puts it back.
    """
    if "id" not in request.fields:
        yield from decode_columns(run, request)
        return
    for portion in decode_columns(run, request._replace(fields=request.fields | {"offset"})):
        columns = portion.columns
        ids: Any = columns["id"]
        offsets: Any = columns["offset"]
        none = zero_ids(ids) | find_derived(ids, offsets.to_numpy())
        if none.any():
            nothing: Any = pa.scalar(None, ids.type)
            columns = {**columns, "id": pc.if_else(pa.array(none), nothing, ids)}
        if "offset" not in request.fields:
            columns = {name: column for name, column in columns.items() if name != "offset"}
        yield Decoded(portion.count, columns, portion.located)

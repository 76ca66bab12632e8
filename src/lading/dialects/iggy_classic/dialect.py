"""Iggy classic as the registry knows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from ..carrier.targets import zero_ids
from ..carrier_decoding import decode_restored
from ..iggy_messages.derived_ids import find_derived
from . import messages


class IggyClassic:
    """Dialect code 2: bodies are stored messages one after another, byte for byte as they are polled."""

    name = "iggy_classic"
    code = messages.CODE

    def decode(self, run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
        """See registry.Dialect.decode."""
        return decode_restored(_decode_columns, run, request)

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """See registry.Dialect.encode."""
        return messages.encode_stored(batch)

    def salvage(self, run: Run) -> Run:
        """See registry.Dialect.salvage."""
        return messages.salvage(run)


def _decode_columns(run: Run, request: ScanRequest) -> Iterator[Decoded]:
    """Messages as they lie, with null for an id of 16 zero bytes or a derived one: so Iggy shows a message without.

    An id that really is zero bytes has a carrier, which puts it back.
    """
    if "id" not in request.fields:
        yield from messages.decode_columns(run, request)
        return
    for portion in messages.decode_columns(run, request._replace(fields=request.fields | {"offset"})):
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


DIALECT = IggyClassic()

"""The toy as the registry knows it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lading.dialects.carrier_decoding import decode_restored
from lading.kernels.entries import locate
from lading.model.chunk_table import BODY_END, BODY_START
from lading.model.errors import MalformedMessage
from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from . import messages
from .protocol import CODE


class Toy:
    """Bodies are stored messages one behind the other."""

    name = "toy"
    code = CODE

    def decode(self, run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
        """See registry.Dialect.decode."""
        return decode_restored(_decode_columns, run, request) if request.carrier else _decode_columns(run, request)

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """See registry.Dialect.encode."""
        return messages.encode_stored(batch)

    def salvage(self, run: Run) -> Run:
        """Nothing: the toy looks for no messages in damaged chunks."""
        return Run(run.dialect, run.region, run.chunks[:0])


DIALECT = Toy()


def _decode_columns(run: Run, request: ScanRequest) -> Iterator[Decoded]:
    for chunk in run.chunks.tolist():
        body = run.region.data[chunk[BODY_START] : chunk[BODY_END]]
        if len(body) != chunk[BODY_END] - chunk[BODY_START]:
            raise MalformedMessage("the chunk's body is outside its region", at=chunk[BODY_START])
        batch = messages.to_batch(
            [message for message in messages.iter_stored(body) if request.first <= message.offset < request.end]
        )
        for low in range(0, batch.num_rows, request.max_rows):
            part = batch.slice(low, request.max_rows)
            columns = {name: part.column(name) for name in part.schema.names if name in request.fields}
            located = locate(part.column("headers"), request.keys) if request.keys else {}
            yield Decoded(part.num_rows, columns, located)

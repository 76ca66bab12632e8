"""Kafka as the registry knows it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from ..carrier_decoding import decode_restored
from ..compaction import KeptPart, Ranges
from ..sequenced import SequencedBatch
from . import batch_compaction, messages, sequenced_batches
from .carrier_decoding import decode_located


class Kafka:
    """Dialect code 4: bodies are record batches of format 2, with the offsets that a broker gave them."""

    name = "kafka"
    code = messages.CODE
    has_offsets_in_body = True

    def decode(self, run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
        """See registry.Dialect.decode. Control records are left out; the reader leaves out aborted batches."""
        if request.carrier and "headers" not in request.fields:
            return decode_located(run, request)
        return decode_restored(messages.decode_columns, run, request)

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """See registry.Dialect.encode; timestamps are cut to milliseconds."""
        return b"".join(messages.encode_batches(batch))

    def salvage(self, run: Run) -> Run:
        """See registry.Dialect.salvage; whole batches are salvaged."""
        return messages.salvage(run)

    def keep(self, run: Run, ranges: Ranges) -> Iterator[KeptPart]:
        """See compaction.CompactableDialect.keep; a batch keeps its head and its offsets, as in Apache Kafka."""
        return batch_compaction.keep(run, ranges)

    def iter_batches(self, run: Run, first: int) -> Iterator[SequencedBatch]:
        """See sequenced.SequencedDialect.iter_batches; a writer is a producer id."""
        return sequenced_batches.iter_batches(run, first)

    def marker(
        self, writer: bytes, epoch: int, committed: bool, base_offset: int, log_epoch: int, now_us: int
    ) -> bytes:
        """See sequenced.TransactionMarkerDialect.marker: a control batch."""
        return sequenced_batches.marker(writer, epoch, committed, base_offset, log_epoch, now_us)


DIALECT = Kafka()

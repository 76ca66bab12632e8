"""The current Iggy as the registry knows it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from ...carrier_decoding import decode_restored
from ...codes import IGGY_CURRENT
from ...compaction import KeptPart, Ranges, keep_each
from ...sequenced import SequencedBatch
from ..messages.missing_ids import null_missing_ids
from . import messages, producers
from .encode import encode_stored


class IggyCurrent:
    """Dialect code 3: bodies are batches one after another, byte for byte as they are polled."""

    name = "iggy_current"
    code = IGGY_CURRENT
    has_offsets_in_body = False

    def decode(self, run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
        """See registry.Dialect.decode."""
        return decode_restored(_decode_columns, run, request)

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """See registry.Dialect.encode."""
        return encode_stored(batch)

    def salvage(self, run: Run) -> Run:
        """See registry.Dialect.salvage."""
        return messages.salvage(run)

    def keep(self, run: Run, ranges: Ranges) -> Iterator[KeptPart]:
        """See compaction.CompactableDialect.keep; what is left of a numbered batch is not numbered."""
        return keep_each(run, ranges, 0, _cut)

    def iter_batches(self, run: Run, first: int) -> Iterator[SequencedBatch]:
        """See sequenced.SequencedDialect.iter_batches; a writer is a producer's id, a message takes one number."""
        return producers.iter_batches(run, first)


def _cut(run: Run, first: int, end: int) -> list[bytes | memoryview]:
    return messages.slice_batches(run, first, end).parts


def _decode_columns(run: Run, request: ScanRequest) -> Iterator[Decoded]:
    return null_missing_ids(messages.decode_columns, run, request)


DIALECT = IggyCurrent()

"""Iggy classic as the registry knows it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from ...carrier_decoding import decode_restored
from ...compaction import KeptPart, Ranges, keep_each
from ..messages.missing_ids import null_missing_ids
from . import messages


class IggyClassic:
    """Dialect code 2: bodies are stored messages one after another, byte for byte as they are polled."""

    name = "iggy_classic"
    code = messages.CODE
    has_offsets_in_body = False

    def decode(self, run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
        """See registry.Dialect.decode."""
        return decode_restored(_decode_columns, run, request)

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """See registry.Dialect.encode."""
        return messages.encode_stored(batch)

    def salvage(self, run: Run) -> Run:
        """See registry.Dialect.salvage."""
        return messages.salvage(run)

    def keep(self, run: Run, ranges: Ranges) -> Iterator[KeptPart]:
        """See compaction.CompactableDialect.keep."""
        return keep_each(run, ranges, 0, _cut)


def _cut(run: Run, first: int, end: int) -> list[memoryview]:
    return messages.slices(run, first, end, end - first, int(run.region.size)).parts


def _decode_columns(run: Run, request: ScanRequest) -> Iterator[Decoded]:
    return null_missing_ids(messages.decode_columns, run, request)


DIALECT = IggyClassic()

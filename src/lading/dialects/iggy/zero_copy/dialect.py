"""Iggy's zero-copy messages as the registry knows them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from ... import codes
from ...carrier_decoding import decode_restored
from ...compaction import KeptPart, Ranges, keep_each
from ..messages.missing_ids import null_missing_ids
from . import encode, messages


class IggyZeroCopy:
    """Dialect code 6: bodies are stored messages one after another, byte for byte as crates 0.9 and 0.10 poll them."""

    name = "iggy_zero_copy"
    code = codes.IGGY_ZERO_COPY
    has_offsets_in_body = False

    def decode(self, run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
        """See registry.Dialect.decode."""
        return decode_restored(_decode_columns, run, request)

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """See registry.Dialect.encode."""
        return encode.encode_stored(batch)

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


DIALECT = IggyZeroCopy()

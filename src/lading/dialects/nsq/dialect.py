"""NSQ as the registry knows it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from ..carrier_decoding import decode_restored
from ..compaction import KeptPart, Ranges, keep_each
from . import delivery, encode, messages, publishing


class Nsq:
    """Dialect code 5: bodies are messages as they are delivered, with a checksum each (layout.py)."""

    name = "nsq"
    code = messages.CODE
    has_offsets_in_body = False

    def decode(self, run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
        """See registry.Dialect.decode; a carrier that is not undone appears as a raw header."""
        return decode_restored(messages.decode_columns, run, request)

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """See registry.Dialect.encode; timestamps and 16-byte ids are kept; offsets must be consecutive."""
        return encode.encode_stored(batch)

    def rebase(self, body: NDArray[np.uint8], partition: int, base_offset: int) -> None:
        """Correct the ids of messages that are appended again elsewhere, in place.

        An id holds the partition and offset of its message.
        """
        publishing.rebase(body, partition, base_offset)

    def with_block(self, run: Run, first: int, end: int) -> NDArray[np.bool_]:
        """See registry.HeaderBlockDialect; the ext may be an empty object."""
        return delivery.with_ext(delivery.survey(run, first, end, end - first))

    def salvage(self, run: Run) -> Run:
        """See registry.Dialect.salvage."""
        return messages.salvage(run)

    def keep(self, run: Run, ranges: Ranges) -> Iterator[KeptPart]:
        """See compaction.CompactableDialect.keep."""
        return keep_each(run, ranges, 0, _cut)


def _cut(run: Run, first: int, end: int) -> list[memoryview]:
    """Return the stored messages with first <= offset < end, whose offsets are consecutive."""
    found = delivery.survey(run, first, end, end - first)
    if not len(found.starts):
        return []
    start, stop = int(found.starts[0]), int(found.starts[-1] + found.sizes[-1])
    return [run.region.data[start:stop]]


DIALECT = Nsq()

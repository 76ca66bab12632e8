"""Native blocks on their way out: cut to size, numbered in each partition, repeated without duplicates."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ...model.errors import LimitExceeded, Reason, Refusal
from ...model.limits import REQUEST_BYTES_MAX
from ..interface import SendResult

if TYPE_CHECKING:
    import pyarrow as pa

WRITER_ID_BYTES = 16
BLOCK_BYTES = 1 << 20
"""A block stays below this unless one message is larger: about the size of the chunk it becomes."""

BODY_BYTES = 8 << 20
BODY_BLOCKS = 32
"""One request carries several blocks, so that they share a sync: about this many bytes, and fewer blocks than the
broker remembers of a writer."""

Post = Callable[[str, int, bytes], SendResult]
"""Carries the bytes of blocks to (topic, partition)."""
Compression = Literal["lz4"] | None


@dataclass(slots=True)
class _Request:
    """The slices of one request, and after encoding the number and size of its blocks.

    ``unsure``: the body may or may not have arrived.
    """

    slices: list[pa.RecordBatch]
    sequence: int = 0
    body: bytes | None = None
    unsure: bool = False
    result: SendResult | None = None


@dataclass(slots=True)
class _Sending:
    """A batch on its way, by requests in order."""

    batch: pa.RecordBatch
    requests: list[_Request]

    def sum_results(self) -> SendResult:
        """Return one result for the results of all requests."""
        results = [request.result for request in self.requests if request.result is not None]
        if len(results) == 1:
            return results[0]
        return SendResult(
            sum(result.count for result in results),
            results[0].base_offset if results else None,
            any(result.duplicate for result in results),
        )


class BlockWriter:
    """One writer of native blocks, idempotent: its id, epoch and a sequence per partition name every block.

    A block whose outcome is unknown (connection lost, no retries left) is kept: sending the same batch object again
    repeats the same bytes under the same number, so that the broker recognises it. If another batch is sent instead,
    the writer gets a new id, because the old number may be taken. It also gets one if the broker forgot the writer, as
    it may after long silence; if the caller chose the id, that raises Refusal OUT_OF_SEQUENCE.

    Any instruction may raise KeyboardInterrupt: a number is stored with its bytes until the response is, and a caller
    that was interrupted after its batch was acknowledged learns that from ``find_acknowledged``.
    """

    def __init__(self, post: Post, writer_id: bytes | None = None, epoch: int = 0, transaction_id: int = 0) -> None:
        self._post = post
        self.writer_id = writer_id or secrets.token_bytes(WRITER_ID_BYTES)
        self._named = writer_id is not None
        self.epoch = epoch
        self.transaction_id = transaction_id
        self._sequences: dict[tuple[str, int], int] = {}
        self._unsettled: dict[tuple[str, int], _Sending] = {}
        self._acknowledged: dict[tuple[str, int], tuple[weakref.ref[pa.RecordBatch], SendResult]] = {}

    def send(self, topic: str, partition: int, batch: pa.RecordBatch, compression: Compression = None) -> SendResult:
        """Append the batch as one or more blocks, in order; LimitExceeded for a message larger than a request."""
        place = (topic, partition)
        sending = self._unsettled.get(place)
        if sending is None or sending.batch is not batch:
            if sending is not None:
                self._begin_anew()
            sending = self._unsettled[place] = _Sending(batch, [_Request(slices) for slices in _split_requests(batch)])
        for request in sending.requests:
            while request.result is None:
                self._send_request(place, request, compression)
        result = sending.sum_results()
        self._acknowledged[place] = (weakref.ref(batch), result)
        del self._unsettled[place]
        return result

    def find_acknowledged(self, topic: str, partition: int, batch: pa.RecordBatch) -> SendResult | None:
        """Return the result of the last batch that the partition took, if it was this object."""
        known, result = self._acknowledged.get((topic, partition), (None, None))
        return result if known is not None and known() is batch else None

    def _send_request(self, place: tuple[str, int], request: _Request, compression: Compression) -> None:
        """Send a request; it has no result yet if the broker forgot this writer, which then has a new id."""
        if request.body is None:
            request.sequence = self._sequences.get(place, 0)
            request.body = self._encode_body(request.slices, request.sequence, compression)
        was_unsure, request.unsure = request.unsure, True
        try:
            result = self._post(*place, request.body)
        except Refusal as error:
            request.unsure = was_unsure
            is_forgotten = error.reason is Reason.OUT_OF_SEQUENCE and request.sequence > 0
            if not is_forgotten or was_unsure or self._named:
                raise
            self._begin_anew()
            request.body = None
            return
        self._sequences[place] = request.sequence + len(request.slices)
        request.result = result
        request.body = None

    def _begin_anew(self) -> None:
        self.writer_id, self._sequences = secrets.token_bytes(WRITER_ID_BYTES), {}

    def _encode_body(self, slices: list[pa.RecordBatch], sequence: int, compression: Compression) -> bytes:
        return b"".join(self._block(each, sequence + at, compression) for at, each in enumerate(slices))

    def _block(self, batch: pa.RecordBatch, sequence: int, compression: Compression) -> bytes:
        from ...dialects.native.messages import BlockHeader, encode_block

        block = encode_block(batch, BlockHeader(self.writer_id, self.epoch, sequence, self.transaction_id), compression)
        if len(block) > REQUEST_BYTES_MAX:
            raise LimitExceeded(f"one message makes a block of {len(block)} bytes; the limit is {REQUEST_BYTES_MAX}")
        return block


def _split_requests(batch: pa.RecordBatch) -> Iterator[list[pa.RecordBatch]]:
    """Return the slices that become the blocks of each request."""
    slices: list[pa.RecordBatch] = []
    size_bytes = 0
    for each in split_batch(batch, BLOCK_BYTES):
        if slices and (len(slices) == BODY_BLOCKS or size_bytes + each.nbytes > BODY_BYTES):
            yield slices
            slices, size_bytes = [], 0
        slices.append(each)
        size_bytes += each.nbytes
    if slices:
        yield slices


def split_batch(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Return slices of the batch, in order, each below ``bytes_max`` unless a single row is larger; nothing without
    rows.
    """
    if batch.num_rows > 1 and batch.nbytes > bytes_max:
        middle = batch.num_rows // 2
        yield from split_batch(batch.slice(0, middle), bytes_max)
        yield from split_batch(batch.slice(middle), bytes_max)
    elif batch.num_rows:
        yield batch

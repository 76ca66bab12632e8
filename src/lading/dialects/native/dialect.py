"""Native as the registry knows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from lading.kernels.entries import locate
from lading.model.batch import FIELDS, ORIGIN_TIMESTAMP, SCHEMA, SCHEMA_WITH_ORIGIN
from lading.model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, FLAGS, LAST_OFFSET
from lading.model.errors import MalformedMessage
from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from ..compaction import KeptPart, Ranges, keep_each
from ..sequenced import SequencedBatch
from . import messages
from .limits import TIMESTAMP_MAX
from .messages import SCHEMA_IN_BLOCKS


class Native:
    """Dialect code 1: bodies are blocks, each with one Arrow record batch of the Batch schema."""

    name = "native"
    code = messages.CODE
    has_offsets_in_body = False

    def decode(self, run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
        """See registry.Dialect.decode. Small blocks are joined, large ones cut; columns not asked for are not read."""
        wanted = [name for name in SCHEMA_WITH_ORIGIN.names if name in request.fields]
        waiting: list[pa.RecordBatch] = []
        rows = size_bytes = 0
        for batch in _decode_portions(run, request):
            if waiting and (rows + batch.num_rows > request.max_rows or size_bytes + batch.nbytes > request.max_bytes):
                yield _decode_batches(waiting, wanted, request.keys)
                waiting, rows, size_bytes = [], 0, 0
            waiting.append(batch)
            rows += batch.num_rows
            size_bytes += batch.nbytes
        if waiting:
            yield _decode_batches(waiting, wanted, request.keys)

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """See registry.Dialect.encode; offsets are not in the body, the chunk gives them."""
        return messages.encode_block(batch)

    def salvage(self, run: Run) -> Run:
        """Return a Run without chunks: a block has no checksum of its own beside its chunk's."""
        return Run(run.dialect, run.region, run.chunks[:0])

    def keep(self, run: Run, ranges: Ranges) -> Iterator[KeptPart]:
        """See compaction.CompactableDialect.keep; what is left of a block has a block of its own, without a writer."""
        return keep_each(run, ranges, int(run.chunks[0, FLAGS]), _cut)

    def iter_batches(self, run: Run, first: int) -> Iterator[SequencedBatch]:
        """See sequenced.SequencedDialect.iter_batches; a writer is 16 bytes, a block takes one number."""
        for chunk in run.chunks.tolist():
            offset = chunk[BASE_OFFSET]
            body = memoryview(run.region.data[chunk[BODY_START] : chunk[BODY_END]])
            for block in messages.blocks(body):
                header = block.header
                writer = b"" if header.writer_id == messages.NO_WRITER else header.writer_id
                facts = (writer, header.writer_epoch, header.sequence, 1, offset, offset + block.rows)
                if offset + block.rows > first:
                    digest = messages.digest_content(body, block)
                    yield SequencedBatch(*facts, transaction=header.transaction_id, digest=digest)
                offset += block.rows


def _cut(run: Run, first: int, end: int) -> list[bytes]:
    """Return the rows with first <= offset < end, as blocks: one for each block from which some rows are.

    A block that is cut has no writer: what the writers of a partition did is kept in ``writers.snapshot``.
    """
    chunk = run.chunks[0].tolist()
    body, offset = memoryview(run.region.data[chunk[BODY_START] : chunk[BODY_END]]), chunk[BASE_OFFSET]
    parts: list[bytes] = []
    for block in messages.blocks(body):
        low, high = max(first - offset, 0), min(end - offset, block.rows)
        if (low, high) == (0, block.rows):
            parts.append(bytes(body[block.start : block.end]))
        elif low < high:
            rows = messages.rows_of(body, block).slice(low, high - low)
            parts.append(messages.encode_block(rows, messages.BlockHeader(append_time_us=block.header.append_time_us)))
        offset += block.rows
    return parts


DIALECT = Native()
_concat_batches: Any = pa.concat_batches  # type: ignore[attr-defined]


def _decode_portions(run: Run, request: ScanRequest) -> Iterator[pa.RecordBatch]:
    """Return the rows asked for, block by block, none larger than the caps allow, with their offsets."""
    first, end = request.first, request.end
    read = request.fields | {"headers"} if request.keys else request.fields
    included = [index for index, name in enumerate(SCHEMA_IN_BLOCKS.names) if name in read] or [0]
    for chunk in run.chunks.tolist():
        if chunk[LAST_OFFSET] < first or chunk[BASE_OFFSET] >= end:
            continue
        start, stop = chunk[BODY_START], chunk[BODY_END]
        if not 0 <= start <= stop <= run.region.size:
            raise MalformedMessage("the chunk's body is outside its region", at=start)
        body = run.region.data[start:stop]
        offset = chunk[BASE_OFFSET]
        for block in messages.blocks(body):
            if offset + block.rows - 1 > chunk[LAST_OFFSET]:
                raise MalformedMessage("the blocks hold more messages than their chunk has offsets", at=start)
            low, high = max(first - offset, 0), min(end - offset, block.rows)
            if low < high:
                batch = _with_offsets(messages.rows_of(body, block, included), offset, block.header.append_time_us)
                step = max(1, min(request.max_rows, request.max_bytes * block.rows // max(1, batch.nbytes)))
                for at in range(low, high, step):
                    yield batch.slice(at, min(step, high - at))
            offset += block.rows


def _with_offsets(batch: pa.RecordBatch, base_offset: int, append_time_us: int) -> pa.RecordBatch:
    columns: dict[str, pa.Array[Any]] = {name: batch.column(name) for name in batch.schema.names}
    if "timestamp" in columns and columns["timestamp"].null_count:
        time: Any = pa.scalar(min(append_time_us, TIMESTAMP_MAX), pa.int64()).cast(SCHEMA.field("timestamp").type)
        columns["timestamp"] = columns["timestamp"].fill_null(time)
    columns["offset"] = pa.array(np.arange(base_offset, base_offset + batch.num_rows, dtype=np.int64))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=_schema_of(tuple(columns)))


@cache
def _schema_of(names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in names])


def _decode_batches(batches: list[pa.RecordBatch], wanted: list[str], keys: Sequence[str]) -> Decoded:
    batch = batches[0] if len(batches) == 1 else _concat_batches(batches)
    located = locate(batch.column("headers"), keys) if keys else {}
    columns = {name: batch.column(name) for name in wanted if name in FIELDS}
    if ORIGIN_TIMESTAMP in wanted:
        columns[ORIGIN_TIMESTAMP] = pa.nulls(batch.num_rows, SCHEMA_WITH_ORIGIN.field(ORIGIN_TIMESTAMP).type)
    return Decoded(batch.num_rows, columns, located)

"""Copies of messages for a dead letter topic: complete, in order, with headers that give the reason and the origin."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from ...columns.rewrite import with_headers
from ...dialects import registry
from ...dialects.native.messages import BlockHeader, encode_block
from ...log.dead_letter_intents import DeadLetterIntentRow
from ...model.batch import SCHEMA
from ...model.errors import LimitExceeded, MalformedMessage
from ...model.kinds import Kind
from ...model.reason_headers import DETAIL, MARKED_AT, ORIGIN, REASON, REASON_HEADERS
from ...model.scan_request import ScanRequest
from ...model.state import State
from .read import RunSlice
from .topology import Partition


@dataclass(slots=True, eq=False)
class DeadLetterBatch:
    """One block of copies. ``pieces`` hold all messages of the marking ``row`` before the offset ``covered``."""

    row: DeadLetterIntentRow
    source: Partition
    target: Partition
    pieces: list[RunSlice]
    covered: int
    writer_id: bytes
    block: bytes | None = None
    """The native block; None before ``encode``, and if there is nothing to copy."""
    offsets: list[int] = field(default_factory=list)
    """Offsets of the block's messages in the source."""
    skipped: list[str] = field(default_factory=list)
    """Sentences about messages that cannot be copied."""

    def encode(self) -> None:
        """Make the block; in any thread, once. A message that no block can hold is left out and named."""
        batches: list[pa.RecordBatch] = []
        for run, first, end in self.pieces:
            try:
                batches += [registry.to_batch(part) for part in registry.decode(run, ScanRequest(first, end))]
            except MalformedMessage as error:
                self.skipped.append(f"{self.source}: offsets {first} to {end - 1} cannot be copied: {error}")
        if not batches:
            return
        messages = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        rows = messages.num_rows
        while rows and self.block is None:
            self._encode(messages, rows)
            rows //= 2
        if self.block is None:
            offset = messages.column("offset")[0].as_py()
            self.skipped.append(f"{self.source}: offset {offset} is too large to be copied to {self.target}")
            self.covered = offset + 1

    def _encode(self, messages: pa.RecordBatch, rows: int) -> None:
        batch = self._with_reason(messages.slice(0, rows))
        header = BlockHeader(self.writer_id)
        try:
            self.block = encode_block(batch, header)
        except LimitExceeded:
            return
        self.offsets = batch.column("offset").to_numpy().tolist()
        if rows < messages.num_rows:
            self.covered = self.offsets[-1] + 1

    def _with_reason(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        rows = messages.num_rows
        moment = datetime.fromtimestamp(self.row.marked_us / 1e6, UTC).isoformat(timespec="milliseconds")
        place = f"{self.source}/"
        added: dict[str, Any] = {
            REASON: pa.repeat(pa.scalar(State.POISONED.word), rows),
            DETAIL: pa.repeat(pa.scalar(self.row.reason, pa.string()), rows),
            ORIGIN: pa.array([f"{place}{offset}" for offset in messages.column("offset").to_pylist()]),
            MARKED_AT: pa.repeat(pa.scalar(moment.replace("+00:00", "Z")), rows),
        }
        headers = with_headers(
            messages.column("headers"), added, dict.fromkeys(added, Kind.STRING), drop=REASON_HEADERS
        )
        columns = dict(zip(messages.schema.names, messages.columns, strict=True))
        columns |= {"headers": headers, "state": pa.repeat(pa.scalar(int(State.AVAILABLE), pa.int8()), rows)}
        return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)

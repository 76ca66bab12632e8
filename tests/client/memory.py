"""A transport whose server is a list of chunks in memory, so that tests can let it fail and lie."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from lading.chunk import envelope
from lading.chunk.runs import runs
from lading.dialects.native.messages import BlockHeader, encode_block
from lading.model.errors import LocalError, Reason, Refusal
from lading.model.protocol import Capabilities
from lading.transports.fetched import FetchResult
from lading.transports.interface import Membership, PartitionMeta, Position, SendResult, TopicMeta

NOW_US = 1_700_000_000_000_000
NATIVE = 1


@dataclass
class Partition:
    """Sealed chunks with their first offset and the offset behind them."""

    chunks: list[tuple[int, int, bytes]] = field(default_factory=list)
    first: int = 0
    hidden: list[tuple[int, int, int]] = field(default_factory=list)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    epochs: tuple[tuple[int, int], ...] = ((1, 0),)
    topic_id: bytes = b"i" * 16

    @property
    def last_epoch(self) -> tuple[int, tuple[tuple[int, int], ...]]:
        return self.epochs[-1][0], self.epochs

    @property
    def end(self) -> int:
        return self.chunks[-1][1] if self.chunks else self.first


class MemoryTransport:
    """``failures`` are raised, one a call of ``send``, until none is left; ``answers`` replace fetched batches."""

    url = "memory"
    idempotent = True

    def __init__(self, **topics: int) -> None:
        self.held = {name: [Partition() for _ in range(count)] for name, count in topics.items()}
        self.failures: deque[Exception | None] = deque()
        self.lies: deque[pa.RecordBatch] = deque()
        self.capabilities = Capabilities()
        self.groups: dict[str, MemoryMembership] = {}
        self.sends = self.fetches = 0
        self.closed = False

    def topics(self, wanted: Callable[[str], bool] | None = None) -> list[TopicMeta]:
        return [self.topic(name) for name in self.held if wanted is None or wanted(name)]

    def topic(self, name: str) -> TopicMeta:
        from lading.transports.topics import unknown_topic_error

        if name not in self.held:
            raise unknown_topic_error(name, self.held, self.url)
        parts = [
            PartitionMeta(number, part.first, part.end, part.epochs[-1][0], part.epochs)
            for number, part in enumerate(self.held[name])
        ]
        return TopicMeta("default", name, name, b"i" * 16, tuple(parts))

    def create_topic(self, name: str, partitions: int = 1) -> TopicMeta:
        if name in self.held:
            raise Refusal(Reason.TOPIC_NAME_EXISTS, f"there is a topic {name!r}")
        self.held[name] = [Partition() for _ in range(partitions)]
        return self.topic(name)

    def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int = 1 << 20, max_messages: int | None = None,
        wait_ms: int = 0,
    ) -> FetchResult:  # fmt: skip
        self.fetches += 1
        part = self.held[topic][partition]
        found = next((chunk for chunk in part.chunks if chunk[1] > offset), None)
        if found is None:
            return FetchResult(topic, partition, [], offset, part.first, part.end, part.topic_id, *part.last_epoch)
        data = found[2]
        if self.lies:
            lie = self.lies.popleft()
            data = sealed(lie, found[0])
        region = np.frombuffer(data, np.uint8)
        known = (part.topic_id, *part.last_epoch, part.hidden, part.aborted)
        return FetchResult(topic, partition, runs(region), found[1], part.first, part.end, *known)

    def offset_at(self, topic: str, partition: int, timestamp_us: int) -> int:
        return 0 if timestamp_us <= NOW_US else self.held[topic][partition].end

    def send(
        self, topic: str, partition: int | None, batch: pa.RecordBatch, *, strict: bool = False,
        compression: Literal["lz4"] | None = None,
    ) -> SendResult:  # fmt: skip
        self.sends += 1
        if self.failures and (failure := self.failures.popleft()) is not None:
            raise failure
        assert partition is not None
        part = self.held[topic][partition]
        base = part.end
        part.chunks.append((base, base + batch.num_rows, sealed(batch, base)))
        return SendResult(batch.num_rows, base)

    def join(self, group: str, topics: Sequence[str]) -> Membership:
        membership = self.groups.setdefault(group, MemoryMembership())
        membership.partitions = [(name, number) for name in topics for number in range(len(self.held[name]))]
        return membership

    def close(self) -> None:
        self.closed = True


class MemoryMembership:
    """A group with one member."""

    generation = 1
    is_rebalancing = False

    def __init__(self) -> None:
        self.partitions: list[tuple[str, int]] = []
        self.positions: dict[tuple[str, int], Position] = {}
        self.changed = False

    def heartbeat(self) -> bool:
        changed, self.changed = self.changed, False
        return changed

    def position(self, topic: str, partition: int) -> Position | None:
        return self.positions.get((topic, partition))

    def store(self, topic: str, partition: int, position: Position) -> None:
        if self.changed or (topic, partition) not in self.partitions:
            raise Refusal(Reason.STALE_GENERATION)
        self.positions[topic, partition] = position

    def leave(self) -> None:
        self.partitions = []


def sealed(batch: pa.RecordBatch, base: int) -> bytes:
    """The batch as one native chunk."""
    if batch.num_rows == 0:
        raise LocalError("nothing to seal")
    body = encode_block(batch, BlockHeader(append_time_us=NOW_US))
    array: Any = np.zeros(envelope.ENVELOPE_BYTES + len(body), np.uint8)
    array[envelope.ENVELOPE_BYTES :] = np.frombuffer(body, np.uint8)
    envelope.seal(
        array, 0, array.size, dialect=NATIVE, flags=0, base_offset=base, count=batch.num_rows,
        last_offset_delta=batch.num_rows - 1, min_timestamp_us=NOW_US, max_timestamp_us=NOW_US,
    )  # fmt: skip
    return bytes(array)

"""Streams, topics and partitions: Iggy's three levels, used inside (design.md Names).

Ids are what the client chose, from 1; partitions are counted from 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ...log.interface import PartitionLog
from ...model.errors import Reason, Refusal
from ...model.names import flat_name
from ...runtime.turns import CallbackQueue
from .callbacks import ignore
from .chunk_range import ChunkRange
from .free_ids import FreeIds
from .pending_append import Append
from .position import PositionKey, StoredPosition
from .settings import TopicSettings
from .writers import Writers

ID_MAX: Final = 0xFFFF_FFFF


@dataclass(slots=True, eq=False)
class Stream:
    """A stream and its topics by id."""

    id: int
    name: str
    created_us: int
    topics: dict[int, Topic] = field(default_factory=dict)
    promised_ids: set[int] = field(default_factory=set)
    """Ids of topics that are being created."""
    free_topic_ids: FreeIds = field(init=False)
    wakeups: CallbackQueue = field(default_factory=CallbackQueue)
    """Calls waiting readers of its partitions back; one for all streams of a broker."""

    def __post_init__(self) -> None:
        self.free_topic_ids = FreeIds(self._has_taken)

    def _has_taken(self, topic_id: int) -> bool:
        return topic_id in self.topics or topic_id in self.promised_ids

    def release_topic_id(self, topic_id: int) -> None:
        """Let the id of a topic whose creation is over be given to another one, unless the topic has it now."""
        self.promised_ids.discard(topic_id)
        self.free_topic_ids.give_back(topic_id)

    def list_topics(self) -> list[Topic]:
        """Return its topics by id."""
        return [self.topics[ident] for ident in sorted(self.topics)]

    @property
    def size_bytes(self) -> int:
        """Bytes of all its logs."""
        return sum(topic.size_bytes for topic in self.topics.values())

    @property
    def messages_count(self) -> int:
        """Messages kept, by offsets."""
        return sum(topic.messages_count for topic in self.topics.values())


@dataclass(slots=True, eq=False)
class Topic:
    """A topic; ``uuid`` (16 bytes) distinguishes it from an earlier one of the same name."""

    stream: Stream
    id: int
    name: str
    uuid: bytes
    created_us: int
    settings: TopicSettings
    next_epoch: int = 1
    partitions: list[Partition] = field(default_factory=list)
    next_balanced: int = 0
    """The partition that a balanced append takes next."""

    @property
    def flat_name(self) -> str:
        """Its one-level name, e.g. for Kafka clients and the Python API."""
        return flat_name(self.stream.name, self.name)

    @property
    def size_bytes(self) -> int:
        """Bytes of its logs."""
        return sum(partition.log.size_bytes for partition in self.partitions)

    @property
    def messages_count(self) -> int:
        """Messages kept, by offsets."""
        return sum(partition.messages_count for partition in self.partitions)

    def partition(self, number: int) -> Partition:
        """Return a partition by number from 0; refused if the topic has none at all, or not this one."""
        if not self.partitions:
            raise Refusal(Reason.NO_PARTITIONS, f"topic {self.flat_name!r} has no partitions; add some")
        if not 0 <= number < len(self.partitions):
            raise Refusal(
                Reason.PARTITION_NOT_FOUND,
                f"topic {self.flat_name!r} has partitions 0 to {len(self.partitions) - 1}, not {number}",
            )
        return self.partitions[number]


@dataclass(slots=True, eq=False)
class Partition:
    """A partition: its open log, and what the broker keeps in memory about it."""

    topic: Topic
    number: int
    log: PartitionLog
    pending: deque[Append] = field(default_factory=deque)
    """Appends that are not synced yet, in offset order."""
    dirty: bool = False
    """Whether something was appended since the last flush."""
    read_waiters: dict[object, Callable[[], None]] = field(default_factory=dict)
    """Called once when more messages can be seen; each has a key of its own, by which it is found again."""
    cached_range: ChunkRange | None = None
    """The chunk that was read last: small polls continue in it without a read of the log."""
    positions: dict[PositionKey, StoredPosition] = field(default_factory=dict)
    writers: Writers | None = None
    """Sequences of native writers; None until the first block that has one."""
    first_uncopied_offset: Callable[[], int | None] = lambda: None
    """From which offset on messages wait to be copied to a dead letter topic: retention keeps them. None: none do."""

    @property
    def messages_count(self) -> int:
        """Messages kept, by offsets."""
        return self.log.next_offset - self.log.first_offset

    def forget_recent(self) -> None:
        """Drop the chunk that was read last: it may keep a file open, and the space of a deleted one in use."""
        self.cached_range = None

    def add_visible_callback(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once when more may be seen, or the partition is deleted; what is returned cancels that."""
        waiters, key = self.read_waiters, object()
        waiters[key] = callback

        def cancel() -> None:
            if waiters is self.read_waiters:
                waiters.pop(key, None)
            elif key in waiters:
                # they are being called back, in turns: an iteration over them must not find another size
                waiters[key] = ignore

        return cancel

    def notify_readers(self) -> None:
        """Call back all readers that wait: more messages may be visible now."""
        if self.read_waiters:
            waiters, self.read_waiters = self.read_waiters, {}
            self.topic.stream.wakeups.call(waiters.values())

    def __str__(self) -> str:
        return f"{self.topic.flat_name}/{self.number}"

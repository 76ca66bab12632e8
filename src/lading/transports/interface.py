"""Interface of every transport: topics, positions, dialect bytes in and out. Blocking; one thread at a time.

Topic names are flat everywhere here (design.md Names), partitions count from 0, positions are the next offset to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from .fetched import FetchResult, States

if TYPE_CHECKING:
    import pyarrow as pa

    from ..model.protocol import Capabilities, MessageBound
    from ..model.state import State

__all__ = [
    "BoundedTransport",
    "ExtendingTransport",
    "FetchResult",
    "Filtering",
    "KeyPartitioningTransport",
    "LongPollTransport",
    "Marking",
    "Membership",
    "PartitionMeta",
    "PipeliningTransport",
    "Position",
    "Queried",
    "QueueMembership",
    "QueuedMessage",
    "ReconnectingTransport",
    "RememberingTransport",
    "SendResult",
    "States",
    "TopicMeta",
    "TraceReceipt",
    "Transport",
]


@dataclass(frozen=True, slots=True)
class PartitionMeta:
    """One partition: offsets from ``first_offset`` up to, not including, ``end_offset`` (the stable end) are readable.

    ``epochs`` is every (epoch, its first offset), oldest first; empty if the system has no epochs.
    """

    number: int
    first_offset: int
    end_offset: int
    epoch: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    size_bytes: int | None = None
    dirty_share: float | None = None
    """Share of the bytes that compaction can clean and has not cleaned yet; None if the topic is not compacted."""
    cleaned: tuple[int, int] | None = None
    """The offset before which compaction has cleaned, and when, in microseconds since 1970; None if it is unknown."""
    has_unavailable: bool = True
    """Whether messages may be in a state other than available."""


@dataclass(frozen=True, slots=True)
class TopicMeta:
    """One topic: its stream and own name, its flat ``name``, 16-byte id (None if the system has no ids), partitions."""

    stream: str
    topic: str
    name: str
    topic_id: bytes | None
    partitions: tuple[PartitionMeta, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a reader: the next offset, and the epoch it was read under (0 if unknown)."""

    offset: int
    epoch: int = 0


class TraceReceipt(NamedTuple):
    """The response of Youzan's nsqd, and of Lading, to a message with a ``##trace_id``: its place in the queue."""

    internal_id: int
    trace_id: int
    queue_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SendResult:
    """Result of one send; ``base_offset`` is None if the server does not report it, ``duplicate`` means that it had the
    batch.

    ``traces`` are the receipts of the messages that requested one, by row.
    """

    count: int
    base_offset: int | None = None
    duplicate: bool = False
    traces: Mapping[int, TraceReceipt] | None = None


class Membership(Protocol):
    """This process as a member of a consumer group.

    ``partitions`` is the present assignment as (flat topic name, partition); ``generation`` grows with each change.
    """

    @property
    def generation(self) -> int: ...

    @property
    def partitions(self) -> Sequence[tuple[str, int]]: ...

    @property
    def is_rebalancing(self) -> bool:
        """Whether the assignment is about to change: positions can be stored a last time, then ``heartbeat``."""
        ...

    def heartbeat(self) -> bool:
        """Report to the server that this member is alive; return True if the assignment changed."""
        ...

    def position(self, topic: str, partition: int) -> Position | None:
        """Return the group's stored position, or None if it has none."""
        ...

    def store(self, topic: str, partition: int, position: Position) -> None:
        """Store the group's position. Raises Refusal STALE_GENERATION after the partition went to another member."""
        ...

    def leave(self) -> None:
        """Give the partitions back; further calls do nothing."""
        ...


class QueuedMessage(Protocol):
    """A message of a queue: as it is stored in a chunk of the queue's dialect, and its identity.

    ``identity`` is the same when the same node delivers the same message again; ``attempts`` counts how often it did.
    """

    @property
    def stored(self) -> bytes: ...

    @property
    def identity(self) -> tuple[object, ...]: ...

    @property
    def attempts(self) -> int: ...

    @property
    def timestamp_us(self) -> int: ...


@runtime_checkable
class QueueMembership(Protocol):
    """A membership whose reads take messages from the queue: they are numbered on arrival, and deleted when
    finished.
    """

    @property
    def dialect(self) -> int:
        """The dialect in which messages are stored."""
        ...

    @property
    def end(self) -> int:
        """The number that the next message gets."""
        ...

    def fetch(self, offset: int, *, max_messages: int | None, wait_ms: int) -> FetchResult:
        """Wait up to ``wait_ms`` for messages from a number on."""
        ...

    def messages(self, offset: int, count: int | None = None) -> Sequence[QueuedMessage]:
        """Messages that are not finished, from a number on."""
        ...

    def finish(self, offset: int) -> None:
        """Finish all messages before a number."""
        ...

    def requeue(self, offset: int, delay_ms: int) -> None:
        """Give a message back, to be delivered again after a delay. Raises LocalError if this member no
        longer has it.
        """
        ...

    def touch(self, offset: int) -> None:
        """Restart the message's time-out. Raises LocalError if this member no longer has it."""
        ...

    def stop(self) -> None:
        """Ask for no more messages; those that arrived can still be finished. Further calls do nothing."""
        ...


class Transport(Protocol):
    """One server, cluster or directory. Errors: Unreachable, RemoteError, LocalError (unknown topic), CorruptError."""

    @property
    def url(self) -> str:
        """Return the URL that was opened, for messages to people."""
        ...

    @property
    def idempotent(self) -> bool:
        """Whether repeating ``send`` with the same batch cannot store messages twice."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Return what one message keeps here without a carrier."""
        ...

    def topics(self, wanted: Callable[[str], bool] | None = None) -> list[TopicMeta]:
        """Return the topics for whose flat name ``wanted`` returns true, or all but the server's own."""
        ...

    def topic(self, name: str) -> TopicMeta:
        """Return the topic as it is now. Raises LocalError with similar names if it does not exist."""
        ...

    def create_topic(self, name: str, partitions: int = 1) -> TopicMeta:
        """Create the topic, and its stream if needed. Raises Refusal TOPIC_NAME_EXISTS if the topic exists."""
        ...

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        max_messages: int | None = None,
        wait_ms: int = 0,
    ) -> FetchResult:
        """Return stored bytes from ``offset`` on (whole chunks, so earlier and later messages may be among them).

        If no message arrives within ``wait_ms``, the result has no runs and ``end_offset == offset``.
        """
        ...  # fmt: skip

    def offset_at(self, topic: str, partition: int, timestamp_us: int) -> int:
        """Return the first offset whose timestamp is at or after ``timestamp_us``, or the end offset."""
        ...

    def send(
        self,
        topic: str,
        partition: int | None,
        batch: pa.RecordBatch,
        *,
        strict: bool = False,
        compression: Literal["lz4"] | None = None,
    ) -> SendResult:
        """Send a batch in the Batch schema (``offset``, ``state`` and ``checksum`` may be absent or are ignored).

        ``partition`` None lets the server choose. Batches larger than one request are split here, in order. Facts that
        the target cannot hold are sent by carrier; with ``strict`` they raise LocalError.
        """
        ...  # fmt: skip

    def join(self, group: str, topics: Sequence[str]) -> Membership:
        """Become a member of the group. Raises LocalError if the transport has no server."""
        ...

    def close(self) -> None:
        """Close connections; further calls do nothing."""
        ...


@runtime_checkable
class LongPollTransport(Protocol):
    """A transport that can wait for news in many partitions with one request."""

    def wait_for_news(self, places: Mapping[tuple[str, int], int], wait_ms: int) -> None:
        """Return once any partition has a message at its offset, or earlier; after ``wait_ms`` at the latest."""
        ...


class StateListing(Protocol):
    """A transport whose server lists message states."""

    def states(
        self, topic: str, partition: int, *, first: int = 0, end: int | None = None
    ) -> list[tuple[int, int, State]]:
        """Return ranges (first, end, state) of messages that are not available."""
        ...


@runtime_checkable
class Marking(StateListing, Protocol):
    """A transport whose server sets and lists message states (docs/reference/http-states)."""

    def put_states(self, topic: str, document: dict[str, Any], partition: int | None = None) -> dict[str, Any]:
        """Set states in one partition, or in all, as ``document`` says, and return the server's response."""
        ...

    def state_counts(self, topic: str) -> list[dict[str, Any]]:
        """Return for each ``partition`` its ``first_offset``, ``next_offset`` and ``states``: word -> number of
        messages.
        """
        ...


@runtime_checkable
class HeaderAwareTransport(Protocol):
    """A transport whose server may not support message headers."""

    def takes_headers(self, topic: str) -> bool:
        """Return whether messages of this topic may have headers."""
        ...  # fmt: skip


@runtime_checkable
class ExtendingTransport(Protocol):
    """A transport whose server has extended topics: NSQ's with ext headers, as in Youzan's fork."""

    def create_extended_topic(self, name: str, partitions: int = 1) -> TopicMeta:
        """Create an extended topic. Raises LocalError if the server has none, Refusal if a plain one has the name."""
        ...

    def extend_topic(self, name: str) -> None:
        """Make a plain topic an extended one, permanently. Raises LocalError if the server cannot."""
        ...


@runtime_checkable
class KeyPartitioningTransport(Protocol):
    """A transport to a protocol whose own clients choose the partition of a key by another hash than Kafka's."""

    def partition_of_key(self, key: bytes, partitions: int) -> int:
        """Return the partition, counted from 0, that these clients choose for a key."""
        ...  # fmt: skip


@runtime_checkable
class ReconnectingTransport(Protocol):
    """A transport that waits long for a server whose connection broke."""

    def limit_reconnects(self, count: int) -> None:
        """Give up a broken connection after ``count`` retries, for a caller that waits itself and may be stopped."""


@runtime_checkable
class BoundedTransport(Protocol):
    """A transport to servers with a message size limit for each topic."""

    def message_bound(self, topic: str) -> MessageBound | None:
        """Return the present message bound of the topic, None if the server does not report it to this login."""
        ...


@runtime_checkable
class PipeliningTransport(Protocol):
    """A transport that can send several batches before the first is acknowledged."""

    def send_all(
        self,
        topic: str,
        parts: Iterable[tuple[int, pa.RecordBatch]],
        *,
        strict: bool = False,
        compression: Literal["lz4"] | None = None,
    ) -> int:
        """Send (partition, batch) after (partition, batch), without waiting for earlier ones; return the number of
        messages.

        All are acknowledged on return; if it raises, some may have been sent.
        """
        ...  # fmt: skip


@runtime_checkable
class RememberingTransport(Protocol):
    """A transport that knows which batch a partition received last."""

    def find_acknowledged(self, topic: str, partition: int, batch: pa.RecordBatch) -> SendResult | None:
        """Return the result of the last batch sent to the partition, if it was this object and is acknowledged.

        For a caller whose ``send`` was interrupted, perhaps after the response: other senders may repeat an object.
        """
        ...


@dataclass(frozen=True, slots=True)
class Queried:
    """Batches that a server filtered, with the other facts of a FetchResult; unpacks into batches, end offset."""

    batches: Sequence[pa.RecordBatch]
    end_offset: int
    first_offset: int
    topic_id: bytes | None
    epoch: int
    epochs: tuple[tuple[int, int], ...]
    damaged: Sequence[tuple[int, int]]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.batches, self.end_offset))


@runtime_checkable
class Filtering(StateListing, Protocol):
    """A transport whose server can set and list states, and can filter and project before it responds."""

    def query(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        end: int | None = None,
        where: str | None = None,
        states: States = "available",
        columns: str | None = None,
        headers_only: bool = False,
        max_rows: int | None = None,
    ) -> Queried:
        """Return the selected messages from ``offset`` on as batches, and the offset at which to continue."""
        ...  # fmt: skip

    def set_state(self, topic: str, partition: int, first: int, end: int, state: State) -> None:
        """Set the state of offsets from ``first`` up to, not including, ``end``."""
        ...

"""The reading side of a mirror: stretches of one topic, from a log by offset, or from a queue in order of delivery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..client.read_bounds import spans
from ..client.reading import PartitionReader, Selection, to_batches
from ..model.errors import DataLoss, LocalError
from ..transports.interface import LongPollTransport, Position, QueueMembership, TopicMeta, Transport
from ..transports.redelivery import KnownMessages
from .settings import MirrorSettings
from .state import Range

if TYPE_CHECKING:
    import pyarrow as pa

FETCH_BYTES: Final = 4 << 20
QUEUE_MESSAGES: Final = 2_000
FIRST_WAIT: Final = 3
"""The wait for the first message of a queue is this many times longer."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive messages of one partition, and the position after them."""

    partition: int
    first: int
    end: int
    batches: Sequence[pa.RecordBatch]
    epoch: int = 0

    @property
    def count(self) -> int:
        """Return how many messages it holds."""
        return sum(batch.num_rows for batch in self.batches)

    @property
    def size_bytes(self) -> int:
        """Return how much memory the messages take."""
        return sum(batch.get_total_buffer_size() for batch in self.batches)


class TopicSource(Protocol):
    """One topic of the source."""

    repeatable: bool
    """Whether the same range can be read again."""

    @property
    def lag(self) -> int:
        """Return how many messages are known to be left."""
        ...

    def notice(self, meta: TopicMeta) -> None:
        """Measure the lag from now on by the ends that the topic has here."""
        ...

    def stretches(self) -> Iterator[Stretch]:
        """Yield the present messages, one partition after the other in turn; ends when nothing is new."""
        ...

    def reread(self, one: Range) -> Stretch:
        """Return exactly these messages once more. Raises DataLoss if they were deleted."""
        ...

    def finish(self, one: Stretch) -> None:
        """Note that a stretch was sent, so that a queue can finish its messages."""
        ...

    def wait(self, wait_ms: int) -> None:
        """Wait for something new, at most this long."""
        ...

    def close(self) -> None:
        """Close the topic."""
        ...


class LogSource:
    """A topic that is read by offset."""

    repeatable = True

    def __init__(
        self, transport: Transport, meta: TopicMeta, settings: MirrorSettings, known: Mapping[int, Position]
    ) -> None:
        self._transport = transport
        self._meta = meta
        self._selection = Selection(
            states=settings.states,
            on_loss=settings.on_loss,
            skip_remedy="mirror with --on-loss skip",
            origin_times=True,
        )
        begun = spans(transport, [meta], settings.start, None if settings.follow else "latest")
        self._readers: dict[int, PartitionReader] = {}
        self._ends = {part.number: part.end_offset for part in meta.partitions}
        for span in begun.values():
            position = known.get(span.partition)
            if position is not None and position.offset > self._ends[span.partition]:
                end = self._ends[span.partition]
                raise DataLoss(
                    f"topic {meta.name!r}, partition {span.partition}: it ends at offset {end}, before "
                    f"{position.offset}, where the mirror stopped: the log was truncated, or is another one; to "
                    "mirror it from its beginning, name another --state"
                )
            # reading ends at the end as it was at the start, also for messages read before
            self._readers[span.partition] = self._open_reader(
                span.partition, position or Position(span.offset), span.end, is_sure=position is not None
            )

    @property
    def partitions(self) -> int:
        """Return how many partitions the topic has."""
        return len(self._meta.partitions)

    @property
    def lag(self) -> int:
        """Return how many offsets are left up to the end as it was last seen."""
        return sum(max(0, self._ends[number] - reader.position) for number, reader in self._readers.items())

    def notice(self, meta: TopicMeta) -> None:
        """Measure the lag from now on by the ends that the topic has here."""
        self._ends.update((part.number, part.end_offset) for part in meta.partitions)

    def stretches(self) -> Iterator[Stretch]:
        """Yield the present messages, one partition after the other in turn; ends when none has new ones."""
        moved = True
        while moved:
            moved = False
            for number, reader in self._readers.items():
                first = reader.position
                batches = reader.read(self._selection)
                if reader.position != first:
                    moved = True
                    yield Stretch(number, min(first, reader.position), reader.position, batches, reader.epoch)

    def reread(self, one: Range) -> Stretch:
        """Return exactly these messages once more. Raises DataLoss if they were deleted."""
        reader = self._open_reader(one.partition, Position(one.first, one.epoch), one.end, is_sure=True)
        batches: list[pa.RecordBatch] = []
        while not reader.done:
            before = reader.position
            batches += reader.read(self._selection)
            if reader.position == before:
                raise LocalError(
                    f"topic {self._meta.name!r}, partition {one.partition}: offsets {before} to {one.end - 1} were "
                    "read before and are not there now; mirror to the target anew with another --state"
                )
        self._readers[one.partition].position = max(self._readers[one.partition].position, one.end)
        return Stretch(one.partition, one.first, one.end, batches, reader.epoch)

    def finish(self, one: Stretch) -> None:
        """Do nothing: a log keeps what was read."""

    def wait(self, wait_ms: int) -> None:
        """Wait for something new, at most this long."""
        places = {(self._meta.name, number): reader.position for number, reader in self._readers.items()}
        if isinstance(self._transport, LongPollTransport) and places:
            self._transport.wait_for_news(places, wait_ms)
        elif self._readers:
            number, reader = next(iter(self._readers.items()))
            self._transport.fetch(
                self._meta.name, number, reader.position, max_bytes=1, wait_ms=wait_ms // max(1, len(places))
            )

    def close(self) -> None:
        """Do nothing."""

    def _open_reader(self, partition: int, position: Position, end: int | None, *, is_sure: bool) -> PartitionReader:
        return PartitionReader(
            self._transport, self._meta, partition, position.offset, end=end, epoch=position.epoch, sure=is_sure,
            max_bytes=FETCH_BYTES,
        )  # fmt: skip


class QueueSource:
    """A topic that is read as a member of a channel: a message is finished when the target has it."""

    repeatable = False
    lag = 0

    def __init__(self, transport: Transport, topic: str, settings: MirrorSettings) -> None:
        """Join the channel. Raises LocalError if the source is not a queue."""
        self._membership = transport.join(settings.channel, [topic])
        if not isinstance(self._membership, QueueMembership):
            raise LocalError(f"{transport.url} is not a queue; it is read by offset")
        self._queue: QueueMembership = self._membership
        self._states = settings.states
        self._topic = topic
        self._known = KnownMessages()
        self._at = self._queue.end
        self._quiet_ms = 0 if settings.follow else settings.quiet_ms

    def notice(self, meta: TopicMeta) -> None:
        """Do nothing: a mirror does not ask how many messages a channel still has."""

    def stretches(self) -> Iterator[Stretch]:
        """Yield the channel's messages; ends when it delivers none for a while."""
        while True:
            # a server takes its time until the first message comes
            wait_ms = self._quiet_ms * (1 if self._at else FIRST_WAIT)
            fetched = self._queue.fetch(self._at, max_messages=QUEUE_MESSAGES, wait_ms=wait_ms)
            first, end = self._at, fetched.end_offset
            if end == first:
                return
            messages = self._queue.messages(first, end - first)
            fresh = [not self._known.is_repeated(one) for one in messages]
            batches = to_batches(fetched, self._states, first, end)
            self._at = end
            yield Stretch(0, first, end, [_select(batch, first, fresh) for batch in batches])

    def reread(self, one: Range) -> Stretch:
        """Raise LocalError: a queue gives a message again by itself, if it was not finished."""
        raise LocalError(f"topic {self._topic!r} is a queue and cannot be read again; spool it first")

    def finish(self, one: Stretch) -> None:
        """Finish the messages."""
        self._queue.finish(one.end)

    def wait(self, wait_ms: int) -> None:
        """Wait for messages, at most this long."""
        self._queue.fetch(self._at, max_messages=1, wait_ms=wait_ms)

    def close(self) -> None:
        """Leave the channel: unfinished messages are delivered again."""
        self._membership.leave()


def _select(batch: pa.RecordBatch, first: int, fresh: Sequence[bool]) -> pa.RecordBatch:
    import pyarrow as pa

    offsets: Any = batch.column("offset").to_pylist()
    keep = [fresh[offset - first] for offset in offsets]
    return batch if all(keep) else batch.filter(pa.array(keep))

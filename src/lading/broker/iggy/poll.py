"""Iggy polls: five ways to choose the first message, for consumers and groups.

They follow iggy.md A8; docs/reference/iggy-differences lists the cases in which the real server loses or skips messages
and this one does not.
"""

from __future__ import annotations

from dataclasses import replace

from ...dialects.iggy.classic import protocol as iggy_row
from ...model.errors import Reason, Refusal
from ...model.lazy_dataclass import lazy_dataclass
from ...model.protocol import UnavailableMessages, VisibilityRule
from ...model.state import State
from ..core.counters import Counters
from ..core.offsets_for_times import offset_at
from ..core.pending_result import PendingResult
from ..core.position import StoredPosition
from ..core.positions import Positions
from ..core.read import ReadResult, find_skipped_ranges, read
from ..core.topology import Partition, Topic
from .consumer import ConsumerRef, IggyConsumerKind
from .filtered_poll import FilteredPolls
from .groups import IggyGroups


@lazy_dataclass(frozen=True, slots=True)
class Offset:
    """Start with the message at this offset."""

    value: int


@lazy_dataclass(frozen=True, slots=True)
class Timestamp:
    """Start with the first message at or after this time, in microseconds since 1970."""

    us: int


@lazy_dataclass(frozen=True, slots=True)
class First:
    """Start with the first stored message."""


@lazy_dataclass(frozen=True, slots=True)
class Last:
    """Return the last ``count`` messages."""


@lazy_dataclass(frozen=True, slots=True)
class Next:
    """Start after the stored position, or with the first message if nothing is stored."""


PollStart = Offset | Timestamp | First | Last | Next


@lazy_dataclass(frozen=True, slots=True)
class PollResult:
    """The result of a poll; ``partition`` and ``reading`` are None for a group member that has no partition."""

    partition: Partition | None
    reading: ReadResult | None
    count: int


class IggyPoller:
    """Polls of consumers and groups, and their stored offsets."""

    def __init__(self, groups: IggyGroups, positions: Positions, counters: Counters) -> None:
        self._groups = groups
        self._positions = positions
        self._counters = counters
        self.filtered = FilteredPolls(counters)

    def poll(
        self,
        topic: Topic,
        consumer: ConsumerRef,
        member: int | None,
        partition_number: int,
        strategy: PollStart,
        count: int,
        auto_commit: bool,
        *,
        max_bytes: int,
        now_us: int,
        states: frozenset[State] | None = None,
        names_partition: bool = False,
        shows_states: bool = True,
    ) -> PollResult:
        """Read at most ``count`` messages; a group member's partitions take turns, whatever ``partition_number`` says.

        ``names_partition``: the member polls ``partition_number``; any partition but its own is refused.

        ``shows_states``: whether responses show the state of a message; if not, they have only available messages.
        ``states`` restricts them to messages with one of these states, among those that the topic shows; None for all
        of those. ``auto_commit`` stores the last offset of a response that is not empty, even if it is before the
        stored one; for a group with a filter, the last offset that was read.
        """
        if count < 1:
            raise Refusal(Reason.INVALID_COUNT, "poll count is 0; ask for at least 1 message")
        if names_partition:
            partition: Partition | None = self.require_partition(topic, consumer, member, partition_number)
        else:
            partition = self._choose_partition(topic, consumer, member, partition_number)
        if partition is None:
            return PollResult(None, None, 0)
        reader = iggy_row.SHOWING if shows_states and not topic.settings.hide_states else iggy_row.HIDING
        if states is not None:
            reader = _choose_states(reader, states)
        offset = self._start(partition, consumer, strategy, count, reader)
        conditions = self.filtered.conditions
        condition = conditions.get((topic, consumer.key)) if conditions else None
        if condition is not None:
            reading = self.filtered.read(
                partition, consumer.key, condition, offset,
                reader=reader, max_messages=count, max_bytes=max_bytes,
            )  # fmt: skip
            if auto_commit and reading.end_offset > offset:
                # also past messages that the filter leaves out
                last = reading.end_offset - 1
                self._positions.store(partition, consumer.key, StoredPosition(last, None, None, now_us))
            return PollResult(partition, reading, reading.count)
        reading = read(
            partition, offset, reader=reader, max_messages=count, max_bytes=max_bytes, counters=self._counters
        )
        if auto_commit and reading.count:
            last = reading.pieces[-1].end - 1
            self._positions.store(partition, consumer.key, StoredPosition(last, None, None, now_us))
        return PollResult(partition, reading, reading.count)

    def position(self, topic: Topic, consumer: ConsumerRef, partition_number: int) -> int | None:
        """Return the last consumed offset, or None if nothing was stored."""
        stored = self._positions.find(topic.partition(partition_number), consumer.key)
        return None if stored is None else stored.offset

    def store_position(
        self,
        topic: Topic,
        consumer: ConsumerRef,
        member: int | None,
        partition_number: int,
        offset: int,
        *,
        now_us: int,
        names_partition: bool = False,
    ) -> PendingResult[None] | None:
        """Store the last consumed offset; a group stores it for the partition its member polled last.

        With ``names_partition`` it is stored for ``partition_number``, whichever member has that. Returns a result for
        the client to wait for, or None.
        """
        if consumer.kind is IggyConsumerKind.GROUP and not names_partition:
            partition = self._groups.partition_of(topic, consumer.id, -1 if member is None else member)
        else:
            partition = topic.partition(partition_number)
        last = max(partition.log.high_watermark - 1, 0)
        if not 0 <= offset <= last:
            raise Refusal(
                Reason.INVALID_OFFSET, f"the last offset of partition {partition} is {last}; {offset} cannot be stored"
            )
        if partition.log.high_watermark == 0:
            # no client can have consumed offset 0 of an empty partition; storing it would skip the first message
            return None
        self._positions.store(partition, consumer.key, StoredPosition(offset, None, None, now_us))
        return self._positions.confirm(partition, consumer.key)

    def delete_position(self, topic: Topic, consumer: ConsumerRef, partition_number: int) -> bool:
        """Delete a stored offset; return whether there was one."""
        partition = topic.partition(partition_number)
        if self._positions.find(partition, consumer.key) is None:
            return False
        self._positions.remove_from(partition, consumer.key)
        return True

    def confirm_position(
        self, topic: Topic, consumer: ConsumerRef, partition_number: int
    ) -> PendingResult[None] | None:
        """Return the result of the last change, for the client to wait for; None if it need not wait."""
        return self._positions.confirm(topic.partition(partition_number), consumer.key)

    def require_partition(
        self, topic: Topic, consumer: ConsumerRef, member: int | None, partition_number: int
    ) -> Partition:
        """Return the partition. Raises Refusal for a group member that was not assigned it."""
        partition = topic.partition(partition_number)
        if consumer.kind is IggyConsumerKind.GROUP:
            group = self._groups.get(topic, consumer.id)
            if partition_number not in group.member(-1 if member is None else member).partitions:
                raise Refusal(
                    Reason.STALE_GENERATION,
                    f"partition {partition} belongs to another member of group {group.name!r}; sync the group",
                )
        return partition

    def _choose_partition(
        self, topic: Topic, consumer: ConsumerRef, member: int | None, partition_number: int
    ) -> Partition | None:
        if consumer.kind is IggyConsumerKind.CONSUMER or not topic.partitions:
            return topic.partition(partition_number)
        number = self._groups.get(topic, consumer.id).member(-1 if member is None else member).next_partition()
        return None if number is None else topic.partition(number)

    def _start(
        self, partition: Partition, consumer: ConsumerRef, strategy: PollStart, count: int, reader: VisibilityRule
    ) -> int:
        match strategy:
            case Next():
                stored = self._positions.find(partition, consumer.key)
                return 0 if stored is None else stored.offset + 1
            case Offset(value):
                return value
            case First():
                return 0
            case Last():
                return last_offset(partition, count, reader)
            case Timestamp(us):
                return offset_at(partition, us)


def _choose_states(reader: VisibilityRule, states: frozenset[State]) -> VisibilityRule:
    shown = states & {State.AVAILABLE} if reader.states is UnavailableMessages.HIDDEN else states
    return replace(reader, states=UnavailableMessages.CHOSEN, chosen_states=frozenset(map(int, shown)))


def last_offset(partition: Partition, count: int, reader: VisibilityRule) -> int:
    """Return the offset of the first of the last ``count`` messages that the reader sees."""
    log = partition.log
    end = log.last_stable_offset
    for first, stop in reversed(find_skipped_ranges(log, log.first_offset, end, reader)):
        if end - count >= stop:
            break
        count -= end - stop
        end = first
    return max(end - count, log.first_offset)

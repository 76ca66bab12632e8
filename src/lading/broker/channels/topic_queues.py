"""The queue that each topic has in front of its channels: messages that no channel has yet.

In NSQ a topic passes every message to all its channels at once, so its queue has messages only while it has no channel
or is paused. Here the queue is an offset of the log: the queue begins there, and channels read up to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from ..core.topology import Partition, Topic
from .omissions import Omissions, list_kept
from .store import ChannelStore


class DelayedOffsets(Protocol):
    """The methods of ``DelayedMessages`` that channels use."""

    def next_offset(self, partition: Partition) -> int:
        """Return the offset that the next delayed message of a partition will have among the delayed ones."""

    def list_waiting(self, partition: Partition) -> list[int]:
        """Return the offsets of delayed messages that are not in the partition's log yet."""


@dataclass(slots=True)
class QueueStart:
    """The beginning of a topic's queue in one partition."""

    offset: int
    delayed_from: int = 0
    """Delayed messages from this offset on are in the queue, earlier ones in the channels."""
    omissions: Omissions = field(default_factory=Omissions)
    """Messages after ``offset`` that are not in the queue."""


NO_START: Final[Mapping[int, QueueStart]] = {}


class TopicQueues:
    """The queues of all topics."""

    def __init__(self, store: ChannelStore, delayed: DelayedOffsets, has_channels: Callable[[Topic], bool]) -> None:
        self._store = store
        self._delayed = delayed
        self._has_channels = has_channels
        self._starts: dict[Topic, dict[int, QueueStart]] = {}
        """Beginnings by topic; a topic with channels has an empty queue unless paused, even if it is listed."""
        self._paused: set[Topic] = set()

    def load(self, topic: Topic, starts: Mapping[int, QueueStart], *, paused: bool) -> None:
        """Continue with the stored state of a topic's queue."""
        if starts:
            self._starts[topic] = dict(starts)
        if paused:
            self._paused.add(topic)

    def is_paused(self, topic: Topic) -> bool:
        """Return whether the topic gives its channels no new messages."""
        return topic in self._paused

    def _keeps_messages(self, topic: Topic) -> bool:
        return topic in self._paused or not self._has_channels(topic)

    def _start(self, partition: Partition) -> QueueStart:
        """Return the beginning of the queue of a topic that has no channel, or is paused."""
        start = self._starts.get(partition.topic, NO_START).get(partition.number)
        return start or QueueStart(partition.log.first_offset)

    def _end(self, partition: Partition) -> QueueStart:
        return QueueStart(partition.log.last_stable_offset, self._delayed.next_offset(partition))

    def find_limit(self, partition: Partition) -> int | None:
        """Return the offset up to which channels read; None if they read all."""
        return self._start(partition).offset if partition.topic in self._paused else None

    def find_delayed_limit(self, partition: Partition) -> int | None:
        """Return the offset among delayed messages from which on they belong to the queue; None if it has none."""
        return self._start(partition).delayed_from if partition.topic in self._paused else None

    def begin_channel(self, partition: Partition, *, at_end: bool) -> tuple[int, Omissions]:
        """Return the offset of a new channel, and the messages that it skips: it gets the queue's messages, unless
        ``at_end``.
        """
        start = self._end(partition) if at_end or not self._keeps_messages(partition.topic) else self._start(partition)
        omissions = start.omissions.copy()
        omissions.omit_delayed(0, start.delayed_from)
        return max(start.offset, partition.log.first_offset), omissions

    def identify(self, topic: Topic) -> object:
        """Return what equals its former value as long as the topic keeps the same messages for a first channel."""
        return self._keeps_messages(topic), topic in self._paused, self._starts.get(topic)

    def clear(self, topic: Topic) -> None:
        """Move the beginning of the queue after all present messages; stored on return."""
        self._starts[topic] = {partition.number: self._end(partition) for partition in topic.partitions}
        self._put(topic)

    def empty(self, topic: Topic) -> dict[Partition, tuple[list[tuple[int, int]], tuple[int, int]]]:
        """Drop the messages in the queue; return by partition which messages and which delayed ones were dropped."""
        dropped: dict[Partition, tuple[list[tuple[int, int]], tuple[int, int]]] = {}
        if not self._keeps_messages(topic):
            return dropped
        for partition in topic.partitions:
            start, end = self._start(partition), self._end(partition)
            messages = list_kept(start.omissions, start.offset, end.offset)
            dropped[partition] = messages, (start.delayed_from, end.delayed_from)
        self.clear(topic)
        return dropped

    def set_paused(self, topic: Topic, paused: bool) -> None:
        """Make the topic keep new messages in its queue, or pass them to its channels; on disk on return."""
        if paused == (topic in self._paused):
            return
        if paused and self._has_channels(topic):
            self.clear(topic)
        self._store.set_paused(topic, paused)
        (self._paused.add if paused else self._paused.discard)(topic)

    def on_last_channel_deleted(self, topic: Topic) -> None:
        """Store the offset of the next channel: a paused topic keeps its queue."""
        if topic not in self._paused:
            self.clear(topic)

    def on_delayed_entered(self, partition: Partition, delayed_offset: int, first: int, end: int) -> None:
        """Leave a message that was dropped during its delay out of the queue."""
        start = self._starts.get(partition.topic, NO_START).get(partition.number)
        if start is not None and delayed_offset < start.delayed_from and first >= start.offset:
            start.omissions.omit(first, end)
            if self._keeps_messages(partition.topic):
                self._put(partition.topic)

    def depth(self, topic: Topic) -> int:
        """Return how many messages are in the queue, as far as offsets show."""
        if not self._keeps_messages(topic):
            return 0
        depth = 0
        for partition in topic.partitions:
            start, log = self._start(partition), partition.log
            first, end = max(start.offset, log.first_offset), log.last_stable_offset
            if first < end:
                depth += end - first - start.omissions.count(first, end)
            depth += sum(offset >= start.delayed_from for offset in self._delayed.list_waiting(partition))
        return depth

    def drop_partitions(self, topic: Topic, count: int) -> None:
        """Keep only the first ``count`` partitions."""
        for number in [number for number in self._starts.get(topic, NO_START) if number >= count]:
            del self._starts[topic][number]

    def forget(self, topic: Topic) -> None:
        """Forget a topic that is deleted."""
        self._starts.pop(topic, None)
        self._paused.discard(topic)

    def _put(self, topic: Topic) -> None:
        starts = self._starts[topic]
        self._store.put_starts(
            (partition, starts[partition.number].offset, starts[partition.number].delayed_from,
             starts[partition.number].omissions)
            for partition in topic.partitions
            if partition.number in starts
        )  # fmt: skip

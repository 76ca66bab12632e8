"""Sizes of streams and topics, summed over all partitions in turns, and the number of rows that a list may have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...runtime.turns import TurnCounter, Turns

if TYPE_CHECKING:
    from ...broker.broker import Broker
    from ...broker.core.topology import Stream, Topic


def count_listed(broker: Broker) -> int:
    """Return how many rows the response to a request that lists topics and partitions, groups or users may have."""
    partitions_count = sum(len(topic.partitions) + 1 for topic in broker.topology.topics())
    groups_count = len(broker.coordinated_groups.names()) + broker.groups.count()
    return partitions_count + groups_count + len(broker.access.table.users)


class MeasuredTopic(NamedTuple):
    """A topic, with the sums over its partitions."""

    topic: Topic
    size_bytes: int
    messages_count: int
    partitions_count: int
    segments_count: int


class MeasuredStream(NamedTuple):
    """Sum of the topics of a stream."""

    topics: Sequence[MeasuredTopic]

    @property
    def size_bytes(self) -> int:
        """Bytes of all its logs."""
        return sum(one.size_bytes for one in self.topics)

    @property
    def messages_count(self) -> int:
        """Messages kept, by offsets."""
        return sum(one.messages_count for one in self.topics)


def measure_topics(
    topics: Iterable[Topic], is_visible: Callable[[Topic], bool] | None = None
) -> Turns[list[MeasuredTopic]]:
    """Measure each of these topics that is visible; all of them are if ``is_visible`` is None."""
    turn = TurnCounter()
    found = []
    for topic in list(topics):
        if is_visible is not None and not is_visible(topic):
            if turn.is_over():
                yield
            continue
        logs = [partition.log for partition in topic.partitions]
        size_bytes = sum(log.size_bytes for log in logs)
        messages_count = sum(log.next_offset - log.first_offset for log in logs)
        segments_count = sum(log.segments_count for log in logs)
        found.append(MeasuredTopic(topic, size_bytes, messages_count, len(logs), segments_count))
        if turn.is_over(1 + len(logs)):
            yield
    return found


def measure_streams(
    streams: Iterable[Stream], is_visible: Callable[[Topic], bool] | None = None
) -> Turns[dict[Stream, MeasuredStream]]:
    """Measure each of these streams, as far as its topics are visible; all of them are if ``is_visible`` is None."""
    found = {}
    for stream in streams:
        topics = stream.list_topics()
        found[stream] = MeasuredStream((yield from measure_topics(topics, is_visible)))
    return found

"""Groups of all protocols in one form: who is in them, how far they are, and how much is left (design.md Names)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .core.position import PositionKey
from .core.topology import Partition, Topic
from .iggy.consumer import IGGY, ConsumerRef, IggyConsumerKind
from .iggy.groups import IggyGroups
from .kafka.group import KAFKA
from .kafka.group_coordinator import KafkaGroupCoordinator
from .native.groups import NATIVE, NativeGroups


class PartitionLag(NamedTuple):
    """One partition: the next offset the group reads, the end of what may be read, and what lies between."""

    topic: str
    partition: int
    position: int
    end: int
    lag: int


class GroupView(NamedTuple):
    """A group; ``name`` is unique within its protocol (Iggy: topic/id). ``state`` is the protocol's own word."""

    protocol: str
    name: str
    state: str
    generation: int
    members: list[str]
    progress: list[PartitionLag]

    @property
    def lag(self) -> int:
        """Messages left to read, by offsets, where the group has a position."""
        return sum(one.lag for one in self.progress)


Places = dict[PositionKey, list[Partition]]


class GroupViews:
    """Groups of all protocols, to be looked at."""

    def __init__(
        self,
        topics: Callable[[], Iterable[Topic]],
        iggy: IggyGroups,
        native: NativeGroups,
        kafka: KafkaGroupCoordinator,
    ) -> None:
        self._topics = topics
        self._iggy_groups = iggy
        self._native_groups = native
        self._kafka_groups = kafka

    def list_all(self) -> list[GroupView]:
        """All groups, by protocol and name."""
        topics = list(self._topics())
        places: Places = {}
        for topic in topics:
            for partition in topic.partitions:
                for key in partition.positions:
                    places.setdefault(key, []).append(partition)
        return sorted([*self._iggy(topics, places), *self._native(places), *self._kafka(places)])

    def _iggy(self, topics: Iterable[Topic], places: Places) -> Iterator[GroupView]:
        for topic in topics:
            for group in self._iggy_groups.of_topic(topic):
                members = [f"client {member.id}" for member in group.members]
                key = ConsumerRef(IggyConsumerKind.GROUP, group.id).key
                # Iggy stores the offset that was consumed last
                progress = [_one(one, key, next_after=1) for one in places.get(key, ()) if one.topic is topic]
                yield GroupView(IGGY, f"{topic.flat_name}/{group.id}", _word(members), 0, members, progress)

    def _native(self, places: Places) -> Iterator[GroupView]:
        for name in self._native_groups.names():
            generation, members = self._native_groups.members(name)
            key = PositionKey(NATIVE, name)
            progress = [_one(one, key) for one in places.get(key, ())]
            yield GroupView(NATIVE, name, _word(members), generation, members, progress)

    def _kafka(self, places: Places) -> Iterator[GroupView]:
        for name in self._kafka_groups.names():
            group = self._kafka_groups.find(name)
            if group is not None:
                key = PositionKey(KAFKA, name)
                progress = [_one(one, key) for one in places.get(key, ())]
                yield GroupView(KAFKA, name, group.state.value, group.generation, list(group.members), progress)


def _word(members: list[str]) -> str:
    return "Stable" if members else "Empty"


def _one(partition: Partition, key: PositionKey, *, next_after: int = 0) -> PartitionLag:
    log = partition.log
    position = partition.positions[key].offset + next_after
    lag = max(log.last_stable_offset - max(position, log.first_offset), 0)
    return PartitionLag(partition.topic.flat_name, partition.number, position, log.last_stable_offset, lag)

"""Groups and channels in one form: their members, positions and lag (design.md Names)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ..dialects.nsq import protocol as nsq_row
from ..model.lazy_dataclass import lazy_dataclass
from ..runtime.turns import TurnCounter, Turns
from .channels import Channels
from .channels.channel import Channel
from .core.position import PositionKey
from .core.topology import Partition, Topic
from .iggy.consumer import IGGY, ConsumerRef, IggyConsumerKind
from .iggy.groups import IggyGroups
from .kafka.group import KAFKA
from .kafka.group_coordinator import KafkaGroupCoordinator
from .native.groups import NATIVE, NativeGroups
from .share_sessions import ShareSessions

CHANNEL: Final = nsq_row.PROTOCOL.name


class PartitionLag(NamedTuple):
    """One partition: the next offset the group reads, the end of what may be read, and what is left.

    For a channel ``position`` is the first message that is not finished, and ``lag`` counts those that are not.
    """

    topic: str
    partition: int
    position: int
    end: int
    lag: int


class GroupView(NamedTuple):
    """A group or a channel.

    ``name`` is unique within its protocol (Iggy, NSQ: topic/name), ``state`` is the protocol's word.
    """

    protocol: str
    name: str
    state: str
    generation: int
    members: list[str]
    progress: list[PartitionLag]
    topic: Topic | None = None
    """The topic that the group belongs to, if it belongs to one."""

    @property
    def lag(self) -> int:
        """Messages left to read, by offsets, if the group has a position."""
        return sum(one.lag for one in self.progress)


Places = dict[PositionKey, list[Partition]]


@lazy_dataclass(frozen=True, slots=True)
class GroupRegistries:
    """The components that have the groups and channels of each protocol, and the topics that they read."""

    topics: Callable[[], Iterable[Topic]]
    iggy: IggyGroups
    native: NativeGroups
    kafka: KafkaGroupCoordinator
    channels: Channels
    share: ShareSessions


class GroupViews:
    """Views of the groups of all protocols."""

    def __init__(self, registries: GroupRegistries) -> None:
        self._registries = registries

    def list_all(self) -> Turns[list[GroupView]]:
        """Return all groups, by protocol and name, in turns."""
        turn, topics = TurnCounter(), list(self._registries.topics())
        places: Places = {}
        for topic in topics:
            for partition in topic.partitions:
                for key in partition.positions:
                    places.setdefault(key, []).append(partition)
                if turn.is_over(1 + len(partition.positions)):
                    yield
        views: list[GroupView] = []
        for group in (*self._find_iggy_groups(topics), *self._find_native_groups(), *self._find_kafka_groups()):
            progress: list[PartitionLag] = []
            for partition in places.get(group.key, ()) if group.topic is None else group.topic.partitions:
                position = partition.positions.get(group.key)
                kept = None if group.keeper is None else partition.positions.get(group.keeper)
                offsets = [one.offset for one in (position, kept) if one is not None]
                if offsets:
                    progress.append(_measure_lag(partition, max(offsets) + group.next_after))
                if turn.is_over():
                    yield
            for channel in group.queues:
                progress += _channel_progress(channel)
                if turn.is_over(len(channel.lanes)):
                    yield
            views.append(
                GroupView(
                    group.protocol, group.name, group.state, group.generation, group.members, progress, group.topic
                )
            )  # fmt: skip
            if turn.is_over():
                yield
        for topic in topics:
            for channel in self._registries.channels.of_topic(topic):
                views.append(_channel_view(channel))
                if turn.is_over(len(channel.lanes)):
                    yield
        return sorted(views, key=lambda view: (view.protocol, view.name))

    def _find_iggy_groups(self, topics: Iterable[Topic]) -> Iterator[_FoundGroup]:
        for topic in topics:
            for group in self._registries.iggy.of_topic(topic):
                members = [f"client {member.id}" for member in group.members]
                key = ConsumerRef(IggyConsumerKind.GROUP, group.id).key
                name = f"{topic.flat_name}/{group.name}"
                # Iggy stores the offset that was consumed last
                keeper = ConsumerRef.keeper_of(group.name).key
                yield _FoundGroup(IGGY, name, _name_state(members), 0, members, key, topic, keeper, next_after=1)

    def _find_native_groups(self) -> Iterator[_FoundGroup]:
        for name in self._registries.native.names():
            generation, members = self._registries.native.members(name)
            yield _FoundGroup(NATIVE, name, _name_state(members), generation, members, PositionKey(NATIVE, name))

    def _find_kafka_groups(self) -> Iterator[_FoundGroup]:
        for name in self._registries.kafka.names():
            group = self._registries.kafka.find(name)
            if group is not None:
                key = PositionKey(KAFKA, name)
                queues = self._registries.share.list_channels(name)
                yield _FoundGroup(
                    KAFKA, name, group.state.value, group.generation, list(group.members), key, queues=queues
                )


class _FoundGroup(NamedTuple):
    """A group before its positions are read; ``topic`` is the only one that it reads, if it is only one."""

    protocol: str
    name: str
    state: str
    generation: int
    members: list[str]
    key: PositionKey
    topic: Topic | None = None
    keeper: PositionKey | None = None
    """Another consumer whose positions replace the group's if they are higher."""
    next_after: int = 0
    queues: Sequence[Channel] = ()
    """The channels of a share group."""


def _channel_view(channel: Channel) -> GroupView:
    members = [f"subscriber {number}" for number, _ in enumerate(channel.subscribers, 1)]
    progress = _channel_progress(channel)
    state = "Paused" if channel.paused else _name_state(members)
    return GroupView(CHANNEL, f"{channel.topic.flat_name}/{channel.name}", state, 0, members, progress, channel.topic)


def _channel_progress(channel: Channel) -> list[PartitionLag]:
    for lane in channel.lanes:
        # a channel without subscribers looks once a second what was deleted: an emptied topic has no lag at once
        lane.follow_retention()
    return [
        PartitionLag(
            channel.topic.flat_name,
            lane.partition.number,
            lane.window.first,
            lane.partition.log.last_stable_offset,
            lane.waiting + lane.in_flight + lane.deferred,
        )
        for lane in channel.lanes
    ]


def _name_state(members: list[str]) -> str:
    return "Stable" if members else "Empty"


def _measure_lag(partition: Partition, position: int) -> PartitionLag:
    log = partition.log
    lag = max(log.last_stable_offset - max(position, log.first_offset), 0)
    return PartitionLag(partition.topic.flat_name, partition.number, position, log.last_stable_offset, lag)

"""Changes of groups and channels by an operator: the offsets at which they continue, and their deletion.

As with Kafka's own tool, a group that has members is refused, for every protocol: members keep their positions in
memory and would overwrite the new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from ..model.errors import Reason, Refusal
from .channels import Channels
from .channels.channel import Channel
from .core.pending_result import PendingResult
from .core.position import PositionKey, StoredPosition
from .core.positions import Positions
from .core.topology import Partition, Topic
from .group_view import CHANNEL, GroupRegistries, GroupView
from .iggy.consumer import IGGY, ConsumerRef, IggyConsumerKind
from .iggy.groups import IggyGroup, IggyGroups
from .kafka.group import KAFKA
from .kafka.group_coordinator import KafkaGroupCoordinator
from .native.groups import NATIVE, NativeGroups
from .share_sessions import ShareSessions

TOPICS_AT_ONCE: Final = 100
"""The positions of a group are deleted in this many topics before others have their turn."""


class GroupPosition(NamedTuple):
    """The next offset that a group is to read in a partition."""

    partition: Partition
    offset: int


class GroupRoom(Protocol):
    """The operations of one protocol on its groups; ``group`` is one that a GroupView shows."""

    def count_members(self, group: GroupView) -> int:
        """Return how many members it has now."""

    def store(self, group: GroupView, position: GroupPosition, now_us: int) -> Sequence[PendingResult[None]]:
        """Set the position at which a group continues; return a result to wait for besides the catalog, or None."""

    def delete(self, group: GroupView, topics: Sequence[Topic]) -> Iterator[Callable[[], None]]:
        """Yield the steps that delete the group with its positions in ``topics``."""


class GroupChanges:
    """Resets and deletes groups of all protocols."""

    def __init__(self, registries: GroupRegistries, positions: Positions) -> None:
        self._topics = registries.topics
        self._rooms: Mapping[str, GroupRoom] = {
            IGGY: _IggyRoom(registries.iggy, positions),
            NATIVE: _NativeRoom(registries.native),
            KAFKA: _KafkaRoom(registries.kafka, registries.share),
            CHANNEL: _ChannelRoom(registries.channels),
        }

    def reset(self, group: GroupView, positions: Sequence[GroupPosition], *, now_us: int) -> list[PendingResult[None]]:
        """Set the positions of a group without members: all of them or, if one is refused, none.

        Returns what the caller waits for besides the catalog.

        Raises GROUP_NOT_EMPTY, INVALID_OFFSET past the end of a log, TOPIC_NAME_NOT_FOUND for a topic that is not the
        group's. They are in the catalog soon; ``CatalogCommit.confirm`` completes when they are.
        """
        room = self._rooms[group.protocol]
        self._require_empty(room, group)
        for partition, offset in positions:
            if group.topic is not None and partition.topic is not group.topic:
                raise Refusal(
                    Reason.TOPIC_NAME_NOT_FOUND,
                    f"{group.protocol} group {group.name!r} reads {group.topic.flat_name!r} alone, "
                    f"not {partition.topic.flat_name!r}",
                )
            if not 0 <= offset <= partition.log.next_offset:
                raise Refusal(
                    Reason.INVALID_OFFSET,
                    f"partition {partition} ends at offset {partition.log.next_offset}; {offset} cannot be a position",
                )
        return [pending for position in positions for pending in room.store(group, position, now_us)]

    def delete(self, group: GroupView) -> Iterator[Callable[[], None]]:
        """Yield the steps that delete a group. Raises Refusal GROUP_NOT_EMPTY if it has members."""
        room = self._rooms[group.protocol]
        self._require_empty(room, group)
        yield from room.delete(group, list(self._topics() if group.topic is None else [group.topic]))

    def _require_empty(self, room: GroupRoom, group: GroupView) -> None:
        members = room.count_members(group)
        if members:
            raise Refusal(
                Reason.GROUP_NOT_EMPTY,
                f"{group.protocol} group {group.name!r} has {members} {'member' if members == 1 else 'members'}, "
                "which would go on where they are; stop them first",
            )


class _IggyRoom:
    def __init__(self, groups: IggyGroups, positions: Positions) -> None:
        self._groups = groups
        self._positions = positions

    def count_members(self, group: GroupView) -> int:
        return len(self._find(group).members)

    def store(self, group: GroupView, position: GroupPosition, now_us: int) -> Sequence[PendingResult[None]]:
        found = self._find(group)
        keys = [ConsumerRef(IggyConsumerKind.GROUP, found.id).key]
        keeper = ConsumerRef.keeper_of(found.name).key
        if self._positions.find(position.partition, keeper) is not None:
            # the higher one of both would count
            keys.append(keeper)
        for key in keys:
            if position.offset:
                # Iggy stores the offset that was consumed last
                self._positions.store(position.partition, key, StoredPosition(position.offset - 1, None, None, now_us))
            else:
                self._positions.remove_from(position.partition, key)
        return [one for key in keys if (one := self._positions.confirm(position.partition, key)) is not None]

    def delete(self, group: GroupView, topics: Sequence[Topic]) -> Iterator[Callable[[], None]]:
        found = self._find(group)
        yield partial(self._positions.remove, found.topic, ConsumerRef.keeper_of(found.name).key)
        yield partial(self._groups.delete, found.topic, found.id)

    def _find(self, group: GroupView) -> IggyGroup:
        topic = _topic_of(group)
        return self._groups.get(topic, group.name.removeprefix(f"{topic.flat_name}/"))


class _NativeRoom:
    def __init__(self, groups: NativeGroups) -> None:
        self._groups = groups

    def count_members(self, group: GroupView) -> int:
        return len(self._groups.members(group.name)[1])

    def store(self, group: GroupView, position: GroupPosition, now_us: int) -> Sequence[PendingResult[None]]:
        self._groups.store_position(group.name, *position, None, None, now_us=now_us)
        return ()

    def delete(self, group: GroupView, topics: Sequence[Topic]) -> Iterator[Callable[[], None]]:
        for some in _in_portions(topics, PositionKey(NATIVE, group.name)):
            yield partial(self._groups.delete_positions, group.name, some)
        yield partial(self._groups.delete, group.name)


class _KafkaRoom:
    def __init__(self, groups: KafkaGroupCoordinator, share: ShareSessions) -> None:
        self._groups = groups
        self._share = share

    def count_members(self, group: GroupView) -> int:
        found = self._groups.find(group.name)
        return 0 if found is None else len(found.members)

    def store(self, group: GroupView, position: GroupPosition, now_us: int) -> Sequence[PendingResult[None]]:
        if self._groups.share.find(group.name) is not None:
            self._share.seek(group.name, position.partition.topic, position.partition.number, position.offset)
        else:
            self._groups.store(group.name, position.partition, StoredPosition(position.offset, None, None, now_us))
        return ()

    def delete(self, group: GroupView, topics: Sequence[Topic]) -> Iterator[Callable[[], None]]:
        for channel in self._share.list_channels(group.name):
            yield partial(self._share.delete_topic, group.name, channel.topic)
        for some in _in_portions(topics, PositionKey(KAFKA, group.name)):
            yield partial(self._groups.delete_positions, group.name, some)
        yield partial(self._groups.delete, group.name, ())


class _ChannelRoom:
    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    def count_members(self, group: GroupView) -> int:
        return len(self._find(group).subscribers)

    def store(self, group: GroupView, position: GroupPosition, now_us: int) -> Sequence[PendingResult[None]]:
        self._find(group).seek(position.partition.number, position.offset)
        return ()

    def delete(self, group: GroupView, topics: Sequence[Topic]) -> Iterator[Callable[[], None]]:
        yield partial(self._channels.delete, self._find(group))

    def _find(self, group: GroupView) -> Channel:
        topic = _topic_of(group)
        channel = self._channels.find(topic, group.name.removeprefix(f"{topic.flat_name}/"))
        if channel is None:
            raise Refusal(
                Reason.GROUP_NOT_FOUND, f"channel {group.name!r} does not exist any more; subscribe again to create it"
            )
        return channel


def _topic_of(group: GroupView) -> Topic:
    assert group.topic is not None, group
    return group.topic


def _in_portions(topics: Sequence[Topic], key: PositionKey) -> Iterator[Sequence[Topic]]:
    stored = [topic for topic in topics if any(key in partition.positions for partition in topic.partitions)]
    for at in range(0, len(stored), TOPICS_AT_ONCE):
        yield stored[at : at + TOPICS_AT_ONCE]

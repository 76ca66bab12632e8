"""Iggy consumer groups: their members, and which member reads which partition (iggy.md A8).

Partition i goes to member i mod n, with members in the order they joined; a member without a partition polls nothing.
Groups belong to a topic and are stored; members are connections and are not. Clients of some releases identify groups
by number only, others by number or name: a group that was created without a name has its number as its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final

from ...log.catalog import Catalog
from ...log.catalog_rows import GroupRow
from ...model.errors import Reason, Refusal
from ..core.callbacks import ignore
from ..core.change import Change
from ..core.component import Component
from ..core.pending_result import PendingResult
from ..core.positions import Positions
from ..core.topics.topology_changes import TopologyChanges
from ..core.topology import ID_MAX, Partition, Topic
from .consumer import IGGY, ConsumerRef, IggyConsumerKind


@dataclass(slots=True, eq=False)
class IggyGroupMember:
    """A client in a group; ``id`` is its client id, ``partitions`` what it reads, as numbers from 0."""

    id: int
    partitions: list[int] = field(default_factory=list)
    current: int | None = None
    """The partition it polled last, while it still has it; stored offsets go there."""
    _turn: int = 0

    def assign(self, partitions: list[int]) -> None:
        """Replace the member's partitions after a rebalance."""
        self.partitions = partitions
        self._turn = 0
        if self.current not in partitions:
            self.current = None

    def next_partition(self) -> int | None:
        """Return the partition for the member's next poll, in turn; None if it has none."""
        if not self.partitions:
            return None
        self.current = self.partitions[self._turn % len(self.partitions)]
        self._turn += 1
        return self.current


@dataclass(slots=True, eq=False)
class IggyGroup:
    """A consumer group of one topic; ``members`` in the order they joined."""

    id: int
    topic: Topic
    name: str
    members: list[IggyGroupMember] = field(default_factory=list)
    generation: int = 0
    """How often partitions were assigned since the start: a member with another number asks for its
    partitions again.
    """

    def member(self, ident: int) -> IggyGroupMember:
        """Return the member with this client id."""
        for member in self.members:
            if member.id == ident:
                return member
        raise Refusal(
            Reason.GROUP_MEMBER_NOT_FOUND,
            f"client {ident} is not a member of group {self.id} of topic {self.topic.flat_name!r}; join first",
        )

    def rebalance(self) -> None:
        """Assign every partition to exactly one member."""
        self.generation += 1
        for turn, member in enumerate(self.members):
            member.assign(list(range(turn, len(self.topic.partitions), len(self.members))))


_PROTOCOL: Final = IGGY
_SEPARATOR: Final = ":"
NAME_BYTES_MAX: Final = 255
"""As Iggy's server has it: the length of a name is one byte in its protocol."""


def require_group_id(ident: int) -> None:
    """Raise Refusal for a number that no group can have."""
    if not 1 <= ident <= ID_MAX:
        raise Refusal(Reason.INVALID_GROUP_ID, f"a group id is 1 to {ID_MAX}, not {ident}")


def require_group_name(name: str) -> None:
    """Raise Refusal for a name that no group can have."""
    if not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
        raise Refusal(Reason.INVALID_GROUP_ID, f"a group name has 1 to {NAME_BYTES_MAX} bytes, not {name!r}")


def _row_name(ident: int, name: str) -> str:
    """Return the name of a group's row in the catalog: its number, and its own name if it has one."""
    return str(ident) if name == str(ident) else f"{ident}{_SEPARATOR}{name}"


class IggyGroups(Component):
    """All Iggy groups of a broker; ``create`` and ``delete`` return when the catalog has the change."""

    def __init__(self, catalog: Catalog, positions: Positions, changes: TopologyChanges) -> None:
        self._catalog = catalog
        self._positions = positions
        self._changes = changes
        self._groups: dict[Topic, dict[int, IggyGroup]] = {}
        self.on_deleted: Callable[[IggyGroup], None] = ignore
        """Called with a group that was deleted by itself, not with its topic."""

    def load(self, topics: Iterable[Topic]) -> None:
        """Load the groups that the catalog lists, without members."""
        by_uuid = {topic.uuid: topic for topic in topics}
        for row in self._catalog.groups(_PROTOCOL):
            topic = by_uuid.get(row.scope)
            if topic is not None:
                number, _, name = row.name.partition(_SEPARATOR)
                self._groups.setdefault(topic, {})[int(number)] = IggyGroup(int(number), topic, name or number)

    def begin_create(self, topic: Topic, ident: int | None, name: str | None = None) -> Change[IggyGroup]:
        """Create a group as ``create`` does; it is on disk when the returned change has ended."""
        return self._changes.write_catalog(partial(self.create, topic, ident, name))

    def create(self, topic: Topic, ident: int | None, name: str | None = None) -> IggyGroup:
        """Create a group. Raises GROUP_EXISTS if its id or name is in use; the existing group keeps its members.

        Without an id it gets the lowest free one, without a name its id is its name.
        """
        of_topic = self._groups.setdefault(topic, {})
        if ident is None:
            ident = next(number for number in count(1) if number not in of_topic)
        require_group_id(ident)
        name = str(ident) if name is None else name
        require_group_name(name)
        if ident in of_topic or any(group.name == name for group in of_topic.values()):
            raise Refusal(
                Reason.GROUP_EXISTS, f"group {name!r} already exists in topic {topic.flat_name!r}; choose another name"
            )
        self._catalog.put_group(GroupRow(_PROTOCOL, topic.uuid, _row_name(ident, name), 0))
        group = of_topic[ident] = IggyGroup(ident, topic, name)
        return group

    def begin_delete(self, topic: Topic, ident: int | str) -> Change[None]:
        """Delete a group as ``delete`` does; the deletion is on disk when the returned change has ended."""
        return self._changes.write_catalog(partial(self.delete, topic, ident))

    def delete(self, topic: Topic, ident: int | str) -> None:
        """Delete the group with its positions; its members stay connected.

        A later group with the same id starts at the first message.
        """
        group = self.get(topic, ident)
        self._catalog.remove_group(_PROTOCOL, topic.uuid, _row_name(group.id, group.name))
        del self._groups[topic][group.id]
        self._positions.remove(topic, ConsumerRef(IggyConsumerKind.GROUP, group.id).key)
        self.on_deleted(group)

    def get(self, topic: Topic, ident: int | str) -> IggyGroup:
        """Return a group by id or name."""
        of_topic = self._groups.get(topic, {})
        if isinstance(ident, int):
            group = of_topic.get(ident)
        else:
            group = next((group for group in of_topic.values() if group.name == ident), None)
        if group is None:
            raise Refusal(Reason.GROUP_NOT_FOUND, f"topic {topic.flat_name!r} has no group {ident!r}; create it first")
        return group

    def of_topic(self, topic: Topic) -> list[IggyGroup]:
        """Return all groups of a topic by id."""
        groups = self._groups.get(topic, {})
        return [groups[ident] for ident in sorted(groups)]

    def count(self) -> int:
        """Return how many groups there are."""
        return sum(map(len, self._groups.values()))

    def join(self, topic: Topic, ident: int | str, member: int) -> PendingResult[None] | None:
        """Join a group; joining twice changes nothing. Returns a result for the client to wait for, or None."""
        group = self.get(topic, ident)
        if all(other.id != member for other in group.members):
            group.members.append(IggyGroupMember(member))
            group.rebalance()
        return None

    def leave(self, topic: Topic, ident: int | str, member: int) -> None:
        """Leave the group; does nothing if the client is not a member."""
        self._drop(self.get(topic, ident), member)

    def leave_all(self, member: int) -> None:
        """Remove a client that has disconnected from every group; the other members get its partitions."""
        for group in self._list_all():
            self._drop(group, member)

    def list_members(self, group: IggyGroup) -> Change[list[IggyGroupMember]]:
        """Return all members of a group."""
        yield from ()
        return group.members

    def memberships(self, member: int) -> list[tuple[int, int, int]]:
        """Return (stream id, topic id, group id) of every group that the client is in."""
        return [
            (group.topic.stream.id, group.topic.id, group.id)
            for group in self._list_all()
            if any(one.id == member for one in group.members)
        ]

    def on_topic_resized(self, topic: Topic) -> None:
        """Rebalance all groups of the topic: its partitions have changed."""
        for group in self.of_topic(topic):
            group.rebalance()

    def on_topic_deleted(self, topic: Topic) -> None:
        """Delete the groups of a deleted topic."""
        self._groups.pop(topic, None)

    def partition_of(self, topic: Topic, ident: int, member: int) -> Partition:
        """Return the partition of a member's stored offsets: the one it polled last."""
        current = self.get(topic, ident).member(member).current
        if current is None:
            raise Refusal(
                Reason.PARTITION_NOT_FOUND,
                f"client {member} of group {ident} has not polled a partition that it has now; poll, then store",
            )
        return topic.partition(current)

    def _list_all(self) -> list[IggyGroup]:
        return [group for of_topic in self._groups.values() for group in of_topic.values()]

    def _drop(self, group: IggyGroup, member: int) -> None:
        left = [one for one in group.members if one.id != member]
        if len(left) != len(group.members):
            group.members = left
            group.rebalance()

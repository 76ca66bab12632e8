"""Native groups: members that send heartbeats, generations, and positions that a late member cannot overwrite.

A group spans the topics its members name. Every change of members, their topics or partitions starts a new
generation; a position stored under an older one is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ...dialects.native import protocol as native_row
from ...log.catalog import Catalog
from ...log.catalog_rows import GroupRow
from ...model.errors import Reason, Refusal
from ...runtime.turns import Turn
from ..core.component import NEVER_US, SOON_US, Component
from ..core.pending_result import PendingResult
from ..core.position import PositionKey, StoredPosition
from ..core.positions import Positions
from ..core.topology import Partition, Topic

NATIVE: Final = native_row.PROTOCOL.name
CHANGING_S: Final = 0.005
"""How long one tick gives groups their next generation."""
CHANGED_AT_ONCE: Final = 20


class Assignment(NamedTuple):
    """The partitions of a member, as (stream, topic, partition number), and the generation that says so."""

    generation: int
    partitions: list[tuple[str, str, int]]


@dataclass(slots=True, eq=False)
class _Member:
    topics: tuple[Topic, ...]
    seen_us: int
    partitions: list[Partition] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Group:
    name: str
    generation: int
    members: dict[str, _Member] = field(default_factory=dict)
    is_stale: bool = False
    """Whether the assignment is of topics as they were before a change: the catalog has refused the new generation."""

    def assign(self) -> None:
        self.is_stale = False
        for member in self.members.values():
            member.partitions = []
        topics = {topic: None for member in self.members.values() for topic in member.topics}
        for topic in topics:
            interested = [member for member in self.members.values() if topic in member.topics]
            for number, partition in enumerate(topic.partitions):
                interested[number % len(interested)].partitions.append(partition)


class NativeGroups(Component):
    """All native groups of a broker; a generation is in the catalog before members get it."""

    def __init__(self, catalog: Catalog, positions: Positions, session_timeout_us: int) -> None:
        self._catalog = catalog
        self._positions = positions
        self._session_timeout_us = session_timeout_us
        self._groups: dict[str, _Group] = {}

    def load(self, topics: Sequence[Topic]) -> None:
        """Load the groups that the catalog lists, without members."""
        for row in self._catalog.groups(NATIVE):
            self._groups[row.name] = _Group(row.name, row.generation)

    def join(self, group: str, member: str, topics: Sequence[Topic], *, now_us: int) -> Assignment:
        """Join the group to read ``topics``; a repeated call only updates the time of the last heartbeat."""
        if not group or not member:
            raise Refusal(Reason.INVALID_GROUP_ID, "a name of a group or member is empty; give it one")
        found = self._groups.setdefault(group, _Group(group, 0))
        wanted = tuple(dict.fromkeys(topics))
        present = found.members.get(member)
        if present is not None and present.topics == wanted:
            present.seen_us = now_us
        else:
            self._next_generation(found)
            found.members[member] = _Member(wanted, now_us)
            found.assign()
        return self._assignment_of(found, member)

    def heartbeat(self, group: str, member: str, *, generation: int | None = None, now_us: int) -> Assignment:
        """Note that a member is alive; returns its current assignment. A ``generation`` that is over is refused."""
        found = self._find(group, member)
        found.members[member].seen_us = now_us
        self._require_generation(found, generation)
        return self._assignment_of(found, member)

    def leave(self, group: str, member: str, *, now_us: int) -> None:
        """Leave the group; does nothing if the client is not a member."""
        found = self._groups.get(group)
        if found is not None and member in found.members:
            self._drop(found, [member])

    def delete(self, group: str) -> None:
        """Delete a group after its positions were deleted. Raises GROUP_NOT_EMPTY while it has members."""
        self._require_deletable(group)
        self._catalog.remove_group(NATIVE, b"", group)
        del self._groups[group]

    def delete_positions(self, group: str, topics: Iterable[Topic]) -> None:
        """Delete the positions of a group that is about to be deleted. Raises GROUP_NOT_EMPTY while it has members."""
        self._require_deletable(group)
        for topic in topics:
            self._positions.remove(topic, PositionKey(NATIVE, group))

    def _require_deletable(self, group: str) -> None:
        found = self._groups.get(group)
        if found is None:
            raise Refusal(Reason.GROUP_NOT_FOUND, f"group {group!r} does not exist; check the name")
        if found.members:
            raise Refusal(Reason.GROUP_NOT_EMPTY, f"group {group!r} has members; stop them, then delete it")

    def position(self, group: str, partition: Partition) -> StoredPosition | None:
        """Return the group's next offset in a partition, with the epoch it was stored under."""
        return self._positions.find(partition, PositionKey(NATIVE, group))

    def store_position(
        self, group: str, partition: Partition, offset: int, epoch: int | None, generation: int | None, *, now_us: int
    ) -> PendingResult[None] | None:
        """Store the next offset; refused after the end of the log, and under an earlier generation.

        Without a generation, as from a reader that works alone, it is accepted only if the group has no members.
        Returns a result to wait for if the position is not stored yet, else None.
        """
        if not 0 <= offset <= partition.log.next_offset:
            raise Refusal(
                Reason.INVALID_OFFSET,
                f"partition {partition} ends at offset {partition.log.next_offset}; {offset} cannot be a position",
            )
        found = self._groups.get(group)
        if found is None:
            if generation is not None:
                raise _stale_generation_error(group, generation, 0)
        elif generation is not None or found.members:
            self._require_generation(found, -1 if generation is None else generation)
        key = PositionKey(NATIVE, group)
        self._positions.store(partition, key, StoredPosition(offset, epoch, None, now_us))
        return self._positions.confirm(partition, key)

    def on_topic_resized(self, topic: Topic) -> None:
        """Begin a generation for a topic whose number of partitions has changed."""
        self._assign_anew(self._groups_reading(topic), topic, len(topic.partitions))

    def on_topic_deleted(self, topic: Topic) -> None:
        """Remove a deleted topic from the members of all groups."""
        groups = self._groups_reading(topic)
        for group in groups:
            for member in group.members.values():
                member.topics = tuple(one for one in member.topics if one is not topic)
        self._assign_anew(groups, topic, 0)

    def _groups_reading(self, topic: Topic) -> list[_Group]:
        groups = self._groups.values()
        return [group for group in groups if any(topic in member.topics for member in group.members.values())]

    def _assign_anew(self, groups: Sequence[_Group], topic: Topic, partitions_count: int) -> None:
        """Begin a generation for the topic's new number of partitions; the next tick retries groups that are refused.

        Until then members keep their partitions, except deleted ones.
        """
        for group in groups:
            group.is_stale = True
            for member in group.members.values():
                member.partitions = [
                    one for one in member.partitions if one.topic is not topic or one.number < partitions_count
                ]
        self._drop_all(dict.fromkeys(groups, ()))

    @property
    def due_us(self) -> int:
        """The time of the next tick, if there are members: their session may expire."""
        return SOON_US if any(group.members for group in self._groups.values()) else NEVER_US

    def tick(self, now_us: int) -> None:
        """Members that were not seen for too long leave, and groups whose topics changed get their generation."""
        limit_us = now_us - self._session_timeout_us
        changed, turn = {}, Turn(CHANGING_S)
        for group in list(self._groups.values()):
            gone = [name for name, member in group.members.items() if member.seen_us <= limit_us]
            if gone or group.is_stale:
                changed[group] = gone
            if len(changed) >= CHANGED_AT_ONCE:
                self._drop_all(changed)
                changed = {}
                if turn.is_over():
                    # the next tick finds the others
                    break
        self._drop_all(changed)

    def _drop_all(self, members: Mapping[_Group, Sequence[str]]) -> None:
        """Drop members of several groups; raises the first refusal when all were tried."""
        refused: list[Refusal] = []
        for group, names in members.items():
            try:
                self._drop(group, names)
            except Refusal as refusal:
                refused.append(refusal)
        if refused:
            raise refused[0]

    def names(self) -> Iterable[str]:
        """Return the names of all groups."""
        return self._groups.keys()

    def members(self, group: str) -> tuple[int, list[str]]:
        """Return the generation and the members; no members if the group does not exist."""
        found = self._groups.get(group)
        return (0, []) if found is None else (found.generation, list(found.members))

    def _find(self, group: str, member: str) -> _Group:
        found = self._groups.get(group)
        if found is None:
            raise Refusal(Reason.GROUP_NOT_FOUND, f"group {group!r} does not exist; join creates it")
        if member not in found.members:
            raise Refusal(
                Reason.GROUP_MEMBER_NOT_FOUND,
                f"member {member!r} is not in group {group!r}: it left or its session timed out; rejoin the group",
            )
        return found

    def _assignment_of(self, group: _Group, member: str) -> Assignment:
        return Assignment(
            group.generation,
            [(one.topic.stream.name, one.topic.name, one.number) for one in group.members[member].partitions],
        )

    def _drop(self, group: _Group, members: Sequence[str]) -> None:
        self._next_generation(group)
        for member in members:
            del group.members[member]
        group.assign()

    def _next_generation(self, group: _Group) -> None:
        self._catalog.put_group(GroupRow(NATIVE, b"", group.name, group.generation + 1))
        group.generation += 1

    def _require_generation(self, group: _Group, generation: int | None) -> None:
        if generation is not None and generation != group.generation:
            raise _stale_generation_error(group.name, generation, group.generation)


def _stale_generation_error(group: str, generation: int, current: int) -> Refusal:
    return Refusal(
        Reason.STALE_GENERATION,
        f"generation {generation} of group {group!r} is stale (current: {current}); request the partitions again"
        if generation >= 0
        else f"group {group!r} has members; a position needs their generation ({current})",
    )

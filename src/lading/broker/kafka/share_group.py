"""One share group (KIP-932): its members, their epochs, and the partitions that each is to read.

All members may read any partition of the topics that they subscribe to: an assignment only spreads them. It follows
from the order of the members' ids, so that none has to be kept: the partitions of a topic, repeated as often as its
subscribers need, are cut into equal stretches, one for each.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from ...model.errors import Reason, Refusal
from ...runtime.turns import TurnCounter, Turns
from .assignors import Place

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
ASSIGNOR: Final = "simple"


class ShareGroupState(StrEnum):
    """State of a group, in the words that clients get."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroupHeartbeat(NamedTuple):
    """A heartbeat of a member; fields that have not changed since its last one are None."""

    group: str
    member: str
    epoch: int
    rack: str | None = None
    names: Collection[str] | None = None
    client_id: str = ""
    host: str = ""


class ShareGroupHeartbeatResult(NamedTuple):
    """The epoch that the member has to send next, and its whole assignment if that has changed."""

    member: str
    epoch: int
    interval_ms: int = 0
    assignment: Collection[Place] | None = None


@dataclass(slots=True, eq=False)
class ShareGroupMember:
    """A member of a share group."""

    id: str
    rack: str | None = None
    client_id: str = ""
    host: str = ""
    names: frozenset[str] = frozenset()
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    """The epoch before. The member may send it again, as the response with the next one may have been lost."""
    assigned: tuple[Place, ...] = ()
    """The assignment of its last heartbeat."""
    deadline_us: int = 0
    """A member without a heartbeat until then is removed."""
    size_bytes: int = 0
    """Memory of its subscription and names."""

    def require_epoch(self, epoch: int) -> None:
        """Raise MEMBER_FENCED unless the member sends its epoch, or the one before."""
        if epoch in (self.epoch, self.previous_epoch):
            return
        raise Refusal(
            Reason.MEMBER_FENCED,
            f"The share group member has a {'greater' if epoch > self.epoch else 'smaller'} member epoch ({epoch}) "
            f"than the one known by the group coordinator ({self.epoch}). The member must abandon all its partitions "
            "and rejoin.",
        )


@dataclass(slots=True, eq=False)
class ShareGroup:
    """A group, its members by id, and the members of each topic in the order of their ids."""

    name: str
    epoch: int = 0
    reserved_epoch: int = 0
    """The epoch in the catalog, which is above all that were given out."""
    members: dict[str, ShareGroupMember] = field(default_factory=dict)
    subscribers: dict[str, list[str]] = field(default_factory=dict)
    """Ids of members by the name of a topic."""
    topics: Mapping[str, tuple[bytes, int]] = field(default_factory=dict)
    """Id and number of partitions of each of these topics that exists."""
    topology_version: int = -1
    """Version of the topics when they were looked up."""
    session_timeout_us: int = 0
    interval_ms: int = 0
    config_version: int = -1

    @property
    def generation(self) -> int:
        """The epoch, by the name that it has for groups of other protocols."""
        return self.epoch

    @property
    def state(self) -> ShareGroupState:
        """Stable if there are members, as assignments are not negotiated."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def subscribed_names(self) -> frozenset[str]:
        """Names of topics that members subscribe to."""
        return frozenset(self.subscribers)

    def find(self, member_id: str) -> ShareGroupMember:
        """Return a member. Raises GROUP_MEMBER_NOT_FOUND."""
        member = self.members.get(member_id)
        if member is None:
            raise Refusal(Reason.GROUP_MEMBER_NOT_FOUND, f"Member {member_id} is not a member of group {self.name}.")
        return member

    def subscribe(self, member: ShareGroupMember, names: frozenset[str]) -> None:
        """Have a member read these topics and no others."""
        for name in member.names - names:
            ids = self.subscribers[name]
            del ids[bisect_left(ids, member.id)]
            if not ids:
                del self.subscribers[name]
        for name in names - member.names:
            insort(self.subscribers.setdefault(name, []), member.id)
        member.names = names

    def assign(self, member: ShareGroupMember) -> Turns[tuple[Place, ...]]:
        """Return the partitions that a member is to read now, in turns."""
        places: list[Place] = []
        turn = TurnCounter()
        for name in sorted(member.names):
            if turn.is_over():
                yield
            found = self.topics.get(name)
            if found is None or name not in self.subscribers:
                continue
            uuid, partitions_count = found
            ids = self.subscribers[name]
            index, members_count = bisect_left(ids, member.id), len(ids)
            slots_count = -(-members_count // partitions_count) * partitions_count
            first, end = (-(-slots_count * number // members_count) for number in (index, index + 1))
            places += sorted((uuid, slot % partitions_count) for slot in range(first, end))
        return tuple(places)

"""One consumer group of the newer protocol (KIP-848): its members, their epochs, and how each member reaches its
target.

The group has an epoch, which grows with each change of members, subscriptions or topics. An assignor computes a target
for each member, at an epoch of its own that follows the group's. A member first gives up the partitions that its target
lacks, then takes the epoch of the targets, and gets each further partition once its former owner has given it up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from ...model.errors import Reason, Refusal
from .assignors import DEFAULT_ASSIGNOR, Place

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""The member will return under the same instance; its partitions are kept for it meanwhile."""
FIRST_EPOCH: Final = 1
"""Epoch of a group without members."""


class ConsumerGroupState(StrEnum):
    """State of a group, in the words that clients get."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The targets are of an earlier epoch."""
    RECONCILING = "Reconciling"
    """Not all members have reached their targets."""
    STABLE = "Stable"


class MemberState(StrEnum):
    """State of a member on the way to its target."""

    STABLE = "stable"
    UNREVOKED = "unrevoked"
    """It has to give up partitions and has not confirmed that yet."""
    UNRELEASED = "unreleased"
    """Partitions of its target belong to others until these give them up."""


class ConsumerGroupHeartbeat(NamedTuple):
    """A heartbeat of a member; fields that have not changed since its last one are None."""

    group: str
    member: str
    epoch: int
    instance: str | None = None
    rack: str | None = None
    rebalance_timeout_us: int | None = None
    names: Collection[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Set[Place] | None = None
    """Partitions that the member has."""
    client_id: str = ""
    host: str = ""
    may_describe: Callable[[str], bool] = lambda name: True
    """Whether the member may know of a topic, by its flat name: a pattern finds no other."""

    @property
    def is_full(self) -> bool:
        """Whether the heartbeat has all fields, so that the response has the whole assignment."""
        has_subscription = self.names is not None or self.regex is not None
        return self.rebalance_timeout_us is not None and has_subscription and self.owned is not None


class ConsumerGroupHeartbeatResult(NamedTuple):
    """The epoch that the member has to send next, and its whole assignment if that has changed."""

    member: str
    epoch: int
    interval_ms: int = 0
    assignment: Collection[Place] | None = None


@dataclass(slots=True, eq=False)
class ConsumerGroupMember:
    """A member; ``assigned`` and ``revoking`` have the epoch at which it got each partition."""

    id: str
    instance: str | None = None
    rack: str | None = None
    client_id: str = ""
    host: str = ""
    rebalance_timeout_us: int = 0
    names: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    may_describe: Callable[[str], bool] = lambda name: True
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    """The epoch before. The member may send it again, as the response with the next one may have been lost."""
    state: MemberState = MemberState.STABLE
    assigned: Mapping[Place, int] = field(default_factory=dict)
    revoking: Mapping[Place, int] = field(default_factory=dict)
    target: Set[Place] = frozenset()
    deadline_us: int = 0
    """A member without a heartbeat until then is removed."""
    revoke_by_us: int | None = None
    """The time by which it has to give up the partitions that it no longer owns."""
    size_bytes: int = 0
    """Memory of its subscription and names."""

    @property
    def has_left(self) -> bool:
        """Whether it has left for a while and will return under its instance."""
        return self.epoch == LEAVE_STATIC_EPOCH

    def update(self, call: ConsumerGroupHeartbeat) -> bool:
        """Update the member from a heartbeat; return whether its subscription has changed."""
        names = self.names if call.names is None else frozenset(call.names)
        regex = self.regex if call.regex is None else call.regex
        has_changed = names != self.names or regex != self.regex
        if call.rack is not None:
            self.rack = call.rack
        if call.rebalance_timeout_us is not None:
            self.rebalance_timeout_us = call.rebalance_timeout_us
        if call.assignor is not None:
            has_changed |= call.assignor != self.assignor
            self.assignor = call.assignor
        self.names, self.regex = names, regex
        self.client_id, self.host, self.may_describe = call.client_id, call.host, call.may_describe
        return has_changed

    def require_epoch(self, call: ConsumerGroupHeartbeat) -> None:
        """Raise MEMBER_FENCED unless the member sends its epoch, or the one before with none but its own partitions."""
        if call.epoch == self.epoch:
            return
        is_greater = call.epoch > self.epoch
        is_repeated = not is_greater and call.epoch == self.previous_epoch
        if is_repeated and call.owned is not None and call.owned <= self.assigned.keys():
            return
        raise Refusal(
            Reason.MEMBER_FENCED,
            f"The consumer group member has a {'greater' if is_greater else 'smaller'} member epoch ({call.epoch}) "
            f"than the one known by the group coordinator ({self.epoch}). The member must abandon all its partitions "
            "and rejoin.",
        )


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """A group, its members by id, and the owner of each partition."""

    name: str
    epoch: int = FIRST_EPOCH
    reserved_epoch: int = 0
    """The epoch in the catalog, which is above all that were given out."""
    assignment_epoch: int = 0
    """The epoch of the group for which the targets were computed."""
    assignor: str = DEFAULT_ASSIGNOR
    members: dict[str, ConsumerGroupMember] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """Member id by instance."""
    owners: dict[Place, str] = field(default_factory=dict)
    """Member id of each partition that is assigned, or that its former owner has not given up."""
    subscribed: Mapping[str, frozenset[bytes]] = field(default_factory=dict)
    """Topics that each member subscribes to, when this was last looked up."""
    partitions_count: Mapping[bytes, int] = field(default_factory=dict)
    """How many partitions each of these topics had then."""
    topology_version: int = -1
    """Version of the topics at that time."""
    next_look_us: int = 0
    """Before that, the topics are not looked up again."""
    next_assignment_us: int = 0
    """Before that, the targets are not computed again, however often members come and go."""
    is_assigning: bool = False
    session_timeout_us: int = 0
    interval_ms: int = 0
    assignment_interval_us: int = 0
    config_version: int = -1

    @property
    def generation(self) -> int:
        """The epoch, by the name that it has for groups of other protocols."""
        return self.epoch

    @property
    def state(self) -> ConsumerGroupState:
        """The state of the group, by that of its members."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        for member in self.members.values():
            if member.state is not MemberState.STABLE or member.epoch != self.assignment_epoch:
                return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    @property
    def subscribed_names(self) -> frozenset[str]:
        """Names that members subscribe to, without those that patterns find."""
        return frozenset().union(*(member.names for member in self.members.values()))

    def find(self, member_id: str, instance: str | None) -> ConsumerGroupMember:
        """Return a member.

        Raises GROUP_MEMBER_NOT_FOUND, or MEMBER_REPLACED if another one has its instance.
        """
        if instance is not None:
            holder = self.instances.get(instance)
            if holder is None:
                raise Refusal(Reason.GROUP_MEMBER_NOT_FOUND, f"Instance id {instance} is unknown.")
            if holder != member_id:
                raise Refusal(
                    Reason.MEMBER_REPLACED,
                    f"Static member {member_id} with instance id {instance} was fenced by member {holder}.",
                )
        member = self.members.get(member_id)
        if member is None:
            raise Refusal(Reason.GROUP_MEMBER_NOT_FOUND, f"Member {member_id} is not a member of group {self.name}.")
        return member

    def require_commit(self, member_id: str, epoch: int) -> ConsumerGroupMember:
        """Return the member that stores or looks up positions. Raises GROUP_MEMBER_NOT_FOUND if it does not exist."""
        member = self.members.get(member_id)
        if member is None:
            raise Refusal(Reason.GROUP_MEMBER_NOT_FOUND, f"Member {member_id} is not a member of group {self.name}.")
        if epoch > member.epoch or epoch < 0:
            raise self.stale_epoch_error(member, epoch)
        return member

    def require_owner(self, member: ConsumerGroupMember, epoch: int, place: Place) -> None:
        """Raise STALE_MEMBER_EPOCH if the member shows an earlier epoch than that at which it got the partition.

        A member that commits while it learns of its next epoch keeps its partitions, and is not fenced (KIP-1251).
        """
        if epoch != member.epoch:
            since = member.assigned.get(place, member.revoking.get(place))
            if since is None or epoch < since:
                raise self.stale_epoch_error(member, epoch)

    def stale_epoch_error(self, member: ConsumerGroupMember, epoch: int) -> Refusal:
        """Return the Refusal for a member that shows another epoch than its own."""
        return Refusal(
            Reason.STALE_MEMBER_EPOCH,
            f"the epoch {epoch} of member {member.id!r} of group {self.name!r} is stale (current: {member.epoch}); "
            "take the epoch of the next heartbeat",
        )

    def remove(self, member: ConsumerGroupMember) -> None:
        """Take a member out; its partitions have no owner any more."""
        del self.members[member.id]
        if member.instance is not None and self.instances.get(member.instance) == member.id:
            del self.instances[member.instance]
        self.release(member, member.assigned)
        self.release(member, member.revoking)

    def release(self, member: ConsumerGroupMember, places: Mapping[Place, int]) -> None:
        """Note that a member has given up partitions."""
        for place in places:
            if self.owners.get(place) == member.id:
                del self.owners[place]

    def replace(self, former: ConsumerGroupMember, member_id: str) -> ConsumerGroupMember:
        """Give a restarted instance the place, the partitions and the target of its former member."""
        del self.members[former.id]
        member = ConsumerGroupMember(
            member_id, former.instance, former.rack, names=former.names, regex=former.regex, assignor=former.assignor,
            assigned=former.assigned, target=former.target, size_bytes=former.size_bytes,
        )  # fmt: skip
        for place in former.assigned:
            self.owners[place] = member_id
        self.members[member_id] = member
        if former.instance is not None:
            self.instances[former.instance] = member_id
        return member

    def leave_for_a_while(self, member: ConsumerGroupMember) -> None:
        """Keep the partitions of a member that will return under its instance, except those that it had to give up."""
        self.release(member, member.revoking)
        member.revoking, member.revoke_by_us = {}, None
        member.state, member.epoch = MemberState.STABLE, LEAVE_STATIC_EPOCH

    def reconcile(self, member: ConsumerGroupMember, owned: Set[Place] | None, now_us: int) -> bool:
        """Bring a member's assignment closer to its target; return whether it has changed."""
        if member.state is MemberState.STABLE and member.epoch == self.assignment_epoch:
            return False
        if member.revoking and _has_any(owned, member.revoking):
            return False
        self.release(member, member.revoking)
        before = member.assigned
        kept = {place: epoch for place, epoch in before.items() if place in member.target}
        member.assigned = kept
        member.revoking = {place: epoch for place, epoch in before.items() if place not in member.target}
        if member.revoking and _has_any(owned, member.revoking):
            member.state = MemberState.UNREVOKED
            member.revoke_by_us = now_us + member.rebalance_timeout_us
            return True
        self.release(member, member.revoking)
        member.revoking, member.revoke_by_us = {}, None
        member.previous_epoch, member.epoch = member.epoch, self.assignment_epoch
        wanted = member.target - kept.keys()
        free = [place for place in wanted if place not in self.owners]
        for place in free:
            self.owners[place] = member.id
        member.assigned = kept | dict.fromkeys(free, member.epoch)
        member.state = MemberState.UNRELEASED if len(free) < len(wanted) else MemberState.STABLE
        return member.assigned.keys() != before.keys()


def _has_any(owned: Set[Place] | None, revoking: Mapping[Place, int]) -> bool:
    """Return whether a member may still have any of these partitions; a member that did not send its partitions may
    have all.
    """
    return owned is None or not owned.isdisjoint(revoking)

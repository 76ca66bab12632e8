"""One coordinated group: members that agree on a protocol in each generation, one of which divides the work.

Metadata of members and assignments of the leader are passed on unread (kafka.md 3.1).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from ...dialects.kafka import protocol as kafka_row
from ...model.errors import Reason, Refusal
from ..core.pending_result import PendingResult

KAFKA: Final = kafka_row.PROTOCOL.name
"""The protocol of positions and groups in the catalog."""


class GroupState(StrEnum):
    """State of a group, in the words that clients get."""

    EMPTY = "Empty"
    """The group has no members; it may have positions."""
    PREPARING = "PreparingRebalance"
    """Members are to join again."""
    COMPLETING = "CompletingRebalance"
    """All have joined; the leader divides the work."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Deleted."""


TRANSITIONS: Final[Mapping[GroupState, frozenset[GroupState]]] = MappingProxyType(
    {
        GroupState.EMPTY: frozenset({GroupState.PREPARING, GroupState.DEAD}),
        GroupState.PREPARING: frozenset({GroupState.COMPLETING, GroupState.EMPTY}),
        GroupState.COMPLETING: frozenset({GroupState.STABLE, GroupState.PREPARING}),
        GroupState.STABLE: frozenset({GroupState.PREPARING}),
        GroupState.DEAD: frozenset(),
    }
)
"""The states that may follow each state; the diagram of docs/reference/kafka-groups."""

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each protocol that the member supports, the preferred one first."""


PROTOCOL_BYTES: Final = 150
"""Memory of a protocol without its name and metadata: a pair of objects."""


class JoinGroupRequest(NamedTuple):
    """A member that wants to be in a group; ``member`` is empty the first time.

    ``instance`` is the name of a member that keeps its place over restarts. ``named_first``: a member without an id
    gets one and joins again with it. ``told_to_skip``: the request's version has the field skip_assignment, so that a
    leader need not divide the work again.
    """

    group: str
    member: str
    protocol_type: str
    protocols: Protocols
    session_timeout_us: int
    rebalance_timeout_us: int
    instance: str | None = None
    client_id: str = ""
    host: str = ""
    requires_member_id: bool = False
    supports_skip_assignment: bool = False

    @property
    def metadata_bytes(self) -> int:
        """Memory that its protocols take."""
        return sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in self.protocols)

    def new_member(self) -> str:
        """Return a member id that no other member has."""
        return f"{self.instance or self.client_id}-{uuid.uuid4()}"


class JoinGroupResult(NamedTuple):
    """The generation that a member has joined. Only the leader gets the ``members``: (member, instance, metadata)."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member: str
    members: Sequence[tuple[str, str | None, bytes]] = ()
    skip_assignment: bool = False


class SyncGroupResult(NamedTuple):
    """The assignment of a member."""

    protocol_type: str
    protocol: str
    assignment: bytes


class MemberIdRequired(Refusal):
    """Join again, as ``member``."""

    def __init__(self, member: str) -> None:
        super().__init__(Reason.MEMBER_ID_REQUIRED, f"join again as {member!r}")
        self.member = member


@dataclass(slots=True, eq=False)
class KafkaGroupMember:
    """A member; ``joining`` and ``syncing`` are its calls that wait for a response."""

    id: str
    call: JoinGroupRequest
    deadline_us: int
    """A member that sends nothing until then is removed."""
    joining: PendingResult[JoinGroupResult] | None = None
    syncing: PendingResult[SyncGroupResult] | None = None
    must_sync: bool = False
    assignment: bytes = b""

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol."""
        return dict(self.call.protocols).get(protocol or "", b"")

    def touch(self, now_us: int) -> None:
        """Note that the member lives."""
        self.deadline_us = now_us + self.call.session_timeout_us

    def refuse(self, refusal: Refusal) -> None:
        """Fail the member's pending JoinGroup and SyncGroup, if any, with this refusal."""
        joining, self.joining = self.joining, None
        syncing, self.syncing = self.syncing, None
        for answer in (joining, syncing):
            if answer is not None:
                answer.refuse(refusal)


@dataclass(slots=True, eq=False)
class KafkaGroup:
    """A group and its members in the order they joined; the first is the leader until it leaves."""

    name: str
    generation: int = 0
    state: GroupState = GroupState.EMPTY
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, KafkaGroupMember] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """Member id by instance."""
    named: dict[str, int] = field(default_factory=dict)
    """Member ids that were given out and have not joined yet, with the time when they are void."""
    deadline_us: int = 0
    """The time at which a rebalance continues without missing members."""
    delay_until_us: int | None = None
    """The latest time until which the first members wait for others."""
    newcomers: bool = False
    kept: bool = False
    """It is in the catalog."""

    def move(self, state: GroupState) -> None:
        """Go to the next state; only those of TRANSITIONS are allowed."""
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"group {self.name!r} cannot go from {self.state} to {state}")
        self.state = state

    def accepts(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these protocols can agree with all the others on one."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        common = self.common()
        return protocol_type == self.protocol_type and any(name in common for name, _ in protocols)

    def common(self) -> set[str]:
        """Return the protocols that every member supports."""
        return set.intersection(*({name for name, _ in one.call.protocols} for one in self.members.values()))

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all support."""
        common = self.common()
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = next(name for name, _ in member.call.protocols if name in common)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def require(self, member_id: str, instance: str | None) -> KafkaGroupMember:
        """Return the member. Raises GROUP_MEMBER_NOT_FOUND, or MEMBER_REPLACED if its instance was started again."""
        if instance is not None:
            holder = self.instances.get(instance)
            if holder is not None and holder != member_id:
                raise self.fenced_instance_error(instance)
        member = self.members.get(member_id)
        if member is None or (instance is not None and member.call.instance != instance):
            raise Refusal(
                Reason.GROUP_MEMBER_NOT_FOUND,
                f"member {member_id!r} is not in group {self.name!r}: it left or its session timed out; rejoin "
                "the group",
            )
        return member

    def require_generation(self, generation: int) -> None:
        """Raise STALE_GENERATION if the generation is over."""
        if generation != self.generation:
            raise Refusal(
                Reason.STALE_GENERATION,
                f"generation {generation} of group {self.name!r} is stale (current: {self.generation}); rejoin "
                "the group",
            )

    def fenced_instance_error(self, instance: str) -> Refusal:
        """Return the Refusal for the former member of an instance."""
        return Refusal(
            Reason.MEMBER_REPLACED,
            f"group instance {instance!r} of {self.name!r} is fenced: another member "
            "joined with the same group.instance.id; give each member one of its own",
        )

    def rebalance_error(self) -> Refusal:
        """Return the Refusal for a member that must join again."""
        return Refusal(Reason.REBALANCE_IN_PROGRESS, f"group {self.name!r} is rebalancing; rejoin the group")

    def join_result(self, member: KafkaGroupMember, *, members: bool) -> JoinGroupResult:
        """Return the result for a member of this generation, with ``members`` if it is to divide the work."""
        return JoinGroupResult(
            self.generation,
            self.protocol_type,
            self.protocol or "",
            self.leader or "",
            member.id,
            tuple((one.id, one.call.instance, one.metadata(self.protocol)) for one in self.members.values())
            if members
            else (),
        )

    @property
    def rebalance_timeout_us(self) -> int:
        """The longest time-out that a member asks for."""
        return max((one.call.rebalance_timeout_us for one in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Whether all members have joined."""
        return not self.named and all(one.joining is not None for one in self.members.values())


def no_group(name: str, reason: Reason = Reason.GROUP_NOT_FOUND) -> Refusal:
    """Return the refusal for a group, or a member of one, that does not exist."""
    return Refusal(reason, f"member or group {name!r} does not exist (it left, or its session timed out); join")

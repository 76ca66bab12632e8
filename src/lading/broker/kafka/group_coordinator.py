"""Coordinated groups: members join, divide the work, send heartbeats and leave, each with a time-out (kafka.md 3).

Members are in memory; the existence of a group and its positions are in the catalog. Calls that wait for other members
are completed later; ``tick`` continues without members that stay away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ...log.catalog import Catalog
from ...log.catalog_rows import GroupRow
from ...log.catalog_schema import CatalogRecordKind
from ...log.kafka_config_table import KafkaConfigTable
from ...model.errors import Reason, Refusal
from ..core.callbacks import ignore
from ..core.component import Component
from ..core.pending_result import PendingResult
from ..core.position import PositionKey, StoredPosition
from ..core.positions import Positions
from ..core.settings import BrokerSettings
from ..core.topology import Partition, Topic
from .consumer_group import ConsumerGroup
from .consumer_group_coordinator import AnyGroup, ConsumerGroupCoordinator
from .group import (
    KAFKA,
    PROTOCOL_BYTES,
    GroupState,
    JoinGroupRequest,
    JoinGroupResult,
    KafkaGroup,
    KafkaGroupMember,
    MemberIdRequired,
    SyncGroupResult,
    no_group,
)
from .group_rebalancer import GroupRebalancer
from .internal_topics import KafkaTopicView
from .share_group import ShareGroup
from .share_group_coordinator import ShareGroupCoordinator

CLASSIC_GENERATION: Final = 0
"""Generation of a classic group in the catalog: groups of the newer protocol have epochs from 1 on there."""
RETRY_US: Final = 1_000_000
"""Time after a failure until the time-outs of a group are handled again."""


class MemberCall(NamedTuple):
    """A request of a member of a generation; a reader without a group membership has generation -1 and no name."""

    group: str
    member: str
    generation: int
    instance: str | None = None


class KafkaGroupCoordinator(Component):
    """All coordinated groups of a broker."""

    def __init__(
        self,
        catalog: Catalog,
        positions: Positions,
        configs: KafkaConfigTable,
        topics: KafkaTopicView,
        settings: BrokerSettings,
    ) -> None:
        self._catalog = catalog
        self._positions = positions
        self._settings = settings
        self._groups: dict[str, AnyGroup] = {}
        # on_due is set after this
        self._rebalancer = GroupRebalancer(settings.rebalance_delay_us, lambda: self.on_due())
        self.consumer = ConsumerGroupCoordinator(
            self._groups, catalog, configs, topics, settings, lambda: self.on_due()
        )
        """The coordinator of groups of the newer protocol (KIP-848)."""
        self.share = ShareGroupCoordinator(self._groups, catalog, configs, topics, settings, lambda: self.on_due())
        """The coordinator of share groups, whose members share partitions (KIP-932)."""

    def on_settings_changed(self, settings: BrokerSettings) -> None:
        """Present members stay; the new limits apply to members that join."""
        self._settings = self.consumer.settings = self.share.settings = settings

    def load(self, topics: Sequence[Topic]) -> None:
        """Load the groups that the catalog lists, without members."""
        for row in self._catalog.groups(KAFKA):
            is_classic = row.generation == CLASSIC_GENERATION
            self._groups[row.name] = KafkaGroup(row.name, kept=True) if is_classic else self.consumer.load(row)
        self.share.load()

    def require_few_protocols(self, group: str, protocols_count: int) -> None:
        """Raise Refusal if a member of a group has more protocols than its metadata may take, however short they are.

        To be asked before the list of them is made.
        """
        self._require_metadata_bytes(group, PROTOCOL_BYTES * protocols_count)

    def join(self, call: JoinGroupRequest, *, now_us: int) -> PendingResult[JoinGroupResult]:
        """Join the next generation, done when all others have; MemberIdRequired if the member needs an id first."""
        answer: PendingResult[JoinGroupResult] = PendingResult()
        try:
            self._join(call, answer, now_us)
        except Refusal as refusal:
            answer.refuse(refusal)
        return answer

    def sync(
        self, call: MemberCall, protocol: tuple[str | None, str | None], work: Mapping[str, bytes], *, now_us: int
    ) -> PendingResult[SyncGroupResult]:
        """Return the member's assignment, done when the leader has sent it.

        ``work`` holds the assignments by member id, only from the leader.

        ``protocol`` is (type, name) as the caller got it, None for a part it does not send.
        """
        answer: PendingResult[SyncGroupResult] = PendingResult()
        try:
            group, member = self._require(call, now_us)
            known = (group.protocol_type, group.protocol)
            if any(given is not None and given != one for given, one in zip(protocol, known, strict=True)):
                raise Refusal(
                    Reason.INCONSISTENT_PROTOCOL,
                    f"group {group.name!r} has agreed on {known}, not on {protocol}; join it again",
                )
            if group.state is GroupState.PREPARING:
                raise group.rebalance_error()
            if sum(map(len, work.values())) > self._settings.group_assignment_bytes_max:
                raise Refusal(
                    Reason.REQUEST_TOO_LARGE,
                    f"the assignments of group {group.name!r} have more than the "
                    f"{self._settings.group_assignment_bytes_max} bytes that are accepted "
                    "(setting broker.group_assignment_bytes_max)",
                )
        except Refusal as refusal:
            answer.refuse(refusal)
            return answer
        if group.state is GroupState.STABLE:
            answer.finish(SyncGroupResult(group.protocol_type, group.protocol or "", member.assignment))
            return answer
        if member.syncing is not None:
            member.syncing.refuse(group.rebalance_error())
        member.syncing, member.must_sync = answer, False
        if member.id == group.leader:
            self._rebalancer.assign(group, work, now_us)
        return answer

    def heartbeat(self, call: MemberCall, *, now_us: int) -> None:
        """Record a heartbeat. Refusal REBALANCE_IN_PROGRESS if the member must rejoin."""
        group, _ = self._require(call, now_us)
        if group.state is GroupState.PREPARING:
            raise group.rebalance_error()

    def leave(self, name: str, members: Sequence[tuple[str, str | None]], *, now_us: int) -> list[Refusal | None]:
        """Remove each (member, instance) from the group; return for each the refusal, or None if it was removed."""
        group = self._find_classic(name)
        results: list[Refusal | None] = []
        for member_id, instance in members:
            try:
                if group is None:
                    raise no_group(name, Reason.GROUP_MEMBER_NOT_FOUND)
                self._leave(group, member_id, instance, now_us)
                results.append(None)
            except Refusal as refusal:
                results.append(refusal)
        return results

    @property
    def due_us(self) -> int:
        """The next time-out."""
        return min(one.due_us for one in (self._rebalancer.time_outs, self.consumer.time_outs, self.share.time_outs))

    def tick(self, now_us: int) -> None:
        """Continue without members that were absent for too long."""
        self.consumer.tick(now_us)
        self.share.tick(now_us)
        self._rebalancer.time_outs.expire(self._groups, KafkaGroup, self._expire, now_us)

    def _expire(self, group: KafkaGroup, now_us: int) -> None:
        self._rebalancer.expire(group, now_us)
        self._rebalancer.watch_all(group)
        if not (group.kept or group.named):
            del self._groups[group.name]

    def stop(self) -> None:
        """Complete the requests of all waiting callers: the broker stops."""
        for group in self._groups.values():
            for member in group.members.values() if isinstance(group, KafkaGroup) else ():
                member.refuse(Refusal(Reason.STOPPING, "the broker is shutting down; retry later"))

    def names(self) -> Collection[str]:
        """Return the names of all groups."""
        return self._groups.keys()

    def find(self, name: str) -> AnyGroup | None:
        """Return a group of either protocol, for reading only."""
        return self._groups.get(name)

    def list_client_ids(self, name: str) -> dict[str, str]:
        """Return the client.id of each member of a group of consumers, by member; empty for a share group."""
        group = self._groups.get(name)
        if isinstance(group, KafkaGroup):
            return {member.id: member.call.client_id for member in group.members.values()}
        if isinstance(group, ConsumerGroup):
            return {member.id: member.client_id for member in group.members.values()}
        return {}

    def _find_classic(self, name: str) -> KafkaGroup | None:
        group = self._groups.get(name)
        return group if isinstance(group, KafkaGroup) else None

    def delete(self, name: str, topics: Iterable[Topic]) -> None:
        """Delete the group and its positions. Raises GROUP_NOT_EMPTY while it has members."""
        group = self._require_deletable(name)
        if isinstance(group, ShareGroup):
            self.share.delete(name)
            return
        self._catalog.remove_group(KAFKA, b"", name)
        self.delete_positions(name, topics)
        if isinstance(group, KafkaGroup):
            group.move(GroupState.DEAD)
        del self._groups[name]

    def delete_positions(self, name: str, topics: Iterable[Topic]) -> None:
        """Delete the positions of a group that is about to be deleted. Raises GROUP_NOT_EMPTY while it has members."""
        self._require_deletable(name)
        key = PositionKey(KAFKA, name)
        for topic in topics:
            if any(key in partition.positions for partition in topic.partitions):
                self._positions.remove(topic, key)

    def _require_deletable(self, name: str) -> AnyGroup:
        group = self._groups.get(name)
        if group is None:
            raise no_group(name)
        if group.members or (isinstance(group, KafkaGroup) and group.state is not GroupState.EMPTY):
            raise Refusal(Reason.GROUP_NOT_EMPTY, f"group {name!r} has members; stop them, then delete it")
        return group

    # -- positions

    def admit(
        self, call: MemberCall, *, in_transaction: bool = False, knows_epochs: bool = True, now_us: int
    ) -> Callable[[Partition], None]:
        """Check that the caller may store positions: a member of this generation, or any caller if it is empty.

        Returns what raises Refusal for a partition whose position the caller may not store. ``knows_epochs``: members
        of the newer protocol may send the version of the request.
        """
        group = self._groups.get(call.group)
        if isinstance(group, ShareGroup):
            raise Refusal(Reason.GROUP_NOT_FOUND, f"Group {call.group} is not a consumer group.")
        if isinstance(group, ConsumerGroup):
            return _admit_consumer(group, call, in_transaction, knows_epochs)
        # one with an empty name may store positions, as in Apache Kafka, but for a transaction
        if in_transaction:
            _require_name(call.group)
        if call.generation < 0 and not (group and group.members and not in_transaction) and not call.member:
            self._keep(group or KafkaGroup(call.group))
            return ignore
        if group is None:
            raise Refusal(
                Reason.GROUP_NOT_FOUND if knows_epochs and not in_transaction else Reason.STALE_GENERATION,
                f"group {call.group!r} has no generation {call.generation}; join the group again",
            )
        self._require_member(group, call, now_us)
        if group.state is GroupState.COMPLETING and not in_transaction:
            raise group.rebalance_error()
        return ignore

    def store(self, name: str, partition: Partition, position: StoredPosition) -> None:
        """Store a position of a caller that was admitted."""
        self._positions.store(partition, PositionKey(KAFKA, name), position)

    def remove_position(self, name: str, partition: Partition) -> None:
        """Forget the group's position in one partition; does nothing if it has none."""
        self._positions.remove_from(partition, PositionKey(KAFKA, name))

    def position(self, name: str, partition: Partition) -> StoredPosition | None:
        """Return the next offset, with the epoch and text the consumer gave."""
        return partition.positions.get(PositionKey(KAFKA, name))

    # -- how it works

    def _find_or_create_group(self, name: str) -> KafkaGroup:
        _require_name(name)
        group = self._groups.get(name)
        if isinstance(group, ShareGroup):
            raise Refusal(Reason.GROUP_NOT_FOUND, f"Group {name} is not a classic group.")
        if isinstance(group, ConsumerGroup):
            if group.members:
                raise Refusal(
                    Reason.INCONSISTENT_PROTOCOL,
                    f"group {name!r} has members of the newer protocol; set group.protocol=consumer",
                )
            return KafkaGroup(name)
        return group or KafkaGroup(name)

    def _keep(self, group: KafkaGroup) -> None:
        self._groups[group.name] = group
        if not group.kept:
            row = GroupRow(KAFKA, b"", group.name, CLASSIC_GENERATION)
            self._catalog.put_group(row, CatalogRecordKind.COORDINATED_GROUP)
            group.kept = True

    def _require(self, call: MemberCall, now_us: int) -> tuple[KafkaGroup, KafkaGroupMember]:
        _require_name(call.group)
        group = self._find_classic(call.group)
        if group is None:
            raise no_group(call.group, Reason.GROUP_MEMBER_NOT_FOUND)
        return group, self._require_member(group, call, now_us)

    def _require_member(self, group: KafkaGroup, call: MemberCall, now_us: int) -> KafkaGroupMember:
        member = group.require(call.member, call.instance)
        group.require_generation(call.generation)
        member.touch(now_us)
        return member

    def _join(self, call: JoinGroupRequest, answer: PendingResult[JoinGroupResult], now_us: int) -> None:
        settings, group = self._settings, self._find_or_create_group(call.group)
        low_us, high_us = settings.session_timeout_us_min, settings.session_timeout_us_max
        if not low_us <= call.session_timeout_us <= high_us:
            raise Refusal(
                Reason.INVALID_SESSION_TIMEOUT,
                f"a session timeout is {low_us // 1000} to {high_us // 1000} ms, not {call.session_timeout_us // 1000}",
            )
        self._require_room(group, call)
        if not group.accepts(call.protocol_type, call.protocols):
            raise Refusal(
                Reason.INCONSISTENT_PROTOCOL,
                f"the members of group {group.name!r} have no protocol in common with it; "
                "configure one assignor that all of them have",
            )
        if call.member in group.named:
            del group.named[call.member]
            self._add(group, call.member, call, answer, now_us)
        elif call.member:
            self._join_again(group, group.require(call.member, call.instance), call, answer, now_us)
        elif call.instance is not None and call.instance in group.instances:
            self._replace(group, call.instance, call, answer, now_us)
        else:
            self._join_new(group, call, answer, now_us)

    def _require_room(self, group: KafkaGroup, call: JoinGroupRequest) -> None:
        """Refuse a member's metadata if it is too large, for one member or for all together."""
        settings, size_bytes = self._settings, call.metadata_bytes
        self._require_metadata_bytes(group.name, size_bytes)
        former = group.members.get(call.member)
        more_bytes = size_bytes - (0 if former is None else former.call.metadata_bytes)
        if self._rebalancer.metadata_bytes + more_bytes > settings.groups_metadata_bytes_max:
            raise Refusal(
                Reason.GROUP_FULL,
                f"the members of all groups have {self._rebalancer.metadata_bytes} bytes of metadata; "
                f"{settings.groups_metadata_bytes_max} are the most (setting broker.groups_metadata_bytes_max)",
            )

    def _require_metadata_bytes(self, group: str, size_bytes: int) -> None:
        settings = self._settings
        if size_bytes > settings.member_metadata_bytes_max:
            raise Refusal(
                Reason.REQUEST_TOO_LARGE,
                f"a member of group {group!r} has {size_bytes} bytes of metadata; the limit is "
                f"{settings.member_metadata_bytes_max} (setting broker.member_metadata_bytes_max)",
            )

    def _join_new(
        self, group: KafkaGroup, call: JoinGroupRequest, answer: PendingResult[JoinGroupResult], now_us: int
    ) -> None:
        if len(group.members) + len(group.named) >= self._settings.group_members_max:
            raise Refusal(
                Reason.GROUP_FULL,
                f"group {group.name!r} has {self._settings.group_members_max} members, the most "
                "(setting broker.group_members_max)",
            )
        member_id = call.new_member()
        if call.requires_member_id and call.instance is None:
            self._groups[group.name] = group
            group.named[member_id] = now_us + call.session_timeout_us
            self._rebalancer.time_outs.watch(group.named[member_id])
            raise MemberIdRequired(member_id)
        self._add(group, member_id, call, answer, now_us)

    def _add(
        self,
        group: KafkaGroup,
        member_id: str,
        call: JoinGroupRequest,
        answer: PendingResult[JoinGroupResult],
        now_us: int,
    ) -> None:
        self._keep(group)
        if not group.members:
            group.protocol_type = call.protocol_type
            group.leader = member_id
        group.members[member_id] = KafkaGroupMember(member_id, call, now_us + call.session_timeout_us, answer)
        self._rebalancer.metadata_bytes += call.metadata_bytes
        if call.instance is not None:
            group.instances[call.instance] = member_id
        group.newcomers = True
        self._rebalancer.rebalance(group, now_us)

    def _join_again(
        self,
        group: KafkaGroup,
        member: KafkaGroupMember,
        call: JoinGroupRequest,
        answer: PendingResult[JoinGroupResult],
        now_us: int,
    ) -> None:
        same = member.call.protocols == call.protocols
        settled = group.state is GroupState.COMPLETING or (
            group.state is GroupState.STABLE and member.id != group.leader
        )
        member.touch(now_us)
        if same and settled:
            # the response was lost: nothing has changed
            answer.finish(group.join_result(member, members=member.id == group.leader))
            return
        if member.joining is not None:
            member.joining.refuse(group.rebalance_error())
        self._rebalancer.metadata_bytes += call.metadata_bytes - member.call.metadata_bytes
        member.call, member.joining = call, answer
        self._rebalancer.rebalance(group, now_us)

    def _replace(
        self,
        group: KafkaGroup,
        instance: str,
        call: JoinGroupRequest,
        answer: PendingResult[JoinGroupResult],
        now_us: int,
    ) -> None:
        """Give a restarted instance the place of its former member."""
        former = group.members.pop(group.instances[instance])
        former.refuse(group.fenced_instance_error(instance))
        member = KafkaGroupMember(call.new_member(), call, now_us + call.session_timeout_us)
        self._rebalancer.metadata_bytes += call.metadata_bytes - former.call.metadata_bytes
        member.assignment = former.assignment
        group.members[member.id] = member
        group.instances[instance] = member.id
        led = group.leader == former.id
        if led:
            group.leader = member.id
        if group.state is GroupState.STABLE and former.call.protocols == call.protocols:
            joined = group.join_result(member, members=led and call.supports_skip_assignment)
            if not call.supports_skip_assignment and led:
                # with its former id in the response it does not take itself for the leader, which would divide the work
                # again
                joined = joined._replace(leader=former.id)
            answer.finish(joined._replace(skip_assignment=led and call.supports_skip_assignment))
            self._rebalancer.time_outs.watch(member.deadline_us)
            return
        member.joining = answer
        self._rebalancer.rebalance(group, now_us)

    def _leave(self, group: KafkaGroup, member_id: str, instance: str | None, now_us: int) -> None:
        if instance is None and group.named.pop(member_id, None) is not None:
            self._rebalancer.complete_when_ready(group, now_us)
            return
        if instance is not None and not member_id:
            member_id = group.instances.get(instance, "")
        self._rebalancer.remove(group, group.require(member_id, instance), now_us)


def _admit_consumer(
    group: ConsumerGroup, call: MemberCall, in_transaction: bool, knows_epochs: bool
) -> Callable[[Partition], None]:
    """Check that the caller may store positions of a group of the newer protocol: a member, or any if it is empty."""
    if call.generation < 0 and not group.members:
        return ignore
    if not knows_epochs:
        raise Refusal(
            Reason.GROUP_VERSION_TOO_OLD,
            f"group {group.name!r} has members of the newer protocol, which need OffsetCommit 9; update the client",
        )
    try:
        member = group.require_commit(call.member, call.generation)
    except Refusal as refusal:
        raise _in_transaction(refusal) if in_transaction else refusal from None

    def require(partition: Partition) -> None:
        try:
            group.require_owner(member, call.generation, (partition.topic.uuid, partition.number))
        except Refusal as refusal:
            raise _in_transaction(refusal) if in_transaction else refusal from None

    return require


def _in_transaction(refusal: Refusal) -> Refusal:
    """Return the refusal of a member in the form for requests of transactions, which know no epochs of members."""
    return Refusal(Reason.STALE_GENERATION, str(refusal)) if refusal.reason is Reason.STALE_MEMBER_EPOCH else refusal


def _require_name(name: str) -> None:
    """Raise Refusal if a group's name is empty: Apache Kafka checks that before anything else of a request."""
    if not name:
        raise Refusal(Reason.INVALID_GROUP_ID, "group name is empty; pass a non-empty group id")

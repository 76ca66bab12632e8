"""All consumer groups of the newer protocol (KIP-848): members join, reconcile and leave by heartbeats, and are removed
after a time-out.

Members are in memory, as those of classic groups: after a restart they are unknown and join again. The catalog holds
that a group is of this kind, and an epoch above all that were given out. Targets are computed at most once in an
interval, however many members come and go, and in turns.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from ...log.catalog import Catalog
from ...log.catalog_rows import GroupRow
from ...log.kafka_config_table import KafkaConfigTable
from ...model.errors import Reason, Refusal
from ...runtime.turns import TurnCounter, Turns
from ..core.component import NEVER_US
from ..core.settings import BrokerSettings
from .assignors import ASSIGNORS, DEFAULT_ASSIGNOR, AssignedMember
from .consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    ConsumerGroupMember,
)
from .epoch_groups import GROUP_CONFIG_KIND, measure_subscription, require_room, reserve_epochs
from .group import KAFKA, KafkaGroup
from .group_time_outs import GroupTimeOuts, log_expired
from .internal_topics import KafkaTopicView
from .share_group import ShareGroup

LOOK_INTERVAL_US: Final = 1_000_000
"""How often the topics of a group are looked up again while topics change."""
MS: Final = 1_000
_UNKNOWN_VERSION: Final = -2
"""The version of topics that have to be looked up again."""
SESSION_TIMEOUT, HEARTBEAT_INTERVAL, ASSIGNMENT_INTERVAL = (
    "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "consumer.assignment.interval.ms",
)  # fmt: skip
DEFAULT_MS: Final[Mapping[str, int]] = {SESSION_TIMEOUT: 45_000, HEARTBEAT_INTERVAL: 5_000, ASSIGNMENT_INTERVAL: 1_000}
"""Configs of a group in milliseconds, by name, as in Apache Kafka."""

AnyGroup = KafkaGroup | ConsumerGroup | ShareGroup


class MatchingTopics(NamedTuple):
    """Names of the topics that a pattern matches, at a version of the topics."""

    version: int
    names: Collection[str]


_NO_MATCHES: Final = MatchingTopics(0, ())


class ConsumerGroupCoordinator:
    """The groups of the newer protocol among all coordinated groups, whose names they share."""

    def __init__(
        self,
        groups: dict[str, AnyGroup],
        catalog: Catalog,
        configs: KafkaConfigTable,
        topics: KafkaTopicView,
        settings: BrokerSettings,
        on_due: Callable[[], None],
    ) -> None:
        """``groups`` are all coordinated groups; ``on_due`` is called when a time-out comes nearer."""
        self.settings = settings
        self.time_outs = GroupTimeOuts(on_due)
        self.subscription_bytes = 0
        """Bytes of the subscriptions of all members of all groups."""
        self._groups = groups
        self._catalog = catalog
        self._configs = configs
        self._topics = topics
        self._matches: dict[str, dict[str, MatchingTopics]] = {}
        """Matching topics by group and pattern."""

    def find(self, name: str) -> ConsumerGroup | None:
        """Return a group, if it is of this kind."""
        group = self._groups.get(name)
        return group if isinstance(group, ConsumerGroup) else None

    def load(self, row: GroupRow) -> ConsumerGroup:
        """Return a group that the catalog lists, without members."""
        return ConsumerGroup(row.name, row.generation, row.generation)

    # -- heartbeats

    def heartbeat(self, call: ConsumerGroupHeartbeat, *, now_us: int) -> Turns[ConsumerGroupHeartbeatResult]:
        """Return the epoch and assignment of a member that joins, stays or leaves, in turns. Raises Refusal."""
        if call.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(call, now_us)
        group = self._find_or_create(call)
        self._require_room(group, call)
        if call.assignor is not None and call.assignor not in ASSIGNORS:
            raise unsupported_assignor_error(call.assignor)
        if call.epoch == JOIN_EPOCH:
            member = self._join(group, call)
        else:
            member = group.find(call.member, call.instance)
            member.require_epoch(call)
        self._keep(group)
        if member.update(call):
            self._begin_epoch(group)
        if call.epoch == JOIN_EPOCH or call.names is not None or call.regex is not None:
            self._update_size(member)
        self._touch(group, member, now_us)
        yield from self._refresh(group, now_us)
        # others had their turn: the member may have left, or its instance was started again
        if group.members.get(member.id) is not member:
            group.find(member.id, call.instance)
        is_new_assignment = group.reconcile(member, call.owned, now_us)
        if member.revoke_by_us is not None:
            self.time_outs.watch(member.revoke_by_us)
        is_asked = call.epoch == JOIN_EPOCH or call.is_full
        return ConsumerGroupHeartbeatResult(
            member.id,
            member.epoch,
            group.interval_ms,
            list(member.assigned) if is_asked or is_new_assignment else None,
        )

    def _find_or_create(self, call: ConsumerGroupHeartbeat) -> ConsumerGroup:
        group = self._groups.get(call.group)
        if isinstance(group, ConsumerGroup):
            return group
        if call.epoch != JOIN_EPOCH and group is None:
            raise Refusal(Reason.GROUP_NOT_FOUND, f"Consumer group {call.group} not found.")
        if isinstance(group, ShareGroup) or (
            group is not None and (call.epoch != JOIN_EPOCH or group.members or group.named)
        ):
            raise Refusal(Reason.GROUP_NOT_FOUND, f"Group {call.group} is not a consumer group.")
        return ConsumerGroup(call.group)

    def _require_room(self, group: ConsumerGroup, call: ConsumerGroupHeartbeat) -> None:
        """Refuse a subscription that is too large, for one member or for all together."""
        if call.epoch != JOIN_EPOCH and call.names is None and call.regex is None:
            return
        texts = (call.member, call.instance, call.rack, call.regex, call.client_id)
        size_bytes = measure_subscription(call.names or (), texts)
        former = group.members.get(call.member)
        former_bytes = 0 if former is None else former.size_bytes
        require_room(self.settings, "consumer", call.group, size_bytes, former_bytes, self.subscription_bytes)

    def _join(self, group: ConsumerGroup, call: ConsumerGroupHeartbeat) -> ConsumerGroupMember:
        """Return the member that joins; one that is known, or whose instance was away, keeps its partitions."""
        member_id = call.member or uuid.uuid4().hex
        holder = None if call.instance is None else group.instances.get(call.instance)
        if holder is not None and holder != member_id:
            former = group.members[holder]
            if not former.has_left:
                raise Refusal(
                    Reason.INSTANCE_IN_USE,
                    f"Static member {member_id} with instance id {call.instance} cannot join the group because the "
                    f"instance id is owned by {holder} member.",
                )
            return group.replace(former, member_id)
        member = group.members.get(member_id)
        if member is not None:
            return member
        if len(group.members) >= self.settings.group_members_max:
            raise Refusal(
                Reason.GROUP_FULL,
                f"The consumer group has reached its maximum capacity of {self.settings.group_members_max} members.",
            )
        member = ConsumerGroupMember(member_id, call.instance)
        group.members[member_id] = member
        if call.instance is not None:
            group.instances[call.instance] = member_id
        return member

    def _leave(self, call: ConsumerGroupHeartbeat, now_us: int) -> ConsumerGroupHeartbeatResult:
        group = self._groups.get(call.group)
        if group is None:
            raise Refusal(Reason.GROUP_NOT_FOUND, f"Group {call.group} not found.")
        if not isinstance(group, ConsumerGroup):
            raise Refusal(Reason.GROUP_NOT_FOUND, f"Group {call.group} is not a consumer group.")
        member = group.find(call.member, call.instance)
        if call.epoch == LEAVE_STATIC_EPOCH and member.instance is not None:
            group.leave_for_a_while(member)
            self._touch(group, member, now_us)
        else:
            self._remove(group, member)
        return ConsumerGroupHeartbeatResult(member.id, call.epoch)

    def _touch(self, group: ConsumerGroup, member: ConsumerGroupMember, now_us: int) -> None:
        if group.config_version != self._configs.version:
            found = self._configs.find(GROUP_CONFIG_KIND, group.name)
            value = {name: int(found.get(name, default)) for name, default in DEFAULT_MS.items()}
            group.session_timeout_us = value[SESSION_TIMEOUT] * MS
            group.interval_ms = value[HEARTBEAT_INTERVAL]
            group.assignment_interval_us = value[ASSIGNMENT_INTERVAL] * MS
            group.config_version = self._configs.version
        member.deadline_us = now_us + group.session_timeout_us
        self.time_outs.watch(member.deadline_us)

    def _update_size(self, member: ConsumerGroupMember) -> None:
        texts = (member.id, member.instance, member.rack, member.regex, member.client_id)
        size_bytes = measure_subscription(member.names, texts)
        self.subscription_bytes += size_bytes - member.size_bytes
        member.size_bytes = size_bytes

    def _remove(self, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        group.remove(member)
        self.subscription_bytes -= member.size_bytes
        if not group.members:
            self._matches.pop(group.name, None)
        self._begin_epoch(group)

    def _begin_epoch(self, group: ConsumerGroup) -> None:
        """Begin the next epoch of a group."""
        group.epoch += 1
        self._keep(group)

    def _keep(self, group: ConsumerGroup) -> None:
        """Store the group in the catalog, with an epoch above its own."""
        reserve_epochs(self._catalog, KAFKA, group)
        self._groups[group.name] = group

    # -- topics and targets

    def find_stale_patterns(self, name: str, regex: str | None, now_us: int) -> list[str]:
        """Return the patterns that must be looked up before a heartbeat: a new one, and old ones if topics changed."""
        group, version = self.find(name), self._topics.version
        known = self._matches.get(name, {})
        wanted = {regex} if regex and regex not in known else set()
        if group is not None and group.topology_version != version and now_us >= group.next_look_us:
            wanted |= {pattern for pattern, matches in known.items() if matches.version != version}
        return sorted(wanted)

    def keep_matches(self, name: str, version: int, matches: Mapping[str, Collection[str]]) -> None:
        """Note which topics the patterns of a group match."""
        known = self._matches.setdefault(name, {})
        for pattern, names in matches.items():
            known[pattern] = MatchingTopics(version, names)
        if (group := self.find(name)) is not None:
            group.topology_version = _UNKNOWN_VERSION

    def forget_matches(self, name: str) -> None:
        """Forget patterns that no member has: a heartbeat with them was refused."""
        group = self.find(name)
        used = {member.regex for member in group.members.values()} if group is not None else set()
        known = self._matches.get(name, {})
        for pattern in known.keys() - used:
            del known[pattern]
        if not known:
            self._matches.pop(name, None)

    def _refresh(self, group: ConsumerGroup, now_us: int) -> Turns[None]:
        """Look up the topics if they have changed, and compute the targets if these are of an earlier epoch."""
        if group.is_assigning:
            return
        group.is_assigning = True
        try:
            is_due = group.epoch > group.assignment_epoch and now_us >= group.next_assignment_us
            if not is_due and group.topology_version != self._topics.version and now_us >= group.next_look_us:
                yield from self._look_up(group, now_us)
            if group.epoch > group.assignment_epoch and now_us >= group.next_assignment_us:
                yield from self._assign(group, now_us)
        finally:
            group.is_assigning = False

    def _look_up(self, group: ConsumerGroup, now_us: int) -> Turns[None]:
        """Look up the topics of all members; a new epoch begins if there are others, or of other sizes."""
        former = group.subscribed, group.partitions_count
        yield from self._find_topics(group)
        group.next_look_us = now_us + LOOK_INTERVAL_US
        if (group.subscribed, group.partitions_count) != former:
            self._begin_epoch(group)

    def _find_topics(self, group: ConsumerGroup) -> Turns[None]:
        """Note which topics each member subscribes to, and how many partitions they have."""
        turn, version = TurnCounter(), self._topics.version
        known = self._matches.get(group.name, {})
        by_names: dict[frozenset[str], frozenset[bytes]] = {}
        # equal ones are one object, which assignors compare first
        interned: dict[frozenset[bytes], frozenset[bytes]] = {}
        subscribed: dict[str, frozenset[bytes]] = {}
        partitions_count: dict[bytes, int] = {}
        is_current = True
        for member in list(group.members.values()):
            topics = None if member.regex else by_names.get(member.names)
            if topics is None:
                matches = known.get(member.regex, _NO_MATCHES)
                is_current &= not member.regex or matches.version == version
                ids: set[bytes] = set()
                for name in (*member.names, *filter(member.may_describe, matches.names)):
                    if (topic := self._topics.find_listed(name)) is not None:
                        ids.add(topic.uuid)
                        partitions_count[topic.uuid] = len(topic.partitions)
                    if turn.is_over():
                        yield
                topics = frozenset(ids)
                topics = interned.setdefault(topics, topics)
                if not member.regex:
                    by_names[member.names] = topics
            subscribed[member.id] = topics
            if turn.is_over():
                yield
        group.subscribed, group.partitions_count = subscribed, partitions_count
        group.topology_version = version if is_current else _UNKNOWN_VERSION

    def _assign(self, group: ConsumerGroup, now_us: int) -> Turns[None]:
        """Compute the targets of all members for the epoch of the group."""
        epoch = group.epoch
        yield from self._find_topics(group)
        members = [
            AssignedMember(member.id, member.instance, topics, member.target)
            for member in group.members.values()
            if (topics := group.subscribed.get(member.id)) is not None
        ]
        group.assignor = _choose_assignor(group.members.values())
        targets = yield from ASSIGNORS[group.assignor](members, group.partitions_count)
        for member in group.members.values():
            member.target = targets.get(member.id, frozenset())
        group.assignment_epoch = epoch
        group.next_assignment_us = now_us + group.assignment_interval_us

    # -- time

    def tick(self, now_us: int) -> None:
        """Take out members that sent no heartbeat for too long, or did not give up partitions in time."""
        self.time_outs.expire(self._groups, ConsumerGroup, self._expire, now_us)

    def _expire(self, group: ConsumerGroup, now_us: int) -> None:
        silent: list[str] = []
        holding: list[str] = []
        for member in list(group.members.values()):
            deadline_us = min(member.deadline_us, NEVER_US if member.revoke_by_us is None else member.revoke_by_us)
            if deadline_us <= now_us:
                (silent if member.deadline_us <= now_us else holding).append(member.id)
                self._remove(group, member)
            else:
                self.time_outs.watch(deadline_us)
        log_expired(group.name, silent)
        log_expired(group.name, holding, "did not give up partitions within their rebalance time-out")


def unsupported_assignor_error(name: str) -> Refusal:
    """Return the Refusal for an assignor that the broker does not have."""
    supported = ", ".join(ASSIGNORS)
    return Refusal(
        Reason.UNSUPPORTED_ASSIGNOR, f"ServerAssignor {name} is not supported. Supported assignors: {supported}."
    )


def _choose_assignor(members: Collection[ConsumerGroupMember]) -> str:
    """Return the assignor that most members name; members may name none."""
    votes: dict[str, int] = {}
    for member in members:
        if member.assignor is not None:
            votes[member.assignor] = votes.get(member.assignor, 0) + 1
    return max(votes, key=lambda name: votes[name], default=DEFAULT_ASSIGNOR)

"""All share groups (KIP-932): members join, stay and leave by heartbeats, and are removed after a time-out.

Members are in memory, as those of other groups. The catalog holds the name of a group, an epoch above all that were
given out, and the topics that it has read: its queue of each is the channel of its name (``broker/channels``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from ...log.catalog import Catalog
from ...log.catalog_rows import GroupRow
from ...log.catalog_schema import CatalogRecordKind
from ...log.kafka_config_table import KafkaConfigTable
from ...model.errors import Reason, Refusal
from ...runtime.turns import TurnCounter, Turns
from ..core.settings import BrokerSettings
from .consumer_group_coordinator import AnyGroup
from .epoch_groups import GROUP_CONFIG_KIND, measure_subscription, require_room, reserve_epochs
from .group_time_outs import GroupTimeOuts, log_expired
from .internal_topics import KafkaTopicView
from .share_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ShareGroup,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    ShareGroupMember,
)

SHARE: Final = "kafka-share"
"""The protocol of a group's rows in the catalog: one without a topic, and one for each topic that it has read."""
MS: Final = 1_000
SESSION_TIMEOUT, HEARTBEAT_INTERVAL = "share.session.timeout.ms", "share.heartbeat.interval.ms"
SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS = 45_000, 5_000
"""Defaults of Apache Kafka."""


class ShareGroupCoordinator:
    """The share groups among all coordinated groups, whose names they share."""

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
        self._names: set[str] = set()
        """Names of the share groups among ``groups``."""
        self._topics_read: dict[str, dict[bytes, None]] = {}
        """Ids of the topics that each group has read."""

    def load(self) -> None:
        """Load the groups that the catalog lists, without members."""
        for row in self._catalog.groups(SHARE):
            if row.scope:
                self._topics_read.setdefault(row.name, {})[row.scope] = None
            else:
                self._groups[row.name] = ShareGroup(row.name, row.generation, row.generation)
                self._names.add(row.name)

    @property
    def has_groups(self) -> bool:
        """Whether there is a share group."""
        return bool(self._names)

    def find(self, name: str) -> ShareGroup | None:
        """Return a group, if it is of this kind."""
        group = self._groups.get(name)
        return group if isinstance(group, ShareGroup) else None

    def require(self, name: str) -> ShareGroup:
        """Return a group. Raises GROUP_NOT_FOUND."""
        group = self._groups.get(name)
        if isinstance(group, ShareGroup):
            return group
        if group is None:
            raise Refusal(Reason.GROUP_NOT_FOUND, f"Group {name} not found.")
        raise Refusal(Reason.GROUP_NOT_FOUND, f"Group {name} is not a share group.")

    # -- heartbeats

    def heartbeat(self, call: ShareGroupHeartbeat, *, now_us: int) -> Turns[ShareGroupHeartbeatResult]:
        """Return the epoch and assignment of a member that joins, stays or leaves, in turns. Raises Refusal."""
        if call.epoch == LEAVE_EPOCH:
            group = self.require(call.group)
            self._remove(group, group.find(call.member))
            return ShareGroupHeartbeatResult(call.member, LEAVE_EPOCH)
        group = self._find_or_create(call)
        size_bytes = self._require_room(group, call)
        if call.epoch == JOIN_EPOCH:
            member = self._join(group, call)
        else:
            member = group.find(call.member)
            member.require_epoch(call.epoch)
        if call.rack is not None:
            member.rack = call.rack
        member.client_id, member.host = call.client_id, call.host
        if call.names is not None:
            self.subscription_bytes += size_bytes - member.size_bytes
            member.size_bytes = size_bytes
            names = frozenset(call.names)
            if names != member.names:
                group.subscribe(member, names)
                group.topology_version = -1
                self._begin_epoch(group)
        self._touch(group, member, now_us)
        yield from self._look_up(group)
        # others had their turn: the member may have left
        if group.members.get(member.id) is not member:
            group.find(member.id)
        assigned = yield from group.assign(member)
        if member.epoch != group.epoch:
            member.previous_epoch, member.epoch = member.epoch, group.epoch
        is_told = call.epoch == JOIN_EPOCH or call.names is not None or assigned != member.assigned
        member.assigned = assigned
        return ShareGroupHeartbeatResult(member.id, member.epoch, group.interval_ms, assigned if is_told else None)

    def create(self, name: str) -> ShareGroup:
        """Return the group of that name, created if no group has it. Raises GROUP_NOT_FOUND if another kind has."""
        group = self.require(name) if name in self._groups else ShareGroup(name)
        self._keep(group)
        return group

    def _find_or_create(self, call: ShareGroupHeartbeat) -> ShareGroup:
        if call.epoch != JOIN_EPOCH or call.group in self._groups:
            return self.require(call.group)
        return ShareGroup(call.group)

    def _require_room(self, group: ShareGroup, call: ShareGroupHeartbeat) -> int:
        """Return the memory of a subscription. Raises Refusal if it is too much, for one member or for all together."""
        names = call.names or ()
        size_bytes = measure_subscription(names, (call.member, call.rack, call.client_id))
        former = group.members.get(call.member)
        former_bytes = 0 if former is None else former.size_bytes
        require_room(self.settings, "share", call.group, size_bytes, former_bytes, self.subscription_bytes)
        return size_bytes

    def _join(self, group: ShareGroup, call: ShareGroupHeartbeat) -> ShareGroupMember:
        member = group.members.get(call.member)
        if member is not None:
            return member
        if len(group.members) >= self.settings.group_members_max:
            raise Refusal(
                Reason.GROUP_FULL,
                f"The share group has reached its maximum capacity of {self.settings.group_members_max} members.",
            )
        member = group.members[call.member] = ShareGroupMember(call.member)
        return member

    def _remove(self, group: ShareGroup, member: ShareGroupMember) -> None:
        group.subscribe(member, frozenset())
        del group.members[member.id]
        self.subscription_bytes -= member.size_bytes
        self._begin_epoch(group)

    def _begin_epoch(self, group: ShareGroup) -> None:
        """Begin the next epoch of a group."""
        group.epoch += 1
        self._keep(group)

    def _keep(self, group: ShareGroup) -> None:
        """Store the group in the catalog, with an epoch above its own."""
        reserve_epochs(self._catalog, SHARE, group)
        self._groups[group.name] = group
        self._names.add(group.name)

    def _look_up(self, group: ShareGroup) -> Turns[None]:
        """Look the topics up if they may have changed; a new epoch begins if they have."""
        version, turn = self._topics.version, TurnCounter()
        if group.topology_version == version:
            return
        found: dict[str, tuple[bytes, int]] = {}
        for name in list(group.subscribers):
            topic = self._topics.find_listed(name)
            if topic is not None and topic.partitions:
                found[name] = topic.uuid, len(topic.partitions)
            if turn.is_over():
                yield
        if found != group.topics:
            is_known = group.topology_version >= 0
            group.topics = found
            if is_known:
                self._begin_epoch(group)
        group.topology_version = version

    def _touch(self, group: ShareGroup, member: ShareGroupMember, now_us: int) -> None:
        if group.config_version != self._configs.version:
            found = self._configs.find(GROUP_CONFIG_KIND, group.name)
            group.session_timeout_us = int(found.get(SESSION_TIMEOUT, SESSION_TIMEOUT_MS)) * MS
            group.interval_ms = int(found.get(HEARTBEAT_INTERVAL, HEARTBEAT_INTERVAL_MS))
            group.config_version = self._configs.version
        member.deadline_us = now_us + group.session_timeout_us
        self.time_outs.watch(member.deadline_us)

    # -- time

    def tick(self, now_us: int) -> None:
        """Take out members that stayed away for too long."""
        self.time_outs.expire(self._groups, ShareGroup, self._expire, now_us)

    def _expire(self, group: ShareGroup, now_us: int) -> None:
        silent: list[str] = []
        for member in list(group.members.values()):
            if member.deadline_us <= now_us:
                silent.append(member.id)
                self._remove(group, member)
            else:
                self.time_outs.watch(member.deadline_us)
        log_expired(group.name, silent)

    # -- topics that a group has read

    def list_topics_read(self, name: str) -> Collection[bytes]:
        """Return the ids of the topics that a group has read."""
        return list(self._topics_read.get(name, ()))

    def has_read(self, name: str, topic: bytes) -> bool:
        """Return whether a group has read a topic."""
        return topic in self._topics_read.get(name, ())

    def note_topic(self, name: str, topic: bytes) -> None:
        """Store in the catalog that a group reads a topic."""
        if not self.has_read(name, topic):
            self._catalog.put_group(GroupRow(SHARE, topic, name, 1), CatalogRecordKind.COORDINATED_GROUP)
            self._topics_read.setdefault(name, {})[topic] = None

    def forget_topic(self, name: str, topic: bytes) -> None:
        """Remove from the catalog that a group reads a topic."""
        if self.has_read(name, topic):
            self._catalog.remove_group(SHARE, topic, name)
            del self._topics_read[name][topic]

    def delete(self, name: str) -> None:
        """Forget a group without members, and which topics it has read."""
        for topic in self.list_topics_read(name):
            self.forget_topic(name, topic)
        self._topics_read.pop(name, None)
        self._catalog.remove_group(SHARE, b"", name)
        del self._groups[name]
        self._names.discard(name)

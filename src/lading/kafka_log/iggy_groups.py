"""Iggy's consumer groups over a cluster: each client in one is a member of a Kafka group, and the cluster assigns
partitions to the members of all gateways.

The catalog topic has the groups with their numbers. A gateway knows its own members; others are looked up when a client
requests the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from ..broker.core.change import Change
from ..broker.core.pending_result import PendingResult
from ..broker.core.topology import ID_MAX
from ..broker.iggy.consumer import IGGY, ConsumerRef, IggyConsumerKind
from ..broker.iggy.groups import IggyGroup, IggyGroupMember, IggyGroups, require_group_id, require_group_name
from ..model.errors import LadingError, Reason, Refusal
from ..runtime.clock import now_us
from .group_members import ID_SEPARATOR, GroupMember
from .positions import CONSUMER_PREFIX
from .refusals import refuse

if TYPE_CHECKING:
    from ..broker.core.position import PositionKey
    from ..broker.core.topology import Topic
    from .catalog_records import GroupRecord
    from .cluster import ClusterTopics
    from .group_members import GroupMembers
    from .positions import ClusterPositions

_GROUP_PREFIX: Final = f"{IggyConsumerKind.GROUP.value}/"


class ClusterIggyGroups(IggyGroups):
    """The groups of all topics, as the catalog topic has them, with the members at this gateway."""

    cluster: ClusterTopics
    members: GroupMembers
    look_again: Callable[[], None]
    _positions: ClusterPositions
    _handles: dict[IggyGroupMember, GroupMember]
    _assigned: dict[IggyGroupMember, frozenset[int]]
    """The partitions of each member, also those that this gateway has not seen yet."""

    def bind(self, cluster: ClusterTopics, members: GroupMembers, look_again: Callable[[], None]) -> None:
        """Set the components that groups need; called before the first group."""
        self.cluster, self.members, self.look_again = cluster, members, look_again
        self._handles, self._assigned = {}, {}
        self._positions.find_group = self.find_kafka_group

    def load(self, topics: Iterable[Topic]) -> None:
        """Load nothing: groups come with the catalog topic."""

    # -- requests of clients

    def begin_create(self, topic: Topic, ident: int | None, name: str | None = None) -> Change[IggyGroup]:
        """Create a group in the catalog topic."""
        if ident is not None:
            require_group_id(ident)
        wanted = str(ident) if name is None and ident is not None else name
        if wanted is not None:
            require_group_name(wanted)
            if wanted.startswith(CONSUMER_PREFIX):
                raise Refusal(
                    Reason.INVALID_GROUP_ID,
                    f"group {wanted!r}: names that begin with {CONSUMER_PREFIX!r} are those of single consumers in the "
                    "Kafka cluster; choose another name",
                )
        before = {group.id for group in self.of_topic(topic)}
        yield partial(
            self.cluster.put_group, topic.flat_name, topic.uuid, ident, wanted, self._catalog.dates.of(now_us()),
            partial(name_kafka_group, topic),
        )  # fmt: skip
        yield self.look_again
        if wanted is not None:
            return self.get(topic, wanted)
        # without either, take the lowest unused number, which is also the name
        found = [group for group in self.of_topic(topic) if group.id not in before and group.name == str(group.id)]
        if not found:
            raise Refusal(Reason.GROUP_NOT_FOUND, "the new group was deleted meanwhile; create it again")
        return found[0]

    def begin_delete(self, topic: Topic, ident: int | str) -> Change[None]:
        """Delete the group with its positions in the cluster; its members stay connected."""
        group = self.get(topic, ident)
        place = topic.flat_name, topic.uuid, group.name
        yield partial(self.cluster.mark_group_deleted, *place)
        yield self.look_again
        self.on_deleted(group)
        yield partial(self.cluster.finish_group_deletion, *place, name_kafka_group(topic, group.name))
        yield self.look_again

    def delete(self, topic: Topic, ident: int | str) -> NoReturn:
        """Refuse: operators delete groups at once, and the cluster needs a while."""
        refuse("operated groups")

    def join(self, topic: Topic, ident: int | str, member: int) -> PendingResult[None] | None:
        """Join a group; the result is done when the cluster has the member."""
        group = self.get(topic, ident)
        if any(other.id == member for other in group.members):
            return None
        one, pending = IggyGroupMember(member), PendingResult[None]()
        group.members.append(one)
        handle = GroupMember(
            name_kafka_group(topic, group.name), (topic.flat_name, topic.uuid), member,
            partial(self._on_assigned, group, one), partial(self._on_joined, group, one, pending),
        )  # fmt: skip
        self._handles[one] = handle
        self.members.join(handle)
        return pending

    def list_members(self, group: IggyGroup) -> Change[list[IggyGroupMember]]:
        """Return the members of a group at all gateways; those of other gateways as the cluster describes them."""
        found: list[Mapping[str, list[int]]] = []
        yield lambda: found.append(self.cluster.describe_members(name_kafka_group(group.topic, group.name)))
        mine = {self._handles[one].id for one in group.members}
        others = [
            IggyGroupMember(client, partitions)
            for ident, partitions in found[0].items()
            if ident not in mine and (client := _read_client(ident)) is not None
        ]
        return [*group.members, *others]

    def _drop(self, group: IggyGroup, member: int) -> None:
        for one in [one for one in group.members if one.id == member]:
            group.members.remove(one)
            self._leave_group(one)

    def _leave_group(self, one: IggyGroupMember) -> None:
        self._assigned.pop(one, None)
        self.members.leave(self._handles.pop(one))

    # -- changes in the cluster

    def take_over(self, topic: Topic, records: Mapping[str, GroupRecord]) -> None:
        """Make the groups of a topic the same as in the catalog topic."""
        wanted = {
            record.id: record
            for record in records.values()
            if record.topic_id == topic.uuid.hex() and not record.is_deleted and 1 <= record.id <= ID_MAX
        }
        known = self._groups.setdefault(topic, {})
        for group in list(known.values()):
            record = wanted.get(group.id)
            if record is None or record.name != group.name:
                del known[group.id]
                self._abandon(group)
        for ident, record in wanted.items():
            if ident not in known:
                known[ident] = IggyGroup(ident, topic, record.name)

    def _abandon(self, group: IggyGroup) -> None:
        members, group.members = group.members, []
        for one in members:
            self._leave_group(one)

    def on_topic_resized(self, topic: Topic) -> None:
        """Let members read partitions that were assigned before this gateway knew them."""
        for group in self.of_topic(topic):
            for one in group.members:
                self._assign(group, one, self._assigned.get(one, frozenset()))

    def on_topic_deleted(self, topic: Topic) -> None:
        """Have the members of a topic's groups leave."""
        for group in self._groups.pop(topic, {}).values():
            self._abandon(group)

    def _on_joined(
        self, group: IggyGroup, one: IggyGroupMember, pending: PendingResult[None], error: LadingError | None
    ) -> None:
        if error is None:
            pending.finish(None)
            return
        self._drop(group, one.id)
        pending.refuse(
            error
            if isinstance(error, Refusal)
            else Refusal(Reason.STOPPING, f"group {group.name!r}: the Kafka cluster does not respond ({error}); retry")
        )

    def _on_assigned(
        self, group: IggyGroup, one: IggyGroupMember, partitions: frozenset[int], release: Callable[[], None]
    ) -> None:
        """Read the assigned partitions from now on; lost ones are released when their positions are stored."""
        if one not in self._handles:
            return
        lost = self._assigned.get(one, frozenset()) - partitions
        key = ConsumerRef(IggyConsumerKind.GROUP, group.id).key
        for number in partitions - self._assigned.get(one, frozenset()):
            if number < len(group.topic.partitions):
                self._positions.look_up_again(group.topic.partitions[number], key)
        self._assigned[one] = partitions
        self._assign(group, one, partitions)
        waiting = [
            pending
            for number in lost
            if number < len(group.topic.partitions)
            and (pending := self._positions.confirm(group.topic.partitions[number], key)) is not None
        ]
        left = len(waiting)

        def count_down(_pending: PendingResult[None]) -> None:
            nonlocal left
            left -= 1
            if not left:
                release()

        for pending in waiting:
            pending.add_done_callback(count_down)
        if not waiting:
            release()

    @staticmethod
    def _assign(group: IggyGroup, one: IggyGroupMember, partitions: frozenset[int]) -> None:
        known = sorted(number for number in partitions if number < len(group.topic.partitions))
        if known != one.partitions:
            one.assign(known)
            group.generation += 1

    # -- positions

    def find_kafka_group(self, topic: Topic, key: PositionKey) -> str | None:
        """Return the Kafka group with the positions of an Iggy group; None for other consumers."""
        if key.protocol != IGGY or not key.consumer.startswith(_GROUP_PREFIX):
            return None
        group = self._groups.get(topic, {}).get(int(key.consumer.removeprefix(_GROUP_PREFIX)))
        return None if group is None else name_kafka_group(topic, group.name)


def name_kafka_group(topic: Topic, name: str) -> str:
    """Return the Kafka group of a group of Iggy."""
    return f"iggy.{topic.stream.name}.{topic.name}.{name}"


def _read_client(ident: str) -> int | None:
    """Return the number of a member's Iggy client, or None for a member of another program."""
    number = ident.partition(ID_SEPARATOR)[0]
    return int(number) if number.isdecimal() and number.isascii() else None

"""Filters of groups and channels: members get the messages that meet a condition, and the group passes over the rest.

A channel, and so a share group, and a group of Iggy are named in the requests of their members. A Fetch of Kafka names
no group: it is of the group that its ``client.id`` names, which is that of the group itself, the one that Java's client
makes of the group's name, or one that the filter lists. If a member of another group uses such a client.id, the filter
is suspended until an operator sets it again: no message is kept from another group.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ..log.group_filter_table import GroupFilterKey, GroupFilterTable
from ..model.errors import Reason, Refusal, SettingError
from ..model.lazy_dataclass import lazy_dataclass
from ..payloads.form import PayloadForm
from .channels import Channel, Channels
from .core.component import Component
from .core.group_condition import GroupCondition
from .core.topology import Topic
from .group_view import CHANNEL, GroupView
from .iggy.consumer import IGGY, ConsumerRef, IggyConsumerKind
from .iggy.filtered_poll import FilteredPolls
from .iggy.groups import IggyGroup, IggyGroups
from .kafka.group import KAFKA
from .kafka.group_coordinator import KafkaGroupCoordinator
from .share_sessions import ShareSessions

LOG: Final = logging.getLogger("lading.broker")
FILTERED: Final = frozenset((KAFKA, CHANNEL, IGGY))
"""The protocols whose groups have filters."""
CLIENT_IDS_MAX: Final = 100
_OF_JAVA: Final = re.compile(r"consumer-(.+)-\d+")
_DEFAULT_CLIENT_ID: Final = re.compile(
    r"|rdkafka|sarama|kgo|aiokafka-.*|kafka-python-.*|confluent-kafka.*|consumer-\d+"
)
"""Default client ids, for clients whose users set none: any reader may have one of them."""


@lazy_dataclass(frozen=True, slots=True)
class GroupFilter:
    """The filter of one group."""

    key: GroupFilterKey
    condition: GroupCondition
    client_ids: tuple[str, ...] = ()
    """The client ids of a Kafka group's members, besides the group's name."""
    suspended_by: str | None = None
    """Another Kafka group that has a member with a client.id of this filter; the filter is suspended meanwhile."""

    @property
    def document(self) -> dict[str, object]:
        """Return the filter as it is stored and shown."""
        return {
            "where": self.condition.text,
            "client_ids": list(self.client_ids),
            "suspended_by": self.suspended_by,
        }


class _GroupKind(NamedTuple):
    """How the filters of one protocol's groups reach their readers."""

    require_client_ids: Callable[[GroupFilterKey, Sequence[str]], None]
    """Raises SettingError if the filter of a group must not have these client ids."""
    list_client_ids: Callable[[GroupFilterKey, Sequence[str]], Sequence[str]]
    """Returns the client ids to which the filter of a group applies, if these client ids are set for it."""
    apply: Callable[[GroupFilterKey, Sequence[Topic]], None]
    """Has the readers of a group follow its present filter, or none."""


class GroupFilters(Component):
    """The filters of all groups."""

    def __init__(
        self,
        table: GroupFilterTable,
        channels: Channels,
        share: ShareSessions,
        iggy: IggyGroups,
        polls: FilteredPolls,
        coordinator: KafkaGroupCoordinator,
        choose_form: Callable[[Topic], PayloadForm],
    ) -> None:
        """``choose_form`` returns how conditions read the payloads of a topic."""
        self._table = table
        self._channels = channels
        self._share = share
        self._iggy = iggy
        self._polls = polls
        self._coordinator = coordinator
        self._choose_form = choose_form
        self._filters: dict[GroupFilterKey, GroupFilter] = {}
        self.of_clients: dict[str, GroupFilter] = {}
        """The filters of Kafka groups, by client.id."""
        self._kinds: Final = {
            KAFKA: _GroupKind(self._require_own_clients, _list_client_ids, self._apply_to_share_group),
            CHANNEL: _GroupKind(_require_no_client_ids, _list_no_client_ids, self._apply_to_channels),
            IGGY: _GroupKind(_require_no_client_ids, _list_no_client_ids, self._apply_to_iggy_group),
        }
        channels.on_deleted = self._on_channel_deleted
        iggy.on_deleted = self._on_iggy_group_deleted
        share.on_channel_opened = self._on_channel_opened

    def load(self, topics: Sequence[Topic]) -> None:
        """Load the stored filters."""
        by_uuid = {topic.uuid: topic for topic in topics}
        for key, document in self._table.list_all():
            condition = GroupCondition(document["where"], self._choose_form)
            self._take(GroupFilter(key, condition, tuple(document["client_ids"]), document["suspended_by"]))
            topic = by_uuid.get(key.topic)
            self._kinds[key.protocol].apply(key, [] if topic is None else [topic])

    def on_topic_deleted(self, topic: Topic) -> None:
        """Forget the filters of the topic's groups and channels."""
        self._polls.forget_topic(topic)
        for key in [key for key in self._filters if key.topic == topic.uuid]:
            self._forget(key)

    def find(self, key: GroupFilterKey) -> GroupFilter | None:
        """Return the filter of a group."""
        return self._filters.get(key)

    def parse(self, where: str) -> GroupCondition:
        """Return a condition for a group. Raises FilterError if it is invalid. Callable from any thread."""
        return GroupCondition(where, self._choose_form)

    def set(
        self,
        key: GroupFilterKey,
        condition: GroupCondition,
        client_ids: Iterable[str] = (),
        topic: Topic | None = None,
    ) -> GroupFilter:
        """Set the filter of a group, or replace it; it is on disk on return.

        ``topic`` is the one that the group belongs to, if it belongs to one. Raises SettingError.
        """
        ids = tuple(dict.fromkeys(client_ids))
        kind = self._kinds[key.protocol]
        kind.require_client_ids(key, ids)
        if len(ids) > CLIENT_IDS_MAX:
            raise SettingError(f"{len(ids)} client ids; a filter has at most {CLIENT_IDS_MAX}, list fewer")
        made = GroupFilter(key, condition, ids)
        self._table.put(key, made.document)
        self._take(made)
        kind.apply(key, [] if topic is None else [topic])
        return made

    def remove(self, key: GroupFilterKey, topic: Topic | None = None) -> None:
        """Remove the filter of a group: from now on its members get everything. Raises GROUP_NOT_FOUND without one."""
        if key not in self._filters:
            raise Refusal(Reason.GROUP_NOT_FOUND, f"{key.protocol} group {key.name!r} has no filter; set one first")
        self._forget(key)
        self._kinds[key.protocol].apply(key, [] if topic is None else [topic])

    def _require_own_clients(self, key: GroupFilterKey, client_ids: Sequence[str]) -> None:
        """Raise SettingError if clients of others than this Kafka group have one of its client ids."""
        for client_id in client_ids:
            if _DEFAULT_CLIENT_ID.fullmatch(client_id):
                raise SettingError(
                    f"client.id {client_id!r} is a client's default, which readers of any group have; "
                    "give the members a client.id of their own"
                )
        claimed = _list_client_ids(key, client_ids)
        for client_id in claimed:
            other = self.of_clients.get(client_id)
            if other is not None and other.key != key:
                raise SettingError(
                    f"client.id {client_id!r} is one of the filter of group {other.key.name!r}; use another"
                )
        for group in self._coordinator.names():
            for client_id in self._coordinator.list_client_ids(group).values() if group != key.name else ():
                of_java = _OF_JAVA.fullmatch(client_id)
                if client_id in claimed or (of_java is not None and of_java[1] == key.name):
                    # it joined before, and says nothing of its group until its next commit
                    raise SettingError(
                        f"client.id {client_id!r} is that of a member of group {group!r}, which would lose messages; "
                        "give that member another client.id, or end it"
                    )

    def _take(self, made: GroupFilter) -> None:
        self._drop_client_ids(made.key)
        self._filters[made.key] = made
        claimed = self._kinds[made.key.protocol].list_client_ids(made.key, made.client_ids)
        self.of_clients |= dict.fromkeys(claimed, made)

    def _forget(self, key: GroupFilterKey) -> None:
        self._table.remove(key)
        self._drop_client_ids(key)
        del self._filters[key]

    def _drop_client_ids(self, key: GroupFilterKey) -> None:
        for client_id in [client_id for client_id, one in self.of_clients.items() if one.key == key]:
            del self.of_clients[client_id]

    # -- Kafka's clients

    def find_claim(self, client_id: str) -> GroupFilter | None:
        """Return the filter of the Kafka group that a client.id names, suspended or not."""
        found = self.of_clients.get(client_id)
        if found is None and (of_java := _OF_JAVA.fullmatch(client_id)) is not None:
            found = self._filters.get(GroupFilterKey(KAFKA, b"", of_java[1]))
        return found

    def find_for_client(self, client_id: str) -> GroupFilter | None:
        """Return the filter for a client's Fetch requests, or None. Members of share groups send no Fetch."""
        found = self.find_claim(client_id)
        if found is None or found.suspended_by is not None or self._share.groups.find(found.key.name) is not None:
            return None
        return found

    def note_member(self, group: str, client_id: str) -> None:
        """Note a request of a Kafka group's member; it suspends the filter of another group that has its client.id."""
        found = self.find_claim(client_id)
        if found is None or found.key.name == group or found.suspended_by is not None:
            return
        LOG.warning(
            "the filter of Kafka group %r is suspended: a member of group %r has its client.id %r",
            found.key.name, group, client_id,
        )  # fmt: skip
        suspended = replace(found, suspended_by=group)
        self._take(suspended)
        self._table.put(suspended.key, suspended.document)

    def _apply_to_share_group(self, key: GroupFilterKey, _topics: Sequence[Topic]) -> None:
        for channel in self._share.list_channels(key.name):
            self._set_condition(channel)

    # -- channels

    def _apply_to_channels(self, key: GroupFilterKey, topics: Sequence[Topic]) -> None:
        for channel in [self._channels.find(topic, key.name) for topic in topics]:
            if channel is not None:
                self._set_condition(channel)

    def _on_channel_opened(self, group: str, channel: Channel) -> None:
        self._set_condition(channel)

    def _set_condition(self, channel: Channel) -> None:
        """Have a channel follow its own filter, or else that of the share group that reads it."""
        found = self._filters.get(GroupFilterKey(CHANNEL, channel.topic.uuid, channel.name))
        if found is None and self._share.find_channel(channel.name, channel.topic) is channel:
            found = self._filters.get(GroupFilterKey(KAFKA, b"", channel.name))
        condition = None if found is None else found.condition
        if channel.condition is not condition:
            channel.set_condition(condition)
            channel.wake()

    def _on_channel_deleted(self, channel: Channel) -> None:
        key = GroupFilterKey(CHANNEL, channel.topic.uuid, channel.name)
        if key in self._filters:
            self._forget(key)

    # -- groups of Iggy

    def _apply_to_iggy_group(self, key: GroupFilterKey, topics: Sequence[Topic]) -> None:
        found = self._filters.get(key)
        for topic in topics:
            group = ConsumerRef(IggyConsumerKind.GROUP, self._iggy.get(topic, key.name).id)
            self._polls.set_condition(topic, group.key, None if found is None else found.condition)

    def _on_iggy_group_deleted(self, group: IggyGroup) -> None:
        key = GroupFilterKey(IGGY, group.topic.uuid, group.name)
        if key in self._filters:
            self._polls.set_condition(group.topic, ConsumerRef(IggyConsumerKind.GROUP, group.id).key, None)
            self._forget(key)


def _require_no_client_ids(key: GroupFilterKey, client_ids: Sequence[str]) -> None:
    if client_ids:
        raise SettingError(
            f"{key.protocol} groups name themselves in each request; leave out the client ids, Kafka's need them"
        )


def _list_no_client_ids(_key: GroupFilterKey, _client_ids: Sequence[str]) -> Sequence[str]:
    return ()


def _list_client_ids(key: GroupFilterKey, client_ids: Sequence[str]) -> list[str]:
    """Return the client ids of a Kafka group's filter: those listed, and its name unless it is a default."""
    return [*client_ids] if _DEFAULT_CLIENT_ID.fullmatch(key.name) else [key.name, *client_ids]


def to_filter_key(view: GroupView) -> GroupFilterKey:
    """Return the key of a group's filter."""
    if view.topic is None:
        return GroupFilterKey(view.protocol, b"", view.name)
    return GroupFilterKey(view.protocol, view.topic.uuid, view.name.removeprefix(f"{view.topic.flat_name}/"))

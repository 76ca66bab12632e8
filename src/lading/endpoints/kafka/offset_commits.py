"""Positions of consumer groups: OffsetCommit, OffsetFetch, OffsetDelete, for members of groups and for readers outside
of them.

* OffsetCommit 2-10. 5 no retention time of the request (KIP-211); 6 leader epoch (KIP-320); 7 static members (KIP-345);
  8 tagged fields; 9 epochs of members of the newer protocol (KIP-848); 10 topics by id (KIP-848).
* OffsetFetch 1-10. 2 a null list asks for all topics, errors of the group; 5 leader epoch; 6 tagged fields; 7
  ``require_stable``: UNSTABLE_OFFSET_COMMIT while a transaction is open (KIP-447); 8 several groups (KIP-709); 9 epochs
  of members; 10 topics by id.
* OffsetDelete 0: positions of a group without subscribers (KIP-496).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ...broker.core.access.rights import Right
from ...broker.core.callbacks import ignore
from ...broker.core.position import PositionKey, StoredPosition
from ...broker.core.topology import Partition
from ...broker.kafka.consumer_group import ConsumerGroup
from ...broker.kafka.group import KAFKA, KafkaGroup
from ...broker.kafka.group_coordinator import MemberCall
from ...broker.kafka.share_group import ShareGroup
from ...dialects.kafka import versions
from ...dialects.kafka.assignment import PROTOCOL, parse_subscription
from ...dialects.kafka.errors import (
    GROUP_NOT_EMPTY,
    GROUP_NOT_FOUND,
    GROUP_SUBSCRIBED,
    INVALID_GROUP_ID,
    NONE,
    POSITION_TEXT_TOO_LARGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC,
    UNSTABLE_OFFSET_COMMIT,
    code_of,
)
from ...model.errors import MalformedMessage, Refusal
from ...runtime.turns import TurnCounter, Turns, take_turns
from ..base.services import now_us
from .handling import Answer, Context, Fields, Handler, Request, Session, rows_by_topic
from .pending_responses import complete_with, coordinator_code

if TYPE_CHECKING:
    from ...broker.core.topology import Topic

METADATA_BYTES_MAX: Final = 4096
"""Bytes of metadata that a consumer may store with a position, as ``offset.metadata.max.bytes`` of the real server."""
_MANY_GROUPS_FROM: Final = 8
_MEMBER_EPOCHS_FROM: Final = 9
"""From these versions of OffsetCommit and OffsetFetch on a member of the newer protocol sends its epoch."""
_TOPIC_IDS_FROM: Final = 10
_NO_TOPIC: Final = UUID(int=0)
_NOTHING: Final = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": "", "error_code": NONE}


def handlers(context: Context) -> Mapping[int, Handler]:
    """Return the handlers of this module."""
    positions = GroupPositions(context)
    return {
        versions.OFFSET_COMMIT: positions.commit,
        versions.OFFSET_FETCH: positions.fetch,
        versions.OFFSET_DELETE: positions.delete,
    }


class GroupPositions:
    """Handlers of one endpoint."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._broker = context.broker
        self._groups = context.broker.coordinated_groups

    def commit(self, session: Session, request: Request) -> Answer:
        return take_turns(self._commit(session, request))

    def _commit(self, session: Session, request: Request) -> Turns[Fields | Awaitable[Fields]]:
        body, knows_epochs = request.body, request.version >= _MEMBER_EPOCHS_FROM
        call = MemberCall(body.group_id, body.member_id, body.generation_id_or_member_epoch, body.group_instance_id)
        refused = NONE
        require: Callable[[Partition], None] = ignore
        try:
            require = self._groups.admit(call, knows_epochs=knows_epochs, now_us=now_us())
        except Refusal as refusal:
            refused = coordinator_code(refusal)
        now = now_us()

        def store(partition: Partition, position: StoredPosition) -> None:
            require(partition)
            self._groups.store(call.group, partition, position)

        find = partial(_find_by_id, self._context, session) if request.version >= _TOPIC_IDS_FROM else None
        topics = yield from store_offsets(self._context, body.topics, store, now, refused, find)
        return durable(self._context, topics) if not refused else {"topics": topics}

    def fetch(self, session: Session, request: Request) -> Answer:
        return take_turns(self._fetch(session, request))

    def _fetch(self, session: Session, request: Request) -> Turns[Fields]:
        body, version = request.body, request.version
        stable = version >= 7 and body.require_stable
        turn = TurnCounter()
        if version >= _MANY_GROUPS_FROM:
            groups = []
            for one in body.groups:
                if turn.is_over():
                    yield
                if version >= _MEMBER_EPOCHS_FROM and (code := self._find_member_error(one)):
                    groups.append({"group_id": one.group_id, "topics": [], "error_code": code})
                    continue
                find = self._find_offsets if version < _TOPIC_IDS_FROM else self._find_offsets_by_id
                topics = yield from find(session, one.group_id, one.topics, stable, turn)
                groups.append({"group_id": one.group_id, "topics": topics})
            return {"groups": groups}
        topics = yield from self._find_offsets(session, body.group_id, body.topics, stable, turn)
        return {"error_code": NONE, "topics": topics}

    def _find_member_error(self, asked: Any) -> int:
        """Return the error for a member of the newer protocol that sends another epoch than its own."""
        group = self._groups.find(asked.group_id)
        if asked.member_id is None or not isinstance(group, ConsumerGroup):
            return NONE
        try:
            member = group.require_commit(asked.member_id, asked.member_epoch)
            if member.epoch != asked.member_epoch:
                raise group.stale_epoch_error(member, asked.member_epoch)
        except Refusal as refusal:
            return coordinator_code(refusal)
        return NONE

    def delete(self, session: Session, request: Request) -> Answer:
        """Delete positions; positions in topics that members are subscribed to stay."""
        if not request.body.group_id:
            return {"error_code": INVALID_GROUP_ID, "topics": []}
        group = self._groups.find(request.body.group_id)
        if group is None or isinstance(group, ShareGroup):
            return {"error_code": GROUP_NOT_FOUND, "topics": []}
        if isinstance(group, KafkaGroup) and group.members and group.protocol_type != PROTOCOL:
            return {"error_code": GROUP_NOT_EMPTY, "topics": []}
        subscribed, name = self._list_subscribed_topics(group), group.name

        def row(topic: str, one: Any) -> Fields:
            code = self._delete_offset(name, topic, one.partition_index, subscribed)
            return {"partition_index": one.partition_index, "error_code": code}

        return take_turns(self._delete(request.body.topics, row))

    def _list_subscribed_topics(self, group: KafkaGroup | ConsumerGroup) -> Collection[str] | None:
        """Return the names of topics that members are subscribed to, or None if that could be any topic."""
        if isinstance(group, KafkaGroup):
            return _list_classic_topics(group)
        topics = map(self._context.topics.find_by_uuid, group.partitions_count if group.members else ())
        return group.subscribed_names | {topic.flat_name for topic in topics if topic is not None}

    def _delete(self, topics: Iterable[Any], row: Callable[[str, Any], Fields]) -> Turns[Fields]:
        found = yield from rows_by_topic(topics, "name", row)
        return {"error_code": NONE, **found}

    def _delete_offset(self, group: str, topic: str, number: int, subscribed: Collection[str] | None) -> int:
        try:
            known = self._context.topics.find_listed(topic)
            if known is None:
                return UNKNOWN_TOPIC
            partition = known.partition(number)
            if subscribed is None or topic in subscribed:
                return GROUP_SUBSCRIBED
            # positions in logs without records are not kept
            if not self._context.topics.is_internal(known):
                self._groups.remove_position(group, partition)
        except Refusal as refusal:
            return coordinator_code(refusal)
        return NONE

    def _find_offsets(
        self, session: Session, group: str, topics: Sequence[Any] | None, stable: bool, turn: TurnCounter
    ) -> Turns[list[Fields]]:
        if topics is None:
            return (yield from self._fetch_all(session, group, stable, turn))
        found: list[Fields] = []
        for topic in topics:
            rows = []
            may_describe = self._context.may_describe(session.principal, topic.name)
            for number in topic.partition_indexes:
                if not may_describe:
                    rows.append({"partition_index": number, **_NOTHING, "error_code": TOPIC_AUTHORIZATION_FAILED})
                    continue
                try:
                    place: Partition | None = self._broker.topology.resolve(topic.name).partition(number)
                except Refusal:
                    place = None
                rows.append(
                    {
                        "partition_index": number,
                        **(self._describe_position(group, place, stable) if place else _NOTHING),
                    }
                )
                if turn.is_over():
                    yield
            found.append({"name": topic.name, "partitions": rows})
            # also a topic without partitions takes time
            if turn.is_over():
                yield
        return found

    def _find_offsets_by_id(
        self, session: Session, group: str, topics: Sequence[Any] | None, stable: bool, turn: TurnCounter
    ) -> Turns[list[Fields]]:
        if topics is None:
            return (yield from self._fetch_all(session, group, stable, turn, by_id=True))
        found: list[Fields] = []
        for asked in topics:
            topic, code = None, NONE
            try:
                topic = _find_by_id(self._context, session, asked, Right.DESCRIBE)
            except Refusal as refusal:
                code = code_of(refusal)
            rows = []
            for number in asked.partition_indexes:
                place = topic.partitions[number] if topic and 0 <= number < len(topic.partitions) else None
                row = self._describe_position(group, place, stable) if place else {**_NOTHING, "error_code": code}
                rows.append({"partition_index": number, **row})
                if turn.is_over():
                    yield
            found.append({"topic_id": asked.topic_id or _NO_TOPIC, "partitions": rows})
            if turn.is_over():
                yield
        return found

    def _fetch_all(
        self, session: Session, group: str, stable: bool, turn: TurnCounter, *, by_id: bool = False
    ) -> Turns[list[Fields]]:
        key = PositionKey(KAFKA, group)
        found: list[Fields] = []
        for topic in self._broker.topology.list_topics():
            rows = [
                {"partition_index": one.number, **self._describe_position(group, one, stable)}
                for one in topic.partitions
                if key in one.positions or self._broker.producers.waits(one, key)
            ]
            if rows and self._context.may_describe(session.principal, topic.flat_name):
                label = {"topic_id": UUID(bytes=topic.uuid)} if by_id else {"name": topic.flat_name}
                found.append({**label, "partitions": rows})
            if turn.is_over(len(topic.partitions)):
                yield
        return found

    def _describe_position(self, group: str, partition: Partition, stable: bool) -> Fields:
        if stable and self._broker.producers.waits(partition, PositionKey(KAFKA, group)):
            return {**_NOTHING, "error_code": UNSTABLE_OFFSET_COMMIT}
        position = self._groups.position(group, partition)
        if position is None:
            return _NOTHING
        return {
            "committed_offset": position.offset,
            "committed_leader_epoch": -1 if position.epoch is None else position.epoch,
            "metadata": (position.extra or b"").decode("utf-8", "replace"),
            "error_code": NONE,
        }


def _list_classic_topics(group: KafkaGroup) -> Collection[str] | None:
    """Return the topics that the members of a classic group are subscribed to, or None if that cannot be read: it could
    be any.
    """
    topics: set[str] = set()
    try:
        for member in group.members.values():
            topics |= parse_subscription(member.metadata(group.protocol or group.select_protocol())).topics
    except MalformedMessage:
        return None
    return topics


def durable(context: Context, topics: list[Fields]) -> Fields | Awaitable[Fields]:
    """Return the response to a commit when its positions are on disk, with an error for each if that fails."""

    def refused(error: Refusal) -> Fields:
        code = coordinator_code(error)
        return {
            "topics": [
                {
                    **topic,
                    "partitions": [{**row, "error_code": row["error_code"] or code} for row in topic["partitions"]],
                }
                for topic in topics
            ]
        }

    if all(row["error_code"] for topic in topics for row in topic["partitions"]):
        return {"topics": topics}
    return complete_with(context.broker.catalog_commit.confirm(), lambda _: {"topics": topics}, refused)


def store_offsets(
    context: Context,
    topics: Iterable[Any],
    store: Callable[[Partition, StoredPosition], None],
    now: int,
    refused: int = NONE,
    find_by_id: Callable[[Any], Topic] | None = None,
) -> Turns[list[Fields]]:
    """Pass every position of a commit to ``store``; return the topics of the response, with the error ``refused`` if
    that is set.

    ``find_by_id`` returns the topic of a row that has an id instead of a name.
    """
    turn = TurnCounter()
    found: list[Fields] = []
    for topic in topics:
        rows = []
        for one in topic.partitions:
            # first, for rows that are refused take time too: 100,000 of them kept the loop for 0.7 s
            if turn.is_over():
                yield
            code = refused
            text = (one.committed_metadata or "").encode()
            try:
                known = context.topics.find(topic.name) if find_by_id is None else find_by_id(topic)
                partition = known.partition(one.partition_index)
            except Refusal as refusal:
                # checked before errors of the member, as in Apache Kafka
                rows.append({"partition_index": one.partition_index, "error_code": code_of(refusal)})
                continue
            try:
                if not code and len(text) > METADATA_BYTES_MAX:
                    code = POSITION_TEXT_TOO_LARGE
                # in a log without records every position equals the beginning: nothing has to be stored
                if not code and not context.topics.is_internal(partition.topic):
                    epoch = one.committed_leader_epoch
                    position = StoredPosition(
                        one.committed_offset, None if epoch is None or epoch < 0 else epoch, text or None, now
                    )
                    store(partition, position)
            except Refusal as refusal:
                code = code or code_of(refusal)
            rows.append({"partition_index": one.partition_index, "error_code": code})
        if turn.is_over():
            yield
        label = {"name": topic.name} if find_by_id is None else {"topic_id": topic.topic_id or _NO_TOPIC}
        found.append({**label, "partitions": rows})
    return found


def _find_by_id(context: Context, session: Session, row: Any, right: Right = Right.READ) -> Topic:
    """Return the topic of a row by its id. Raises Refusal if it does not exist, or the client lacks the right."""
    return context.find_by_id(session.principal, (row.topic_id or _NO_TOPIC).bytes, right)

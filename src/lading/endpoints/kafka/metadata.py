"""Metadata, DescribeTopicPartitions, DescribeCluster: one broker that leads every partition.

Missing topics that a producer names are created.

* Metadata 0-13. 1 an empty list asks for no topic, a null one for all, and topics say whether they are internal;
  2 cluster id; 4 ``allow_auto_topic_creation`` (KIP-204); 5 offline replicas; 7 leader epochs (KIP-320); 8 authorized
  operations (KIP-430); 9 tagged fields (KIP-482); 10 topic ids (KIP-516), which may be asked for from 12 on; 11 leaves
  the cluster's operations to DescribeCluster (KIP-700); 13 an error that has clients bootstrap again (KIP-1102), which
  this broker never sends.
* DescribeTopicPartitions 0: pages of partitions, by a cursor (KIP-966).
* DescribeCluster 0-2. 1 the kind of endpoint (KIP-919); 2 fenced brokers (KIP-1073), which never exist here.

Here: this broker is node 1, the controller, and leader and only replica of every partition, at the address at which the
client reached it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ...broker.core.access.rights import Right, flat_topic_resource, topic_resource
from ...dialects.kafka.errors import INVALID_TOPIC, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID, code_of
from ...dialects.kafka.metadata import (
    CLUSTER_OPERATIONS,
    NOT_ASKED,
    OPERATIONS_FROM,
    BrokerNode,
    TopicMetadata,
    metadata_answer,
)
from ...dialects.kafka.names import is_legal
from ...dialects.kafka.versions import DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS, METADATA
from ...model.errors import LadingError
from ...runtime.turns import Turn, TurnCounter, Turns, finish_in_turns, take_turns
from ..base.topic_creation import find_or_create_topic
from .authorized_operations import find_authorized_operations, find_cluster_operations, to_bit_field
from .handling import CLUSTER_ID, NODE_ID, ROWS_FREED_AT_ONCE, Context, Fields, Framed, Handler, Request, Session

if TYPE_CHECKING:
    from ...broker.core.topology import Topic

_AUTO_CREATE_IS_ASKED: Final = 4
"""The first version in which a client says whether a topic may be created; in earlier ones it may."""
_NOBODY: Final = UUID(int=0)
_HIDDEN: Final = frozenset({TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID})
"""Topics with these errors have no operations in the response, as in Apache Kafka; missing topics have them."""
PARTITIONS_MAX: Final = 2000
"""Limit of the partitions in one response to DescribeTopicPartitions; its cursor is the start of the next one."""

COUNTED_MAX: Final = 200
"""Topics of a response whose partitions are counted before it is encoded."""


def handlers(context: Context) -> Mapping[int, Handler]:
    """Metadata, DescribeTopicPartitions and DescribeCluster."""
    answers = _Handlers(context)
    return {
        METADATA: answers.metadata,
        DESCRIBE_TOPIC_PARTITIONS: answers.partitions,
        DESCRIBE_CLUSTER: answers.cluster,
    }


class _Handlers:
    def __init__(self, context: Context) -> None:
        self._context = context

    def metadata(self, session: Session, request: Request) -> Framed | Awaitable[Framed]:
        asked = request.body.topics
        # looked up once, before: hardly any request needs it, and the others then pay nothing for it
        operations = request.version >= OPERATIONS_FROM and request.body.include_topic_authorized_operations
        if asked is None or (request.version == 0 and not asked):
            return take_turns(self._describe_all(session, request, operations))
        return take_turns(self._describe_named(session, request, operations))

    def _describe_named(
        self, session: Session, request: Request, operations: bool
    ) -> Turns[Framed | Awaitable[Framed]]:
        body, turn = request.body, TurnCounter()
        rows: list[TopicMetadata] = []
        has_unknown = False
        for one in body.topics:
            row = self._find_topic(session, one.name, one.topic_id)
            rows.append(row)
            has_unknown |= row.error == UNKNOWN_TOPIC
            if turn.is_over(1 + len(row.epochs)):
                yield
        may_create = self._context.settings.auto_create and (
            request.version < _AUTO_CREATE_IS_ASKED or body.allow_auto_topic_creation
        )
        if may_create and has_unknown:
            return self._create_missing(session, request, rows, operations)
        if operations:
            rows = yield from self._with_operations(session, rows)
        return self._frame_response(session, request, rows)

    def _describe_all(self, session: Session, request: Request, operations: bool) -> Turns[Framed]:
        turn, rows = TurnCounter(), []
        for topic in self._visible_topics(session):
            rows.append(self._describe_topic(topic))
            if turn.is_over(1 + len(topic.partitions)):
                yield
        if operations:
            rows = yield from self._with_operations(session, rows)
        return self._frame_response(session, request, rows)

    async def _create_missing(
        self, session: Session, request: Request, rows: list[TopicMetadata], operations: bool
    ) -> Framed:
        """Return the response once the missing topics are created."""
        turn = Turn()
        for at, row in enumerate(rows):
            # creating waits by itself, refusing does not
            await turn.give_way()
            if row.error == UNKNOWN_TOPIC and row.name is not None:
                try:
                    broker = self._context.broker
                    resource = flat_topic_resource(broker.topology, row.name)
                    if not broker.access.allows(session.principal, Right.CREATE, resource):
                        rows[at] = TopicMetadata(TOPIC_AUTHORIZATION_FAILED, row.name, _NOBODY.bytes)
                        continue
                    partitions_count = self._context.settings.partitions
                    rows[at] = self._describe_topic(
                        await find_or_create_topic(self._context.services, row.name, partitions_count)
                    )
                except LadingError as error:
                    rows[at] = TopicMetadata(code_of(error), row.name, _NOBODY.bytes)
        if operations:
            rows = await finish_in_turns(self._with_operations(session, rows))
        return self._frame_response(session, request, rows)

    def _with_operations(self, session: Session, rows: list[TopicMetadata]) -> Turns[list[TopicMetadata]]:
        turn, told = TurnCounter(), []
        for row in rows:
            told.append(row._replace(operations=self._topic_operations(session, row)))
            if turn.is_over():
                yield
        return told

    def _topic_operations(self, session: Session, row: TopicMetadata) -> int:
        if row.name is None or row.error in _HIDDEN:
            return NOT_ASKED
        broker = self._context.broker
        resource = flat_topic_resource(broker.topology, row.name)
        return to_bit_field(find_authorized_operations(broker.access, session.principal, resource))

    def _frame_response(self, session: Session, request: Request, rows: list[TopicMetadata]) -> Framed:
        address = self._context.choose_address(session)
        broker = BrokerNode(NODE_ID, address.host, address.port)
        version, operations = request.version, NOT_ASKED
        if version in CLUSTER_OPERATIONS and request.body.include_cluster_authorized_operations:
            operations = to_bit_field(find_cluster_operations(self._context.broker.access, session.principal))

        def encode(correlation: int) -> bytes:
            frame = metadata_answer(version, correlation, CLUSTER_ID, broker, rows, operations)
            while rows:
                # freed by the worker that encodes many of them: freeing 100,000 at once keeps the loop for 20 ms
                del rows[-ROWS_FREED_AT_ONCE:]
            return frame

        return Framed(0, encode, _count_rows(rows))

    def partitions(self, session: Session, request: Request) -> Fields | Awaitable[Fields]:
        """Return topics by name, or all if none is named; at most a bounded number of partitions, from a cursor on."""
        return take_turns(self._describe_partitions(session, request))

    def _describe_partitions(self, session: Session, request: Request) -> Turns[Fields]:
        body, turn = request.body, TurnCounter()
        every = not body.topics
        names = (
            {topic.flat_name for topic in self._visible_topics(session)} if every else {one.name for one in body.topics}
        )
        start = ("", 0) if body.cursor is None else (body.cursor.topic_name, body.cursor.partition_index)
        room = max(min(body.response_partition_limit, PARTITIONS_MAX), 1)
        rows: list[Fields] = []
        for name in sorted(one for one in names if one >= start[0]):
            found = self._find_topic(session, name, None)
            row = {**_fields_of(found), "topic_authorized_operations": self._topic_operations(session, found)}
            places = row["partitions"][start[1] if name == start[0] else 0 :]
            if places and not room:
                return {"topics": rows, "next_cursor": {"topic_name": name, "partition_index": 0}}
            told = places[:room]
            elsewhere: Fields = {"eligible_leader_replicas": [], "last_known_elr": []}
            rows.append({**row, "partitions": [{**one, **elsewhere} for one in told]})
            room -= len(told)
            if len(told) < len(places):
                cursor = {"topic_name": name, "partition_index": places[len(told)]["partition_index"]}
                return {"topics": rows, "next_cursor": cursor}
            if turn.is_over(1 + len(told)):
                yield
        return {"topics": rows, "next_cursor": None}

    def cluster(self, session: Session, request: Request) -> Fields:
        address = self._context.choose_address(session)
        return {
            "error_code": 0,
            "endpoint_type": request.body.endpoint_type,
            "cluster_id": CLUSTER_ID,
            "controller_id": NODE_ID,
            "brokers": [{"broker_id": NODE_ID, "host": address.host, "port": address.port, "rack": None}],
            "authorized_operations": find_cluster_operations(self._context.broker.access, session.principal)
            if request.body.include_cluster_authorized_operations
            else None,
        }

    def _visible_topics(self, session: Session) -> list[Topic]:
        """Return all topics that the user may see."""
        return [topic for topic in self._context.topics.list_topics() if self._may_describe(session, topic)]

    def _may_describe(self, session: Session, topic: Topic) -> bool:
        resource = topic_resource(topic.stream.name, topic.name)
        return self._context.broker.access.allows(session.principal, Right.DESCRIBE, resource)

    def _find_topic(self, session: Session, name: str | None, uuid: UUID | None) -> TopicMetadata:
        if not name:
            topic_id = (uuid or _NOBODY).bytes
            topic = self._context.topics.find_by_uuid(topic_id)
            if topic is None or not self._may_describe(session, topic):
                return TopicMetadata(UNKNOWN_TOPIC_ID, None, topic_id)
            return self._describe_topic(topic)
        if not is_legal(name):
            return TopicMetadata(INVALID_TOPIC, name, _NOBODY.bytes)
        broker = self._context.broker
        if not broker.access.allows(session.principal, Right.DESCRIBE, flat_topic_resource(broker.topology, name)):
            return TopicMetadata(TOPIC_AUTHORIZATION_FAILED, name, _NOBODY.bytes)
        try:
            return self._describe_topic(self._context.topics.find(name))
        except LadingError:
            return TopicMetadata(UNKNOWN_TOPIC, name, _NOBODY.bytes)

    def _describe_topic(self, topic: Topic) -> TopicMetadata:
        epochs = [partition.log.epoch for partition in topic.partitions]
        is_internal = self._context.topics.is_internal(topic)
        return TopicMetadata(0, topic.flat_name, topic.uuid, epochs, is_internal=is_internal)


def _count_rows(rows: list[TopicMetadata]) -> int:
    """Return about how many rows a response has; only the first topics are counted with their partitions.

    Counting those of 100,000 topics keeps the loop for 10 ms, and a response with more topics is long anyway.
    """
    return len(rows) + sum(len(row.epochs) for row in rows[:COUNTED_MAX])


def _fields_of(row: TopicMetadata) -> Fields:
    """Return the fields of a topic for DescribeTopicPartitions."""
    return {
        "error_code": row.error,
        "name": row.name,
        "topic_id": UUID(bytes=row.topic_id),
        "is_internal": row.is_internal,
        "partitions": [_partition_fields(number, epoch) for number, epoch in enumerate(row.epochs)],
    }


def _partition_fields(number: int, epoch: int) -> Fields:
    return {
        "error_code": 0,
        "partition_index": number,
        "leader_id": NODE_ID,
        "leader_epoch": epoch,
        "replica_nodes": [NODE_ID],
        "isr_nodes": [NODE_ID],
        "offline_replicas": [],
    }

"""Metadata, DescribeTopicPartitions, DescribeCluster: one broker that leads every partition.

It makes topics that producers ask for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ...dialects.kafka.errors import INVALID_TOPIC, UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID, code_of
from ...dialects.kafka.names import is_legal
from ...dialects.kafka.versions import DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS, METADATA
from ...model.errors import LadingError
from ..interface import now_us
from .creating import create_topic
from .fetch import topic_by_id
from .handling import CLUSTER_ID, NODE_ID, Context, Fields, Handler, Request, Session

if TYPE_CHECKING:
    from ...broker.topology import Partition, Topic

_AUTO_CREATE_IS_ASKED: Final = 4
"""The first version in which a client says whether a topic may be made; before, it may."""
_NOBODY: Final = UUID(int=0)
PARTITIONS_MAX: Final = 2000
"""Partitions of one answer to DescribeTopicPartitions; a cursor says where the next one begins."""


def handlers(context: Context) -> Mapping[int, Handler]:
    """Metadata, DescribeTopicPartitions and DescribeCluster."""
    answers = _Answers(context)
    return {
        METADATA: answers.metadata,
        DESCRIBE_TOPIC_PARTITIONS: answers.partitions,
        DESCRIBE_CLUSTER: answers.cluster,
    }


class _Answers:
    def __init__(self, context: Context) -> None:
        self._context = context

    def metadata(self, session: Session, request: Request) -> Fields:
        body = request.body
        asked = body.topics
        if asked is None or (request.version == 0 and not asked):
            rows = [topic_row(topic) for topic in expressible(self._context)]
        else:
            may_create = self._context.settings.auto_create and (
                request.version < _AUTO_CREATE_IS_ASKED or body.allow_auto_topic_creation
            )
            rows = [self._row(one.name, one.topic_id, may_create=may_create) for one in asked]
        return {
            "brokers": [self._broker(session)],
            "cluster_id": CLUSTER_ID,
            "controller_id": NODE_ID,
            "topics": rows,
        }

    def partitions(self, session: Session, request: Request) -> Fields:
        """Topics by name, none asked for is all of them, a bounded number of partitions at a time from a cursor on."""
        body = request.body
        every = not body.topics
        names = (
            {topic.flat_name for topic in expressible(self._context)} if every else {one.name for one in body.topics}
        )
        start = ("", 0) if body.cursor is None else (body.cursor.topic_name, body.cursor.partition_index)
        room = max(min(body.response_partition_limit, PARTITIONS_MAX), 1)
        rows: list[Fields] = []
        for name in sorted(one for one in names if one >= start[0]):
            row = self._row(name, None, may_create=False)
            places = row.get("partitions", [])[start[1] if name == start[0] else 0 :]
            if places and not room:
                return {"topics": rows, "next_cursor": {"topic_name": name, "partition_index": 0}}
            told = places[:room]
            elsewhere: Fields = {"eligible_leader_replicas": [], "last_known_elr": []}
            rows.append({**row, "partitions": [{**one, **elsewhere} for one in told]})
            room -= len(told)
            if len(told) < len(places):
                cursor = {"topic_name": name, "partition_index": places[len(told)]["partition_index"]}
                return {"topics": rows, "next_cursor": cursor}
        return {"topics": rows, "next_cursor": None}

    def cluster(self, session: Session, request: Request) -> Fields:
        row = self._broker(session)
        row["broker_id"] = row.pop("node_id")
        return {
            "error_code": 0,
            "endpoint_type": request.body.endpoint_type,
            "cluster_id": CLUSTER_ID,
            "controller_id": NODE_ID,
            "brokers": [row],
        }

    def _broker(self, session: Session) -> dict[str, Any]:
        address = self._context.advertised(session)
        return {"node_id": NODE_ID, "host": address.host, "port": address.port, "rack": None}

    def _row(self, name: str | None, uuid: UUID | None, *, may_create: bool) -> Fields:
        if not name:
            uuid = uuid or _NOBODY
            topic = topic_by_id(self._context.broker, uuid.bytes)
            return topic_row(topic) if topic else {"error_code": UNKNOWN_TOPIC_ID, "name": None, "topic_id": uuid}
        if not is_legal(name):
            return {"error_code": INVALID_TOPIC, "name": name, "topic_id": _NOBODY}
        try:
            return topic_row(self._context.broker.resolve(name))
        except LadingError:
            if not may_create:
                return {"error_code": UNKNOWN_TOPIC, "name": name, "topic_id": _NOBODY}
        try:
            return topic_row(create_topic(self._context, name, self._context.settings.partitions, now_us=now_us()))
        except LadingError as error:
            return {"error_code": code_of(error), "name": name, "topic_id": _NOBODY}


def expressible(context: Context) -> list[Topic]:
    """All topics whose names Kafka can say."""
    broker = context.broker
    found = [topic for stream in broker.streams() for topic in broker.topics(stream.id)]
    return [topic for topic in found if is_legal(topic.flat_name)]


def topic_row(topic: Topic) -> Fields:
    """A topic as Metadata tells it."""
    return {
        "error_code": 0,
        "name": topic.flat_name,
        "topic_id": UUID(bytes=topic.uuid),
        "is_internal": False,
        "partitions": [_partition_row(partition) for partition in topic.partitions],
    }


def _partition_row(partition: Partition) -> Fields:
    return {
        "error_code": 0,
        "partition_index": partition.number,
        "leader_id": NODE_ID,
        "leader_epoch": partition.log.epoch,
        "replica_nodes": [NODE_ID],
        "isr_nodes": [NODE_ID],
        "offline_replicas": [],
    }

"""The common part of Fetch requests: topics by names and ids, the rights on them, and reads of partitions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...broker.core.access.rights import Resource, ResourceKind, Right, flat_topic_resource, topic_resource
from ...broker.core.append.pass_through import Ahead
from ...dialects.kafka.errors import (
    FENCED_LEADER_EPOCH,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC,
    UNKNOWN_TOPIC_ID,
)
from ...dialects.kafka.fetch import FetchPartition, FetchRequest
from ...dialects.kafka.protocol import RECORDS
from ...model.errors import LadingError
from ..base.carrying import Carrying
from ..base.route_cache import UserRouteCaches
from .fetch_reader import FetchReader, PartitionRecords
from .handling import Context
from .request_context import RequestContext

if TYPE_CHECKING:
    from ...broker.core.group_condition import GroupCondition
    from ...broker.core.topology import Partition, Topic
    from ...broker.kafka.internal_topics import KafkaTopicView

Place = tuple[bytes, "Topic | None", list[FetchPartition]]
"""Requested partitions of a topic, and the name that the request has for it."""


class Fetcher:
    """The common part of all Fetch requests of one endpoint."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.broker = context.broker
        self.filters = context.broker.group_filters
        self.batcher = FetchReader(
            context.broker, Carrying(context.services, context.name, RECORDS, default=context.settings.carrier)
        )
        self._answer_bytes_max = int(context.settings.answer_bytes_max)
        self._dropped = context.services.metrics.dropped.values
        self._messages_out = context.services.metrics.messages_out.values
        self._name, self._labels = context.name, (context.name,)
        # only existing topics are remembered; finding one by its id means a search through all of them
        self.topics: UserRouteCaches[tuple[bool, bytes], Topic] = UserRouteCaches(context.broker.topology, math.inf)
        """Known topics, by user and by the name or id in the request."""

    def find_topic(self, connection: RequestContext, name: bytes, *, by_id: bool) -> Topic | None:
        """Return the topic with a name or a 16-byte id that is not among the known ones, or None.

        It is also None if the user may not read the topic: ``missing_error`` distinguishes the two.
        """
        topics = self.context.topics
        found = topics.find_by_uuid(name) if by_id else _find_named(topics, name)
        if found is None or not self._may_read(connection, found.stream.name, found.name):
            return None
        connection.fetch_topics.add((by_id, name), found)
        return found

    def find_places(self, connection: RequestContext, request: FetchRequest) -> list[Place]:
        """Return the topics of a request, each with its name there and its requested partitions."""
        by_id, known = request.by_id, connection.fetch_topics
        return [
            (name, known.get((by_id, name)) or self.find_topic(connection, name, by_id=by_id), wanted)
            for name, wanted in request.topics
        ]

    def find_partition(
        self, connection: RequestContext, by_id: bool, name: bytes, topic: Topic | None, wanted: FetchPartition
    ) -> tuple[int, Partition | None]:
        """Return the partition of a row, or the error if it cannot be read; ``topic`` is the one that
        ``name`` names.
        """
        if topic is None:
            return self.missing_error(connection, name, by_id=by_id), None
        if not 0 <= wanted.partition < len(topic.partitions):
            return UNKNOWN_TOPIC, None
        partition = topic.partitions[wanted.partition]
        epoch = partition.log.epoch
        if 0 <= wanted.epoch < epoch:
            return FENCED_LEADER_EPOCH, partition
        if wanted.epoch > epoch:
            return UNKNOWN_LEADER_EPOCH, partition
        if not partition.log.first_offset <= wanted.offset <= partition.log.high_watermark:
            return OFFSET_OUT_OF_RANGE, partition
        return 0, partition

    def find_condition(self, connection: RequestContext, client_id: str | None) -> GroupCondition | None:
        """Return the condition that selects a client's messages: that of the group in its client.id, if it may read
        that group.
        """
        found = self.filters.find_for_client(client_id or "")
        if found is None:
            return None
        group = Resource(ResourceKind.GROUP, found.key.name)
        return found.condition if self.broker.access.allows(connection.principal, Right.READ, group) else None

    def missing_error(self, connection: RequestContext, name: bytes, *, by_id: bool) -> int:
        """Return the error for a topic that ``find_topic`` did not find.

        It does not reveal whether the topic exists, unless the user may describe it; then it says that the right to
        read is missing.
        """
        if by_id:
            topic = self.context.topics.find_by_uuid(name)
            known = topic is not None and self.broker.access.allows(
                connection.principal, Right.DESCRIBE, topic_resource(topic.stream.name, topic.name)
            )
            return TOPIC_AUTHORIZATION_FAILED if known else UNKNOWN_TOPIC_ID
        resource = flat_topic_resource(self.broker.topology, name.decode(errors="replace"))
        may_read = self.broker.access.allows(connection.principal, Right.READ, resource)
        return UNKNOWN_TOPIC if may_read else TOPIC_AUTHORIZATION_FAILED

    def _may_read(self, connection: RequestContext, stream: str, topic: str) -> bool:
        return self.broker.access.allows(connection.principal, Right.READ, topic_resource(stream, topic))

    def read(
        self, partition: Partition, wanted: FetchPartition, *, committed: bool, room: int, force: bool, ahead: Ahead
    ) -> PartitionRecords:
        """See ``FetchReader.read``."""
        max_bytes = min(wanted.max_bytes, room)
        return self.batcher.read(
            partition, wanted.offset, committed=committed, max_bytes=max_bytes, force=force, ahead=ahead
        )

    def limit(self, asked_bytes: int) -> int:
        """Return how many bytes one response may hold."""
        return min(max(asked_bytes, 0), self._answer_bytes_max)

    def messages_out(self, count: int) -> None:
        """Count messages that were sent to readers."""
        self._messages_out[self._labels] += count

    def stubs(self, count: int) -> None:
        """Count messages that were replaced by stubs."""
        if count:
            self._dropped[self._name, "unholdable"] += count


def _find_named(topics: KafkaTopicView, name: bytes) -> Topic | None:
    try:
        return topics.find(name.decode())
    except (LadingError, UnicodeDecodeError):
        return None

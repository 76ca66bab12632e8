"""Topics as Kafka's clients see them: those of the broker, and the two that Apache Kafka keeps for itself.

Positions of groups and states of transactions are in the catalog here, not in a topic. Tools and consumers look for
Kafka's internal topics all the same: to leave them out of a pattern, or to see that a coordinator works. They are rows
of ``INTERNAL_TOPICS``: described, listed once they are used or named, and readable as logs without records. Clients
cannot write to them, change or delete them. Other protocols do not know them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import NAMESPACE_OID, uuid5

from ...broker.core.empty_log import create_empty_log
from ...broker.core.settings import COMPACT, TopicSettings
from ...broker.core.topology import Partition, Stream, Topic
from ...dialects.kafka.names import is_legal
from ...model.errors import Reason, Refusal
from ...model.names import DEFAULT_STREAM, DEFAULT_STREAM_ID

if TYPE_CHECKING:
    from ...broker.broker import Broker

PARTITIONS: Final = 1
"""Partitions of each internal topic: there is one coordinator, and it does not share its work."""


class InternalTopic(NamedTuple):
    """A topic that Apache Kafka keeps for itself: its configs there, and whether Kafka would have created it."""

    name: str
    configs: Mapping[str, str]
    """Configs without an effect here whose values differ from the defaults, by their names in Kafka."""
    is_used: Callable[[Broker], bool]


def _has_any(names: Iterable[object]) -> bool:
    return any(True for _ in names)


SEGMENT_BYTES: Final = 104_857_600
INTERNAL_TOPICS: Final = (
    InternalTopic(
        "__consumer_offsets",
        {"compression.type": "producer"},
        lambda broker: _has_any(broker.coordinated_groups.names()),
    ),
    InternalTopic(
        "__transaction_state",
        {"compression.type": "uncompressed"},
        lambda broker: _has_any(broker.producers.list_transactional()),
    ),
)


class KafkaTopicView:
    """The topics of a broker and Kafka's internal ones, by name and by id."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        stream = Stream(DEFAULT_STREAM_ID, DEFAULT_STREAM, 0)
        self._internal = {row.name: (row, _to_topic(stream, row)) for row in INTERNAL_TOPICS}
        self._named: set[str] = set()
        """Internal topics that clients have asked for by name, for which Apache Kafka would have created them."""
        self._by_uuid = {topic.uuid: topic for _, topic in self._internal.values()}

    def find(self, name: str) -> Topic:
        """Return a topic that a client asks for by its flat name. Raises Refusal if it does not exist.

        An internal one is listed from then on.

        A client of another protocol may have created one of an internal name: then it is that one.
        """
        try:
            return self._broker.topology.resolve(name)
        except Refusal:
            if name not in self._internal:
                raise
            self._named.add(name)
            return self._internal[name][1]

    def find_by_uuid(self, uuid: bytes) -> Topic | None:
        """Return a topic by its 16 bytes."""
        return self._broker.topology.topic_by_uuid(uuid) or self._by_uuid.get(uuid)

    def find_to_change(self, name: str) -> Topic:
        """Return a topic that clients may write to, change or delete. Raises Refusal if they may not."""
        return self.require_changeable(self.find(name))

    def require_changeable(self, topic: Topic) -> Topic:
        """Return the topic. Raises Refusal if it is an internal one."""
        if self.is_internal(topic):
            sentence = f"topic {topic.name!r} is internal: clients can describe and read it, and not change it"
            raise Refusal(Reason.INVALID_TOPIC_NAME, sentence)
        return topic

    def is_internal(self, topic: Topic) -> bool:
        """Return whether a topic is one of ``INTERNAL_TOPICS``."""
        return topic.uuid in self._by_uuid

    def list_topics(self) -> list[Topic]:
        """Return all topics whose names Kafka can express, and the internal ones that are used."""
        topics = [topic for topic in self._broker.topology.list_topics() if is_legal(topic.flat_name)]
        for row, topic in self._internal.values():
            if (row.name in self._named or row.is_used(self._broker)) and not self._is_created(row.name):
                topics.append(topic)
        return topics

    def _is_created(self, name: str) -> bool:
        """Return whether a client of another protocol has created a topic of an internal name."""
        try:
            self._broker.topology.resolve(name)
        except Refusal:
            return False
        return True


def _to_topic(stream: Stream, row: InternalTopic) -> Topic:
    settings = TopicSettings(cleanup_policy=COMPACT, segment_bytes=SEGMENT_BYTES, inert_configs=row.configs)
    topic = Topic(stream, 0, row.name, uuid5(NAMESPACE_OID, row.name).bytes, 0, settings)
    # nothing is appended: ``find_to_change`` is in the way of every write
    log = create_empty_log(topic.uuid)
    topic.partitions = [Partition(topic, number, log) for number in range(PARTITIONS)]
    return topic

"""Topics as Kafka's clients see them: those of the broker, and the three that Apache Kafka keeps for itself.

Positions of groups, states of transactions and of share groups are in the catalog here, not in a topic. Tools and
consumers look for Kafka's internal topics all the same: to leave them out of a pattern, or to see that a coordinator
works. They are rows of ``INTERNAL_TOPICS``: described, listed once they are used or named, and readable as logs without
records. Clients cannot write to them, change or delete them. Other protocols do not know them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import NAMESPACE_OID, uuid5

from ...dialects.kafka.names import is_legal
from ...model.errors import Reason, Refusal
from ...model.names import DEFAULT_STREAM, DEFAULT_STREAM_ID
from ..core.empty_log import create_empty_log
from ..core.settings import COMPACT, UNLIMITED, TopicSettings
from ..core.topics.namespace import Namespace
from ..core.topology import Partition, Stream, Topic

PARTITIONS: Final = 1
"""Partitions of each internal topic: there is one coordinator, and it does not share its work."""


class InternalTopic(NamedTuple):
    """A topic that Apache Kafka keeps for itself, with its configs there."""

    name: str
    configs: Mapping[str, str]
    """Configs without an effect here whose values differ from the defaults, by their names in Kafka."""
    cleanup_policy: str | None = COMPACT
    retention_age_us: int | None = None


SEGMENT_BYTES: Final = 104_857_600
"""Default of Apache Kafka's ``offsets.topic.segment.bytes``, and of those of the other internal topics."""
OFFSETS: Final = InternalTopic("__consumer_offsets", {"compression.type": "producer"})
TRANSACTIONS: Final = InternalTopic("__transaction_state", {"compression.type": "uncompressed"})
SHARES: Final = InternalTopic(
    "__share_group_state", {"compression.type": "producer"}, cleanup_policy=None, retention_age_us=UNLIMITED
)
INTERNAL_TOPICS: Final = (OFFSETS, TRANSACTIONS, SHARES)


class KafkaTopicView:
    """The topics of a broker and Kafka's internal ones, by name and by id."""

    def __init__(self, topology: Namespace, is_used: Mapping[str, Callable[[], bool]]) -> None:
        """``is_used`` returns, by internal topic, whether Apache Kafka would have created it for its own work."""
        self._topology = topology
        self._is_used = is_used
        stream = Stream(DEFAULT_STREAM_ID, DEFAULT_STREAM, 0)
        self._internal = {row.name: _to_topic(stream, row) for row in INTERNAL_TOPICS}
        self._named: set[str] = set()
        """Internal topics that clients have asked for by name, for which Apache Kafka would have created them."""
        self._listed: list[str] = []
        """Internal topics that are used or named, as of the last look."""
        self._listed_version = 0
        """Grows if ``_listed`` changes."""
        self._by_uuid = {topic.uuid: topic for topic in self._internal.values()}

    @property
    def version(self) -> int:
        """A number that grows if topics change, or if other internal topics are listed than before."""
        self._list_internal()
        return self._topology.version + self._listed_version

    def find(self, name: str) -> Topic:
        """Return a topic that a client asks for by its flat name. Raises Refusal if it does not exist.

        An internal one is listed from then on.

        A client of another protocol may have created one of an internal name: then it is that one.
        """
        if name in self._internal and not self._is_created(name):
            self._named.add(name)
            return self._internal[name]
        return self._topology.resolve(name)

    def find_by_uuid(self, uuid: bytes) -> Topic | None:
        """Return a topic by its 16 bytes."""
        return self._topology.topic_by_uuid(uuid) or self._by_uuid.get(uuid)

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

    def find_listed(self, name: str) -> Topic | None:
        """Return the topic that a flat name means among all that are listed, or None."""
        topic = self._topology.find(name)
        if topic is None and name in self._internal:
            topic = self._internal[name] if name in self._list_internal() else None
        return topic

    def list_topics(self) -> list[Topic]:
        """Return all topics whose names Kafka can express, and the internal ones that are used."""
        topics = [topic for topic in self._topology.list_topics() if is_legal(topic.flat_name)]
        topics += [self._internal[name] for name in self._list_internal() if not self._is_created(name)]
        return topics

    def _list_internal(self) -> list[str]:
        listed = [name for name, is_used in self._is_used.items() if name in self._named or is_used()]
        if listed != self._listed:
            self._listed = listed
            self._listed_version += 1
        return listed

    def _is_created(self, name: str) -> bool:
        """Return whether a client of another protocol has created a topic of an internal name."""
        return self._topology.find(name) is not None


def _to_topic(stream: Stream, row: InternalTopic) -> Topic:
    settings = TopicSettings(
        cleanup_policy=row.cleanup_policy,
        retention_age_us=row.retention_age_us,
        segment_bytes=SEGMENT_BYTES,
        inert_configs=row.configs,
    )
    topic = Topic(stream, 0, row.name, uuid5(NAMESPACE_OID, row.name).bytes, 0, settings)
    # nothing is appended: ``find_to_change`` is in the way of every write
    log = create_empty_log(topic.uuid)
    topic.partitions = [Partition(topic, number, log) for number in range(PARTITIONS)]
    return topic

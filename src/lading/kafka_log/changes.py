"""Streams and topics of a gateway: changed in the cluster first, then loaded from it like changes of others."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from ..broker.core.callbacks import ignore
from ..broker.core.change import Change, complete
from ..broker.core.settings import UNLIMITED, TopicSettings
from ..broker.core.topics.topic_names import require_id, require_name
from ..broker.core.topics.topology_changes import TopicSpec, TopologyChanges
from ..broker.core.topology import Partition, Topic
from ..log.catalog_rows import TopicRow
from ..log.interface import PartitionLog
from ..model.errors import LadingError, Reason, Refusal, SettingError
from ..model.names import DEFAULT_STREAM, flat_name
from .catalog_records import CatalogRecords, TopicRecord
from .cluster import identify
from .log import ClusterLog
from .refusals import refuse

if TYPE_CHECKING:
    from ..broker.core.topology import Stream
    from .cluster import ClusterTopics, ClusterView, FoundTopic

LOG: Final = logging.getLogger("lading.store")
_CONFIGS: Final[Mapping[str, tuple[str, Callable[[int], int]]]] = {
    "retention_age_us": ("retention.ms", lambda us: -1 if us >= UNLIMITED else max(us // 1000, 1)),
    "retention_bytes": ("retention.bytes", lambda size: -1 if size >= UNLIMITED else size),
    "message_bytes_max": ("max.message.bytes", lambda size: size),
    "segment_bytes": ("segment.bytes", lambda size: max(size, 1 << 20)),
}
"""Settings of a topic that are a config of a Kafka topic."""
LOOKS_MAX: Final = 50
LOOK_S: Final = 0.1
"""The interval of the checks for a topic that another gateway is creating."""
KEPT_SETTING: Final = "inert_configs"
"""Configs that clients set and find again, without an effect here or there."""


class ClusterChanges(TopologyChanges):
    """Every change of the topology of a gateway."""

    cluster: ClusterTopics
    attach: Callable[[ClusterLog], None]
    """Called with each new log: makes its messages load when they are read."""
    look_again: Callable[[], None]
    """Loads the present state of the cluster. For a worker thread."""
    known: Mapping[str, bytes]
    """Facts of each topic, as bytes that differ if it was created again or has grown."""
    logs: Mapping[tuple[str, int], ClusterLog]
    """The logs by topic and partition."""
    _unfollowed: set[str]
    """Keys of records that cannot be followed, each logged once."""

    records: CatalogRecords
    """The records of the last view."""
    on_taken_over: Callable[[ClusterView], None]
    """Called with each view of the cluster after its topics are loaded."""

    def bind(
        self, cluster: ClusterTopics, attach: Callable[[ClusterLog], None], look_again: Callable[[], None]
    ) -> None:
        """Set the components that changes need; called before the first change."""
        self.cluster, self.attach, self.look_again = cluster, attach, look_again
        self._unfollowed = set()
        self.on_taken_over, self.records = ignore, CatalogRecords()
        self.known, self.logs = {}, {}

    # -- requests of clients

    def create_stream(self, ident: int | None, name: str, *, now_us: int) -> Change[Stream]:
        """Create a stream; without an id it takes the lowest that is free."""
        require_name(name, "stream", Reason.INVALID_STREAM_NAME)
        if name == DEFAULT_STREAM:
            return self._namespace.add_stream(ident, name, now_us=now_us)
        if ident is not None:
            require_id(ident, "stream", Reason.INVALID_STREAM_ID)
        yield partial(self.cluster.put_stream, name, ident, self._catalog.dates.of(now_us))
        yield self.look_again
        return self._namespace.stream(name)

    def ensure_stream(self, name: str, *, now_us: int) -> Change[Stream]:
        """Return the stream of this name, created if missing."""
        if name == DEFAULT_STREAM:
            return self._namespace.ensure_stream(name, now_us=now_us)
        try:
            return self._namespace.stream(name)
        except Refusal:
            return (yield from self.create_stream(None, name, now_us=now_us))

    def delete_stream(self, stream: Stream) -> Change[None]:
        """Delete the stream with its topics and all their messages."""
        while stream.topics:
            yield from self.delete_topic(next(iter(stream.topics.values())))
        yield partial(self.cluster.delete_stream, stream.name)
        yield self.look_again

    def create_topics(self, wanted: Sequence[TopicSpec], *, now_us: int) -> Change[list[Topic | LadingError]]:
        """Create topics in the cluster; returns topics or errors, in the order of ``wanted``."""
        results: list[Topic | LadingError] = []
        for spec in wanted:
            try:
                yield partial(self.cluster.put_topic, *self._draft_topic(spec, now_us))
                yield self.look_again
                results.append(self._namespace.topic(spec.stream.id, spec.name))
            except LadingError as error:
                if isinstance(error, Refusal) and error.reason is Reason.TOPIC_NAME_EXISTS:
                    # another client created it sooner, perhaps at another gateway: it is found below
                    yield partial(self._wait_for_topic, flat_name(spec.stream.name, spec.name))
                results.append(error)
        return results

    def _wait_for_topic(self, name: str) -> None:
        """Load the cluster's topics again until this one has leaders, for a few seconds. For a worker thread."""
        for _ in range(LOOKS_MAX):
            self.look_again()
            if name in self.known:
                return
            time.sleep(LOOK_S)

    def _draft_topic(
        self, spec: TopicSpec, now_us: int
    ) -> tuple[Callable[[int], TopicRecord], int | None, int, Mapping[str, str]]:
        """Return the function that creates a topic. Raises Refusal for settings that this store does not support."""
        stream, ident, name, count, settings = spec
        draft = self._namespace.make_topic(stream, ident, name, count, now_us=now_us, settings=settings)
        if not count:
            raise Refusal(Reason.TOO_MANY_PARTITIONS, f"topic {name!r}: a Kafka topic has at least 1; ask for one")
        document = settings.document()
        for setting in document:
            if setting not in _CONFIGS and setting != KEPT_SETTING:
                raise Refusal(
                    Reason.FEATURE_UNAVAILABLE,
                    f"topic {name!r}: the setting {setting} is not supported on a store of kafka://; leave it out",
                )
        configs = {name: str(convert(document[key])) for key, (name, convert) in _CONFIGS.items() if key in document}

        def make(ident: int) -> TopicRecord:
            return TopicRecord(stream.name, name, ident, draft.created_us, document)

        return make, ident, count, configs

    def delete_topic(self, topic: Topic) -> Change[None]:
        """Delete the topic with its messages."""
        self._namespace.require_current(topic)
        yield partial(self.cluster.delete_topic, topic.flat_name)
        yield self.look_again

    def add_partitions(self, topic: Topic, count: int) -> Change[None]:
        """Add partitions; Kafka may take a moment to have leaders for them."""
        if count < 1:
            raise Refusal(Reason.TOO_MANY_PARTITIONS, f"at least 1 partition can be added, not {count}")
        self._namespace.require_current(topic)
        self._namespace.require_partitions(f"topic {topic.name!r}", len(topic.partitions) + count)
        yield partial(self.cluster.add_partitions, topic.flat_name, len(topic.partitions) + count)
        yield self.look_again

    def delete_partitions(self, topic: Topic, count: int) -> Change[None]:
        """Refuse."""
        yield None
        refuse("partitions")

    def alter_topic(self, topic: Topic, settings: TopicSettings) -> Change[None]:
        """Refuse."""
        yield None
        refuse("settings")

    # -- the state of the cluster

    def take_over(self, view: ClusterView, now_us: int) -> None:
        """Make streams and topics the same as in the cluster. On the event loop."""
        names = {stream.name for stream in self._namespace.streams()}
        for stream_record in view.records.streams.values():
            if stream_record.name not in names:
                add = partial(self._namespace.add_stream, stream_record.id, stream_record.name)
                self._attempt(stream_record.key, partial(add, now_us=stream_record.created_us))
        for topic in self._namespace.list_topics():
            found = view.topics.get(topic.flat_name)
            if found is None or found.uuid != topic.uuid:
                complete(self._let_topic_go(topic))
            elif len(found.partitions) > len(topic.partitions):
                self._grow(topic, found)
        for name, record in view.records.topics.items():
            found = view.topics.get(name)
            if found is not None and self._namespace.topic_by_uuid(found.uuid) is None:
                self._attempt(record.key, partial(self._adopt, record, found, now_us))
        for stream in self._namespace.streams():
            if not stream.topics and view.records.stream_id(stream.name) is None:
                self._namespace.remove_stream(stream)
        # replaced as a whole, as other threads read them
        topics = self._namespace.list_topics()
        self.known = {topic.flat_name: identify(topic.uuid, len(topic.partitions)) for topic in topics}
        logs = [partition.log for topic in topics for partition in topic.partitions]
        self.logs = {log.place: log for log in map(to_cluster_log, logs)}
        self.records = view.records
        self.on_taken_over(view)

    def _attempt(self, key: str, change: Callable[[], object]) -> None:
        """Make a change that a record requires; if it fails, others are still made."""
        try:
            change()
        except (Refusal, SettingError) as error:
            if key in self._unfollowed:
                return
            self._unfollowed.add(key)
            LOG.warning("the catalog's record %r cannot be followed: %s", key, error)

    def _adopt(self, record: TopicRecord, found: FoundTopic, now_us: int) -> None:
        if record.stream == DEFAULT_STREAM:
            self._namespace.ensure_stream(record.stream, now_us=now_us)
        stream = self._namespace.stream(record.stream)
        settings = TopicSettings.parse(record.settings)
        topic = Topic(stream, record.id, record.topic, found.uuid, record.created_us, settings)
        self._namespace.require_new(topic)
        topic.partitions = self._make_partitions(topic, found, 0)
        self._callbacks.on_partitions_opened(topic.partitions)
        self._catalog.add_topic(
            TopicRow(
                topic.uuid, stream.id, topic.id, topic.name, topic.created_us, len(topic.partitions), 1,
                topic.settings.to_stored_document(),
            )
        )  # fmt: skip
        self._namespace.link_topic(topic)

    def _make_partitions(self, topic: Topic, found: FoundTopic, first: int) -> list[Partition]:
        partitions = []
        for number in range(first, len(found.partitions)):
            log = ClusterLog((found.name, number), topic.uuid, *found.partitions[number])
            log.dates = self._catalog.dates
            self.attach(log)
            partitions.append(Partition(topic, number, log))  # type: ignore[arg-type]
        return partitions

    def _grow(self, topic: Topic, found: FoundTopic) -> None:
        added = self._make_partitions(topic, found, len(topic.partitions))
        self._callbacks.on_partitions_opened(added)
        topic.partitions += added
        self._namespace.forget_routes()
        self._callbacks.on_topic_resized(topic)

    def _let_topic_go(self, topic: Topic) -> Change[None]:
        self._namespace.unlink_topic(topic)
        yield from self._release_partitions(topic.partitions)
        self._callbacks.on_topic_deleted(topic)
        topic.partitions = []
        self._catalog.remove_topic(topic.uuid)


def to_cluster_log(log: PartitionLog) -> ClusterLog:
    """Return a partition's log with its type on this store."""
    return cast("ClusterLog", log)

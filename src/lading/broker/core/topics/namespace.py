"""All streams and topics of a data directory, with their names and directories (design.md Names).

Names are used exactly as given: dialects normalise them. A flat name stands for one topic only, so a topic whose flat
name another topic has is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import product
from pathlib import Path
from uuid import uuid4

from ....log import closing
from ....log.catalog import Catalog
from ....log.catalog_rows import StreamRow, TopicRow
from ....log.directory import DataDirectory, TopicDescription
from ....log.interface import PartitionLog
from ....model.errors import CorruptLog, Reason, Refusal
from ....model.names import DEFAULT_STREAM, DEFAULT_STREAM_ID, flat_name
from ....runtime.turns import CallbackQueue
from ..free_ids import FreeIds
from ..settings import TopicSettings
from ..topology import Partition, Stream, Topic
from .found_topics import FoundTopics
from .topic_names import require_id, require_name, require_other_name, require_other_target

OpenLog = Callable[[Path, bytes, int], PartitionLog]
"""(partition directory, topic id, epoch for a new log) -> the open log."""


class Namespace:
    """All streams, topics and partitions of a data directory; ``topology_changes`` changes them."""

    def __init__(
        self, catalog: Catalog, directory: DataDirectory, open_log: OpenLog, partitions_max: int, now_us: int
    ) -> None:
        """Open the topics that the catalog lists and adopt those that only have a directory; ``notes`` lists these.

        Raises CorruptLog if a listed topic or partition has no directory, or if two directories claim one name.
        """
        self._catalog = catalog
        self._directory = directory
        self._open_log = open_log
        self._partitions_max = partitions_max
        self.notes: list[str] = []
        """Sentences about topics that a start found missing or different in the catalog."""
        self.version = 0
        """A number that grows with each call of ``forget_routes``."""
        self.wakeups = CallbackQueue()
        """Wakes waiting readers."""
        self._streams: dict[int, Stream] = {}
        self._free_stream_ids = FreeIds(self._streams.__contains__)
        self._streams_by_name: dict[str, Stream] = {}
        self._flat_names = FlatNames()
        self._topics_by_uuid: dict[bytes, Topic] = {}
        self._found = FoundTopics(catalog, directory, self.notes, now_us)
        self._recover()

    def _recover(self) -> None:
        for uuid in self._directory.list_deleted():
            self._catalog.remove_topic(uuid)
            self._directory.remove(uuid)
        for row in self._catalog.streams():
            self._link_stream(Stream(row.id, row.name, row.created_us))
        for topic_row in self._catalog.topics():
            if not self._directory.exists(topic_row.uuid):
                path = self._directory.path(topic_row.uuid)
                raise CorruptLog(
                    f"topic {topic_row.name!r} is in the catalog, but its directory {path} is missing; put it back, "
                    "or move the catalog file away to start from the existing directories"
                )
            self._open_listed(self._found.reconcile(topic_row))
        for uuid in sorted(self._directory.list_topic_ids() - set(self._topics_by_uuid)):
            self._adopt(uuid)

    def _adopt(self, uuid: bytes) -> None:
        """Adopt a directory that the catalog does not list, or remove the remains of an interrupted creation.

        Raises CorruptLog if it holds messages and cannot be adopted: its name must not be given to another topic.
        """
        described = self._found.describe_unlisted(uuid)
        if described is None:
            return
        other = self._flat_names.find(described.name)
        if other is not None:
            if self._directory.remove_if_empty(uuid):
                return
            raise CorruptLog(
                f"topic {described.name!r}: directories {self._directory.path(other.uuid)}, which is in the catalog, "
                f"and {self._directory.path(uuid)} both belong to it; move one of them away"
            )
        stream = self.ensure_stream(described.stream, now_us=described.created_us)
        ident = described.topic_id if described.topic_id not in stream.topics else stream.free_topic_ids.find()
        row = self._found.adopt(described, stream.id, ident)
        self._catalog.add_topic(row)
        # only the log shows whether producers with numbers or transactions wrote to it
        self._catalog.add_writer_partitions(uuid, row.partitions)
        self._open_listed(row)

    # -- look-ups

    def streams(self) -> list[Stream]:
        """Return all streams by id."""
        return [self._streams[one] for one in sorted(self._streams)]

    def topics(self) -> Iterable[Topic]:
        """Return all topics of all streams."""
        return self._topics_by_uuid.values()

    def list_topics(self) -> list[Topic]:
        """Return all topics by the ids of their streams and their own; the list stays the same when topics are added or
        deleted.
        """
        return [topic for stream in self.streams() for topic in stream.list_topics()]

    def stream(self, ident: int | str) -> Stream:
        """Return a stream by id or exact name."""
        if isinstance(ident, int):
            if (stream := self._streams.get(ident)) is None:
                raise Refusal(Reason.STREAM_ID_NOT_FOUND, f"stream id {ident} does not exist; list the streams")
        elif (stream := self._streams_by_name.get(ident)) is None:
            raise Refusal(
                Reason.STREAM_NAME_NOT_FOUND, f"stream {ident!r} does not exist; create it, or check the name"
            )
        return stream

    def topic(self, stream_ident: int | str, topic_ident: int | str) -> Topic:
        """Return a topic by ids or exact names."""
        stream = self.stream(stream_ident)
        if isinstance(topic_ident, int):
            if (topic := stream.topics.get(topic_ident)) is None:
                raise Refusal(
                    Reason.TOPIC_ID_NOT_FOUND,
                    f"stream {stream.name!r} has no topic with id {topic_ident}; list its topics",
                )
        elif (topic := self._find_topic(stream, topic_ident)) is None:
            raise Refusal(
                Reason.TOPIC_NAME_NOT_FOUND,
                f"stream {stream.name!r} has no topic {topic_ident!r}; create it, or check the name",
            )
        return topic

    def topic_by_uuid(self, uuid: bytes) -> Topic | None:
        """Return a topic by its 16-byte id."""
        return self._topics_by_uuid.get(uuid)

    def find(self, name: str) -> Topic | None:
        """Return the topic that a flat name stands for, or None."""
        return self._flat_names.find(name)

    def resolve(self, name: str) -> Topic:
        """Return the topic that a flat name stands for: ``t`` in ``default``, or ``s.t``."""
        if (topic := self._flat_names.find(name)) is None:
            raise Refusal(Reason.TOPIC_NAME_NOT_FOUND, f"topic {name!r} does not exist; create it, or check the name")
        return topic

    def _find_topic(self, stream: Stream, name: str) -> Topic | None:
        # equal flat names are refused at creation, so the flat name finds the topic if its stream and name match
        topic = self._flat_names.find(flat_name(stream.name, name))
        return topic if topic is not None and topic.stream is stream and topic.name == name else None

    # -- parts of changes

    def add_stream(self, ident: int | None, name: str, *, now_us: int) -> Stream:
        """Add a stream, also to the catalog; without an id ``default`` gets the highest u32, others the
        lowest free one.
        """
        if ident is None:
            ident = DEFAULT_STREAM_ID if name == DEFAULT_STREAM else self._free_stream_ids.find()
        require_id(ident, "stream", Reason.INVALID_STREAM_ID)
        require_name(name, "stream", Reason.INVALID_STREAM_NAME)
        if ident in self._streams:
            raise Refusal(
                Reason.STREAM_ID_EXISTS,
                f"stream id {ident} is {self._streams[ident].name!r} already; choose another id",
            )
        self._require_free_stream_name(name)
        now_us = self._catalog.dates.of(now_us)
        self._catalog.add_stream(StreamRow(ident, name, now_us))
        stream = Stream(ident, name, now_us)
        self._link_stream(stream)
        return stream

    def ensure_stream(self, name: str, *, now_us: int) -> Stream:
        """Return the stream of this name, created if missing."""
        stream = self._streams_by_name.get(name)
        return self.add_stream(None, name, now_us=now_us) if stream is None else stream

    def forget_routes(self) -> None:
        """Invalidate all routes, so that names are looked up again.

        To be called whenever a stream, topic or partition is created or deleted, and when the settings of a topic
        change: routes contain facts that depend on them, such as whether a topic takes extended messages.
        """
        self.version += 1

    def remove_stream(self, stream: Stream) -> None:
        """Remove a stream without topics, also from the catalog."""
        self._catalog.remove_stream(stream.id)
        del self._streams[stream.id]
        self._free_stream_ids.give_back(stream.id)
        self._forget_stream_names(stream)
        self.forget_routes()

    def make_topic(
        self,
        stream: Stream,
        ident: int | None,
        name: str,
        partitions_count: int,
        *,
        now_us: int,
        settings: TopicSettings,
    ) -> Topic:
        """Create a topic without partitions that lookups do not find yet, after a check that it may have
        ``partitions_count``.

        Without ``ident`` it gets the lowest free id.
        """
        if ident is None:
            ident = stream.free_topic_ids.find()
        require_id(ident, "topic", Reason.INVALID_TOPIC_ID)
        require_name(name, "topic", Reason.INVALID_TOPIC_NAME)
        self.require_partitions(f"topic {name!r}", partitions_count)
        topic = Topic(stream, ident, name, uuid4().bytes, self._catalog.dates.of(now_us), settings)
        self.require_new(topic)
        require_other_target(topic.flat_name, settings)
        return topic

    def renumber(self, topic: Topic) -> None:
        """Give a topic that lookups do not find yet the lowest free id, and reserve that for it."""
        stream = topic.stream
        stream.release_topic_id(topic.id)
        topic.id = stream.free_topic_ids.find()
        stream.promised_ids.add(topic.id)

    def require_new(self, topic: Topic) -> None:
        """Raise Refusal if its stream does not exist, or has a topic with the id or the name."""
        stream, name = topic.stream, topic.name
        self._require_stream(stream)
        if topic.id in stream.topics:
            raise Refusal(
                Reason.TOPIC_ID_EXISTS,
                f"topic id {topic.id} of stream {stream.name!r} is {stream.topics[topic.id].name!r} already; "
                "choose another id",
            )
        self._require_free_topic_name(stream, name)

    def _require_stream(self, stream: Stream) -> None:
        if self._streams.get(stream.id) is not stream:
            raise Refusal(Reason.STREAM_ID_NOT_FOUND, f"stream id {stream.id} does not exist; list the streams")

    def require_current(self, topic: Topic) -> None:
        """Raise Refusal if the topic was deleted."""
        if self._topics_by_uuid.get(topic.uuid) is not topic:
            raise Refusal(
                Reason.TOPIC_NAME_NOT_FOUND,
                f"topic {topic.flat_name!r} was deleted; create it again, or choose another",
            )

    def has_partition(self, partition: Partition) -> bool:
        """Return whether neither the partition nor its topic was deleted."""
        topic, number = partition.topic, partition.number
        is_current = self._topics_by_uuid.get(topic.uuid) is topic
        return is_current and number < len(topic.partitions) and topic.partitions[number] is partition

    def require_partitions(self, what: str, count: int) -> None:
        """Raise Refusal if a topic may not have ``count`` partitions."""
        if not 0 <= count <= self._partitions_max:
            raise Refusal(
                Reason.TOO_MANY_PARTITIONS,
                f"{what} cannot have {count} partitions; the limit is {self._partitions_max} "
                "(setting broker.partitions_per_topic_max)",
            )

    def link_topic(self, topic: Topic) -> None:
        """Make lookups find the topic."""
        self.forget_routes()
        topic.stream.topics[topic.id] = topic
        self._flat_names.add(topic)
        self._topics_by_uuid[topic.uuid] = topic

    def unlink_topic(self, topic: Topic) -> None:
        """Make lookups no longer find the topic."""
        self.forget_routes()
        del topic.stream.topics[topic.id]
        topic.stream.free_topic_ids.give_back(topic.id)
        self._flat_names.remove(topic)
        del self._topics_by_uuid[topic.uuid]

    # -- names

    def reserve_topic_name(self, topic: Topic, name: str) -> None:
        """Reserve a name that a topic is about to get; flat names find it by both names. Raises Refusal if that is
        impossible.
        """
        stream = topic.stream
        self.require_current(topic)
        require_name(name, "topic", Reason.INVALID_TOPIC_NAME)
        for flat in self._require_free_topic_name(stream, name):
            require_other_name(topic, flat)
        self._flat_names.reserve(topic, name)

    def reserve_stream_name(self, stream: Stream, name: str) -> None:
        """Reserve a name that a stream is about to get; flat names find its topics by both names."""
        self._require_stream(stream)
        require_name(name, "stream", Reason.INVALID_STREAM_NAME)
        self._require_free_stream_name(name)
        for topic in stream.topics.values():
            flat = flat_name(name, topic.name)
            self._require_unambiguous(stream, topic.name, flat)
            require_other_name(topic, flat)
        self._streams_by_name[name] = stream
        self._flat_names.reserve(stream, name)

    def require_reserved(self, renamed: Stream | Topic) -> None:
        """Raise Refusal if the topic or stream of a reserved name was deleted meanwhile."""
        if isinstance(renamed, Topic):
            self.require_current(renamed)
        else:
            self._require_stream(renamed)

    def settle_name(self, renamed: Stream | Topic, *, take: bool) -> None:
        """End a reservation: with ``take`` the new name is the name and the old one free, otherwise the
        other way round.
        """
        self._flat_names.settle(renamed, take=take)
        if isinstance(renamed, Stream):
            known = self._streams.get(renamed.id) is renamed
            self._forget_stream_names(renamed)
            if known:
                self._streams_by_name[renamed.name] = renamed
        self.forget_routes()

    def close(self) -> None:
        """Close every log, all together."""
        close_logs([partition for topic in self._topics_by_uuid.values() for partition in topic.partitions])

    # -- implementation

    def _require_free_stream_name(self, name: str) -> None:
        if name in self._streams_by_name:
            raise Refusal(
                Reason.STREAM_NAME_EXISTS,
                f"stream {name!r} already exists with id {self._streams_by_name[name].id}; choose another name",
            )

    def _require_free_topic_name(self, stream: Stream, name: str) -> list[str]:
        """Return the flat names that a topic of this name would have. Raises Refusal if it may not have them."""
        if self._find_topic(stream, name):
            raise Refusal(
                Reason.TOPIC_NAME_EXISTS, f"stream {stream.name!r} has a topic {name!r} already; choose another name"
            )
        flat_names = self._flat_names.names(stream, [name])
        for flat in flat_names:
            self._require_unambiguous(stream, name, flat)
        return flat_names

    def _require_unambiguous(self, stream: Stream, name: str, flat: str) -> None:
        other = self._flat_names.find(flat)
        if other is not None:
            raise Refusal(
                Reason.AMBIGUOUS_NAME,
                f"topic {name!r} of stream {stream.name!r} would be called {flat!r} elsewhere, as topic "
                f"{other.name!r} of stream {other.stream.name!r} is already; choose another name",
            )

    def _forget_stream_names(self, stream: Stream) -> None:
        self._streams_by_name = {name: one for name, one in self._streams_by_name.items() if one is not stream}

    def _build_topic(self, row: TopicRow) -> Topic:
        settings = TopicSettings.parse_stored(row.settings)
        stream = self._streams[row.stream_id]
        return Topic(stream, row.id, row.name, row.uuid, row.created_us, settings, row.next_epoch)

    def _open_listed(self, row: TopicRow) -> None:
        topic = self._build_topic(row)
        topic.partitions = self._open_partitions(topic, range(row.partitions))
        self.link_topic(topic)
        description = describe_topic(topic, row.partitions)
        if self._found.differs(description):
            with suppress(OSError):
                # only readers without a broker use it, so a full disk must not prevent the start
                self._directory.describe(description)

    def _open_partitions(self, topic: Topic, numbers: range) -> list[Partition]:
        """Open all logs or, if one fails, none."""
        opened: list[Partition] = []
        try:
            home = self._directory.path(topic.uuid)
            for number in numbers:
                log = self._open_log(home / str(number), topic.uuid, topic.next_epoch)
                opened.append(Partition(topic, number, log))
        except OSError:
            close_logs(opened)
            raise
        return opened

    def _link_stream(self, stream: Stream) -> None:
        stream.wakeups = self.wakeups
        self.forget_routes()
        self._streams[stream.id] = stream
        self._streams_by_name[stream.name] = stream


def describe_topic(topic: Topic, partitions_count: int) -> TopicDescription:
    """Return the content of ``topic.json`` for a topic with this number of partitions."""
    return TopicDescription(
        topic.uuid,
        topic.stream.name,
        topic.name,
        topic.id,
        partitions_count,
        topic.created_us,
        topic.next_epoch,
        topic.settings.to_stored_document(),
    )


def close_logs(partitions: Iterable[Partition]) -> None:
    """Close the logs of partitions."""
    closing.close_logs([partition.log for partition in partitions])


class FlatNames:
    """Topics by flat name, and the names that streams and topics are about to get.

    An old name is free for other topics once the catalog has the new one on disk: after a crash only one topic can
    claim it.
    """

    def __init__(self) -> None:
        self._topics: dict[str, Topic] = {}
        self._next: dict[Stream | Topic, str] = {}

    def find(self, name: str) -> Topic | None:
        """Return the topic that has, or is about to get, this flat name."""
        return self._topics.get(name)

    def names(self, stream: Stream, topic_names: Iterable[str]) -> list[str]:
        """Return the flat names that a topic has by each of several names of the topic or its stream."""
        return [flat_name(*pair) for pair in product(self._with_next(stream, stream.name), topic_names)]

    def add(self, topic: Topic) -> None:
        """Add a topic under all its names."""
        for name in self._names_of(topic):
            self._topics[name] = topic

    def remove(self, topic: Topic) -> None:
        """Remove a topic."""
        for name in self._names_of(topic):
            self._topics.pop(name, None)
        self._next.pop(topic, None)

    def reserve(self, renamed: Stream | Topic, name: str) -> None:
        """Have a topic, or the topics of a stream, found by their next names too, which are free."""
        self._next[renamed] = name
        for topic in _topics_of(renamed):
            self.add(topic)

    def settle(self, renamed: Stream | Topic, *, take: bool) -> None:
        """End a reservation: keep the new name if ``take``, else the old one."""
        topics = _topics_of(renamed) if self._next.get(renamed) is not None else []
        known = [topic for topic in topics if any(self._topics.get(name) is topic for name in self._names_of(topic))]
        for topic in known:
            for name in self._names_of(topic):
                self._topics.pop(name, None)
        name = self._next.pop(renamed, renamed.name)
        if take:
            renamed.name = name
        for topic in known:
            self.add(topic)

    def _names_of(self, topic: Topic) -> list[str]:
        return self.names(topic.stream, self._with_next(topic, topic.name))

    def _with_next(self, one: Stream | Topic, name: str) -> list[str]:
        later = self._next.get(one)
        return [name] if later is None else [name, later]


def _topics_of(renamed: Stream | Topic) -> list[Topic]:
    return list(renamed.topics.values()) if isinstance(renamed, Stream) else [renamed]

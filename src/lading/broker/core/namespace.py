"""What there is, what it is called, and where it lies: all streams and topics of a data directory (design.md Names).

Names are taken exactly as given: normalising them is the dialect's. A flat name means one topic only, so a create
that would make two spellings equal is refused.
"""

from __future__ import annotations

import errno
import uuid as uuid_module
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from ...log.catalog import Catalog
from ...log.catalog_rows import StreamRow, TopicRow
from ...log.directory import DataDirectory, TopicDescription, partition_path
from ...log.interface import PartitionLog
from ...model.errors import CorruptLog, Reason, Refusal, SettingError
from ...model.names import DEFAULT_STREAM, DEFAULT_STREAM_ID, flat_name
from .found_topics import FoundTopics
from .settings import TopicSettings
from .topology import ID_MAX, Partition, Stream, Topic

NAME_BYTES_MAX: Final = 255
"""iggy.md A6."""

OpenLog = Callable[[Path, bytes, int], PartitionLog]
"""(partition directory, topic id, epoch of a log that is created new) -> the open log."""


class PreparedLogs(NamedTuple):
    """The logs of a topic that is not there yet, under the id that it will have."""

    uuid: bytes
    logs: list[PartitionLog]


class Namespace:
    """All streams, topics and partitions of a data directory; every change is in the catalog when it returns."""

    def __init__(
        self, catalog: Catalog, directory: DataDirectory, open_log: OpenLog, partitions_max: int, now_us: int
    ) -> None:
        """Opens what the catalog lists and takes in what only the directory knows; ``notes`` says what.

        CorruptLog where a listed topic or partition has no directory, or two directories claim one name.
        """
        self._catalog = catalog
        self._directory = directory
        self._open_log = open_log
        self._partitions_max = partitions_max
        self.notes: list[str] = []
        """Sentences about what a start found of topics that the catalog does not know, or not as they are."""
        self.version = 0
        """Grows whenever a stream, topic or partition comes or goes."""
        self._streams: dict[int, Stream] = {}
        self._streams_by_name: dict[str, Stream] = {}
        self._topics_by_flat_name: dict[str, Topic] = {}
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
            path = self._directory.path(topic_row.uuid)
            if not path.is_dir():
                raise CorruptLog(
                    f"topic {topic_row.name!r} is in the catalog, but its directory {path} is missing; put it back, "
                    "or move the catalog file away to start from the directories that are there"
                )
            self._open_listed(self._found.agreed(topic_row))
        for uuid in sorted(self._directory.list_topic_ids() - set(self._topics_by_uuid)):
            self._adopt(uuid)

    def _adopt(self, uuid: bytes) -> None:
        """Take in a directory that the catalog does not list, or remove what an interrupted create left.

        CorruptLog where it holds messages and cannot be taken in: its name must not be given to another topic.
        """
        described = self._found.unlisted(uuid)
        if described is None:
            return
        other = self._topics_by_flat_name.get(described.name)
        if other is not None:
            if self._directory.remove_if_empty(uuid):
                return
            raise CorruptLog(
                f"topic {described.name!r}: directories {self._directory.path(other.uuid)}, which is in the catalog, "
                f"and {self._directory.path(uuid)} both belong to it; move one of them away"
            )
        stream = self.ensure_stream(described.stream, now_us=described.created_us)
        ident = described.topic_id if described.topic_id not in stream.topics else _lowest_free(stream.topics)
        row = self._found.adopted(described, stream.id, ident)
        self._catalog.add_topic(row)
        # who wrote there with numbers or in transactions is told by the log alone
        self._catalog.add_writer_partitions(uuid, row.partitions)
        self._open_listed(row)

    # -- look-ups

    def streams(self) -> list[Stream]:
        """All streams by id."""
        return [self._streams[one] for one in sorted(self._streams)]

    def topics(self) -> Iterable[Topic]:
        """All topics of all streams."""
        return self._topics_by_uuid.values()

    def stream(self, ident: int | str) -> Stream:
        """By id or exact name."""
        if isinstance(ident, int):
            if (stream := self._streams.get(ident)) is None:
                raise Refusal(Reason.STREAM_ID_NOT_FOUND, f"stream id {ident} does not exist")
        elif (stream := self._streams_by_name.get(ident)) is None:
            raise Refusal(Reason.STREAM_NAME_NOT_FOUND, f"there is no stream {ident!r}")
        return stream

    def topic(self, stream_ident: int | str, topic_ident: int | str) -> Topic:
        """By ids or exact names."""
        stream = self.stream(stream_ident)
        if isinstance(topic_ident, int):
            if (topic := stream.topics.get(topic_ident)) is None:
                raise Refusal(Reason.TOPIC_ID_NOT_FOUND, f"stream {stream.name!r} has no topic with id {topic_ident}")
        elif (topic := self._find_topic(stream, topic_ident)) is None:
            raise Refusal(Reason.TOPIC_NAME_NOT_FOUND, f"stream {stream.name!r} has no topic {topic_ident!r}")
        return topic

    def topic_by_uuid(self, uuid: bytes) -> Topic | None:
        """By its 16 bytes."""
        return self._topics_by_uuid.get(uuid)

    def resolve(self, name: str) -> Topic:
        """The topic a flat name means: ``t`` in ``default``, or ``s.t``."""
        if (topic := self._topics_by_flat_name.get(name)) is None:
            raise Refusal(Reason.TOPIC_NAME_NOT_FOUND, f"there is no topic {name!r}")
        return topic

    def _find_topic(self, stream: Stream, name: str) -> Topic | None:
        # equal flat names are refused at create, so the flat name finds it, if it is of this stream and name
        topic = self._topics_by_flat_name.get(flat_name(stream.name, name))
        return topic if topic is not None and topic.stream is stream and topic.name == name else None

    # -- changes

    def create_stream(self, ident: int | None, name: str, *, now_us: int) -> Stream:
        """A new stream; without an id ``default`` takes the top of u32 and others the lowest that is free."""
        if ident is None:
            ident = DEFAULT_STREAM_ID if name == DEFAULT_STREAM else _lowest_free(self._streams)
        if not 1 <= ident <= ID_MAX:
            raise Refusal(Reason.INVALID_STREAM_ID, f"a stream id is 1 to {ID_MAX}, not {ident}")
        _require_name(name, "stream", Reason.INVALID_STREAM_NAME)
        if ident in self._streams:
            raise Refusal(Reason.STREAM_ID_EXISTS, f"stream id {ident} is {self._streams[ident].name!r} already")
        if name in self._streams_by_name:
            raise Refusal(
                Reason.STREAM_NAME_EXISTS,
                f"stream {name!r} already exists with id {self._streams_by_name[name].id}",
            )
        now_us = self._catalog.dates.of(now_us)
        self._catalog.add_stream(StreamRow(ident, name, now_us))
        stream = Stream(ident, name, now_us)
        self._link_stream(stream)
        return stream

    def ensure_stream(self, name: str, *, now_us: int) -> Stream:
        """The stream of this name; it is created if there is none."""
        stream = self._streams_by_name.get(name)
        return self.create_stream(None, name, now_us=now_us) if stream is None else stream

    def create_topic(
        self,
        stream: Stream,
        ident: int | None,
        name: str,
        partitions_count: int,
        *,
        now_us: int,
        settings: TopicSettings,
        prepared: PreparedLogs | None = None,
    ) -> Topic:
        """A new topic with this many empty partitions (0 is allowed); without an id the lowest that is free.

        ``prepared`` are its partitions' logs where they were made before.
        """
        if ident is None:
            ident = _lowest_free(stream.topics)
        if not 1 <= ident <= ID_MAX:
            raise Refusal(Reason.INVALID_TOPIC_ID, f"a topic id is 1 to {ID_MAX}, not {ident}")
        _require_name(name, "topic", Reason.INVALID_TOPIC_NAME)
        self._require_partitions(f"topic {name!r}", partitions_count)
        if ident in stream.topics:
            raise Refusal(
                Reason.TOPIC_ID_EXISTS,
                f"topic id {ident} of stream {stream.name!r} is {stream.topics[ident].name!r} already",
            )
        if self._find_topic(stream, name):
            raise Refusal(Reason.TOPIC_NAME_EXISTS, f"stream {stream.name!r} has a topic {name!r} already")
        self._require_unambiguous(stream, name)
        _require_other(flat_name(stream.name, name), settings)
        row = TopicRow(
            uuid_module.uuid4().bytes if prepared is None else prepared.uuid,
            stream.id,
            ident,
            name,
            self._catalog.dates.of(now_us),
            partitions_count,
            1,
            settings.document(),
        )
        topic = self._topic(row)
        with _disk_errors(f"topic {name!r}"):
            try:
                # the directory first: a topic that the catalog lists has one after any crash
                if prepared is None:
                    self._directory.create(row.uuid, partitions_count)
                    topic.partitions = self._open_partitions(topic, range(partitions_count))
                else:
                    topic.partitions = [Partition(topic, number, log) for number, log in enumerate(prepared.logs)]
                self._catalog.add_topic(row)
                self._describe_created(topic)
            except (OSError, Refusal):
                if prepared is None:
                    _close(topic.partitions)
                    self._directory.remove_if_empty(row.uuid)
                raise
        self._link_topic(topic)
        return topic

    def prepare_logs(self, partitions_count: int, make_log: OpenLog) -> PreparedLogs:
        """Make the directories and logs of a topic to be; from any thread, since nothing refers to them yet.

        Each waits for the disk several times. What is not used is removed by ``discard``, or by the next start.
        """
        # as many as are asked for are made before a name is looked at
        self._require_partitions("a new topic", partitions_count)
        prepared = PreparedLogs(uuid_module.uuid4().bytes, [])
        with _disk_errors("a new topic"):
            try:
                self._directory.create(prepared.uuid, partitions_count)
                for number in range(partitions_count):
                    path = partition_path(self._directory.data, prepared.uuid, number)
                    log = make_log(path, prepared.uuid, 1)
                    prepared.logs.append(log)
                    # thousands would use up the open files of the process before anybody counts them
                    log.rest()
            except OSError:
                self.discard(prepared)
                raise
        return prepared

    def discard(self, prepared: PreparedLogs) -> None:
        """Remove what was prepared for a topic that could not be created; from any thread."""
        for log in prepared.logs:
            log.close()
        self._directory.remove_if_empty(prepared.uuid)

    def _describe_created(self, topic: Topic) -> None:
        try:
            self._directory.describe(_description(topic, len(topic.partitions)))
        except OSError:
            self._catalog.remove_topic(topic.uuid)
            raise

    def alter_topic(self, topic: Topic, settings: TopicSettings) -> None:
        """Other settings from now on; on disk when this returns."""
        _require_other(topic.flat_name, settings)
        with _disk_errors(f"topic {topic.flat_name!r}"):
            self._catalog.set_settings(topic.uuid, settings.document())
            topic.settings = settings
            self._directory.describe(_description(topic, len(topic.partitions)))

    def delete_topic(self, topic: Topic) -> None:
        """The topic, its groups, positions and messages; what fails half-way is finished at the next start.

        Files go before the catalog is written, so that a full disk can be emptied.
        """
        with _disk_errors(f"topic {topic.name!r}"):
            _close(topic.partitions)
            self._directory.mark_deleted(topic.uuid)
            self._unlink_topic(topic)
            self._directory.empty(topic.uuid)
            self._catalog.remove_topic(topic.uuid)
            self._directory.remove(topic.uuid)

    def delete_stream(self, stream: Stream) -> None:
        """The stream with all its topics."""
        for topic in list(stream.topics.values()):
            self.delete_topic(topic)
        self._catalog.remove_stream(stream.id)
        del self._streams[stream.id], self._streams_by_name[stream.name]
        self.version += 1

    def add_partitions(self, topic: Topic, count: int) -> list[Partition]:
        """This many more, empty, with the next numbers."""
        if count < 1:
            raise Refusal(Reason.TOO_MANY_PARTITIONS, f"at least 1 partition can be added, not {count}")
        before = len(topic.partitions)
        self._require_partitions(f"topic {topic.name!r}", before + count)
        with _disk_errors(f"topic {topic.name!r}"):
            self._directory.add_partitions(topic.uuid, range(before, before + count), topic.next_epoch)
            added = self._open_partitions(topic, range(before, before + count))
            try:
                self._resize(topic, before + count)
            except (OSError, Refusal):
                _close(added)
                raise
        topic.partitions += added
        return added

    def delete_partitions(self, topic: Topic, count: int) -> list[Partition]:
        """The ones with the highest numbers go, with messages and positions; more than there are means all."""
        if count < 1:
            raise Refusal(Reason.TOO_MANY_PARTITIONS, f"at least 1 partition can be deleted, not {count}")
        kept = max(len(topic.partitions) - count, 0)
        gone = topic.partitions[kept:]
        # a partition of the same number made later must not look like the old one to a stored position
        topic.next_epoch = max([topic.next_epoch, *(partition.log.epoch + 1 for partition in gone)])
        with _disk_errors(f"topic {topic.name!r}"):
            _close(gone)
            self._directory.mark_partitions_deleted(topic.uuid, range(kept, len(topic.partitions)))
            del topic.partitions[kept:]
            topic.next_balanced = 0
            self._resize(topic, kept)
            self._directory.settle_partitions(topic.uuid, kept)
        return gone

    def close(self) -> None:
        """Close every log."""
        for topic in self._topics_by_uuid.values():
            _close(topic.partitions)

    # -- the parts

    def _require_partitions(self, what: str, count: int) -> None:
        if not 0 <= count <= self._partitions_max:
            raise Refusal(
                Reason.TOO_MANY_PARTITIONS,
                f"{what} cannot have {count} partitions; the limit is {self._partitions_max} "
                "(setting broker.partitions_per_topic_max)",
            )

    def _require_unambiguous(self, stream: Stream, name: str) -> None:
        flat = flat_name(stream.name, name)
        other = self._topics_by_flat_name.get(flat)
        if other is not None:
            raise Refusal(
                Reason.AMBIGUOUS_NAME,
                f"topic {name!r} of stream {stream.name!r} would be called {flat!r} elsewhere, as topic "
                f"{other.name!r} of stream {other.stream.name!r} is already; choose another name",
            )

    def _topic(self, row: TopicRow) -> Topic:
        settings = TopicSettings.parse(row.settings)
        stream = self._streams[row.stream_id]
        return Topic(stream, row.id, row.name, row.uuid, row.created_us, settings, row.next_epoch)

    def _open_listed(self, row: TopicRow) -> None:
        topic = self._topic(row)
        topic.partitions = self._open_partitions(topic, range(row.partitions))
        self._link_topic(topic)
        description = _description(topic, row.partitions)
        if self._found.differs(description):
            with suppress(OSError):
                # only readers without a broker miss it: a full disk must not stop the start
                self._directory.describe(description)

    def _open_partitions(self, topic: Topic, numbers: range) -> list[Partition]:
        """All of them or, where one fails, none."""
        opened: list[Partition] = []
        try:
            for number in numbers:
                path = partition_path(self._directory.data, topic.uuid, number)
                opened.append(Partition(topic, number, self._open_log(path, topic.uuid, topic.next_epoch)))
        except OSError:
            _close(opened)
            raise
        return opened

    def _resize(self, topic: Topic, partitions_count: int) -> None:
        self._catalog.resize_topic(topic.uuid, partitions_count, topic.next_epoch)
        self._directory.describe(_description(topic, partitions_count))
        self.version += 1

    def _link_stream(self, stream: Stream) -> None:
        self.version += 1
        self._streams[stream.id] = stream
        self._streams_by_name[stream.name] = stream

    def _link_topic(self, topic: Topic) -> None:
        self.version += 1
        topic.stream.topics[topic.id] = topic
        self._topics_by_flat_name[topic.flat_name] = topic
        self._topics_by_uuid[topic.uuid] = topic

    def _unlink_topic(self, topic: Topic) -> None:
        self.version += 1
        del topic.stream.topics[topic.id]
        del self._topics_by_flat_name[topic.flat_name]
        del self._topics_by_uuid[topic.uuid]


def _description(topic: Topic, partitions_count: int) -> TopicDescription:
    return TopicDescription(
        topic.uuid,
        topic.stream.name,
        topic.name,
        topic.id,
        partitions_count,
        topic.created_us,
        topic.next_epoch,
        topic.settings.document(),
    )


def _close(partitions: Iterable[Partition]) -> None:
    for partition in partitions:
        partition.log.close()


@contextmanager
def _disk_errors(what: str) -> Iterator[None]:
    """What the disk refuses as a Refusal, so that the request fails and nothing else."""
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, Reason.READ_ONLY)
        raise Refusal(
            reason, f"{what} cannot be changed on the disk: {error.strerror or type(error).__name__}"
        ) from None


_REASONS: Final = {
    errno.ENOSPC: Reason.DISK_FULL,
    errno.EDQUOT: Reason.DISK_FULL,
    errno.EMFILE: Reason.DISK_FULL,
    errno.ENFILE: Reason.DISK_FULL,
    errno.ENOMEM: Reason.DISK_FULL,
}


def _lowest_free(taken: Collection[int]) -> int:
    ident = 1
    while ident in taken:
        ident += 1
    return ident


def _require_name(name: str, what: str, reason: Reason) -> None:
    size_bytes = len(name.encode(errors="replace"))
    if not 1 <= size_bytes <= NAME_BYTES_MAX:
        raise Refusal(reason, f"a {what} name has 1 to {NAME_BYTES_MAX} bytes, not {size_bytes}")


def _require_other(name: str, settings: TopicSettings) -> None:
    if settings.dead_letter_topic == name:
        raise SettingError(f"topic {name!r} cannot be its own dead_letter_topic; name another")

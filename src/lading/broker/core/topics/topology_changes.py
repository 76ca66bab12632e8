"""Creating, changing and deleting streams and topics: in steps, so that no other client waits for the disk.

A change of a topic must not begin before the previous one has ended. The catalog is written without a sync, which costs
microseconds, and synced in a step of its own. When a change has ended, all of it is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeVar

from ....log import closing
from ....log.catalog import Catalog
from ....log.catalog_rows import TopicRow
from ....log.directory import DataDirectory
from ....log.interface import PartitionLog
from ....model.errors import LadingError, Reason, Refusal
from ....runtime.turns import ROWS_AT_ONCE, TurnCounter, WorkerTurn
from ..change import Change
from ..disk_refusals import refuse_disk_errors
from ..settings import TopicSettings
from ..topology import Partition, Stream, Topic
from .namespace import Namespace, OpenLog, close_logs, describe_topic
from .topic_names import require_other_target

R = TypeVar("R")

TOPICS_AT_A_TIME: Final = 2
"""Threads that create the files of new topics: with four, the loop waited up to 25 ms to get the interpreter back."""
ROWS_A_PARTITION: Final = 4
"""Releasing a partition takes as much of a turn as this many rows."""


class TopologyCallbacks(NamedTuple):
    """Callbacks for streams, topics and partitions that are created or deleted."""

    on_partitions_opened: Callable[[Sequence[Partition]], None]
    """Called with new partitions, whose logs are open; their topic may not list them yet."""
    on_topic_resized: Callable[[Topic], None]
    """Called when a topic has more or fewer partitions."""
    on_partition_deleted: Callable[[Partition], None]
    """Called when a partition can no longer be read or written; its files still exist."""
    on_topic_deleted: Callable[[Topic], None]
    """Called when a topic can no longer be used; the callbacks of its partitions ran before."""
    on_topic_altered: Callable[[Topic], None]
    """Called when the settings of a topic have changed."""


class TopicSpec(NamedTuple):
    """A topic to create; without an id it gets the lowest free one."""

    stream: Stream
    ident: int | None
    name: str
    partitions_count: int
    settings: TopicSettings


@dataclass(slots=True, eq=False)
class _Creation:
    """The creation of one topic, while it is in progress."""

    wanted: TopicSpec
    topic: Topic | None = None
    logs: list[PartitionLog] = field(default_factory=list)
    error: LadingError | None = None

    @property
    def created(self) -> Topic:
        """The topic, if its creation began."""
        assert self.topic is not None
        return self.topic

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Keep the error of this creation in ``error`` instead of raising it, so that the others continue."""
        try:
            yield
        except LadingError as error:
            self.error = error

    def give_id_back(self) -> None:
        """Release the reserved id: the topic uses it now, or it is free again."""
        if self.topic is not None:
            self.topic.stream.release_topic_id(self.topic.id)


class TopologyChanges:
    """All changes of the topology of one broker. Raise Refusal if a change is impossible, or the disk refuses it."""

    def __init__(
        self,
        namespace: Namespace,
        catalog: Catalog,
        directory: DataDirectory,
        make_log: OpenLog,
        callbacks: TopologyCallbacks,
    ) -> None:
        """``make_log`` opens the log of a partition, or creates it, from any thread."""
        self._namespace = namespace
        self._catalog = catalog
        self._directory = directory
        self._make_log = make_log
        self._callbacks = callbacks

    # -- streams

    def create_stream(self, ident: int | None, name: str, *, now_us: int) -> Change[Stream]:
        """Create a stream; without an id it takes the lowest that is free."""
        with self._catalog.defer_sync():
            stream = self._namespace.add_stream(ident, name, now_us=now_us)
        yield from self._sync_catalog()
        return stream

    def ensure_stream(self, name: str, *, now_us: int) -> Change[Stream]:
        """Return the stream of this name, created if missing."""
        version = self._namespace.version
        with self._catalog.defer_sync():
            stream = self._namespace.ensure_stream(name, now_us=now_us)
        if self._namespace.version != version:
            yield from self._sync_catalog()
        return stream

    def delete_stream(self, stream: Stream) -> Change[None]:
        """Delete the stream with its topics and all their messages."""
        while stream.topics:
            # checked again: others may create or delete a topic meanwhile
            yield from self.delete_topic(next(iter(stream.topics.values())))
        with self._catalog.defer_sync():
            self._namespace.remove_stream(stream)
        yield from self._sync_catalog()

    # -- topics

    def create_topic(
        self,
        stream: Stream,
        ident: int | None,
        name: str,
        partitions_count: int,
        *,
        now_us: int,
        settings: TopicSettings,
    ) -> Change[Topic]:
        """Create a topic with this many empty partitions; without an id it takes the lowest that is free."""
        wanted = TopicSpec(stream, ident, name, partitions_count, settings)
        (created,) = yield from self.create_topics([wanted], now_us=now_us)
        if isinstance(created, Exception):
            raise created
        return created

    def create_topics(self, wanted: Sequence[TopicSpec], *, now_us: int) -> Change[list[Topic | LadingError]]:
        """Create topics, whose catalog rows share one sync; returns topics or errors, in the order of ``wanted``."""
        creations = [_Creation(one) for one in wanted]
        try:
            for one in creations:
                with one.failing():
                    one.topic = self._namespace.make_topic(*one.wanted[:4], now_us=now_us, settings=one.wanted.settings)
                    one.topic.stream.promised_ids.add(one.topic.id)
                # in turns: a thousand topics may be created together
                yield None
            yield partial(self._make_files, creations)
            for one in creations:
                if one.error is None:
                    yield from self._link(one)
        finally:
            for one in creations:
                one.give_id_back()
        if any(one.error is not None and one.topic is not None for one in creations):
            yield partial(self._remove_files, creations)
        # messages that arrive before the catalog is on disk are safe: the directory names their topic
        yield from self._sync_catalog()
        return [one.error or one.created for one in creations]

    def _link(self, one: _Creation) -> Change[None]:
        topic = one.created
        yield from self._announce(topic.partitions)
        while one.wanted.ident is None and topic.id in topic.stream.topics:
            # a client that gives ids may have taken it, and another one may while this topic is described
            self._namespace.renumber(topic)
            yield partial(self._describe_again, one)
        with one.failing():
            # it may have been created meanwhile, or its stream deleted
            self._namespace.require_new(topic)
            with self._catalog.defer_sync():
                self._catalog.add_topic(_make_row(topic, len(topic.partitions)))
            self._namespace.link_topic(topic)
        yield None

    def _announce(self, partitions: Sequence[Partition]) -> Change[None]:
        """Announce partitions before their topic has them; a thousand at once would keep clients for 10 ms."""
        for at in range(0, len(partitions), ROWS_AT_ONCE):
            self._callbacks.on_partitions_opened(partitions[at : at + ROWS_AT_ONCE])
            yield None

    def _describe_again(self, one: _Creation) -> None:
        with one.failing(), refuse_disk_errors(f"topic {one.created.name!r}"):
            self._directory.describe(describe_topic(one.created, len(one.created.partitions)))

    def _make_files(self, creations: Sequence[_Creation]) -> None:
        """Make directories and logs, several topics at a time, so that their waits for the disk overlap."""
        wanted = [one for one in creations if one.error is None]
        if len(wanted) <= 1:
            for one in wanted:
                self._make_files_of(one)
            return
        with ThreadPoolExecutor(min(len(wanted), TOPICS_AT_A_TIME), "lading-create") as threads:
            for _ in threads.map(self._make_files_of, wanted):
                pass

    def _make_files_of(self, one: _Creation) -> None:
        topic, count = one.created, one.wanted.partitions_count
        with one.failing(), refuse_disk_errors(f"topic {topic.name!r}"):
            self._directory.create(topic.uuid, count)
            self._open_logs(topic, range(count), one.logs)
            self._directory.describe(describe_topic(topic, count))
            topic.partitions = [Partition(topic, number, log) for number, log in enumerate(one.logs)]

    def _remove_files(self, creations: Sequence[_Creation]) -> None:
        for one in creations:
            if one.error is None or one.topic is None:
                continue
            closing.close_logs(one.logs)
            with suppress(OSError):
                # if this fails, the next start does it
                self._directory.remove_if_empty(one.topic.uuid)

    def _open_logs(self, topic: Topic, numbers: range, logs: list[PartitionLog]) -> None:
        worker = WorkerTurn()
        for number in numbers:
            if logs:
                # pause between topics, not after the last one: a topic with one partition may be created on the loop
                # itself
                worker.rest()
            log = self._make_log(self._directory.partition(topic.uuid, number), topic.uuid, topic.next_epoch)
            logs.append(log)
            # close them: thousands would use up the open files of the process before they are counted
            log.rest()

    def alter_topic(self, topic: Topic, settings: TopicSettings) -> Change[None]:
        """Change the settings of a topic."""
        require_other_target(topic.flat_name, settings)
        self._namespace.require_current(topic)
        with self._catalog.defer_sync():
            self._catalog.set_settings(topic.uuid, settings.to_stored_document())
        topic.settings = settings
        self._callbacks.on_topic_altered(topic)
        self._namespace.forget_routes()
        yield from self._sync_catalog()
        with refuse_disk_errors(f"topic {topic.flat_name!r}"):
            yield partial(self._directory.describe, describe_topic(topic, len(topic.partitions)))

    def delete_topic(self, topic: Topic) -> Change[None]:
        """Delete the topic, its groups, positions and messages; if that fails half-way, the next start finishes it."""
        self._namespace.require_current(topic)
        with refuse_disk_errors(f"topic {topic.name!r}"):
            self._directory.mark_deleted(topic.uuid)
            # from here on lookups do not find the topic, and its name is free
            self._namespace.unlink_topic(topic)
            yield from self._release_partitions(topic.partitions)
            self._callbacks.on_topic_deleted(topic)
            # clear the references to it, so that partitions are freed as soon as their last reader is done
            topic.partitions = []
            is_removed = self._remove_row(topic)
            yield partial(self._directory.empty, topic.uuid)
            if not is_removed:
                # after a deletion a full disk has room again
                with self._catalog.defer_sync():
                    self._catalog.remove_topic(topic.uuid)
            yield from self._sync_catalog()
            yield partial(self._directory.remove, topic.uuid)

    def _remove_row(self, topic: Topic) -> bool:
        """Delete the topic's row of the catalog; return whether that was possible, as it is not on a full disk."""
        with suppress(Refusal), self._catalog.defer_sync():
            self._catalog.remove_topic(topic.uuid)
            return True
        return False

    def _release_partitions(self, partitions: Sequence[Partition]) -> Change[None]:
        turn = TurnCounter()
        for partition in partitions:
            self._callbacks.on_partition_deleted(partition)
            partition.log.drop()
            if turn.is_over(ROWS_A_PARTITION):
                yield None

    # -- partitions

    def add_partitions(self, topic: Topic, count: int) -> Change[None]:
        """Add ``count`` empty partitions, with the next numbers. Raises Refusal for fewer than 1, or for too many."""
        if count < 1:
            raise Refusal(Reason.TOO_MANY_PARTITIONS, f"at least 1 partition can be added, not {count}")
        before = len(topic.partitions)
        numbers = range(before, before + count)
        self._namespace.require_current(topic)
        self._namespace.require_partitions(f"topic {topic.name!r}", numbers.stop)
        added: list[Partition] = []

        def make_files() -> None:
            logs: list[PartitionLog] = []
            self._directory.add_partitions(topic.uuid, numbers, topic.next_epoch)
            self._open_logs(topic, numbers, logs)
            added.extend(Partition(topic, number, log) for number, log in zip(numbers, logs, strict=True))

        with refuse_disk_errors(f"topic {topic.name!r}"):
            if not self._directory.is_settled(topic.uuid):
                # the disk refused to finish a delete; the next start would undo that instead of the partitions added
                # now
                yield from self._finish_delete(topic, before)
            try:
                yield make_files
                yield from self._announce(added)
                yield from self._resize_topic(topic, numbers.stop)
                self._namespace.require_current(topic)
            except Exception:
                close_logs(added)
                raise
        topic.partitions += added
        self._namespace.forget_routes()
        self._callbacks.on_topic_resized(topic)

    def delete_partitions(self, topic: Topic, count: int) -> Change[None]:
        """Delete the partitions with the highest numbers, with messages and positions; a count above their number means
        all.
        """
        if count < 1:
            raise Refusal(Reason.TOO_MANY_PARTITIONS, f"at least 1 partition can be deleted, not {count}")
        self._namespace.require_current(topic)
        kept, before = max(len(topic.partitions) - count, 0), len(topic.partitions)
        gone = topic.partitions[kept:]
        # stored positions must not be valid for a later partition with the same number
        topic.next_epoch = max([topic.next_epoch, *(partition.log.epoch + 1 for partition in gone)])
        del topic.partitions[kept:]
        topic.next_balanced = 0
        self._namespace.forget_routes()
        yield from self._release_partitions(gone)
        self._callbacks.on_topic_resized(topic)
        with refuse_disk_errors(f"topic {topic.name!r}"):
            yield partial(self._directory.mark_partitions_deleted, topic.uuid, range(kept, before))
            yield from self._finish_delete(topic, kept)

    def _finish_delete(self, topic: Topic, kept: int) -> Change[None]:
        yield from self._resize_topic(topic, kept)
        yield partial(self._directory.settle_partitions, topic.uuid, kept)

    def _resize_topic(self, topic: Topic, partitions_count: int) -> Change[None]:
        with self._catalog.defer_sync():
            self._catalog.resize_topic(topic.uuid, partitions_count, topic.next_epoch)
        yield from self._sync_catalog()
        yield partial(self._directory.describe, describe_topic(topic, partitions_count))

    # -- the catalog

    def write_catalog(self, write: Callable[[], R]) -> Change[R]:
        """Return the result of ``write``, which writes to the catalog, once that is on disk."""
        with self._catalog.defer_sync():
            result = write()
        yield from self._sync_catalog()
        return result

    def write_all_to_catalog(self, writes: Iterable[Callable[[], object]]) -> Change[None]:
        """Run functions that write to the catalog, with one sync for all; others have their turn in between."""
        for write in writes:
            with self._catalog.defer_sync():
                write()
            yield None
        yield from self._sync_catalog()

    def _sync_catalog(self) -> Change[None]:
        wal = self._catalog.wal
        with refuse_disk_errors(f"the catalog {self._catalog.path.name}"):
            for file in wal.begin_sync():
                try:
                    yield file.sync
                except OSError as error:
                    wal.fail_sync(error)
                    raise


def _make_row(topic: Topic, partitions_count: int) -> TopicRow:
    return TopicRow(
        topic.uuid,
        topic.stream.id,
        topic.id,
        topic.name,
        topic.created_us,
        partitions_count,
        topic.next_epoch,
        topic.settings.to_stored_document(),
    )

"""The broker: everything an endpoint may call, in one place.

It takes the time as an argument, owns no socket and is used from one thread, the event loop. It raises Refusal for
requests it refuses, and MalformedMessage for invalid bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Self

from ..dialects.nsq import limits
from ..dialects.nsq import protocol as nsq_row
from ..log.access_record import AccessRecord
from ..log.catalog import Catalog
from ..log.directory import DataDirectory
from ..log.disk import DISKS, Disk
from ..log.found_files import FoundFiles
from ..log.group_commit import GroupCommit, WriteOnly
from ..log.group_filter_table import GroupFilterTable
from ..log.interface import Commit, PartitionLog, RecoveryReport
from ..log.kafka_config_table import KafkaConfigTable
from ..log.producer_table import ProducerTable
from ..log.schema_table import SchemaTable
from ..log.store import LocalLogStore, LogStore
from .channels import Channels
from .channels.exhausted_messages import ExhaustedMessageHandler
from .channels.rules import ChannelRules
from .core.access.access import AccessControl
from .core.append.append import Appender
from .core.append.numbered_append import NumberedAppender
from .core.append.writer_state import WriterStateManager
from .core.catalog_commit import CatalogCommit
from .core.compaction.compactor import Compactor
from .core.component import Component, partitions_of
from .core.counters import Counters
from .core.dead_letters import DeadLetters
from .core.delayed_messages import DelayedMessages
from .core.maintenance import Attempts, Maintenance
from .core.positions import Positions
from .core.settings import BrokerSettings
from .core.siblings import Siblings
from .core.states import States
from .core.topics.immediate_changes import ImmediateChanges
from .core.topics.namespace import Namespace, OpenLog
from .core.topics.renames import Renames
from .core.topics.topology_changes import TopologyCallbacks, TopologyChanges
from .core.topology import Partition, Topic
from .core.upkeep.damages import Damages
from .core.upkeep.retention import RetentionEnforcer
from .core.upkeep.upkeep import CatalogUpkeep, IdleLogs, LogUpkeep, TransactionMemory
from .group_changes import GroupChanges
from .group_filters import GroupFilters
from .group_view import GroupRegistries, GroupViews
from .iggy.groups import IggyGroups
from .iggy.poll import IggyPoller
from .iggy.producers import IggyProducers
from .kafka.append import KafkaAppender
from .kafka.group_coordinator import KafkaGroupCoordinator
from .kafka.internal_topics import OFFSETS, SHARES, TRANSACTIONS, KafkaTopicView
from .kafka.transaction_coordinator import TransactionCoordinator
from .native.append import NativeAppender
from .native.groups import NativeGroups
from .native.transactions import NativeTransactions
from .schemas.registry import SchemaRegistry
from .schemas.stored_schemas import choose_form
from .share_sessions import ShareSessions

SEGMENT_BYTES_MIN: Final = 1 << 16
"""A topic's own setting makes segments no smaller: clients set it too, and each segment is two files."""


class BrokerParts(NamedTuple):
    """Creates the components that another store replaces; the defaults here are for a data directory."""

    make_appender: Callable[[Commit, Counters, int], Appender] = Appender
    make_changes: Callable[[Namespace, Catalog, DataDirectory, OpenLog, TopologyCallbacks], TopologyChanges] = (
        TopologyChanges
    )
    make_renames: type[Renames] = Renames
    make_positions: Callable[[Catalog, Counters, int, Callable[[Callable[[], None]], None]], Positions] = Positions
    make_iggy_groups: type[IggyGroups] = IggyGroups
    make_channels: type[Channels] = Channels
    make_delayed: type[DelayedMessages] = DelayedMessages
    make_states: type[States] = States


CHANNEL_RULES: Final = ChannelRules(
    nsq_row.CHANNEL, nsq_row.UNCOMMITTED_CHANNEL, limits.TAG_NAME, lambda name: name.endswith(limits.EPHEMERAL)
)


class Broker:
    """All of one data directory: topics, messages, groups, positions, states, transactions."""

    def __init__(
        self,
        store: LogStore,
        settings: BrokerSettings | None = None,
        *,
        now_us: int,
        parts: BrokerParts = BrokerParts(),
    ) -> None:
        """Opens the data in ``store``; raises CorruptLog if the directory of a topic is inconsistent."""
        self.settings = settings = settings or BrokerSettings()
        self.counters = Counters()
        self.find_store_problem: Callable[[], str | None] = lambda: None
        """Returns why the store cannot be used now, or None; a data directory reports its problems by itself."""
        self.siblings = Siblings()
        self._now_us = now_us
        self._store = store
        self.dates = store.dates
        self.catalog, self.commit, directory = store.catalog, store.commit, store.directory
        attempts = self._attempts = Attempts(self.counters)
        self.appender = parts.make_appender(self.commit, self.counters, settings.unsynced_bytes_max)
        at_end_of_pass = self.appender.call_before_flush
        self._idle_logs = IdleLogs(settings.open_files_max)
        self._upkeep = LogUpkeep(attempts, self._idle_logs, at_end_of_pass)
        mark_active = self._upkeep.mark_active
        self.topology = Namespace(self.catalog, directory, self._open_log, settings.partitions_per_topic_max, now_us)
        record = AccessRecord(self.catalog)
        self.access = AccessControl(
            store.access_file, store.dates, record.load(), record.save, self.topology.forget_routes
        )
        self.changes = parts.make_changes(
            self.topology, self.catalog, directory, self._make_log,
            TopologyCallbacks(
                self._adopt_partitions, self._notify_resized, self._abandon, self._forget, self._limit_segments
            ),
        )  # fmt: skip
        """Changes that are made in steps, for callers that let others run between these."""
        self.renames = parts.make_renames(self.topology, self.changes, self.access, self.catalog, directory)
        self.at_once = ImmediateChanges(self.topology, self.changes)
        self._positions = parts.make_positions(self.catalog, self.counters, settings.position_flush_us, at_end_of_pass)
        self.catalog_commit = CatalogCommit(
            self.catalog, self.commit, at_end_of_pass, self._write_positions, self.appender.completions
        )
        self.schemas = SchemaRegistry(SchemaTable(self.catalog))
        self.kafka_configs = KafkaConfigTable(self.catalog)
        self.groups = parts.make_iggy_groups(self.catalog, self._positions, self.changes)
        self.poller = IggyPoller(self.groups, self._positions, self.counters)
        self.native_groups = NativeGroups(self.catalog, self._positions, settings.session_timeout_us)
        # a circle: Kafka's own topics are listed once there are groups and transactional ids, and groups read topics
        self.kafka_topics = KafkaTopicView(
            self.topology,
            {
                OFFSETS.name: lambda: len(self.coordinated_groups.names()) > 0,
                TRANSACTIONS.name: lambda: len(self.producers.list_transactional()) > 0,
                SHARES.name: lambda: self.coordinated_groups.share.has_groups,
            },
        )
        """Topics as Kafka's clients see them."""
        self.coordinated_groups = KafkaGroupCoordinator(
            self.catalog, self._positions, self.kafka_configs, self.kafka_topics, settings
        )
        self.native_transactions = NativeTransactions(
            self.catalog, self.counters, settings.transaction_timeout_us, mark_active
        )
        self._memory = WriterStateManager(
            self.appender, self.catalog, settings, attempts, self.native_transactions.on_truncated
        )
        self.native_appender = NativeAppender(self.appender, self.native_transactions, self._memory, self.counters)
        numbered = NumberedAppender(self.appender, self._memory, self.counters)
        self.iggy_producers = IggyProducers(numbered)
        self.producers = TransactionCoordinator(
            ProducerTable(self.catalog), KafkaAppender(self.appender, self._memory, numbered, mark_active),
            self._positions, settings.producer_timeout_us_max,
        )  # fmt: skip
        self.dead_letters = DeadLetters(
            self.catalog, self.counters, self.topology.topic_by_uuid, self.topology.resolve,
            self.at_once.create_topic_in_stream,
            lambda partition, block, now_us: self.native_appender.append_remade(partition, block, now_us=now_us),
            self.access.grantor_allows,
        )  # fmt: skip
        self.states = parts.make_states(self.dead_letters, self.commit, self.counters, mark_active)
        self.damages = Damages()
        self.postponed = parts.make_delayed(
            self.catalog, self.appender, directory, self._open_log, self._on_synced, self.damages.watch
        )
        self.channels = parts.make_channels(
            self.catalog, self.counters, CHANNEL_RULES, self.postponed,
            ExhaustedMessageHandler(self.dead_letters, self.states, self.counters, lambda: self._now_us),
        )  # fmt: skip
        # a circle: a channel reads the delayed messages, and hears of those whose time has come
        self.postponed.on_entered = self.channels.on_delayed_entered
        self.share_sessions = ShareSessions(
            self.coordinated_groups.share, self.channels, self.kafka_configs, self.topology.topic_by_uuid,
            lambda: self._now_us,
        )  # fmt: skip
        self.group_filters = GroupFilters(
            GroupFilterTable(self.catalog), self.channels, self.share_sessions, self.groups, self.poller.filtered,
            self.coordinated_groups, partial(choose_form, self.schemas),
        )  # fmt: skip
        registries = GroupRegistries(
            self.topology.topics, self.groups, self.native_groups, self.coordinated_groups, self.channels,
            self.share_sessions,
        )  # fmt: skip
        self.group_views = GroupViews(registries)
        self.group_changes = GroupChanges(registries, self._positions)
        self.retention = RetentionEnforcer(
            settings, self.dates, self.counters, attempts, self.topology.topics, mark_active, at_end_of_pass, now_us
        )
        self.compaction = Compactor(
            settings, self.dates, self.counters, attempts, self.topology.topics, mark_active, self.close_segment,
            at_end_of_pass, now_us,
        )  # fmt: skip
        forget = (self.native_transactions.forget_before, self.producers.forget_before)
        self._components: Sequence[Component] = (
            self.access,
            self._idle_logs,
            self._upkeep,
            self.appender,
            self._positions,
            self.groups,
            self.native_groups,
            self.coordinated_groups,
            self._memory,
            self.native_transactions,
            self.iggy_producers,
            self.producers,
            self.dead_letters,
            self.damages,
            self.postponed,
            self.channels,
            self.group_filters,
            self.retention,
            self.compaction,
            TransactionMemory(self._memory, forget, settings.transaction_memory_us, now_us),
            CatalogUpkeep(self.catalog, self.commit),
        )
        """The parts, in the order in which they are notified; a part comes after those that it is built on."""
        self._maintenance = Maintenance(self._components, attempts)
        self._sync_callbacks = [
            one.on_synced for one in self._components if type(one).on_synced is not Component.on_synced
        ]
        """Callbacks of the components that need it: they run after every sync."""
        self._load()

    @classmethod
    def open(
        cls,
        data: Path,
        settings: BrokerSettings | None = None,
        *,
        now_us: int,
        disk: Disk | None = None,
        commit: Commit | None = None,
        found: FoundFiles | None = None,
    ) -> Self:
        """Open or create a directory of this machine; only one process may do so at a time (``serve`` holds the lock).

        ``found`` is the result of the format gate, if the gate has already run on the locked directory. Raises
        CorruptLog if the catalog or the directory of a topic is inconsistent.
        """
        settings = settings or BrokerSettings()
        commit = commit or (GroupCommit() if settings.durability == "fsync" else WriteOnly())
        disk = disk or DISKS[settings.durability]()
        store = LocalLogStore(data, commit, segment_bytes=settings.segment_bytes, disk=disk, found=found)
        return cls(store, settings, now_us=now_us)

    def _open_log(self, path: Path, topic_id: bytes, first_epoch: int) -> PartitionLog:
        log = self._make_log(path, topic_id, first_epoch)
        self._adopt(log)
        log.on_opened()
        return log

    def _write_positions(self) -> bool:
        """Write positions that wait in memory to the catalog; return whether there are more."""
        return self.channels.store_marked() | self._positions.flush_some()

    def _adopt(self, log: PartitionLog) -> None:
        log.on_opened = partial(self._idle_logs.add, log, 0)

    def _make_log(self, path: Path, topic_id: bytes, first_epoch: int) -> PartitionLog:
        """Create a log as ``_open_log`` does, but do not add it to this broker yet. Callable from any thread."""
        return self._store.open_log(path, topic_id, first_epoch, self._now_us)

    def _load(self) -> None:
        topics = list(self.topology.topics())
        for topic in topics:
            if topic.settings.segment_bytes is not None:
                self._limit_segments(topic)
        for partition in partitions_of(topics):
            self._watch(partition)
        for component in self._components:
            component.load(topics)
        self._store.directory.forget_found()
        if self.notes:
            self.producers.ids.skip_given(partitions_of(topics), self._now_us)

    def _limit_segments(self, topic: Topic) -> None:
        """Let the topic's segments become as large as its settings say."""
        size_bytes = self._segment_bytes_of(topic)
        for partition in topic.partitions:
            partition.log.segment_bytes = size_bytes

    def _segment_bytes_of(self, topic: Topic) -> int:
        """Return how large a segment becomes: a client may not make a file of each of its messages."""
        ours, own = self.settings.segment_bytes, topic.settings.segment_bytes
        return ours if own is None else max(own, min(SEGMENT_BYTES_MIN, ours))

    def _watch(self, partition: Partition) -> None:
        partition.log.on_synced = partial(self._on_synced, partition)
        partition.log.on_rest = partition.forget_recent

    @property
    def notes(self) -> list[str]:
        """Contradictions of catalog and topics that opening found, for the operator."""
        return [*self.catalog.notes, *self.topology.notes]

    def recoveries(self) -> list[tuple[Partition, RecoveryReport]]:
        """Return what opening found in logs, also in those of postponed messages, for the operator."""
        logs = [*self._list_partitions(), *self.postponed.logs()]
        return [
            (one, report) for one in logs if not (report := one.log.recovery).clean or report.damage or report.notes
        ]

    def close_segment(self, partition: Partition) -> None:
        """Close a partition's active segment, so that retention and compaction may take it."""
        self.appender.close_chunk(partition)
        if partition.log.roll():
            self.commit.submit(partition.log)

    def _list_partitions(self) -> list[Partition]:
        return partitions_of(self.topology.topics())

    def _adopt_partitions(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            self._adopt(partition.log)
            self._watch(partition)
            partition.log.hold_last_stable_offset(None)
            partition.log.segment_bytes = self._segment_bytes_of(partition.topic)
        self.damages.watch(partitions)

    # a change of topics is done when parts hear of it: what the disk refuses one of them now it does later, and the
    # others hear of it all the same

    def _notify_resized(self, topic: Topic) -> None:
        for component in self._components:
            self._attempts.attempt(component.on_topic_resized, topic)

    def _forget(self, topic: Topic) -> None:
        for component in self._components:
            self._attempts.attempt(component.on_topic_deleted, topic)

    def _abandon(self, partition: Partition) -> None:
        for component in reversed(self._components):
            self._attempts.attempt(component.on_partition_deleted, partition)
        partition.log.on_synced = None
        partition.notify_readers()

    def _on_synced(self, partition: Partition) -> None:
        try:
            for callback in self._sync_callbacks:
                callback(partition)
        finally:
            # whatever a part makes of it, the messages are there
            if partition.read_waiters:
                partition.notify_readers()

    def change_settings(self, settings: BrokerSettings) -> None:
        """Apply other settings, as far as the components can change them while they run."""
        self.settings = settings
        for component in self._components:
            component.on_settings_changed(settings)

    @property
    def on_due(self) -> Callable[[], None]:
        """Called when ``tick`` should be called in 50 ms, instead of at the time that the last call returned."""
        return self._maintenance.on_due

    @on_due.setter
    def on_due(self, callback: Callable[[], None]) -> None:
        self._maintenance.on_due = callback

    def tick(self, now_us: int, date_us: int | None = None) -> int:
        """Do the work that is due at ``now_us``; return when to call again.

        ``now_us`` comes from a clock that is never set, as in every call; ``date_us`` is what the machine's clock says.
        """
        self._now_us = now_us
        date_us = now_us if date_us is None else date_us
        self.dates.shift_us = date_us - now_us
        return self._maintenance.tick(now_us)

    def stop_writing(self, problem: str) -> None:
        """Acknowledge what was accepted, then refuse every append and every change of the catalog with ``problem``."""
        self.appender.flush()
        self.commit.drain()
        for topic in self.topology.list_topics():
            for partition in topic.partitions:
                partition.log.stop_writing(problem)
        self.catalog.stop_writing(problem)

    def stop(self) -> None:
        """Write and sync everything, complete waiting requests, close. The broker cannot be used afterwards."""
        self.appender.completions.call_rest()
        self.appender.flush()
        self.commit.drain()
        self._maintenance.close(self._now_us)
        self.topology.close()
        self.commit.close()
        self.catalog.close()

"""State of the writers of each partition, kept over restarts: a snapshot when a segment closes, then the log.

Only partitions with writers, which the catalog lists, are read. A chunk's dialect finds the blocks in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from ....chunk.runs import runs
from ....dialects import registry
from ....dialects.sequenced import SequencedDialect
from ....log.catalog import Catalog
from ....log.interface import PartitionLog, Snapshot
from ....model.errors import Reason, Refusal
from ..callbacks import ignore
from ..chunks import salvage
from ..component import Component, partitions_of
from ..maintenance import Attempts
from ..settings import BrokerSettings
from ..topology import Partition, Topic
from ..writers import SNAPSHOTS, Writers
from .append import Appender

SCAN_BYTES: Final = 4 << 20
"""Size of a read at the start; it bounds the memory of a scan, whatever the size of the log."""


class WriterStateManager(Component):
    """Keeps ``Partition.writers`` correct: at a start, when segments are closed, and when appends are lost."""

    def __init__(
        self,
        appender: Appender,
        catalog: Catalog,
        settings: BrokerSettings,
        attempts: Attempts,
        on_cut: Callable[[Partition], None] = ignore,
    ) -> None:
        """``on_cut`` is called if blocks that were appended to a partition turn out not to be in its log."""
        self._catalog = catalog
        self._attempts = attempts
        self._written: dict[Partition, None] = {}
        """Partitions that have writers."""
        self._settings = settings
        self._on_cut = on_cut
        appender.on_lost = self._truncate_writers

    def of(self, partition: Partition) -> Writers:
        """Return the partition's writers; before the first one, this is noted in the catalog."""
        if partition.writers is None:
            self._catalog.add_writer_partition(partition.topic.uuid, partition.number)
        return self._get_or_create_writers(partition)

    def load(self, topics: Sequence[Topic]) -> None:
        """Load the history of the writers of each partition that has writers."""
        with_writers = self._catalog.writer_partitions()
        for partition in partitions_of(topics):
            if (partition.topic.uuid, partition.number) in with_writers:
                self.load_partition(partition)

    def load_partition(self, partition: Partition) -> None:
        """Load the history of a partition's writers, from the last snapshot and the blocks after it.

        If ranges of the log's overlay are lost, all blocks are read: only they show the outcomes from before the
        snapshot.
        """
        log = partition.log
        writers = self._get_or_create_writers(partition)
        snapshots = {} if log.recovery.states_lost else _load_snapshots(log)
        at = log.first_offset
        if snapshots:
            name, snapshot = max(snapshots.items(), key=lambda row: row[1].end_offset)
            writers.load(snapshot.data, f"{partition}: snapshot {name!r}")
            at = snapshot.end_offset
            writers.snapshot_ends = [snapshots[name].end_offset if name in snapshots else 0 for name in SNAPSHOTS]
            writers.snapshot_rolls = log.rolls_count
        while (span := log.read(at, SCAN_BYTES)) is not None:
            # readers get the intact part of a damaged chunk: if its writer sends it again, it must not be stored twice
            found = [salvage(span)] if span.damaged else runs(span.region, span.start, span.end, verify=False)
            for run in found:
                # a chunk with a damaged dialect code cannot be read at all
                dialect = registry.dialect(run.dialect) if len(run.chunks) else None
                if isinstance(dialect, SequencedDialect):
                    for numbered in dialect.iter_batches(run, at):
                        if numbered.outcome is not None:
                            apply_transaction_marker(partition, numbered.writer, numbered.base_offset, numbered.outcome)
                        writers.add(numbered, log.high_watermark)
            at = span.end_offset
        # a full or failing disk does not prevent the start: readers wait before messages that are not on disk
        with suppress(Refusal):
            log.sync_states()

    def on_synced(self, partition: Partition) -> None:
        """Store a snapshot after a segment was closed, if possible while no append is in progress."""
        writers, log = partition.writers, partition.log
        if writers is None:
            return
        closed = log.rolls_count - writers.snapshot_rolls
        if closed > 1 or (closed and log.high_watermark == log.next_offset):
            # a snapshot that the disk refuses is tried again at the next sync; the appends of this sync are completed
            # anyway
            self._attempts.attempt(self.snapshot, partition)

    def snapshot(self, partition: Partition, *, at_close: bool = False) -> None:
        """Store what is known of the partition's writers, so that a start reads only later blocks.

        With ``at_close`` it is written when the log closes, together with those of other logs.
        """
        writers, log = partition.writers, partition.log
        if log.refusal is not None and log.refusal.reason is Reason.READ_ONLY:
            # failed blocks are forgotten here, but may be on the disk: the next start has to read them
            return
        if writers is not None:
            # outcomes before the snapshot are not searched again
            log.sync_states()
            number = writers.choose_snapshot(log.high_watermark, log.next_offset)
            keep = log.snapshot_at_close if at_close else log.snapshot
            keep(SNAPSHOTS[number], writers.dump())
            writers.snapshot_rolls, writers.snapshot_ends[number] = log.rolls_count, log.next_offset

    def snapshot_all(self) -> None:
        """Store snapshots of the writers of all partitions."""
        for partition in self._written:
            self.snapshot(partition)

    def on_partition_deleted(self, partition: Partition) -> None:
        """Store no more snapshots of the deleted partition."""
        self._written.pop(partition, None)

    def close(self, now_us: int) -> None:
        """Store snapshots of the writers of all partitions, unless the disk refuses them."""
        for partition in self._written:
            self._attempts.attempt(partial(self.snapshot, at_close=True), partition)

    def _get_or_create_writers(self, partition: Partition) -> Writers:
        if partition.writers is None:
            settings = self._settings
            partition.writers = Writers(settings.writer_window, settings.writers_per_partition_max)
            partition.writers.snapshot_rolls = partition.log.rolls_count
            self._written[partition] = None
        return partition.writers

    def _truncate_writers(self, partition: Partition, offset: int) -> None:
        writers = partition.writers
        if writers is None:
            return
        writers.truncate_from(offset)
        # the snapshot of a partition that is being deleted is deleted with it
        for number, end in enumerate(writers.snapshot_ends):
            if end > offset and partition in self._written:
                # this snapshot is older than the sync of these blocks. A start that trusted it would take a writer that
                # sends them again for one that repeats them, and would not read the blocks that were written at their
                # offsets since
                self._attempts.attempt(self._forget_snapshot, partition, number)
        self._on_cut(partition)

    def _forget_snapshot(self, partition: Partition, number: int) -> None:
        writers, log = partition.writers, partition.log
        assert writers is not None, "had a snapshot"
        log.forget_snapshot(SNAPSHOTS[number])
        # the next sync stores a snapshot of the remaining ones
        writers.snapshot_ends[number], writers.snapshot_rolls = 0, log.rolls_count - 1


def apply_transaction_marker(partition: Partition, writer_id: bytes, offset: int, committed: bool) -> None:
    """Add the decision of the control record at ``offset`` to the overlay, unless the overlay has it."""
    log, writers = partition.log, partition.writers
    if log.control_ranges(offset, offset + 1) != [(offset, offset + 1)]:
        log.add_control(offset, offset + 1)
    for first, end in () if committed or writers is None else writers.open_by_writer.get(writer_id, ()):
        if log.aborted_ranges(first, end) != [(first, end)]:
            log.add_aborted(first, end)


def update_last_stable_offset(partition: Partition) -> None:
    """Let readers see up to the first undecided message, and call back those that wait for more."""
    partition.log.hold_last_stable_offset(
        None if partition.writers is None else partition.writers.first_unstable_offset
    )
    partition.notify_readers()


def _load_snapshots(log: PartitionLog) -> dict[str, Snapshot]:
    """Return the valid snapshots of writers, by name."""
    found = ((name, log.load_snapshot(name)) for name in SNAPSHOTS)
    # the log's own repairs delete snapshots with lost blocks, but may have to wait
    return {name: one for name, one in found if one is not None and not _counts_lost_blocks(log, one)}


def _counts_lost_blocks(log: PartitionLog, snapshot: Snapshot) -> bool:
    """Return whether a snapshot taken during appends has blocks that were lost in a power cut.

    Their writer got no response and sends them again: they must not be taken for repetitions.
    """
    report = log.recovery
    return any(one.end > report.settled_end and one.first < snapshot.end_offset for one in report.damage)

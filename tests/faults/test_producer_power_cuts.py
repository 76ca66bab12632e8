"""A power cut at any write under producers: after it, what is known of them is what their batches in the log say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lading.broker.core.append.append import Appender, WriteResult
from lading.broker.core.append.numbered_append import NumberedAppender
from lading.broker.core.append.writer_state import WriterStateManager, update_last_stable_offset
from lading.broker.core.counters import Counters
from lading.broker.core.maintenance import Attempts
from lading.broker.core.settings import BrokerSettings, TopicSettings
from lading.broker.core.topology import Partition, Stream, Topic
from lading.broker.core.writers import Writers
from lading.broker.kafka.append import BatchSequence, KafkaAppender, writer_of
from lading.chunk.runs import runs
from lading.dialects import registry
from lading.dialects.sequenced import SequencedBatch, SequencedDialect
from lading.kernels import engine
from lading.log.catalog import Catalog
from lading.log.group_commit import SyncNow
from lading.log.partition import open_partition
from tests.broker.kafka_batches import record_batch
from tests.faults.power import MemoryDisk, PowerCuts

HOME = Path("/data/p")
UUID = bytes(16)
NOW = 1_700_000_000_000_000
PRODUCERS = (1, 2, 3)


@dataclass
class Story:
    """A recorded life: after so many operations, records acknowledged by producer, and offsets nobody may see."""

    disk: MemoryDisk
    acknowledged: list[tuple[int, dict[int, int], set[int]]] = field(default_factory=list)


class Room:
    """A partition on a disk in memory, with what the broker knows of its producers."""

    def __init__(self, disk: MemoryDisk, catalog: Catalog) -> None:
        log = open_partition(disk, HOME, UUID, segment_bytes=2000, now_us=NOW)
        topic = Topic(Stream(1, "s", 0), 1, "t", UUID, 0, TopicSettings())
        self.log = log
        self.partition = Partition(topic, 0, log)
        self.appender = Appender(SyncNow(), Counters(), 1 << 30)
        self.memory = WriterStateManager(self.appender, catalog, BrokerSettings(writer_window=8), Attempts(Counters()))
        self.produced = KafkaAppender(
            self.appender, self.memory, NumberedAppender(self.appender, self.memory, Counters())
        )
        self.memory.load_partition(self.partition)
        update_last_stable_offset(self.partition)
        log.on_synced = self._synced

    def _synced(self) -> None:
        self.appender.on_synced(self.partition)
        self.memory.on_synced(self.partition)

    @property
    def writers(self) -> Writers:
        assert self.partition.writers is not None
        return self.partition.writers

    def produce(self, producer: int, sequence: int, count: int, transactional: bool) -> None:
        who = BatchSequence(producer, 0, sequence, count, transactional)
        made = record_batch([b"x" * 50] * count, who)

        def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
            made[:8] = base_offset.to_bytes(8, "big")
            array[at : at + len(made)] = np.frombuffer(made, np.uint8)
            return WriteResult(len(made), count, NOW, NOW)

        self.produced.append(self.partition, who, len(made), write)

    def iter_batches(self) -> Iterator[SequencedBatch]:
        """Every batch in the log that is whole: one that was torn before others were kept is damage, and reported."""
        at = self.log.first_offset
        while (span := self.log.read(at, 1 << 20)) is not None:
            for run in runs(span.region, span.start, span.end) if not span.damaged else ():
                dialect = registry.dialect(run.dialect)
                assert isinstance(dialect, SequencedDialect)
                yield from dialect.iter_batches(run, at)
            at = span.end_offset


def tell(seed: int, catalog: Catalog) -> Story:
    """Batches of three producers, two of them in transactions, ended either way; rolls, snapshots, restarts."""
    random = Random(seed)
    story = Story(MemoryDisk(log=[]))
    story.acknowledged.append((0, dict.fromkeys(PRODUCERS, 0), set()))
    room = Room(story.disk, catalog)
    sequences = dict.fromkeys(PRODUCERS, 0)
    hidden: set[int] = set()
    for _ in range(40):
        for _ in range(random.choice((1, 1, 3))):
            producer = random.choice(PRODUCERS)
            count = random.randint(1, 4)
            room.produce(producer, sequences[producer], count, producer != 1)
            sequences[producer] += count
        if random.random() < 0.4:
            producer, commit = random.choice((2, 3)), random.random() < 0.5
            ranges = room.writers.open_by_writer.get(writer_of(producer), [])
            gone = {offset for first, end in ranges for offset in range(first, end)}
            end = room.produced.write_transaction_marker(
                room.partition, writer_of(producer), 0, commit, NOW
            ).base_offset
            hidden |= {end} if commit else {end} | gone
        if random.random() < 0.7:
            room.appender.flush()
            assert story.disk.log is not None
            story.acknowledged.append((len(story.disk.log), dict(sequences), set(hidden)))
        if random.random() < 0.1:
            room.appender.flush()
            if random.random() < 0.5:
                room.memory.snapshot(room.partition)
            room.log.close()
            room = Room(story.disk, catalog)
    return story


def check(story: Story, disk: MemoryDisk, after: int, catalog: Catalog) -> None:
    """Start again, and hold what is known against the log read from its beginning."""
    _, acknowledged, hidden = [one for one in story.acknowledged if one[0] <= after][-1]
    room = Room(disk, catalog)
    log = room.log
    expected = Writers(8, 100)
    ends: list[tuple[int, bool, list[tuple[int, int]]]] = []
    for one in room.iter_batches():
        if one.outcome is not None:
            ends.append((one.base_offset, one.outcome, list(expected.open_by_writer.get(one.writer, ()))))
        expected.add(one, log.high_watermark)
    for producer in PRODUCERS:
        known, told = room.writers.get(writer_of(producer)), expected.get(writer_of(producer))
        assert (known is None) == (told is None)
        if known is not None and told is not None:
            assert (known.next_sequence, known.recent[-8:]) == (told.next_sequence, told.recent[-8:])
        assert (told.next_sequence if told else 0) >= acknowledged[producer]
    assert room.writers.open_by_writer == expected.open_by_writer
    for offset, committed, ranges in ends:
        assert log.control_ranges(offset, offset + 1) == [(offset, offset + 1)]
        for first, end in ranges:
            assert log.aborted_ranges(first, end) == ([] if committed else [(first, end)])
    covered = [*log.aborted_ranges(0, 1 << 60), *log.control_ranges(0, 1 << 60)]
    assert hidden <= {offset for first, end in covered for offset in range(first, end)}
    first_open = expected.first_unstable_offset
    assert log.last_stable_offset <= (log.high_watermark if first_open is None else first_open)


@pytest.mark.timeout(1200)
def test_power_cut_at_every_write_of_producers(tmp_path: Path, full: bool, record_figures: Callable[..., None]) -> None:
    engine.load("lading.chunk.kernels")
    with closing(Catalog(tmp_path / "catalog.sqlite")) as catalog:
        states = possible = 0
        for seed in range(6 if full else 2):
            story = tell(seed, catalog)
            assert story.disk.log is not None
            cuts = PowerCuts(story.disk.log)
            plans: list[Any] = list(cuts.plans())
            possible += len(plans)
            for plan in Random(seed).sample(plans, min(5000 if full else 250, len(plans))):
                cut = cuts.build(*plan)
                try:
                    check(story, cut.disk, cut.after, catalog)
                except Exception as error:
                    raise AssertionError(f"seed {seed}, power cut after operation {plan[0]}: {plan[3]}") from error
                states += 1
    record_figures("power cuts under producers", states=states, possible=possible, lost=0, twice=0, aborted_seen=0)
    assert states >= 500

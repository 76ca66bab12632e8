"""Batch after batch, without Spark: what is written down, what is tried again, what sources that come and go mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lading import testing
from lading.client.bulk import write_arrow
from lading.model.errors import CorruptLog
from lading.tables.commit.checkpoint import Checkpoint, PlannedBatch
from lading.tables.formats.manifest import Manifest
from lading.tables.micro_batches import MicroBatchPlanner, run_batches
from lading.tables.plan.offsets import OffsetsDocument, PartitionOffset
from lading.tables.plan.options import SourceOptions
from lading.tables.plan.ranges import OffsetRange, limit_rows, merge_ranges, split_ranges
from lading.tables.plan.source_planner import SourcePlanner

from .conftest import HEADERS, NATIVE_ROWS, flights

SEEN = PartitionOffset(None, 1, 40, resumed_at=10)
TOPIC = "air.flights"


class Crash(BaseException):
    """The process ends here."""


class Runs:
    """Runs over the same checkpoint, one after the other; what was published counts as a manifest."""

    def __init__(self, directory: Path, max_rows: int = 30_000) -> None:
        self.checkpoint = Checkpoint(directory / "checkpoint")
        self.max_rows = max_rows
        self.published: list[list[OffsetRange]] = []

    def run(self, planners: Sequence[SourcePlanner], *, crash: Callable[[int], bool] = lambda batch: False) -> None:
        """What was there at the start; ``crash`` says whether to end instead of publishing a batch."""
        starting: OffsetsDocument = {}
        for planner in planners:
            starting |= planner.initial_offsets()

        def publish(ranges: Sequence[OffsetRange]) -> None:
            if crash(len(self.published)):
                raise Crash
            self.published.append(merge_ranges(ranges))

        run_batches(MicroBatchPlanner(planners, self.max_rows), self.checkpoint, starting, self.last, publish,
           interval_s=None, pause=lambda seconds: None)  # fmt: skip

    @property
    def last(self) -> Manifest | None:
        if not self.published:
            return None
        return Manifest("p", len(self.published), "r", self.published[-1], [], {}, {}, {}, {})

    def read(self, topic: str, partition: int) -> list[tuple[int, int]]:
        """The offsets published of a partition, in order, neighbours joined."""
        pieces = [piece for batch in self.published for piece in batch]
        mine = [piece for piece in pieces if (piece.topic, piece.partition) == (topic, partition)]
        return [(piece.start, piece.end) for piece in merge_ranges(mine)]


def planner(url: str, topic: str, starting: str = "earliest") -> SourcePlanner:
    return SourcePlanner(SourceOptions.parse({"from": url, "topic": topic, "startingOffsets": starting}))


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_a_batch_that_was_begun_is_tried_again_as_it_was(runs: Runs, broker: testing.BrokerProcess) -> None:
    source = planner(broker.url, TOPIC)
    with pytest.raises(Crash):
        runs.run([source], crash=lambda batch: batch == 1)
    begun = runs.checkpoint.read()
    assert begun is not None
    # other limits would cut otherwise
    runs.max_rows = 7_000
    runs.run([source])
    assert runs.published[1] == merge_ranges(begun.ranges)
    assert [runs.read(TOPIC, number) for number in (0, 1)] == [[(0, NATIVE_ROWS)]] * 2
    before = len(runs.published)
    runs.run([source])
    assert len(runs.published) == before


def test_a_batch_that_has_its_manifest_is_not_tried_again(runs: Runs, broker: testing.BrokerProcess) -> None:
    source = planner(broker.url, TOPIC)
    with pytest.raises(Crash):
        runs.run([source], crash=lambda batch: batch == 2)
    # the crash came after the manifest
    begun = runs.checkpoint.read()
    assert begun is not None
    runs.published.append(merge_ranges(begun.ranges))
    runs.run([source])
    assert runs.read(TOPIC, 0) == [(0, NATIVE_ROWS)]
    assert sum(piece.rows for batch in runs.published for piece in batch) == sum(
        part.end_offset for part in source.require_topics()[TOPIC].partitions
    )


def test_a_source_that_is_taken_out_in_the_middle_of_a_batch_comes_back_where_it_was(
    runs: Runs, broker: testing.BrokerProcess
) -> None:
    transport = planner(broker.url, TOPIC).transport
    transport.create_topic("air.second", 1)
    write_arrow(flights(0, 5_000), broker.url, "air.second", headers=HEADERS, partition=0)
    both = [planner(broker.url, TOPIC), planner(broker.url, "air.second")]
    with pytest.raises(Crash):
        runs.run(both, crash=lambda batch: batch == 0)
    runs.run(both[:1])
    assert runs.read("air.second", 0) == []
    runs.run(both)
    assert runs.read("air.second", 0) == [(0, 5_000)]
    assert runs.read(TOPIC, 0) == [(0, NATIVE_ROWS)]
    # a source that comes later begins where its options say
    transport.create_topic("air.third", 1)
    write_arrow(flights(0, 100), broker.url, "air.third", headers=HEADERS, partition=0)
    runs.run([*both, planner(broker.url, "air.third", '{"0": 40}')])
    assert runs.read("air.third", 0) == [(40, 100)]


def test_a_position_that_was_reached_is_not_left_again() -> None:
    """A mark keeps how it was reached; that is no way to go again when only other partitions have news."""
    start, end = {0: SEEN, 1: PartitionOffset(None, 1, 5)}, {0: SEEN, 1: PartitionOffset(None, 1, 9)}
    assert [(piece.partition, piece.start, piece.end) for piece in split_ranges("t", start, end)] == [(1, 5, 9)]
    assert limit_rows(start, end, 4) == end
    more = {0: replace(SEEN, offset=50, resumed_at=None)}
    assert [(piece.start, piece.end, piece.resumed) for piece in split_ranges("t", start, more)] == [(40, 50, False)]


def test_a_checkpoint_that_cannot_be_read(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    assert (checkpoint.read(), checkpoint.begun_s, checkpoint.exists) == (None, None, False)
    checkpoint.begin(PlannedBatch({}, {}))
    assert checkpoint.read() == PlannedBatch({}, {})
    assert checkpoint.exists
    checkpoint.path.write_text("[]")
    with pytest.raises(CorruptLog, match=r"batch.json is not a valid checkpoint"):
        checkpoint.read()
    checkpoint.archive()
    checkpoint.begin(PlannedBatch({}, {}))
    checkpoint.archive()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-old-1", "checkpoint-old-2"]

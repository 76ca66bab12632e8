"""Batch after batch: the offsets of each, the order in which state is written, and the point at which a run
continues."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from .commit.checkpoint import Checkpoint, PlannedBatch
from .formats.manifest import Manifest
from .plan.offsets import OffsetsDocument
from .plan.ranges import OffsetRange
from .plan.source_planner import SourcePlanner


class MicroBatchPlanner:
    """Plans the batches of all sources of a run together: a position a topic, the rows of a batch shared evenly.

    Positions of topics that are not sources any more are kept as they are.
    """

    def __init__(self, planners: Sequence[SourcePlanner], max_rows: int) -> None:
        self._planners = planners
        self._max_rows = max(1, max_rows // len(planners))
        self._targets: OffsetsDocument | None = None

    def freeze_targets(self) -> None:
        """Fix the current end of every source as the end of the run (Trigger.AvailableNow)."""
        self._targets = {}
        for planner in self._planners:
            self._targets |= planner.end_offsets()

    def next_offsets(self, positions: OffsetsDocument) -> OffsetsDocument:
        """Return the end of the next batch: ``positions`` if nothing is new. Raises DataLoss for deleted messages."""
        ends = dict(positions)
        for planner in self._planners:
            ends |= planner.next_offsets(positions, self._max_rows, None, self._targets)
        return ends

    def ranges(self, start: OffsetsDocument, end: OffsetsDocument) -> list[OffsetRange]:
        """Return the offset ranges between two positions, each the work of one task."""
        return [piece for planner in self._planners for piece in planner.ranges(start, end)]

    def drop_removed_sources(self, batch: PlannedBatch) -> PlannedBatch:
        """Return ``batch`` for the present sources: those removed or deleted since stay at its start."""
        present = {topic for planner in self._planners for topic in planner.look_at_topics()}
        ends = {topic: marks for topic, marks in batch.end.items() if topic in present}
        return PlannedBatch(batch.start, {**batch.start, **ends})


def run_batches(
    sources: MicroBatchPlanner,
    checkpoint: Checkpoint,
    starting: OffsetsDocument,
    last: Manifest | None,
    publish: Callable[[Sequence[OffsetRange]], None],
    *,
    interval_s: float | None,
    pause: Callable[[float], None],
) -> None:
    """Plan a batch, write down that it begins, have it published, until what was there at the start is done.

    With ``interval_s`` a batch begins at this interval without end. ``starting`` has the first position of each source
    that the checkpoint does not know. ``pause`` waits and may raise.
    """
    if interval_s is None:
        sources.freeze_targets()
    begun = checkpoint.read()
    if begun is None:
        begun = PlannedBatch(starting, starting)
        checkpoint.begin(begun)
    again = None if begun.is_published_by(last) else sources.drop_removed_sources(begun)
    position = {**starting, **(begun.end if again is None else again.start)}
    while True:
        due_s = time.monotonic() + (interval_s or 0.0)
        batch = PlannedBatch(position, sources.next_offsets(position) if again is None else {**position, **again.end})
        again = None
        if batch.end != position:
            checkpoint.begin(batch)
            ranges = sources.ranges(batch.start, batch.end)
            if ranges:
                publish(ranges)
            position = batch.end
        elif interval_s is None:
            return
        pause(max(0.0, due_s - time.monotonic()))

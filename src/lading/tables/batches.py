"""Batch after batch: which offsets each takes, in what order things are written down, and where a run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..spark.failures import cause
from ..spark.tasks import LOOK_INTERVAL_S, Tasks
from .checkpoint import Begun, Checkpoint
from .manifest import Manifest
from .planning import Planner
from .positions import Marks, OffsetsDocument, document, parse_document
from .publish import Written, abandon
from .ranges import Range
from .state import State


class Sources:
    """Plans the batches of all sources of a run together: a position a topic, the rows of a batch shared evenly.

    Positions of topics that are no source any more are kept as they are.
    """

    def __init__(self, planners: Sequence[Planner], max_rows: int) -> None:
        self._planners = {planner.options.topic: planner for planner in planners}
        self._max_rows = max(1, max_rows // len(planners))
        self._targets: Mapping[str, Marks] = {}

    def stop_here(self) -> None:
        """What is there now is the last that any batch takes."""
        self._targets = {topic: planner.ends() for topic, planner in self._planners.items()}

    def after(self, positions: OffsetsDocument) -> OffsetsDocument:
        """Where the next batch ends; ``positions`` when there is nothing new. DataLoss where messages are gone."""
        ends = dict(positions)
        for topic, planner in self._planners.items():
            since = parse_document(topic, positions)
            ends |= document(topic, planner.next(since, self._max_rows, None, self._targets.get(topic)))
        return ends

    def ranges(self, start: OffsetsDocument, end: OffsetsDocument) -> list[Range]:
        """One task's worth each."""
        return [
            piece
            for topic, planner in self._planners.items()
            for piece in planner.ranges(parse_document(topic, start), parse_document(topic, end))
        ]

    def only(self, batch: Begun) -> Begun:
        """A batch that was begun with other sources as well: those that are gone stay where they were."""
        ends = {topic: marks for topic, marks in batch.end.items() if topic in self._planners}
        return Begun(batch.start, {**batch.start, **ends})


def go(
    sources: Sources,
    checkpoint: Checkpoint,
    starting: OffsetsDocument,
    last: Manifest | None,
    publish: Callable[[Sequence[Range]], None],
    *,
    interval_s: float | None,
    pause: Callable[[float], None],
) -> None:
    """Plan a batch, write down that it begins, have it published, until what was there at the start is done.

    With ``interval_s`` a batch is begun every so many seconds without end. ``starting`` says of every source where it
    begins that the checkpoint does not know. ``pause`` waits and may raise.
    """
    if interval_s is None:
        sources.stop_here()
    begun = checkpoint.read()
    if begun is None:
        begun = Begun(starting, starting)
        checkpoint.begin(begun)
    again = None if begun.published_by(last) else sources.only(begun)
    position = {**starting, **(begun.end if again is None else again.start)}
    while True:
        due_s = time.monotonic() + (interval_s or 0.0)
        batch = Begun(position, sources.after(position) if again is None else {**position, **again.end})
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


def drive(
    tasks: Tasks,
    sources: Sources,
    state: State,
    starting: OffsetsDocument,
    last: Manifest | None,
    *,
    stage: Callable[[Range, str], Written],
    publish: Callable[[Sequence[Written]], None],
    tables: Sequence[Path],
    look: Callable[[], None],
    stopped: Callable[[], bool],
    interval_s: float | None,
) -> None:
    """``go``, with the ranges of every batch staged in tasks of Spark and then published.

    ``look`` is called meanwhile and after each batch. When ``stopped`` says so, a run with ``interval_s`` ends, and
    another one raises KeyboardInterrupt. What was staged in ``tables`` for a batch that is not published is deleted.
    Errors of ours are raised as they were, in whichever process; others are Spark's.
    """

    def looked() -> None:
        look()
        if stopped():
            raise KeyboardInterrupt

    def published(ranges: Sequence[Range]) -> None:
        tasks.waited(lambda: publish(tasks.write(stage, ranges)), looked)
        look()

    try:
        go(sources, state.checkpoint, starting, last, published, interval_s=interval_s, pause=pausing(looked))
    except KeyboardInterrupt:
        look()
        abandon(state, tables)
        if interval_s is None:
            raise
    except Exception as error:
        abandon(state, tables)
        raise (cause(error) or error) from None


def pausing(look: Callable[[], None]) -> Callable[[float], None]:
    """Waits, and calls ``look``, which may raise, every so often and at least once."""

    def pause(seconds: float) -> None:
        until = time.monotonic() + seconds
        look()
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_INTERVAL_S))
            look()

    return pause

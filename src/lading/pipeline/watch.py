"""Following a run from the driver: new manifests are the truth about what is done, and the sources about what waits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..model.errors import LadingError
from ..tables.manifest import Manifest
from ..tables.planning import Planner
from ..tables.positions import OffsetsDocument, parse_document
from ..tables.state import State
from .figures import Figures
from .plan import Plan

LAG_INTERVAL_S = 1.0
"""How often the sources are asked how far they are while nothing is published."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; ``lag`` counts messages that still wait."""

    read: int
    good: int
    routed: int
    quarantined: int
    lag: int
    rows_per_s: float
    batches: int
    seconds: float


@dataclass(frozen=True)
class RunReport:
    """What one run published: ``counts`` as manifests have them, read = good + routed + quarantined; with SQL steps
    read = passed + quarantined, and good and routed are rows that the steps made."""

    counts: Mapping[str, int]
    batches: int
    files: int
    size_bytes: int
    seconds: float
    first_manifest: int
    last_manifest: int
    tables: Mapping[str, Path] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        return self.counts.get(name, 0)

    @property
    def rows_per_s(self) -> float:
        """Messages read a second."""
        return self.counts.get("read", 0) / self.seconds if self.seconds else 0.0


class Watch:
    """Follows the manifests of one run."""

    def __init__(
        self,
        state: State,
        planners: Sequence[Planner],
        last: Manifest | None,
        starting: OffsetsDocument,
        on_progress: Callable[[Progress], None],
        figures: Figures | None,
    ) -> None:
        self._state = state
        self._manifests = state.manifests
        self._planners = planners
        self._first = self._number = 0 if last is None else last.number
        self._positions = starting
        self._on_progress = on_progress
        self._figures = figures
        self._begun, self._begun_s = time.monotonic(), time.time()
        self._counts: Counter[str] = Counter()
        self._files = self._bytes = self._lag = 0
        self._lag_due = 0.0
        if figures is not None and last is not None:
            figures.published_us = last.written_us

    def _forget(self) -> None:
        """What lies before the batch that was published last is not read again: a replay begins there."""
        for planner in self._planners:
            if planner.options.topic in self._positions:
                planner.done(parse_document(planner.options.topic, self._positions))

    def begin(self) -> None:
        """The clock starts."""
        self._begun, self._begun_s = time.monotonic(), time.time()

    def look(self) -> None:
        """Take in new manifests, and tell of them."""
        while self._manifests.path(self._number + 1).exists():
            self._number += 1
            manifest = self._manifests.read(self._number)
            self._counts.update(manifest.counts)
            self._files += len(manifest.files)
            self._bytes += sum(file.size_bytes for file in manifest.files)
            self._forget()
            self._positions = {**self._positions, **manifest.positions}
            self._measure_lag()
            if self._figures is not None:
                self._figures.add(manifest, self._batch_seconds(manifest))
            self._on_progress(self._progress())
        if self._figures is not None and time.monotonic() >= self._lag_due:
            self._measure_lag()

    def report(self, plan: Plan) -> RunReport:
        """All of it."""
        return RunReport(
            dict(self._counts), self._number - self._first, self._files, self._bytes,
            time.monotonic() - self._begun, self._first + 1, self._number, plan.places,
        )  # fmt: skip

    def _progress(self) -> Progress:
        seconds = time.monotonic() - self._begun
        counts = self._counts
        return Progress(
            counts["read"], counts["good"], counts["routed"], counts["quarantined"], self._lag,
            counts["read"] / seconds, self._number - self._first, seconds,
        )  # fmt: skip

    def _measure_lag(self) -> None:
        self._lag_due = time.monotonic() + LAG_INTERVAL_S
        # a broker that restarts is the affair of planning, which waits for it
        with suppress(LadingError, OSError):
            self._lag = sum(_lag(planner, self._positions) for planner in self._planners)
        if self._figures is not None:
            self._figures.lag = self._lag

    def _batch_seconds(self, manifest: Manifest) -> float:
        """From the note that the batch begins to its manifest; an earlier run's counts from this one's start."""
        begun_s = self._state.checkpoint.begun_s or self._begun_s
        return max(0.0, manifest.written_us / 1e6 - max(begun_s, self._begun_s))


def _lag(planner: Planner, positions: OffsetsDocument) -> int:
    topic = planner.options.topic
    done = parse_document(topic, positions) if topic in positions else {}
    return sum(
        max(0, mark.offset - (done[number].offset if number in done else 0)) for number, mark in planner.ends().items()
    )

"""Monitoring of a pipeline run: progress for people, metrics for Prometheus, the report at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..tables.engine import RunStart, TableRun
from ..tables.formats.manifest import Manifest
from ..tables.storage.object_path import TablePath
from ..tables.watch import ManifestWatch
from .metrics import PipelineMetrics
from .plan import Plan

LAG_INTERVAL_S = 1.0
"""Interval at which the sources are asked for their ends while nothing is published."""


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """Progress of a run; ``lag`` is the number of source messages not yet processed.

    ``lag_by_topic`` has ``messages``, ``bytes``, ``seconds`` (age of the oldest message that waits) and ``source``.
    """

    read: int
    good: int
    routed: int
    quarantined: int
    lag: int
    rows_per_s: float
    batches: int
    seconds: float
    lag_by_topic: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class RunReport:
    """Result of a run: ``counts`` as in manifests.

    read = good + routed + quarantined. With SQL steps read = passed + quarantined, and good and routed count the rows
    that the steps returned.
    """

    counts: Mapping[str, int]
    batches: int
    files: int
    size_bytes: int
    seconds: float
    first_manifest: int
    last_manifest: int
    tables: Mapping[str, TablePath | str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        return self.counts.get(name, 0)

    @property
    def rows_per_s(self) -> float:
        """Messages read per second."""
        return self.counts.get("read", 0) / self.seconds if self.seconds else 0.0


class PipelineWatch:
    """Monitors one run of a pipeline: its progress, its metrics, and its report at the end."""

    def __init__(
        self,
        run: TableRun,
        start: RunStart,
        on_progress: Callable[[PipelineProgress], None],
        figures: PipelineMetrics | None,
    ) -> None:
        self._manifests = ManifestWatch(run.state, run.planners, start.last, start.positions, self._add)
        self._checkpoint = run.state.checkpoint
        self._on_progress = on_progress
        self._figures = figures
        self._lag_due = 0.0
        if figures is not None and start.last is not None:
            figures.published_us = start.last.written_us

    def start_clock(self) -> None:
        """Start timing the run."""
        self._manifests.start_clock()

    def poll_manifests(self) -> None:
        """Read new manifests and report progress."""
        self._manifests.poll_manifests()
        if self._figures is not None and time.monotonic() >= self._lag_due:
            self._manifests.measure_lag()
            self._show_lag(self._figures)

    def report(self, plan: Plan) -> RunReport:
        """Return what the run published."""
        run = self._manifests
        return RunReport(
            dict(run.counts), run.batches, run.files, run.size_bytes, run.seconds, run.first_number + 1, run.number,
            plan.places,
        )  # fmt: skip

    def _add(self, manifest: Manifest) -> None:
        if self._figures is not None:
            self._figures.add(manifest, self._batch_seconds(manifest))
            self._show_lag(self._figures)
        run, counts, seconds = self._manifests, self._manifests.counts, self._manifests.seconds
        progress = PipelineProgress(
            counts["read"], counts["good"], counts["routed"], counts["quarantined"], run.lag,
            counts["read"] / seconds, run.batches, seconds, run.lag_by_topic,
        )  # fmt: skip
        self._on_progress(progress)

    def _show_lag(self, figures: PipelineMetrics) -> None:
        self._lag_due = time.monotonic() + LAG_INTERVAL_S
        figures.lags = self._manifests.lags

    def _batch_seconds(self, manifest: Manifest) -> float:
        """Return the seconds from the start of a batch, or of this run if that is later, to its manifest."""
        run_begun_s = self._manifests.begun_s
        begun_s = self._checkpoint.begun_s or run_begun_s
        return max(0.0, manifest.written_us / 1e6 - max(begun_s, run_begun_s))

"""Following a run from the driver: manifests show which messages are written, the sources how many still wait."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ..model.errors import LadingError
from .commit.state import PipelineStateDirectory
from .formats.manifest import Manifest
from .plan.lag import TopicLag, measure_lag
from .plan.offsets import OffsetsDocument
from .plan.source_planner import SourcePlanner


class ManifestWatch:
    """Adds up the manifests of one run, and calls ``on_manifest`` after each."""

    def __init__(
        self,
        state: PipelineStateDirectory,
        planners: Sequence[SourcePlanner],
        last: Manifest | None,
        positions: OffsetsDocument,
        on_manifest: Callable[[Manifest], None],
    ) -> None:
        self._manifests = state.manifests
        self._planners = planners
        self._positions = positions
        self._on_manifest = on_manifest
        self.first_number = self.number = 0 if last is None else last.number
        self.counts: Counter[str] = Counter()
        self.files = self.size_bytes = 0
        self.lags: dict[str, TopicLag] = {}
        self.begun_s = time.time()
        self._begun = time.monotonic()

    @property
    def batches(self) -> int:
        """Batches published by this run."""
        return self.number - self.first_number

    @property
    def lag(self) -> int:
        """Messages that wait in all topics."""
        return sum(lag.messages for lag in self.lags.values())

    @property
    def lag_by_topic(self) -> dict[str, dict[str, Any]]:
        """The lag in each topic, as JSON: ``messages``, ``bytes``, ``seconds`` and ``source``."""
        return {topic: lag.document() for topic, lag in self.lags.items()}

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._begun

    def start_clock(self) -> None:
        """Start timing the run."""
        self._begun, self.begun_s = time.monotonic(), time.time()

    def poll_manifests(self) -> None:
        """Read new manifests and add them up."""
        while self._manifests.path(self.number + 1).exists():
            self.number += 1
            manifest = self._manifests.read(self.number)
            self.counts.update(manifest.counts)
            self.files += len(manifest.files)
            self.size_bytes += sum(file.size_bytes for file in manifest.files)
            self._forget()
            self._positions = {**self._positions, **manifest.positions}
            self.measure_lag()
            self._on_manifest(manifest)

    def measure_lag(self) -> None:
        """Ask the sources what waits; an unreachable source leaves the numbers as they were."""
        # a broker that restarts is the affair of planning, which waits for it
        with suppress(LadingError, OSError):
            lags: dict[str, TopicLag] = {}
            for planner in self._planners:
                lags |= measure_lag(planner, self._positions, time.time_ns() // 1000)
            self.lags = lags

    def _forget(self) -> None:
        """Let the planners forget what lies before the batch that was published last: a replay begins there."""
        for planner in self._planners:
            planner.commit(self._positions)

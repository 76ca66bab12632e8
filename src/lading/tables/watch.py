"""Following a run from the driver: new manifests are the truth about what is done, and the sources about what waits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from ..model.errors import LadingError
from .commit.state import PipelineStateDirectory
from .formats.manifest import Manifest
from .plan.offsets import OffsetsDocument, parse_document
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
        self.files = self.size_bytes = self.lag = 0
        self.begun_s = time.time()
        self._begun = time.monotonic()

    @property
    def batches(self) -> int:
        """Batches published by this run."""
        return self.number - self.first_number

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
        """Ask the sources how many messages wait; an unreachable source leaves the number as it was."""
        # a broker that restarts is the affair of planning, which waits for it
        with suppress(LadingError, OSError):
            self.lag = sum(_lag(planner, self._positions) for planner in self._planners)

    def _forget(self) -> None:
        """Let the planners forget what lies before the batch that was published last: a replay begins there."""
        for planner in self._planners:
            planner.commit(self._positions)


def _lag(source: SourcePlanner, positions: OffsetsDocument) -> int:
    lag = 0
    for topic, planner in source.look_at_topics().items():
        done = parse_document(topic, positions) if topic in positions else {}
        lag += sum(
            max(0, mark.offset - (done[number].offset if number in done else mark.resumed_at or 0))
            for number, mark in planner.latest_offsets({}).items()
        )
    return lag

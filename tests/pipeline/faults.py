"""The pipeline's sink with failures put in where a crash would hurt: imported by Spark's workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from lading.pipeline import sink
from lading.pipeline.settings import PipelineSettings
from lading.pipeline.side_effects import apply_side_effects
from lading.pipeline.sink import PipelineWriter
from lading.tables.commit import table_commit
from lading.tables.commit.state import PipelineStateDirectory
from lading.tables.commit.table_commit import StagedBatch, StagedStepRows
from lading.tables.formats.manifest import Manifest
from lading.tables.plan.ranges import OffsetRange
from tests.spark.faults import strike

PHASES = ("task", "manifest", "renames", "errands", "published")
STEP_PHASES = ("task", "steps", *PHASES[1:])
"""With SQL steps: after the rows of a task that they made were staged, too."""


def claimed(state: Path, phase: str) -> bool:
    """Whether this process is the one that shall fail in an armed phase."""
    try:
        (state / "_lading" / "faults" / phase).unlink()
    except FileNotFoundError:
        return False
    return True


class FaultyWriter(PipelineWriter):
    """Takes the place of the pipeline's own writer, and fails where it is told."""

    def stage_range(self, piece: OffsetRange, attempt: str) -> Any:
        written = super().stage_range(piece, attempt)
        directory = Path(self.job.state)
        if claimed(directory, "worker"):
            os.kill(os.getpid(), signal.SIGKILL)
        strike(directory, "task")
        return written

    def stage_rows(self, rows: Iterator[pa.RecordBatch], task: int, attempt: str) -> StagedStepRows:
        made = super().stage_rows(rows, task, attempt)
        strike(Path(self.job.state), "steps")
        return made

    def publish(self, batch: StagedBatch) -> None:
        directory = Path(self.job.state)
        renamed = 0

        def rename(source: Path, target: Path) -> Any:
            nonlocal renamed
            strike(directory, "renames" if renamed else "manifest")
            renamed += 1
            source.replace(target)

        def deliver_struck(state: PipelineStateDirectory, manifest: Manifest, settings: PipelineSettings) -> None:
            strike(directory, "errands")
            apply_side_effects(state, manifest, settings)

        setattr(sink, "commit", partial(table_commit.commit, rename=rename))  # noqa: B010
        setattr(sink, "apply_side_effects", deliver_struck)  # noqa: B010
        super().publish(batch)
        strike(directory, "published")

"""The pipeline's sink with failures put in where a crash would hurt: imported by Spark's workers."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from lading.pipeline import sink
from lading.pipeline.errands import deliver
from lading.pipeline.job import PipelineJob
from lading.pipeline.sink import PipelineTables, PipelineWriter
from lading.spark import publish
from lading.spark.manifest import Manifest
from lading.spark.ranges import Range
from lading.spark.state import State
from tests.spark.faults import strike

PHASES = ("task", "manifest", "renames", "errands", "published")


def claimed(state: Path, phase: str) -> bool:
    """Whether this process is the one that shall fail in an armed phase."""
    try:
        (state / "_lading" / "faults" / phase).unlink()
    except FileNotFoundError:
        return False
    return True


class FaultyTables(PipelineTables):
    """Takes the place of the pipeline's own sink."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> PipelineWriter:
        return FaultyWriter(PipelineJob.parse(self.options["job"]))


class FaultyWriter(PipelineWriter):
    """Fails where it is told."""

    def staged(self, piece: Range, attempt: str) -> Any:
        written = super().staged(piece, attempt)
        directory = Path(self.job.state)
        if claimed(directory, "worker"):
            os.kill(os.getpid(), signal.SIGKILL)
        strike(directory, "task")
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        directory = Path(self.job.state)
        renamed = 0

        def rename(source: Path, target: Path) -> Any:
            nonlocal renamed
            strike(directory, "renames" if renamed else "manifest")
            renamed += 1
            source.replace(target)

        def deliver_struck(state: State, manifest: Manifest) -> None:
            strike(directory, "errands")
            deliver(state, manifest)

        setattr(sink, "commit", partial(publish.commit, rename=rename))  # noqa: B010
        setattr(sink, "deliver", deliver_struck)  # noqa: B010
        super().commit(messages, batchId)
        strike(directory, "published")

"""Work of tasks on ranges and on rows of SQL steps, and of the driver on a batch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tables.commit.staging import schema_words
from ..tables.commit.state import PipelineStateDirectory, table_in_state
from ..tables.commit.table_commit import StagedBatch, StagedRange, StagedStepRows, commit
from ..tables.formats.manifest import same_ranges
from ..tables.plan.ranges import OffsetRange, merge_ranges
from .breaker import check_failure_ratio
from .job import PipelineJob
from .range_writer import write_range
from .side_effects import apply_side_effects
from .step_output import stage_rows

if TYPE_CHECKING:
    import pyarrow as pa


class PipelineWriter:
    """The writer of one run of a pipeline; tasks get it as its job."""

    def __init__(self, job: PipelineJob) -> None:
        self.job = job

    def __reduce__(self) -> Any:
        return _make_writer, (type(self), self.job.text())

    def stage_range(self, piece: OffsetRange, attempt: str) -> StagedRange:
        """Classify and stage the messages of one range. Called in a task."""
        return write_range(self.job, piece, attempt)

    def stage_rows(self, rows: Iterator[pa.RecordBatch], task: int, attempt: str) -> StagedStepRows:
        """Stage rows that SQL steps returned. Called in a task, with its number and the name of its attempt."""
        return stage_rows(self.job, rows, task, attempt)

    def admit(self, batch: StagedBatch) -> None:
        """Raise LocalError if too much of a batch failed, unless it was published before."""
        ranges = merge_ranges(result.piece for result in batch.written)
        last = self.state.manifests.last()
        if last is None or not same_ranges(last.ranges, ranges):
            check_failure_ratio(self.job, self.state, ranges, batch.counts)

    def publish(self, batch: StagedBatch) -> None:
        """Publish a batch, exactly once, unless too much of it failed."""
        job, state = self.job, self.state
        topics = {result.piece.topic for result in batch.written}
        commit(
            state,
            job.run,
            batch,
            {table_in_state(state, path): schema_words(schema) for path, schema in job.plan.schemas_of(topics).items()},
            resume_command=job.resume_command,
            check_batch=lambda ranges, counts: check_failure_ratio(job, state, ranges, counts),
            deliver=lambda manifest: apply_side_effects(state, manifest, job.settings),
        )

    @cached_property
    def state(self) -> PipelineStateDirectory:
        """The pipeline's state."""
        return PipelineStateDirectory(Path(self.job.state), self.job.pipeline)


def _make_writer(kind: type[PipelineWriter], job: str) -> PipelineWriter:
    return kind(PipelineJob.parse(job))

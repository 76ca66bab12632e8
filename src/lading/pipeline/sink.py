"""The two ends of a pipeline's query as Spark sees them: a stream of ranges of all sources, a sink that publishes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ..spark.manifest import same_ranges
from ..spark.options import SourceOptions
from ..spark.positions import OffsetsDocument
from ..spark.publish import Batch, Derived, abandon, commit
from ..spark.ranges import Range, merged
from ..spark.state import State
from ..spark.table_sink import RANGE_SCHEMA, RangeReader, Staged, batch_of, handed_on, stage, staged_files
from ..spark.workers import settle
from ..spark.writing import schema_words
from .breaker import admit
from .errands import deliver
from .job import PipelineJob
from .rows_made import stage_rows
from .state import table_in_state
from .writing import write_range

if TYPE_CHECKING:
    import pyarrow as pa

RANGES, TABLES = "lading_pipeline_ranges", "lading_pipeline_tables"


class PipelineRanges(DataSource):
    """A stream whose rows are offset ranges of several topics."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return RANGES

    def schema(self) -> str:
        """One row a range."""
        return RANGE_SCHEMA

    def streamReader(self, schema: StructType) -> SourcesReader:
        """The only way to read it."""
        sources = [SourceOptions.parse(options) for options in json.loads(self.options["sources"])]
        return SourcesReader(sources, int(self.options["maxrows"]))


class SourcesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of all sources together: a position a topic. A source that was taken out keeps its position."""

    def __init__(self, sources: Sequence[SourceOptions], max_rows: int) -> None:
        self._readers = {options.topic: RangeReader(options) for options in sources}
        self._max_rows = max_rows

    def initialOffset(self) -> OffsetsDocument:
        """Where the stream begins without a checkpoint."""
        return self._together(lambda topic, reader: reader.initialOffset())

    def getDefaultReadLimit(self) -> ReadLimit:
        """The rows of a batch, shared evenly by the sources."""
        return ReadMaxRows(self._max_rows)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> OffsetsDocument:
        """Where the next batch ends; equal to ``start`` when there is nothing new."""
        share = ReadMaxRows(max(1, limit.max_rows // len(self._readers))) if isinstance(limit, ReadMaxRows) else limit
        ends = self._together(lambda topic, reader: reader.latestOffset({topic: start.get(topic, {})}, share))
        return {**start, **ends}

    def reportLatestOffset(self) -> OffsetsDocument:
        """Where the topics end now."""
        return self._together(lambda topic, reader: reader.reportLatestOffset())

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember what is there now; later messages are for the next run."""
        for reader in self._readers.values():
            reader.prepareForTriggerAvailableNow()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """One Spark partition per offset range, the same for the same offsets."""
        return [
            piece
            for topic, reader in self._readers.items()
            if topic in end
            for piece in reader.partitions({topic: start.get(topic, {})}, {topic: end[topic]})
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The range itself, as one row."""
        return handed_on(partition.value)

    def stop(self) -> None:
        """Let go of the connections."""
        for reader in self._readers.values():
            reader.stop()

    def _together(self, ask: Any) -> OffsetsDocument:
        return {topic: found for name, reader in self._readers.items() for topic, found in ask(name, reader).items()}


class PipelineTables(DataSource):
    """Judges the messages of ranges in tasks, and publishes a batch in the driver."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return TABLES

    def streamWriter(self, schema: StructType, overwrite: bool) -> PipelineWriter:
        """For the pipeline's own query."""
        return self.table_writer(PipelineJob.parse(self.options["job"]))

    @classmethod
    def table_writer(cls, job: PipelineJob) -> PipelineWriter:
        """What tasks and the driver do in this run."""
        return PipelineWriter(job)


class PipelineWriter(DataSourceStreamArrowWriter):
    """``write`` runs in tasks, ``commit`` and ``abort`` in the driver."""

    def __init__(self, job: PipelineJob) -> None:
        self.job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:  # type: ignore[override]
        """Judge and stage the messages of every range that comes."""
        return stage(iterator, self.staged)

    def staged(self, piece: Range, attempt: str) -> Any:
        """One range."""
        return write_range(self.job, piece, attempt)

    def stage_rows(self, rows: Iterator[pa.RecordBatch]) -> Derived:
        """In a task: stage rows that SQL steps made."""
        context = TaskContext.get()
        assert context is not None
        return stage_rows(self.job, rows, context.partitionId(), f"{context.stageId()}-{context.taskAttemptId()}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the batch, exactly once, unless too much of it failed."""
        self.publish(batch_of(messages, batchId))
        settle()

    def admit(self, batch: Batch) -> None:
        """LocalError where too much of a batch failed, unless it was published before."""
        ranges = merged(result.piece for result in batch.written)
        last = self.state.manifests.last()
        if last is None or not same_ranges(last.ranges, ranges):
            admit(self.job, self.state, ranges, batch.counts)

    def publish(self, batch: Batch) -> None:
        """Publish a batch, exactly once, unless too much of it failed."""
        job, state = self.job, self.state
        commit(
            state,
            job.run,
            batch,
            {table_in_state(state, path): schema_words(schema) for path, schema in job.plan.schemas.items()},
            resume_command=job.resume_command,
            admit=lambda ranges, counts: admit(job, state, ranges, counts),
            deliver=lambda manifest: deliver(state, manifest, job.settings.access),
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete what was staged for nothing; what killed tasks left is swept at the next start."""
        abandon(self.state, staged_files(messages))

    @cached_property
    def state(self) -> State:
        """The pipeline's state."""
        return State(Path(self.job.state), self.job.pipeline)

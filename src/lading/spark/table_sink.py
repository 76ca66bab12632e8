"""The two ends of the table path as Spark sees them: a stream of offset ranges, and a sink that publishes files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from .manifest import File
from .options import SourceOptions
from .publish import Batch, Written, abandon, commit
from .ranges import Range
from .state import State
from .stream import RangeStreamReader
from .workers import settle
from .writing import TableJob, schema_words, write_range

if TYPE_CHECKING:
    import pyarrow as pa

RANGE_SCHEMA = "topic string, partition int, topic_id string, epoch int, start bigint, end bigint, resumed boolean"


class RangeSource(DataSource):
    """A stream whose rows are offset ranges: Spark plans, keeps the checkpoint, schedules, retries and distributes."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "lading_ranges"

    def schema(self) -> str:
        """One row a range."""
        return RANGE_SCHEMA

    def streamReader(self, schema: StructType) -> RangeReader:
        """The only way to read it."""
        return RangeReader(SourceOptions.parse(self.options))


class RangeReader(RangeStreamReader):
    """Hands each range to the task that Spark gives it to."""

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The range itself, as one row."""
        return handed_on(partition.value)


def handed_on(piece: Range) -> Iterator[tuple[Any, ...]]:
    """In a task: a range as its one row of ``RANGE_SCHEMA``."""
    yield piece.topic, piece.partition, piece.topic_id, piece.epoch, piece.start, piece.end, piece.resumed
    settle()


class TableSink(DataSource):
    """Turns ranges into a table: tasks stage files, the driver publishes them with a manifest."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "lading_tables"

    def streamWriter(self, schema: StructType, overwrite: bool) -> TableWriter:
        """For the table path's own query."""
        return TableWriter(TableJob.parse(self.options["job"]))


@dataclass
class Staged(WriterCommitMessage):
    """What one task did, and the batch it did it for."""

    query_id: str
    batch_id: int
    written: list[Written]


class TableWriter(DataSourceStreamArrowWriter):
    """``write`` runs in tasks, ``commit`` and ``abort`` in the driver."""

    def __init__(self, job: TableJob) -> None:
        self.job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:  # type: ignore[override]
        """Stage the messages of every range that comes."""
        return stage(iterator, self.staged)

    def staged(self, piece: Range, attempt: str) -> Written:
        """Judge and write one range: the step that routes and quarantine take part in."""
        return write_range(self.job, piece, attempt)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish what the tasks of a batch staged, exactly once."""
        batch = batch_of(messages, batchId)
        schemas = {self.job.table_in_state: schema_words(self.job.schema)}
        commit(self._state, self.job.run, batch, schemas, resume_command=self.job.resume_command)
        settle()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete what was staged for nothing; what killed tasks left is swept at the next start."""
        abandon(self._state, staged_files(messages))

    @property
    def _state(self) -> State:
        return State(Path(self.job.state), self.job.pipeline)


def stage(ranges: Iterator[pa.RecordBatch], write: Callable[[Range, str], Written]) -> Staged:
    """In a task: call ``write`` with every range that comes, and a name of this attempt."""
    context = TaskContext.get()
    assert context is not None
    attempt = f"{context.stageId()}-{context.taskAttemptId()}"
    written = [write(Range.parse(row), attempt) for batch in ranges for row in batch.to_pylist()]
    query_id = context.getLocalProperty("sql.streaming.queryId") or ""
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    settle()
    return Staged(query_id, -1 if batch_id is None else int(batch_id), written)


def batch_of(messages: list[WriterCommitMessage | None], batch_id: int) -> Batch:
    """In the driver: what all tasks of a batch did."""
    staged = _staged(messages)
    query_id = next((message.query_id for message in staged), "")
    return Batch(query_id, batch_id, [result for message in staged for result in message.written])


def staged_files(messages: list[WriterCommitMessage | None]) -> list[File]:
    """Every file that the tasks of a batch staged."""
    return [file for message in _staged(messages) for result in message.written for _, file in result.files]


def _staged(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]

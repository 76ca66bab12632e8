"""What Spark does with a sink, without a JVM: tasks with attempts, a commit on the driver, a checkpoint.

The order is that of ``MicroBatchExecution`` and ``WriteToDataSourceV2Exec``: the batch is written down, each task
writes and is tried again, the driver commits, or has the writer abort and the query fails; then the batch is noted as
done. Ids of task attempts begin at 0 in each process, as in each SparkContext.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, IntegerType, StructType

from lading.spark.sink import BatchWriter
from lading.spark.stream_sink import make_stream_writer
from lading.tables.plan.options import SinkOptions

TASK_ATTEMPTS: Final = 2
SCHEMA: Final = (
    StructType().add("payload", BinaryType()).add("key", BinaryType()).add("row", IntegerType())
    .add("partition", IntegerType())
)  # fmt: skip
_attempt_ids = itertools.count()
Rows = Sequence[pa.RecordBatch]
"""The rows of one batch, by task."""


class StreamDriver:
    """One streaming query with its checkpoint in a directory."""

    def __init__(self, directory: Path, options: dict[str, str]) -> None:
        self._directory = directory
        self._options = SinkOptions.parse(options)
        metadata = directory / "metadata"
        if not metadata.exists():
            metadata.write_text(str(uuid.uuid4()))
        self._query = metadata.read_text()

    def run(self, batches: Sequence[Rows]) -> None:
        """Run the batches that are not done, as ``availableNow`` does."""
        writer: Any = make_stream_writer(self._options, SCHEMA)
        for number, rows in enumerate(batches):
            if (self._directory / f"commit{number}").exists():
                continue
            if not (self._directory / f"offsets{number}").exists():
                self.plan_batch(number)
            names = {"sql.streaming.queryId": self._query, "streaming.sql.batchId": str(number)}
            messages = run_tasks(rows, names, writer.send_batch, lambda sent: writer.abort(sent, number))  # noqa: B023
            try:
                writer.commit(messages, number)
            except Exception:
                writer.abort(messages, number)
                raise
            self.note_batch(number)

    def plan_batch(self, number: int) -> None:
        """Write the offsets of a batch down."""
        (self._directory / f"offsets{number}").write_text(json.dumps({"batch": number}))

    def note_batch(self, number: int) -> None:
        """Note that a batch is done."""
        (self._directory / f"commit{number}").touch()


def run_job(rows: Rows, options: dict[str, str]) -> None:
    """Write a DataFrame once, as ``df.write.save()`` does."""
    writer = BatchWriter(SinkOptions.parse(options), SCHEMA)
    messages = run_tasks(rows, {}, writer.write, writer.abort)
    try:
        writer.commit(messages)
    except Exception:
        writer.abort(messages)
        raise


def run_tasks(
    rows: Rows, names: dict[str, str], write: Callable[[Any], Any], abort: Callable[[Any], None]
) -> list[Any]:
    """Run the tasks one after the other; return what they say, None for those that did not come to run."""
    messages: list[Any] = [None] * len(rows)
    for number, batch in enumerate(rows):
        for attempt in range(TASK_ATTEMPTS):
            context = TaskContext._getOrCreate()
            context._partitionId, context._attemptNumber = number, attempt
            context._taskAttemptId = next(_attempt_ids)
            context._localProperties = names
            try:
                messages[number] = run_task(write, batch)
                break
            except Exception:
                if attempt == TASK_ATTEMPTS - 1:
                    abort(messages)
                    raise
    return messages


def run_task(write: Callable[[Any], Any], batch: pa.RecordBatch) -> Any:
    """Run one attempt of a task."""
    return write(iter([batch]))

"""Writes of real Spark into a topic, ended at a moment: as a program too.

The moment and how to end are in the file ``STATE/end``. The worker that reaches the moment renames the file, so that it
happens once; to kill it kills the JVM and the driver, whose ids are in ``STATE/pids``, and itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from lading.spark.sink import BatchWriter, TaskCommit
from lading.spark.source import LadingSource
from lading.spark.stream_sink import StreamWriter
from lading.tables.plan.options import SinkOptions
from tests.crashes.steps import Moment, StepTracer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE_OPTION: Final = "token.state"
ROWS_PER_BATCH: Final = 40
COLUMNS: Final = (
    "payload binary, key binary, headers array<struct<key: string, kind: tinyint, value: binary>>, partition int"
)


class WorkerTracer(StepTracer):
    """The tracer of one of Spark's Python processes."""

    installed: ClassVar[WorkerTracer | None] = None
    state = Path()

    @classmethod
    def arm_from(cls, state: Path) -> None:
        """End this process as the file in ``state`` says, if it is still there."""
        if cls.installed is None:
            cls.installed = cls()
            cls.installed.install()
        tracer = cls.installed
        tracer.state = state
        try:
            kind, moment = json.loads((state / "end").read_text())
        except FileNotFoundError:
            tracer.arm(None)
        else:
            tracer.arm(Moment(*moment), kind)

    def end(self, connection: socket.socket | None = None) -> None:
        """End it if no other task has."""
        try:
            (self.state / "end").rename(self.state / "ended")
        except FileNotFoundError:
            return
        if self._kind == "kill":
            for pid in (self.state / "pids").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        super().end(connection)


class EndedSource(LadingSource):
    """The source with sinks that are ended."""

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        options = {name: value for name, value in self.options.items() if name != STATE_OPTION}
        return EndedBatchWriter(SinkOptions.parse(options), schema, Path(self.options[STATE_OPTION]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        options = {name: value for name, value in self.options.items() if name != STATE_OPTION}
        writer = super(EndedSource, type(self)(options)).streamWriter(schema, overwrite)
        made: StreamWriter = _ended_class(type(writer))(
            SinkOptions.parse(options), schema, Path(self.options[STATE_OPTION])
        )
        return made


class EndedBatchWriter(BatchWriter):
    """The writer of a job, ended in a task or on the driver."""

    def __init__(self, options: SinkOptions, schema: StructType, state: Path) -> None:
        super().__init__(options, schema)
        self.state = state

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:  # type: ignore[override]
        WorkerTracer.arm_from(self.state)
        return super().write(iterator)

    def commit(self, messages: Any) -> None:
        WorkerTracer.arm_from(self.state)
        super().commit(messages)


def _ended_class(base: type[StreamWriter]) -> Any:
    class EndedWriter(base):  # type: ignore[misc, valid-type]
        def __init__(self, options: SinkOptions, schema: StructType, state: Path) -> None:
            super().__init__(options, schema)
            self.state = state

        def send_batch(self, batches: Iterator[pa.RecordBatch]) -> TaskCommit:
            WorkerTracer.arm_from(self.state)
            sent: TaskCommit = super().send_batch(batches)
            return sent

        def commit(self, messages: Any, batchId: int) -> None:
            WorkerTracer.arm_from(self.state)
            super().commit(messages, batchId)

    return EndedWriter


def run_stream(spark: SparkSession, state: Path, from_: str, topic: str, options: dict[str, str]) -> None:
    """Run the query until there is nothing new, from its checkpoint if it has one."""
    query = (
        spark.readStream.format("lading").schema(COLUMNS)
        .option("from", from_).option("topic", topic).option("maxRowsPerTrigger", ROWS_PER_BATCH).load()
        .writeStream.format("lading").options(**options, **{STATE_OPTION: str(state)})
        .option("checkpointLocation", str(state / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()


def run_batch(spark: SparkSession, state: Path, from_: str, topic: str, options: dict[str, str]) -> None:
    """Write the whole topic by one job."""
    rows = spark.read.format("lading").schema(COLUMNS).option("from", from_).option("topic", topic).load()
    rows.write.format("lading").options(**options, **{STATE_OPTION: str(state)}).mode("append").save()


RUNS: Final[dict[str, Callable[..., None]]] = {"stream": run_stream, "batch": run_batch}


if __name__ == "__main__":
    from lading.spark import session

    how, directory, source, source_topic, sink_options = sys.argv[1:]
    made = session("ended", "local[2,3]", **{"spark.sql.shuffle.partitions": 2})
    made.dataSource.register(EndedSource)
    gateway: Any = made.sparkContext._gateway
    Path(directory, "pids").write_text(f"{gateway.proc.pid} {os.getpid()}")
    RUNS[how](made, Path(directory), source, source_topic, json.loads(sink_options))

"""The table path: a topic into a Parquet table, each message exactly once; rows never become Spark rows.

The driver plans offset ranges and keeps the checkpoint, Spark distributes, schedules and retries them as tasks;
decoding, typing, checking and the writing of files stay in Arrow inside the executors; the driver publishes a batch
with one manifest (docs/reference/spark.md). Spark's own streaming costs more to start than a million messages to read.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..columns.contract import parse_columns
from ..model.errors import LocalError, SettingError
from ..tables.batches import Sources, drive
from ..tables.failures import disk_told
from ..tables.files import local_directory, make_directory
from ..tables.manifest import Manifest
from ..tables.options import SourceOptions
from ..tables.planning import Planner
from ..tables.positions import OffsetsDocument, document, parse_document
from ..tables.publish import Batch, Written, check_schema, commit, recover
from ..tables.ranges import Range
from ..tables.staging import COMPRESSION, FILE_BYTES, TableJob, schema_words, write_range
from ..tables.state import State, claim
from ..transports.fetched import States
from .tasks import Tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL_COLUMNS = "stream, topic, partition, offset, state, timestamp, id, checksum, key, headers, payload"
BATCH_ROWS = 4_000_000
"""Messages of one batch, and so of one manifest, unless ``max_rows`` says otherwise."""
RANGE_ROWS = 1_000_000
"""Messages of one task unless told otherwise: what a task costs by itself is some 50,000 messages' worth."""
FOLLOW_INTERVAL_S = 30.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an ingest is: rows written by this run, messages still waiting, rows per second, batches."""

    rows: int
    lag: int
    rows_per_s: float
    batches: int
    files: int
    size_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What one run did. ``read`` counts messages before ``where``, ``bad_values`` header values that became null."""

    rows: int
    files: int
    size_bytes: int
    rows_per_s: float
    batches: int
    read: int
    bad_values: int
    seconds: float
    table: Path
    manifests: Path


def ingest(
    spark: SparkSession,
    from_: str | Path,
    topic: str,
    to: str | Path,
    *,
    columns: str | None = None,
    where: str | None = None,
    state_dir: str | Path | None = None,
    max_rows: int | None = None,
    follow: bool = False,
    interval_s: float = FOLLOW_INTERVAL_S,
    starting: str = "earliest",
    states: States = "available",
    verify_checksum: bool | None = None,
    on_bad_value: str = "null",
    fail_on_data_loss: bool = True,
    resume: bool = False,
    file_bytes: int = FILE_BYTES,
    compression: str = COMPRESSION,
    max_rows_per_partition: int | None = None,
    transport: Mapping[str, Any] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> IngestReport:
    """Write what ``topic`` holds into the Parquet table ``to``, and go on there when called again.

    ``columns`` names fields and typed headers as ``read_arrow`` takes them; without it the table has all fields.
    ``where`` chooses messages. State lies in ``to`` unless ``state_dir`` names another directory. With ``follow`` a
    batch is made every ``interval_s`` seconds until interrupted, else this returns when all that was there at start is
    written. ``verify_checksum`` is on when the payload is among the columns. ``resume`` begins a new checkpoint where
    the manifests end. When ``stopped`` says so, a run that follows ends, and another one raises KeyboardInterrupt.

    A batch either is in the table whole or not at all to someone who reads manifests, and every message is there once
    after any crash and restart, whatever options changed in between. LocalError where the table is not ours, its
    columns would change other than by additions, another run works on it, or messages would be doubled; DataLoss,
    ChecksumMismatch and the transport's errors as they were raised in the workers.
    """
    from_ = str(from_) if "://" in str(from_) else str(Path(from_).absolute())
    table = local_directory("table", to)
    state_at = table if state_dir is None else local_directory("state directory", state_dir)
    text = columns if columns is not None else ALL_COLUMNS
    projection = parse_columns(text)
    _check_counts(max_rows=max_rows, max_rows_per_partition=max_rows_per_partition, file_bytes=file_bytes)
    options = SourceOptions.parse(
        {
            "from": from_,
            "topic": topic,
            "startingOffsets": starting,
            "on_bad_value": on_bad_value,
            "maxRowsPerPartition": str(max_rows_per_partition or RANGE_ROWS),
        }
        | {f"transport.{name}": str(value) for name, value in (transport or {}).items()}
    )
    options = replace(options, fail_on_data_loss=fail_on_data_loss, states=states)
    planner = Planner(options)
    meta = planner.topic()
    # the flat name of the topic, however it was spelled
    topic = meta.name
    make_directory("the table", table)
    state = State.open(state_at, topic)
    with state.running() as run:
        claim(table, state)
        job = TableJob(
            from_, topic, text, str(table), str(state.directory), state.pipeline, run,
            _resume_command(from_, topic, table, state_dir, columns, where),
            where=where, states=states,
            verify_checksum="payload" in projection.fields if verify_checksum is None else verify_checksum,
            fail_on_bad_value=on_bad_value == "fail", fail_on_data_loss=fail_on_data_loss,
            file_bytes=file_bytes, compression=compression, transport=options.transport,
        )  # fmt: skip
        job.reading.condition()
        recover(state, [table])
        last = state.manifests.last()
        if last is not None:
            check_schema(table, last.schemas.get(job.table_in_state, {}), schema_words(job.schema))
        begin = _start(state, last, planner, job, resume=resume)
        watch = _Watch(state, planner, topic, last, on_progress)
        writer = TableWriter(job)
        try:
            with disk_told(f"the table {table}"):
                drive(
                    Tasks(spark, f"lading ingest {topic}"), Sources([planner], max_rows or BATCH_ROWS),
                    state, begin, last, stage=writer.staged, publish=writer.publish, tables=[table],
                    look=watch.look, stopped=stopped, interval_s=interval_s if follow else None,
                )  # fmt: skip
        finally:
            planner.close()
        # what attempts left that failed and were tried again
        recover(state, [table])
        return watch.report(table)


class TableWriter:
    """What tasks do with a range, and the driver with a batch."""

    def __init__(self, job: TableJob) -> None:
        self.job = job

    def staged(self, piece: Range, attempt: str) -> Written:
        """In a task: write one range."""
        return write_range(self.job, piece, attempt)

    def publish(self, written: Sequence[Written]) -> None:
        """Publish what the tasks of a batch staged, exactly once."""
        state = State(Path(self.job.state), self.job.pipeline)
        schemas = {self.job.table_in_state: schema_words(self.job.schema)}
        commit(state, self.job.run, Batch(written), schemas, resume_command=self.job.resume_command)


class _Watch:
    """Follows the manifests of one run: they are the truth about what is done."""

    def __init__(
        self,
        state: State,
        planner: Planner,
        topic: str,
        last: Manifest | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._manifests = state.manifests
        self._planner = planner
        self._topic = topic
        self._number = 0 if last is None else last.number
        self._on_progress = on_progress
        self._begun = time.monotonic()
        self._counts: dict[str, int] = {}
        self._files = self._bytes = self._batches = 0

    def look(self) -> None:
        """Take in new manifests, and tell of them."""
        while self._manifests.path(self._number + 1).exists():
            self._number += 1
            manifest = self._manifests.read(self._number)
            for name, count in manifest.counts.items():
                self._counts[name] = self._counts.get(name, 0) + count
            self._files += len(manifest.files)
            self._bytes += sum(file.size_bytes for file in manifest.files)
            self._batches += 1
            if self._on_progress is not None:
                self._on_progress(self._progress(manifest))

    def report(self, table: Path) -> IngestReport:
        """All of it."""
        rows, seconds = self._counts.get("written", 0), time.monotonic() - self._begun
        return IngestReport(
            rows, self._files, self._bytes, rows / seconds, self._batches, self._counts.get("read", 0),
            self._counts.get("bad_values", 0), seconds, table, self._manifests.directory,
        )  # fmt: skip

    def _progress(self, manifest: Manifest) -> Progress:
        done = parse_document(self._topic, manifest.positions)
        newest = self._planner.newest({})
        lag = sum(
            max(0, mark.offset - (done[number].offset if number in done else mark.resumed_at or 0))
            for number, mark in newest.items()
        )
        rows, seconds = self._counts.get("written", 0), time.monotonic() - self._begun
        return Progress(rows, lag, rows / seconds, self._batches, self._files, self._bytes, seconds)


def _start(state: State, last: Manifest | None, planner: Planner, job: TableJob, *, resume: bool) -> OffsetsDocument:
    """Where a run without checkpoint begins: where the manifests end, else where the table began.

    LocalError where there are manifests, but neither their checkpoint nor the wish to go on without it.
    """
    if last is not None and not resume and not state.checkpoint.exists:
        raise LocalError(
            f"the table {job.table} has messages up to manifest {last.number}, but the checkpoint that belongs to them "
            f"is gone from {state.checkpoint.directory}. To go on where the manifests end: {job.resume_command}"
        )
    if resume:
        state.checkpoint.put_aside()
    if last is None and not state.checkpoint.exists:
        # partitions that have had no messages are in no manifest, so where they began is kept
        state.note_begin(document(job.topic, planner.first()))
    begin = state.begin
    done = {} if last is None else last.positions.get(job.topic, {})
    return {job.topic: {**begin.get(job.topic, {}), **done}}


def _resume_command(
    from_: str, topic: str, table: Path, state_dir: str | Path | None, columns: str | None, where: str | None
) -> str:
    words = ["lading", "ingest", topic, str(table), "--from", from_, "--resume"]
    words += ["--columns", columns] if columns is not None else []
    words += ["--where", where] if where is not None else []
    words += ["--state", str(state_dir)] if state_dir is not None else []
    return shlex.join(words)


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and count < 1:
            raise SettingError(f"{name} is {count}; it takes a whole number from 1 on")

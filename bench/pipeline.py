"""What a pipeline costs by headers, routes and checksum, beside Spark's DataFrame path doing the same work in SQL.

The same messages (100 B, int32 headers, written by an Iggy client) go from the log's directory to Parquet: contract
with one required header, checksum, routes by a filter, quarantine. Ours is ``lading pipeline run --once`` on the table
path: files by destination and one manifest. Spark's is the same source as typed rows, one CASE in SQL, and its file
sink partitioned by its result: one pass, exactly once as well. ``task`` is all ranges judged and staged in this process
one after the other, without Spark around them; ``commit`` is the manifest of one batch with its renames and syncs. Rows
to Delta and Iceberg are held against the same Spark SQL to Parquet, as Spark's own writers of them are no part of it.

Where a task's time goes (cProfile, 3 headers, one route, 0.55 CPU s per million messages): Parquet encoding 25 %,
typing and checking headers 20 %, sorting rows out by destination and copying them into files 15 %, scanning messages
8 %, checksums 5 %, the filter 5 %; the rest is spread thin. On the wall syncs take 10 % more. Every further header of
the contract costs 0.07 CPU s per million, half of it scanning, half typing and Parquet. With small batches all of that
is dwarfed by what Spark takes for any batch, some 0.3 s, and the commit's syncs, some 10 ms.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench._spark import measured, spark_session
from bench.measure import median
from lading import testing
from lading.client.header_columns import headers_of
from lading.client.outgoing import complete
from lading.pipeline.job import PipelineJob, SourcePlace
from lading.pipeline.range_writer import write_range
from lading.pipeline.settings import PipelineSettings
from lading.tables.commit.staging import schema_words
from lading.tables.commit.state import PipelineStateDirectory, table_in_state
from lading.tables.commit.table_commit import StagedBatch, StagedRange, commit
from lading.tables.formats.registry import new_table
from lading.tables.plan.options import SourceOptions
from lading.tables.plan.planning import Planner
from lading.transports.open import open_transport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUESTION = (
    "Pipeline (Iggy messages of 100 B from the directory to Parquet by routes) / the same in Spark SQL on the "
    "DataFrame path, local[2]"
)
ROWS = 1_000_000
SEND_ROWS = 500
COLUMNS = "topic, partition, offset, timestamp, key"


@dataclass(frozen=True)
class Case:
    """What a pipeline does; ``step`` adds a column by an SQL step."""

    headers: int
    routes: int
    checksum: bool = True
    step: bool = False
    form: str = "parquet"

    @property
    def topic(self) -> str:
        return f"h{self.headers}"

    @property
    def condition(self) -> Callable[[int], str]:
        """What a route takes; without headers, of the first messages."""
        return lambda at: f"h0 > {198 - at}" if self.headers else f"offset < {100 + 100 * at}"


CASES = (
    Case(3, 0), Case(3, 1), Case(3, 3), Case(3, 1, checksum=False), Case(0, 1), Case(10, 1), Case(50, 1),
    Case(3, 1, step=True), Case(3, 1, form="delta"), Case(3, 1, form="iceberg"),
)  # fmt: skip
QUICK = (Case(3, 1), Case(0, 1), Case(3, 1, step=True), Case(3, 1, form="delta"), Case(3, 1, form="iceberg"))


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: the case; one task's M rows/s and CPU seconds per million; ms of the commit; both sides under Spark."""
    rows, rounds, cases = (ROWS // 50, 1, QUICK) if quick else (ROWS, 5, CASES)
    with testing.broker(durability="os") as broker, tempfile.TemporaryDirectory() as base, spark_session() as spark:
        counts = {case.topic: rows // (1 if case.headers < 50 else 8) for case in cases}
        for headers in sorted({case.headers for case in cases}):
            _fill(f"iggy://{broker.endpoints['iggy_tcp']}", broker.url, headers, counts[f"h{headers}"])
        data = str(broker.data_dir)
        _settle(data, counts)
        fresh = (Path(base, str(number)) for number in count())
        return [_case(spark, fresh, data, case, counts[case.topic], rounds) for case in cases]


def _fill(iggy: str, admin: str, headers: int, rows: int) -> None:
    maker = open_transport(admin)
    maker.create_topic(f"h{headers}", 2)
    maker.close()
    sender = open_transport(iggy)
    names = {f"h{number}": f"h{number}" for number in range(headers)}
    for first in range(0, rows, SEND_ROWS):
        at = np.arange(first, min(first + SEND_ROWS, rows))
        columns: dict[str, Any] = {"payload": pa.array([b"x" * 100] * len(at))}
        if headers:
            made = {name: pa.array(((at + number) % 200).astype(np.int32)) for number, name in enumerate(names)}
            columns["headers"] = headers_of(pa.record_batch(made), names, "null")
        sender.send(f"h{headers}", first // SEND_ROWS % 2, complete(len(at), columns))
    sender.close()


def _settle(data: str, counts: dict[str, int]) -> None:
    """The directory shows what the broker has after at most 100 ms."""
    deadline = time.monotonic() + 30
    while True:
        files = open_transport(data)
        found = {topic: sum(part.end_offset for part in files.topic(topic).partitions) for topic in counts}
        files.close()
        if found == counts:
            return
        assert time.monotonic() < deadline, (found, counts)
        time.sleep(0.05)


def _settings(directory: Path, data: str, case: Case) -> PipelineSettings:
    directory.mkdir()
    step = "SELECT *, h0 * 2 AS twice FROM messages" if case.headers else "SELECT * FROM messages"
    document = {
        "source": {"from": data, "topic": case.topic},
        "headers": {f"h{at}": "int required" if at == 0 else "int" for at in range(case.headers)},
        "quality": {"verify_checksum": case.checksum},
        "good": {"to": f"{case.form}:./good"},
        "route": [{"where": case.condition(at), "to": f"{case.form}:./route{at}"} for at in range(case.routes)],
        **({"step": {"sql": step}} if case.step else {}),
    }
    return PipelineSettings(document, directory, "bench.toml")


def _case(spark: SparkSession, fresh: Iterator[Path], data: str, case: Case, rows: int, rounds: int) -> dict[str, Any]:
    from lading.pipeline.run import run as run_pipeline

    def ours() -> None:
        report = run_pipeline(lambda: spark, _settings(next(fresh), data, case))
        assert report["read"] == rows

    def theirs() -> None:
        _spark_sql(spark, next(fresh), data, case)

    row = {
        "headers": case.headers, "routes": case.routes, "checksum": "on" if case.checksum else "off",
        "step": "yes" if case.step else "no", "to": case.form,
    }  # fmt: skip
    alone = {} if case.step else _alone(next(fresh), data, case, rounds)
    mine, sql = measured(spark, ours, rows, rounds), measured(spark, theirs, rows, rounds)
    return {
        **row,
        **alone,
        "pipeline rows/s": mine["rows/s"],
        "SQL rows/s": sql["rows/s"],
        "times rows/s": round(mine["rows/s"] / sql["rows/s"], 2),
        "pipeline CPU s per M": mine["CPU s per million"],
        "SQL CPU s per M": sql["CPU s per million"],
        "times CPU": round(mine["CPU s per million"] / sql["CPU s per million"], 3),
    }


def _spark_sql(spark: SparkSession, target: Path, data: str, case: Case) -> None:
    typed = [f"h{at} int" for at in range(case.headers)]
    checked = ["checksum_ok boolean"] if case.checksum else []
    fields = ["topic string", "partition int", "offset bigint", "timestamp timestamp", "key binary", "payload binary"]
    source = spark.readStream.format("lading").schema(", ".join([*fields, *typed, *checked]))
    source.option("from", data).option("topic", case.topic).load().createOrReplaceTempView("bench_messages")
    bad = [*(["h0 IS NULL"] if case.headers else []), *(["NOT checksum_ok"] if case.checksum else [])]
    tried = [
        *([f"WHEN {' OR '.join(bad)} THEN 'quarantine'"] if bad else []),
        *(f"WHEN {case.condition(at)} THEN 'route{at}'" for at in range(case.routes)),
    ]
    chosen = f"CASE {' '.join(tried)} ELSE 'good' END" if tried else "'good'"
    more = ", h0 * 2 AS twice" if case.step else ""
    columns = ", ".join([COLUMNS, *(f"h{at}" for at in range(case.headers)), "payload"])
    frame = spark.sql(f"SELECT {columns}{more}, {chosen} AS destination FROM bench_messages")
    writer = frame.writeStream.format("parquet").partitionBy("destination").option("path", str(target / "tables"))
    query = writer.option("checkpointLocation", str(target / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()


def _alone(directory: Path, data: str, case: Case, rounds: int) -> dict[str, Any]:
    """One task after the other in this process, and the commit of what they staged."""
    settings = _settings(directory, data, case)
    state = PipelineStateDirectory.open(Path(settings.state_directory), settings.id, "pipeline")
    source = SourcePlace(data, "", "available", True, {}, [case.topic])
    job = PipelineJob(
        settings.raw, str(directory), "bench.toml", str(state.directory), state.pipeline, "bench", "", "",
        [source],
    )  # fmt: skip
    for place, schema in job.plan.schemas.items():
        table = new_table(job.plan.forms.get(place, "parquet"), place)
        table.claim(state.pipeline)
        table.prepare(schema)
    planner = Planner(SourceOptions(data, case.topic))
    ranges = planner.ranges({}, planner.latest_offsets({}))
    planner.close()
    read = sum(piece.rows for piece in ranges)
    runs = list(_timed(job, ranges, rounds))
    return {
        "task M rows/s": round(read / median(took for took, _, _ in runs[1:]) / 1e6, 2),
        "task CPU s per M": round(median(cpu for _, cpu, _ in runs[1:]) / read * 1e6, 2),
        "commit ms": round(median(_committed(job, state, [written for _, _, written in runs])) * 1e3, 1),
    }


def _timed(job: PipelineJob, ranges: list[Any], rounds: int) -> Iterator[tuple[float, float, list[StagedRange]]]:
    """The first one loads kernels."""
    for attempt in range(rounds + 1):
        begun, cpu = time.perf_counter(), time.process_time()
        written = [write_range(job, piece, f"{attempt}-{at}") for at, piece in enumerate(ranges)]
        yield time.perf_counter() - begun, time.process_time() - cpu, written


def _committed(job: PipelineJob, state: PipelineStateDirectory, batches: list[list[StagedRange]]) -> Iterator[float]:
    """Seconds of each commit; the batches are made to follow each other."""
    schemas = {table_in_state(state, path): schema_words(schema) for path, schema in job.plan.schemas.items()}
    with state.running() as token:
        for number, batch in enumerate(batches):
            moved = [replace(one, piece=_moved(one.piece, number)) for one in batch]
            begun = time.perf_counter()
            commit(state, token, StagedBatch(moved), schemas, resume_command="")
            yield time.perf_counter() - begun


def _moved(piece: Any, number: int) -> Any:
    size = 1 << 40
    return replace(piece, start=piece.start + number * size, end=piece.end + number * size)

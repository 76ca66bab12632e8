"""What judging costs: routes, headers in the contract, checksum, and the commit of a batch with its manifest."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.measure import median
from lading import testing
from lading.client.header_columns import headers_of
from lading.client.outgoing import complete
from lading.pipeline.job import PipelineJob, SourcePlace
from lading.pipeline.settings import PipelineSettings
from lading.pipeline.state import table_in_state
from lading.pipeline.writing import write_range
from lading.spark.options import SourceOptions
from lading.spark.planning import Planner
from lading.spark.publish import Batch, Written, commit
from lading.spark.state import State, claim
from lading.spark.writing import schema_words
from lading.transports.open import open_transport

QUESTION = (
    "Pipeline, one task, Iggy messages of 100 B, to Parquet: rows a second by routes and headers, cost of a commit"
)
ROWS = 400_000
SEND_ROWS = 500
HEADERS = 50
CASES = (
    # headers in the contract, routes, checksum verified
    (3, 0, True), (3, 1, True), (3, 1, False), (3, 3, True), (3, 10, True), (10, 1, True), (50, 1, True),
)  # fmt: skip


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: the case, M rows/s and CPU seconds per million messages (median of 3), and ms of the manifest commit."""
    rows = ROWS // 20 if quick else ROWS
    with testing.broker() as broker, tempfile.TemporaryDirectory() as base:
        for headers in sorted({headers for headers, _, _ in CASES}):
            _fill(f"iggy://{broker.endpoints['iggy_tcp']}", broker.url, headers, rows // (1 if headers < 50 else 8))
        # the directory shows what the broker has after at most 100 ms
        time.sleep(0.5)
        return [_case(Path(base), str(broker.data_dir), number, *case) for number, case in enumerate(CASES)]


def _fill(iggy: str, admin: str, headers: int, rows: int) -> None:
    maker = open_transport(admin)
    maker.create_topic(f"h{headers}")
    maker.close()
    sender = open_transport(iggy)
    names = {f"h{number}": f"h{number}" for number in range(headers)}
    for first in range(0, rows, SEND_ROWS):
        at = np.arange(first, min(first + SEND_ROWS, rows))
        columns = {name: pa.array(((at + number) % 200).astype(np.int32)) for number, name in enumerate(names)}
        made = headers_of(pa.record_batch(columns), names, "null")
        sender.send(f"h{headers}", 0, complete(len(at), {"headers": made, "payload": pa.array([b"x" * 100] * len(at))}))
    sender.close()


def _case(base: Path, data: str, number: int, headers: int, routes: int, checksum: bool) -> dict[str, Any]:
    directory = base / str(number)
    directory.mkdir()
    settings = PipelineSettings(
        {
            "source": {"from": data, "topic": f"h{headers}"},
            "headers": {f"h{at}": "int required" if at == 0 else "int" for at in range(headers)},
            "quality": {"verify_checksum": checksum},
            "good": {"to": "parquet:./good"},
            "route": [{"where": f"h0 > {198 - at}", "to": "parquet:./routed"} for at in range(routes)],
        },
        directory,
        "bench.toml",
    )
    state = State.open(Path(settings.state_directory), settings.id, "pipeline")
    source = SourcePlace(data, "", "available", True, {})
    topic = f"h{headers}"
    job = PipelineJob(
        settings.raw, str(directory), "bench.toml", str(state.directory), state.pipeline, "bench", "", "",
        {topic: source},
    )  # fmt: skip
    for table in job.plan.schemas:
        claim(table, state)
    planner = Planner(SourceOptions(data, topic))
    ranges = planner.ranges({}, planner.newest({}))
    planner.close()
    count = sum(piece.rows for piece in ranges)
    runs = list(_timed(job, ranges))
    commits = _commit(job, state, runs[-1][2])
    return {
        "headers": headers,
        "routes": routes,
        "checksum": "on" if checksum else "off",
        "M rows/s": round(count / median(took for took, _, _ in runs[1:]) / 1e6, 2),
        "CPU s per M": round(median(cpu for _, cpu, _ in runs[1:]) / count * 1e6, 2),
        "commit ms": round(commits * 1e3, 1),
    }


def _timed(job: PipelineJob, ranges: list[Any]) -> Iterator[tuple[float, float, list[Written]]]:
    """The first one loads kernels."""
    for attempt in range(4):
        begun, cpu = time.perf_counter(), time.process_time()
        written = [write_range(job, piece, f"{attempt}-{at}") for at, piece in enumerate(ranges)]
        yield time.perf_counter() - begun, time.process_time() - cpu, written


def _commit(job: PipelineJob, state: State, written: list[Written]) -> float:
    with state.running() as token:
        begun = time.perf_counter()
        schemas = {table_in_state(state, path): schema_words(schema) for path, schema in job.plan.schemas.items()}
        commit(state, token, Batch("bench", 0, written), schemas, resume_command="")
        return time.perf_counter() - begun

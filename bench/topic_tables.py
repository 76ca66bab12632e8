"""A topic as a live Iceberg table beside a plain read of it: freshness, the first query and those after it, loads.

DuckDB runs in the Python that ``LADING_TEST_ENGINES`` names, with the wheels of ``tests/topic_tables/test_engines.py``;
without it the rows of DuckDB are left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from pyiceberg.catalog.rest import RestCatalog

from bench.measure import cpu_s, median
from bench.mirror import make_flights
from lading import Producer, read_arrow, testing, u16, write_arrow
from lading.topic_tables.snapshots import SNAPSHOTS_MAX
from lading.transports.lading.transport import LadingTransport

QUESTION = (
    "Two typed columns of a topic as a live table by PyIceberg / read_arrow, by DuckDB / read_parquet of its files; "
    "acknowledgement to visible; loads; two cores"
)
ROWS: Final = 10_000_000
PIECE: Final = 500_000
LOADS: Final = 1_000
FRESH: Final = 40
FRESH_S: Final = 20
"""Seconds of writing while DuckDB asks again and again."""
RATE: Final = 10_000
"""Messages a second meanwhile."""
BATCHES_PER_S: Final = 20
END_S: Final = 10
COLUMNS: Final = "carrier string, delay int"
MEANS: Final = "select carrier, avg(delay), count(*) from {} group by carrier order by carrier"


class Acknowledged(NamedTuple):
    """Messages with an offset below ``end`` were acknowledged by ``time_s`` of the monotonic clock."""

    end: int
    time_s: float


class DuckDB:
    """DuckDB in a process of its own, with the catalog attached."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, sql: str) -> dict[str, Any]:
        """Return the seconds, the end and the rows of a query."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(sql) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "DuckDB ended; its error is above"
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def _duckdb(address: str) -> Iterator[DuckDB | None]:
    python = os.environ.get("LADING_TEST_ENGINES")
    if python is None:
        print("DuckDB is not measured: LADING_TEST_ENGINES names no Python with it", file=sys.stderr)
        yield None
        return
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AWS_"))}
    engine = str(Path(__file__).with_name("_duckdb_engine.py"))
    with subprocess.Popen(
        [python, engine, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield DuckDB(process)
        finally:
            process.terminate()


@contextmanager
def _catalog(url: str, state: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    words = ["tables", "--from", url, "--address", "127.0.0.1:0", "--state", state, "-o", "json", "--with-parent"]
    with subprocess.Popen(
        [sys.executable, "-m", "lading.cli.main", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            yield process, f"http://{json.loads(process.stdout.readline())['endpoints']['tables']}"
        finally:
            process.terminate()
            process.wait(END_S)


def _time(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: seconds of the first query, of later ones and of the other side; milliseconds until visible, of a load."""
    rows, turns = (ROWS // 20, 1) if quick else (ROWS, 5)
    with (
        testing.broker(durability="os") as broker,
        tempfile.TemporaryDirectory() as state,
        closing(LadingTransport(broker.url)) as transport,
        _catalog(broker.url, state) as (process, address),
        _duckdb(address) as engine,
    ):
        piece = make_flights(PIECE)
        for topic in ("flights", "again") if engine else ("flights",):
            for _ in range(rows // PIECE):
                write_arrow(piece, broker.url, topic, headers=["carrier", "delay", "trace"])
            transport.alter_topic(topic, {"columns": COLUMNS})
        client = RestCatalog("bench", uri=address)
        found = [
            _compare_pyiceberg(client, broker.url, rows, turns),
            _see_single_messages(client, broker.url, process.pid, FRESH // 8 if quick else FRESH),
        ]
        if engine is not None:
            found += _compare_duckdb(engine, client, Path(state), rows, turns)
            transport.create_topic("fresh", 1)
            transport.alter_topic("fresh", {"columns": COLUMNS})
            found.append(_measure_freshness(engine, broker.url, process.pid, FRESH_S // 10 if quick else FRESH_S))
        found += _measure_loads(address, broker.url, process.pid, quick)
    return found


def _describe_waits(waits_s: Sequence[float], pid: int, used_s: float) -> dict[str, Any]:
    """Return milliseconds of requests, and of the catalog's CPU since it had used ``used_s``, for each."""
    ordered = sorted(waits_s)
    return {
        "p50 ms": round(median(ordered) * 1e3, 1),
        "p95 ms": round(ordered[int(len(ordered) * 0.95)] * 1e3, 1),
        "max ms": round(ordered[-1] * 1e3, 1),
        "CPU ms": round((cpu_s(pid) - used_s) / len(ordered) * 1e3, 2),
    }


def _compare_pyiceberg(client: RestCatalog, url: str, rows: int, turns: int) -> dict[str, Any]:
    def query() -> None:
        table = client.load_table("default.flights").scan(selected_fields=("carrier", "delay")).to_arrow()
        _require(table.num_rows, rows)

    def read() -> None:
        _require(read_arrow(url, "flights", COLUMNS).num_rows, rows)

    first_s = _time(query)
    pairs = [(_time(query), _time(read)) for _ in range(turns)]
    live_s, other_s = (median(times) for times in zip(*pairs, strict=True))
    return {
        "measured": "two columns, PyIceberg / read_arrow", "messages": rows, "first s": round(first_s, 2),
        "live s": round(live_s, 3), "other s": round(other_s, 3), "other / live": round(other_s / live_s, 2),
    }  # fmt: skip


def _see_single_messages(client: RestCatalog, url: str, pid: int, count: int) -> dict[str, Any]:
    """Measure from the acknowledgement of a message until a query by PyIceberg has shown it."""
    one, used_s = make_flights(1), cpu_s(pid)
    waits_s = []
    for number in range(count):
        write_arrow(one, url, "single", headers=["carrier"])
        waits_s.append(
            _time(lambda: _require(client.load_table("default.single").scan().to_arrow().num_rows, number + 1))  # noqa: B023
        )
    return {"measured": "until visible, PyIceberg", "messages": count} | _describe_waits(waits_s, pid, used_s)


def _require(found: int, expected: int) -> None:
    assert found == expected, f"{found} rows instead of {expected}"


def _compare_duckdb(
    engine: DuckDB, client: RestCatalog, state: Path, rows: int, turns: int
) -> Iterator[dict[str, Any]]:
    """Query a topic that no engine read before, then its sealed files by the catalog and as plain files."""
    means = MEANS.format("t.default.again")
    first = engine.ask(means)
    _require(sum(row[2] for row in first["rows"]), rows)
    later_s = median(engine.ask(means)["s"] for _ in range(turns))
    yield {
        "measured": "mean by carrier, DuckDB", "messages": rows, "first s": round(first["s"], 2),
        "live s": round(later_s, 3),
    }  # fmt: skip
    files = [task.file for task in client.load_table("default.again").scan().plan_files()]
    largest = max(file.record_count for file in files)
    sealed = [file.file_path.rpartition("/")[2] for file in files if file.record_count == largest]
    paths = [str(next(state.rglob(name))) for name in sealed]
    live, plain = (
        MEANS.format(f't.default.again where "offset" < {largest * len(sealed)}'),
        MEANS.format(f"read_parquet({paths})"),
    )
    pairs = []
    for _ in range(turns + 1):
        by_table, by_files = engine.ask(live), engine.ask(plain)
        assert by_table["rows"] == by_files["rows"]
        pairs.append((by_table["s"], by_files["s"]))
    live_s, other_s = (median(times) for times in zip(*pairs[1:], strict=True))
    yield {
        "measured": f"{len(sealed)} sealed files, DuckDB / read_parquet", "messages": largest * len(sealed),
        "live s": round(live_s, 3), "other s": round(other_s, 3), "other / live": round(other_s / live_s, 2),
    }  # fmt: skip


def _measure_freshness(engine: DuckDB, url: str, pid: int, duration_s: int) -> dict[str, Any]:
    """Write at a steady rate while DuckDB queries the table, and compare each acknowledgement with what it saw."""
    acknowledged: list[Acknowledged] = []
    stop = threading.Event()

    def write() -> None:
        count, begun = 0, time.monotonic()
        with Producer(url) as producer:
            while not stop.is_set():
                for _ in range(RATE // BATCHES_PER_S):
                    producer.send("fresh", b"x" * 100, headers=[("carrier", "UA"), ("delay", u16(count % 1_000))])
                    count += 1
                producer.flush()
                acknowledged.append(Acknowledged(count, time.monotonic()))
                stop.wait(max(0.0, begun + count / RATE - time.monotonic()))

    writer = threading.Thread(target=write, daemon=True)
    begun, used_s = time.monotonic(), cpu_s(pid)
    writer.start()
    seen: list[Acknowledged] = []
    while time.monotonic() < begun + duration_s:
        queried = engine.ask('select max("offset"), count(*), avg(delay) from t.default.fresh')
        last, count, _ = queried["rows"][0]
        _require(count, 0 if last is None else last + 1)
        seen.append(Acknowledged(count, queried["ended"]))
    took_s = time.monotonic() - begun
    stop.set()
    writer.join()
    ends = [query.end for query in seen]
    shown = [batch for batch in acknowledged if batch.end <= ends[-1]]
    waits_s = [seen[bisect_left(ends, batch.end)].time_s - batch.time_s for batch in shown]
    found = _describe_waits(waits_s, pid, used_s)
    return {
        "measured": f"until visible at {acknowledged[-1].end / took_s:,.0f} messages/s, DuckDB, {len(seen)} queries",
        "messages": acknowledged[-1].end,
    } | found | {"CPU ms": round(found["CPU ms"] * len(shown) / len(seen), 2)}  # fmt: skip


def _measure_loads(address: str, url: str, pid: int, quick: bool) -> Iterator[dict[str, Any]]:
    """Load a table of as many snapshots as one can have, with a message more before each load and without."""
    loads, snapshots = (LOADS // 10, SNAPSHOTS_MAX // 10) if quick else (LOADS, SNAPSHOTS_MAX)
    with (
        httpx.Client(base_url=f"{address}/v1/lading/namespaces/default/tables") as http,
        Producer(url) as producer,
    ):

        def load() -> None:
            http.get("/many").raise_for_status()

        grown_s, used_s = [], cpu_s(pid)
        for _ in range(snapshots):
            producer.send("many", b"x", headers=[("carrier", "UA")])
            producer.flush()
            grown_s.append(_time(load))
        yield {"measured": "load-table, each with a new snapshot", "messages": snapshots} | _describe_waits(
            grown_s, pid, used_s
        )
        listed, used_s = len(http.get("/many").json()["metadata"]["snapshots"]), cpu_s(pid)
        waits_s = [_time(load) for _ in range(loads)]
        yield {"measured": f"load-table, {listed} snapshots", "messages": snapshots} | _describe_waits(
            waits_s, pid, used_s
        )

"""What a mirror costs by route, with carriers and without, and SQL over a topic."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from bench.measure import median
from lading import testing, write_arrow
from lading.mirror.run import run_mirror
from lading.mirror.settings import MirrorSettings
from lading.tables.query import QuerySource, run_query

QUESTION = "Mirror by route, 100 B + 3 headers, and SQL over a topic, our broker on both sides: messages per second"
ROWS: Final = 200_000
TURNS: Final = 3
FACES: Final = {"lading": "admin", "kafka": "kafka", "iggy": "iggy_tcp", "nsq": "nsqd_tcp"}
CARRIERS: Final = ("UA", "AA", "DL", "B6")
SQL: Final = "select carrier, count(*) as n, avg(delay) as delay from sent group by 1 order by 1"


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: source, target, carrier, messages/s, CPU seconds of the mirror per million (medians)."""
    rows, turns = (ROWS // 20, 1) if quick else (ROWS, TURNS)
    found: list[dict[str, Any]] = []
    with testing.broker() as broker, tempfile.TemporaryDirectory() as states:
        urls = {name: f"{name}://{broker.endpoints[face]}" for name, face in FACES.items()}
        write_arrow(make_flights(rows), broker.url, "sent", headers=["carrier", "delay", "trace"], partitions=1)
        for source in ("lading", "kafka", "iggy"):
            for target in FACES:
                for carrier in ("on", "off"):
                    names = [f"{source}_{target}_{carrier}_{turn}" for turn in range(turns)]
                    times = [_mirror(urls[source], urls[target], carrier, name, Path(states)) for name in names]
                    found.append(_row(source, target, f"carrier {carrier}", times, rows))
        found.append(_row("lading", "sql", "3 of 9 columns", [_query(broker.url) for _ in range(turns)], rows))
    return found


def make_flights(rows: int) -> pa.Table:
    """Return messages of 100 B with three typed headers, of four carriers in turn."""
    return pa.table(
        {
            "carrier": pa.array([CARRIERS[row % 4] for row in range(rows)]),
            "delay": pa.array([row % 1000 for row in range(rows)], pa.uint16()),
            "trace": pa.array([f"{row:016x}" for row in range(rows)]),
            "payload": pa.array([b"x" * 100] * rows, pa.binary()),
        }
    )


def _mirror(source: str, target: str, carrier: Any, name: str, states: Path) -> tuple[float, float]:
    settings = MirrorSettings(source, target, ["sent"], renames={"sent": name}, carrier=carrier, state=states / name)
    begun, cpu = time.perf_counter(), time.process_time()
    run_mirror(settings)
    return time.perf_counter() - begun, time.process_time() - cpu


def _query(url: str) -> tuple[float, float]:
    begun, cpu = time.perf_counter(), time.process_time()
    with run_query(SQL, QuerySource(url, {})) as result:
        assert result.read_all().num_rows == 4
    return time.perf_counter() - begun, time.process_time() - cpu


def _row(source: str, target: str, what: str, times: list[tuple[float, float]], rows: int) -> dict[str, Any]:
    return {
        "source": source,
        "target": target,
        "what": what,
        "messages/s": round(rows / median([wall for wall, _ in times])),
        "CPU s per million": round(median([cpu for _, cpu in times]) / rows * 1e6, 2),
    }

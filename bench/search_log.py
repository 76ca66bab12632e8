"""How long the console takes to count what a filter selects in the directory of a log."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.measure import median
from lading import testing
from lading.client.bulk import write_arrow
from lading.client.reading import Selection
from lading.console.counting import THREADS_MAX, count_matches
from lading.console.source import ConsoleSource

QUESTION = "Count what 1 % of ten million small messages match, in a directory: all cores / one thread, by time"
ROWS = 10_000_000
ROWS_AT_ONCE = 500_000
WHERE = "carrier = 'XX'"
ROUNDS = 5


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: who wrote the messages, threads, seconds and CPU seconds (medians of 5 alternating rounds), ratio."""
    rows = ROWS // 20 if quick else ROWS
    threads = min(THREADS_MAX, len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory(prefix="lading-bench-") as place:
        data = Path(place) / "data"
        expected = {}
        with testing.broker(data_dir=data, durability="os") as broker:
            for name, url in {"lading": broker.url, "iggy": f"iggy://{broker.endpoints['iggy_tcp']}"}.items():
                expected[name] = sum(
                    _write(url, name, at, min(ROWS_AT_ONCE, rows - at)) for at in range(0, rows, ROWS_AT_ONCE)
                )
        source = ConsoleSource(str(data))
        results: dict[tuple[str, int], list[tuple[float, float]]] = {}
        for name in expected:
            for number in range(ROUNDS + 1):
                for count in (1, threads):
                    took = _count(source, name, count, expected[name])
                    if number:
                        results.setdefault((name, count), []).append(took)
        source.close()
    return [
        {
            "written by": name,
            "threads": count,
            "messages": rows,
            "seconds": round(median(wall for wall, _ in took), 2),
            "CPU seconds": round(median(cpu for _, cpu in took), 2),
            "ratio": round(median(wall for wall, _ in results[name, 1]) / median(wall for wall, _ in took), 2),
        }
        for (name, count), took in results.items()
    ]


def _write(url: str, topic: str, first: int, rows: int) -> int:
    generator = np.random.default_rng(first)
    is_one = generator.integers(0, 100, rows) == 7
    table = pa.table(
        {
            "carrier": pa.array(np.where(is_one, "XX", "UA")),
            "delay": pa.array(generator.integers(0, 500, rows), pa.uint16()),
            "payload": pa.array([b"payload %d" % (first + number) for number in range(rows)], pa.binary()),
        }
    )
    assert write_arrow(table, url, topic, headers=["carrier", "delay"], payload="payload") == rows
    return int(is_one.sum())


def _count(source: ConsoleSource, topic: str, threads: int, expected: int) -> tuple[float, float]:
    selection = Selection.parse("offset", WHERE, "available", verify=False, on_loss="skip")
    begun, cpu = time.perf_counter(), time.process_time()
    *_, end = count_matches(source, topic, None, selection, threads)
    assert end["found"] == expected, (end, expected)
    return time.perf_counter() - begun, time.process_time() - cpu

"""What the bulk form is worth: Arrow in and out of our own broker against one Python object a message."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pyarrow as pa

import lading
from bench.measure import median
from lading import Consumer, Headers, Producer, testing, u16

QUESTION = "Python, Arrow in and out ÷ per message, our broker, 100 B + 3 headers, synced: messages per second"
ROWS = 500_000
PER_MESSAGE_ROWS = 100_000
COLUMNS = "offset, carrier string, delay int"
CARRIERS = ("UA", "AA", "DL", "B6")


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: protocol, direction, messages/s and CPU seconds per million of both forms, their ratio (median of 5)."""
    bulk_rows, single_rows = (ROWS // 10, PER_MESSAGE_ROWS // 10) if quick else (ROWS, PER_MESSAGE_ROWS)
    table = _table(bulk_rows)
    with testing.broker() as broker:
        urls = {"lading": broker.url, "iggy": f"iggy://{broker.endpoints['iggy_tcp']}"}
        return [row for protocol, url in urls.items() for row in _protocol(protocol, url, table, single_rows)]


def _protocol(protocol: str, url: str, table: pa.Table, single_rows: int) -> list[dict[str, Any]]:
    names = (f"{protocol}-{number}" for number in count())
    topic = next(names)
    _send_bulk(url, topic, table)
    single = (_rounds(lambda: _read_single(url, topic, single_rows)), single_rows)
    sent = (_rounds(lambda: _send_single(url, next(names), single_rows)), single_rows)
    rows = table.num_rows
    return [
        _row(protocol, "send", (_rounds(lambda: _send_bulk(url, next(names), table)), rows), sent),
        _row(protocol, "read 3 columns", (_rounds(lambda: _read_bulk(url, topic, rows, COLUMNS)), rows), single),
        _row(protocol, "read whole Batch", (_rounds(lambda: _read_bulk(url, topic, rows, None)), rows), single),
    ]


def _table(rows: int) -> pa.Table:
    return pa.table(
        {
            "carrier": pa.array([CARRIERS[row % 4] for row in range(rows)]),
            "delay": pa.array([row % 1000 for row in range(rows)], pa.uint16()),
            "trace": pa.array([f"{row:016x}" for row in range(rows)]),
            "payload": pa.array([b"x" * 100] * rows, pa.binary()),
        }
    )


def _rounds(work: Callable[[], None]) -> list[tuple[float, float]]:
    """Wall and CPU seconds of five runs after one that warms up."""
    found = []
    for _ in range(6):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
    return found[1:]


Runs = tuple[list[tuple[float, float]], int]
"""Wall and CPU seconds of each run, and the messages of one."""


def _row(protocol: str, direction: str, bulk: Runs, single: Runs) -> dict[str, Any]:
    rates = [rows / median(wall for wall, _ in runs) for runs, rows in (bulk, single)]
    cpus = [median(cpu for _, cpu in runs) / rows * 1e6 for runs, rows in (bulk, single)]
    return {
        "protocol": protocol,
        "direction": direction,
        "Arrow, messages/s": round(rates[0]),
        "per message, messages/s": round(rates[1]),
        "ratio": round(rates[0] / rates[1], 1),
        "Arrow, client CPU s/million": round(cpus[0], 2),
        "per message, client CPU s/million": round(cpus[1], 2),
    }


def _send_bulk(url: str, topic: str, table: pa.Table) -> None:
    assert lading.write_arrow(table, url, topic, headers=["carrier", "delay", "trace"]) == table.num_rows


def _send_single(url: str, topic: str, rows: int) -> None:
    with Producer(url) as producer:
        for row in range(rows):
            headers = Headers([("carrier", CARRIERS[row % 4]), ("delay", u16(row % 1000)), ("trace", f"{row:016x}")])
            producer.send(topic, b"x" * 100, headers=headers)


def _read_bulk(url: str, topic: str, rows: int, columns: str | None) -> None:
    assert lading.read_arrow(url, topic, columns).num_rows == rows


def _read_single(url: str, topic: str, rows: int) -> None:
    found = 0
    with Consumer(url, topic, end=rows) as consumer:
        for message in consumer:
            found += message.headers["delay"] is not None
    assert found == rows

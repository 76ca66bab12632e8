"""Compaction of one partition: bytes a second, and what a producer to another topic waits meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bench.measure import cpu_s
from lading import Producer, testing, write_arrow
from lading.kernels import engine

QUESTION = "MB a second that compaction reads, and milliseconds of one message to another topic before and meanwhile"
RECORDS: Final = 400_000
KEYS: Final = 1_000
PAYLOAD_BYTES: Final = 200
QUIET_S: Final = 5.0
PATIENCE_S: Final = 120.0
LATER_US: Final = 1 << 50
METRIC: Final = "lading_broker_compaction_"


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: before and while a partition of Kafka records is cleaned, of which a thousandth is kept."""
    records = RECORDS // 10 if quick else RECORDS
    with testing.broker(settings={"compaction.check_ms": 100}) as broker:
        settings = {"cleanup_policy": "compact", "segment_bytes": 8 << 20, "compaction_lag_us_min": LATER_US}
        _ask(broker, "POST", "/topics/default/prices", {"partitions": 1, "settings": settings})
        table = pa.table(
            {
                "key": pa.array([b"%d" % (number % KEYS) for number in range(records)], pa.binary()),
                "payload": pa.array([b"%0*d" % (PAYLOAD_BYTES, number) for number in range(records)], pa.binary()),
            }
        )
        write_arrow(table, f"kafka://{broker.endpoints['kafka']}", "prices", key="key", payload="payload")
        while engine.is_loading():
            time.sleep(0.1)
        rows = []
        with Producer(broker.url, linger_ms=0) as producer:
            _send(producer, time.monotonic() + 1.0, lambda: False)
            until = time.monotonic() + (1.0 if quick else QUIET_S)
            rows.append({"": "before", **_send(producer, until, lambda: False)})
            _ask(broker, "PUT", "/topics/default/prices/settings", {"compaction_lag_us_min": None})
            cpu_before, begun = cpu_s(broker.pid), time.monotonic()
            done = _LookAtTimes(broker)
            waits = _send(producer, begun + PATIENCE_S, done.is_over)
            took_s = time.monotonic() - begun
        read = done.metrics["read_bytes"]
        rows.append(
            {
                "": "while", **waits, "read MB": round(read / 1e6, 1), "seconds": round(took_s, 2),
                "MB/s": round(read / 1e6 / took_s, 1), "CPU s of the broker": round(cpu_s(broker.pid) - cpu_before, 2),
                "removed MB": round(done.metrics["removed_bytes"] / 1e6, 1),
            }
        )  # fmt: skip
        return rows


class _LookAtTimes:
    """Looks at the metrics a few times a second."""

    def __init__(self, broker: testing.BrokerProcess) -> None:
        self._broker = broker
        self._next_s = 0.0
        self.metrics: dict[str, float] = {}

    def is_over(self) -> bool:
        """Whether a cleaning has ended."""
        if time.monotonic() < self._next_s:
            return False
        self._next_s = time.monotonic() + 0.25
        for line in _ask(self._broker, "GET", "/metrics").splitlines():
            if line.startswith(METRIC):
                name, value = line.removeprefix(METRIC).split()
                self.metrics[name.removesuffix("_total")] = float(value)
        return bool(self.metrics["runs"])


def _send(producer: Producer, until_s: float, is_over: Callable[[], bool]) -> dict[str, float]:
    """Send one message after the other; return how long each took."""
    waits: list[float] = []
    while time.monotonic() < until_s and not is_over():
        begun = time.perf_counter()
        producer.send("beside", b"x" * 100)
        producer.flush()
        waits.append(1e3 * (time.perf_counter() - begun))
    p50, p99 = np.percentile(waits, (50, 99)).tolist()
    return {"messages": len(waits), "p50 ms": round(p50, 2), "p99 ms": round(p99, 2), "most ms": round(max(waits), 1)}


def _ask(broker: testing.BrokerProcess, method: str, path: str, document: dict[str, Any] | None = None) -> str:
    connection = HTTPConnection(broker.endpoints["admin"], timeout=30)
    body = None if document is None else json.dumps(document)
    connection.request(method, path, body, {} if body is None else {"content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status < 300, text
    return text

"""What the Spark benchmarks share: a log of messages, a session, and wall and CPU seconds of JVM and workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench.measure import TICKS_PER_S, median
from lading import testing
from lading.client.bulk import write_arrow
from lading.transports.open import open_transport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "flights"
HEADERS = ("carrier", "trace", "delay")
TYPED = "offset bigint, carrier string, trace string, delay int"


@contextmanager
def iggy_log(rows: int) -> Iterator[testing.BrokerProcess]:
    """A broker whose topic was written by an Iggy client: messages lie in the classic layout."""
    with testing.broker(durability="os") as broker:
        transport = open_transport(broker.url)
        transport.create_topic(TOPIC, 2)
        fill(f"iggy://{broker.endpoints['iggy_tcp']}", rows)
        deadline = time.monotonic() + 30
        while sum(part.end_offset for part in open_transport(str(broker.data_dir)).topic(TOPIC).partitions) < rows:
            assert time.monotonic() < deadline, "the directory does not show what was sent"
            time.sleep(0.05)
        transport.close()
        yield broker


def fill(url: str, rows: int) -> None:
    """Messages of 100 B with three headers: a short text, a 32-character text, an int32."""
    part = min(rows // 2, 100_000)
    payload = pa.array([b"x" * 100] * part, pa.binary())
    trace = pa.array([f"{number:032x}" for number in range(part)])
    numbers = np.arange(part, dtype=np.int32)
    table = pa.table(
        {
            "carrier": pa.array(["UA", "AA", "DL", "B6"]).take(pa.array(numbers % 4, pa.int32())),
            "trace": trace,
            "delay": pa.array(numbers % 300),
            "payload": payload,
        }
    )
    for partition in (0, 1):
        for _ in range(rows // 2 // part):
            write_arrow(table, url, TOPIC, headers=HEADERS, partition=partition)


def tree_cpu_s(root: int) -> float:
    """CPU seconds of a process and all its descendants, those that ended and were waited for included."""
    parents: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15])) / TICKS_PER_S
    inside, grown = {root}, True
    while grown:
        more = {pid for pid, (parent, _) in parents.items() if parent in inside and pid not in inside}
        inside, grown = inside | more, bool(more)
    return sum(parents[pid][1] for pid in inside if pid in parents)


def measured(spark: SparkSession, work: Callable[[], None], rows: int, rounds: int) -> dict[str, Any]:
    """Medians over ``rounds`` runs after a warm one: rows per second, CPU seconds per million of JVM and workers."""
    pid = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    work()
    walls, cpus = [], []
    for _ in range(rounds):
        begun, cpu = time.perf_counter(), tree_cpu_s(pid)
        work()
        walls.append(time.perf_counter() - begun)
        cpus.append(tree_cpu_s(pid) - cpu)
    return {
        "rows/s": round(rows / median(walls)),
        "best rows/s": round(rows / min(walls)),
        "CPU s per million": round(median(cpus) / rows * 1e6, 3),
    }


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """A session on two cores whose workers can import this package."""
    root = str(Path(__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    from lading.spark import session

    spark = session("lading bench", "local[2]", **{"spark.sql.adaptive.enabled": "false"})
    try:
        yield spark
    finally:
        spark.stop()

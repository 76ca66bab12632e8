"""What the Spark benchmarks share: a log of messages, a session, and wall and CPU seconds of JVM and workers."""

from __future__ import annotations

import os
import secrets
import struct
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
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

TOPIC = "flights"
HEADERS = ("carrier", "trace", "delay")
TYPED = "offset bigint, carrier string, trace string, delay int"
KAFKA_PARTITIONS = 4
FLIGHT_HEADERS = {
    "carrier": "string required",
    "trace": "binary",
    "delay": {"type": "int", "encoding": "be"},
}
"""The contract of what ``fill_kafka`` sends."""
FIRST_VALUE = "try_element_at(headers.value, CAST(array_position(headers.key, '{}') AS INT))"
"""The fastest way that Spark SQL has to one value of the header array."""


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


def fill_kafka(address: str, rows: int) -> str:
    """Return a topic of so many messages, as librdkafka writes them: 10 B key, 100 B payload, three headers."""
    from confluent_kafka import Producer

    maker = open_transport(f"kafka://{address}")
    topic = f"flights-{rows}"
    maker.create_topic(topic, KAFKA_PARTITIONS)
    maker.close()
    sender = Producer({"bootstrap.servers": address, "linger.ms": 20, "batch.size": 1_000_000, "acks": "all"})
    payloads = [b'{"flight": %6d, "note": "%s"}' % (number, b"x" * 74) for number in range(4096)]
    noise = secrets.token_bytes(4096 + 16)
    for row in range(rows):
        headers: Any = [
            ("carrier", b"UA"),
            ("trace", noise[row % 4096 : row % 4096 + 16]),
            ("delay", struct.pack(">i", row % 1000)),
        ]
        while True:
            try:
                partition = row % KAFKA_PARTITIONS
                sender.produce(topic, payloads[row % 4096], key=b"%010d" % row, headers=headers, partition=partition)
                break
            except BufferError:
                sender.poll(0.1)
    assert sender.flush(60) == 0
    return topic


def read_with_connector(reader: DataFrameReader | DataStreamReader, address: str, topic: str) -> DataFrame:
    """Return a Kafka topic as Spark's own connector gives it, headers in an array."""
    kafka = reader.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic)
    return kafka.option("startingOffsets", "earliest").option("includeHeaders", True).load()


def read_typed(frame: DataFrame) -> DataFrame:
    """Return the headers that ``fill_kafka`` sends as typed columns, taken from the connector's array by Spark SQL."""
    return frame.selectExpr(
        "partition", "offset", f"CAST({FIRST_VALUE.format('carrier')} AS STRING) AS carrier",
        f"{FIRST_VALUE.format('trace')} AS trace",
        f"CAST(conv(hex({FIRST_VALUE.format('delay')}), 16, 10) AS INT) AS delay",
    )  # fmt: skip


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


def take_turns(spark: SparkSession, ways: dict[str, Callable[[], None]], rounds: int) -> dict[str, tuple[float, float]]:
    """Return the median wall and CPU seconds (driver, JVM, workers) of each way, over ``rounds`` after a warm one.

    The ways take turns, so that what else the machine does hits all of them.
    """
    pid = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    held: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, work in ways.items():
            begun, cpu = time.perf_counter(), tree_cpu_s(pid) + time.process_time()
            work()
            held[name].append((time.perf_counter() - begun, tree_cpu_s(pid) + time.process_time() - cpu))
    return {
        name: (median(wall for wall, _ in runs[1:]), median(cpu for _, cpu in runs[1:])) for name, runs in held.items()
    }


@contextmanager
def spark_session(**settings: Any) -> Iterator[SparkSession]:
    """A session on two cores whose workers can import this package."""
    root = str(Path(__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    from lading.spark import session

    spark = session("lading bench", "local[2]", **{"spark.sql.adaptive.enabled": "false", **settings})
    try:
        yield spark
    finally:
        spark.stop()

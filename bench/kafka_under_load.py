"""What a Kafka producer waits for its acknowledgements while others read much: Spark a whole topic, an Iggy client too.

The producer is librdkafka at 1,000 messages/s, in a process of its own; what it sees is from ``produce`` to the
delivery report. ``LADING_BENCH_GB`` is the size of the topic (10 unless told, 0.3 with ``--quick``).
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pyarrow as pa

from bench.measure import cpu_s, kernels_loaded
from lading import testing
from lading.client.bulk import write_arrow
from lading.model.errors import LadingError
from lading.transports.open import open_transport

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pyspark.sql import SparkSession

QUESTION = (
    "Kafka acknowledgements at 1,000/s while Spark reads a large topic and an Iggy client polls a Kafka topic: ms"
)
SIZE_GB, QUICK_GB = 10.0, 0.3
LEAST_S, QUICK_S = 30.0, 10.0
"""Spark reads again until so much time has gone by; without Spark the producer sends for so long."""
MESSAGE_BYTES = 200
"""What a message of 100 B with three headers takes in the log, about."""
RATE_PER_S = 1000
POLLS_PER_S = 20
POLL_MESSAGES = 1000
PARTITIONS = 2
BIG, PACED = "big", "paced"
TYPED = "offset bigint, carrier string, trace string, delay int"
_spawning = multiprocessing.get_context("spawn")


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: durability, what goes on besides, p50, p99 and longest wait, how late the broker's loop was, CPU, rates."""
    try:
        import confluent_kafka  # noqa: F401

        from bench._spark import spark_session
    except ImportError as missing:
        print(f"not measured: {missing}", file=sys.stderr)
        return []
    size_gb = float(os.environ.get("LADING_BENCH_GB", QUICK_GB if quick else SIZE_GB))
    rows = []
    with spark_session() as spark:
        for durability in ("fsync", "os"):
            with testing.broker(durability=durability) as broker:
                kernels_loaded(broker)
                messages = _fill(broker, size_gb)
                bench = _Bench(broker, spark, messages, QUICK_S if quick else LEAST_S)
                facts = {"topic GB": size_gb, "durability": durability}
                for besides, iggy, source in (
                    ("nothing", False, None),
                    ("Iggy", True, None),
                    ("Spark (lading://), Iggy", True, broker.url),
                    ("Spark (kafka://), Iggy", True, f"kafka://{broker.endpoints['kafka']}"),
                ):
                    rows.append({**facts, "besides": besides, **bench.figures(iggy, source)})
    return rows


class _Bench:
    def __init__(self, broker: testing.BrokerProcess, spark: SparkSession, messages: int, least_s: float) -> None:
        self._broker = broker
        self._spark = spark
        self._messages = messages
        self._least_s = least_s

    def figures(self, iggy: bool, source: str | None) -> dict[str, Any]:
        """What the producer saw while this went on."""
        address, iggy_address = self._broker.endpoints["kafka"], self._broker.endpoints["iggy_tcp"]
        read = polled = 0
        with _child(_produce, address) as producer, _child(_poll, iggy_address, iggy) as client:
            begun, cpu, late = time.perf_counter(), cpu_s(self._broker.pid), self._late()
            while source is not None and time.perf_counter() - begun < self._least_s:
                read += self._read(source)
            time.sleep(max(0.0, begun + self._least_s - time.perf_counter()))
            wall_s = time.perf_counter() - begun
            used_s, later = cpu_s(self._broker.pid) - cpu, self._late()
            waits_ms = np.sort(producer())
            polled = client()
        return {
            "p50": round(float(np.percentile(waits_ms, 50)), 2),
            "p99": round(float(np.percentile(waits_ms, 99)), 2),
            "p99.9": round(float(np.percentile(waits_ms, 99.9)), 2),
            "max": round(float(waits_ms[-1]), 1),
            "loop late over 10 ms, %": round(100 * _share_over(late, later, 0.01), 2),
            "Spark rows/s": round(read / wall_s),
            "Iggy messages/s": round(polled / wall_s),
            "broker CPU %": round(100 * used_s / wall_s),
        }

    def _read(self, source: str) -> int:
        reader = self._spark.read.format("lading").option("from", source).option("topic", BIG).schema(TYPED)
        reader.load().write.format("noop").mode("overwrite").save()
        return self._messages

    def _late(self) -> dict[float, float]:
        """How often the loop was at most so many seconds late, since the broker started."""
        name = "lading_loop_lag_seconds_bucket"
        lines = httpx.get(f"http://{self._broker.endpoints['admin']}/metrics").text.splitlines()
        found = [line[len(name) :].replace('{le="', "").split('"} ') for line in lines if line.startswith(name)]
        return {float(limit): float(count) for limit, count in found}


def _share_over(before: dict[float, float], after: dict[float, float], limit_s: float) -> float:
    grown = {limit: after[limit] - before[limit] for limit in after}
    every = grown[float("inf")]
    return 1 - grown[limit_s] / every if every else 0.0


def _fill(broker: testing.BrokerProcess, size_gb: float) -> int:
    """Write the large topic as a Kafka client does; how many messages it has."""
    url = f"kafka://{broker.endpoints['kafka']}"
    part = 100_000
    numbers = np.arange(part, dtype=np.int32)
    table = pa.table(
        {
            "carrier": pa.array([b"UA", b"AA", b"DL", b"B6"], pa.binary()).take(pa.array(numbers % 4, pa.int32())),
            "trace": pa.array([b"%032x" % number for number in range(part)], pa.binary()),
            "delay": pa.array([b"%d" % (number % 300) for number in range(part)], pa.binary()),
            "payload": pa.array([b"x" * 100] * part, pa.binary()),
        }
    )
    transport = open_transport(url)
    transport.create_topic(BIG, PARTITIONS)
    transport.create_topic(PACED)
    transport.close()
    turns = max(PARTITIONS, round(size_gb * 1e9 / MESSAGE_BYTES / part))
    for turn in range(turns):
        write_arrow(table, url, BIG, headers=["carrier", "trace", "delay"], partition=turn % PARTITIONS)
    return turns * part


@contextmanager
def _child(work: Callable[..., None], *arguments: Any) -> Iterator[Callable[[], Any]]:
    """A process that is at work when the block begins; calling what is given ends the work, for what it found."""
    ours, theirs = _spawning.Pipe()
    process = _spawning.Process(target=work, args=(theirs, *arguments), daemon=True)
    process.start()

    def found() -> Any:
        ours.send("enough")
        if not ours.poll(60):
            raise TimeoutError(f"{work.__name__} did not end")
        return ours.recv()

    try:
        if not ours.poll(60) or ours.recv() != "at work":
            raise TimeoutError(f"{work.__name__} did not begin")
        yield found
    finally:
        process.join(5)
        if process.is_alive():
            process.kill()


def _produce(parent: Connection, address: str) -> None:
    """Send at RATE_PER_S until told; the milliseconds until each delivery report."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "acks": "all"})
    waits_ms: list[float] = []

    def reported(sent_s: float, error: Any, *_: Any) -> None:
        if error is not None:
            raise RuntimeError(f"a message was not delivered: {error}")
        waits_ms.append((time.perf_counter() - sent_s) * 1e3)

    headers: list[tuple[str, Any]] = [("carrier", b"UA"), ("trace", b"0123456789abcdef"), ("delay", b"12345")]

    def send() -> None:
        producer.produce(PACED, b"x" * 100, headers=headers, on_delivery=partial(reported, time.perf_counter()))

    # connections and metadata
    send()
    producer.flush(30)
    waits_ms.clear()
    parent.send("at work")
    begun, number = time.perf_counter(), 0
    while number % 50 or not parent.poll():
        due = begun + number / RATE_PER_S
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)
        send()
        number += 1
    producer.flush(60)
    parent.send(waits_ms)


def _poll(parent: Connection, address: str, busy: bool) -> None:
    """Poll the large topic as an Iggy client, from its beginning on and over again, until told; how many messages."""
    transport = open_transport(f"iggy://{address}")
    polled, offset = 0, 0
    parent.send("at work")
    while not parent.poll(1 / POLLS_PER_S):
        if not busy:
            continue
        try:
            found = transport.fetch(BIG, 0, offset, max_messages=POLL_MESSAGES)
        except LadingError as error:
            raise SystemExit(f"the Iggy client: {error}") from None
        polled += found.end_offset - offset
        offset = found.end_offset if found.end_offset > offset else 0
    transport.close()
    parent.send(polled)

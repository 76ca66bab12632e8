"""What the bulk form is worth on a real Kafka broker, against confluent-kafka with one Python object a message."""

from __future__ import annotations

import gc
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

import lading
from bench.measure import cpu_s, median
from lading.transports.open import open_transport
from tests.interop import kafka_broker

QUESTION = "Python, Arrow in and out of a real Kafka topic ÷ confluent-kafka per message, 100 B + 3 headers: messages/s"
ROWS = 1_000_000
ROUNDS = 5
COLUMNS = "offset, carrier string, trace string, delay int be"
OWN_COLUMNS = "offset, carrier string, trace string, delay int"
PAYLOAD = b"x" * 100


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: direction, codec, messages/s and CPU seconds per million (client, broker) of both, ratio; median of 5."""
    try:
        import confluent_kafka  # noqa: F401

        with tempfile.TemporaryDirectory() as directory, kafka_broker.running(Path(directory)) as broker:
            return _Bench(broker, ROWS // 10 if quick else ROWS).rows()
    except (ImportError, kafka_broker.Unavailable) as missing:
        print(f"not measured: {missing}", file=sys.stderr)
        return []


class _Bench:
    def __init__(self, broker: kafka_broker.RunningKafka, rows: int) -> None:
        self._broker = broker
        self._rows = rows
        self._names = (f"bench-{number}" for number in count())
        self._table = pa.table(
            {
                "carrier": pa.array([("UA", "AA", "DL", "B6")[row % 4] for row in range(rows)]),
                "trace": pa.array([f"{row:016x}" for row in range(rows)]),
                "delay": pa.array([row % 1000 for row in range(rows)], pa.int32()),
                "payload": pa.array([PAYLOAD] * rows, pa.binary()),
            }
        )

    def rows(self) -> list[dict[str, Any]]:
        """Both directions, plain and LZ4; the two sides by turns."""
        return [row for codec in ("none", "lz4") for row in self._codec(codec)]

    def _codec(self, codec: str) -> list[dict[str, Any]]:
        theirs, ours = next(self._names), next(self._names)
        self._produce(theirs, codec)
        self._write(ours, codec)
        facts = {"codec": codec, "durability": "acks=all, broker never syncs"}
        their_topic = self._turns(lambda: self._read(theirs, COLUMNS), lambda: self._consume(theirs))
        our_topic = self._turns(lambda: self._read(ours, OWN_COLUMNS), lambda: self._consume(ours))
        # topics are there before anybody looks at the clock
        fresh = iter([self._made() for _ in range(2 * (ROUNDS + 1))])
        write = self._turns(lambda: self._write(next(fresh), codec), lambda: self._produce(next(fresh), codec))
        return [
            self._row({"direction": "read, their topic", **facts}, *their_topic),
            self._row({"direction": "read, our topic (kinds by carrier)", **facts}, *our_topic),
            self._row({"direction": "write (kinds by carrier)", **facts}, *write),
        ]

    def _made(self) -> str:
        transport = open_transport(self._broker.url)
        name = next(self._names)
        transport.create_topic(name)
        transport.close()
        return name

    def _turns(self, ours: Callable[[], None], theirs: Callable[[], None]) -> tuple[list[Any], list[Any]]:
        """Wall, client CPU and broker CPU seconds of each round, after one that warms up."""
        found: tuple[list[Any], list[Any]] = ([], [])
        # what Numba and Arrow keep is not to be looked through for every few thousand message objects
        gc.collect()
        gc.freeze()
        for _ in range(ROUNDS + 1):
            for work, held in zip((ours, theirs), found, strict=True):
                wall, cpu, broker = time.perf_counter(), time.process_time(), cpu_s(self._broker.pid)
                work()
                after = cpu_s(self._broker.pid)
                held.append((time.perf_counter() - wall, time.process_time() - cpu, after - broker))
        return found[0][1:], found[1][1:]

    def _row(self, facts: dict[str, Any], ours: list[Any], theirs: list[Any]) -> dict[str, Any]:
        def rate(runs: list[Any]) -> int:
            return round(self._rows / median(run[0] for run in runs))

        def cpu(runs: list[Any], part: int) -> float:
            return round(median(run[part] for run in runs) / self._rows * 1e6, 2)

        return {
            **facts,
            "lading/s": rate(ours),
            "confluent/s": rate(theirs),
            "ratio": round(rate(ours) / rate(theirs), 2),
            "lading CPU s/M": cpu(ours, 1),
            "confluent CPU s/M": cpu(theirs, 1),
            "broker CPU s/M": f"{cpu(ours, 2)} / {cpu(theirs, 2)}",
        }

    def _write(self, topic: str, codec: str) -> None:
        compression: Any = None if codec == "none" else codec
        lading.write_arrow(
            self._table, self._broker.url, topic, headers=["carrier", "trace", "delay"], compression=compression
        )

    def _read(self, topic: str, columns: str) -> None:
        table = lading.read_arrow(self._broker.url, topic, columns=columns)
        assert table.num_rows == self._rows and table.column("delay").null_count == 0

    def _produce(self, topic: str, codec: str) -> None:
        from confluent_kafka import Producer

        settings = {"linger.ms": 5, "batch.size": 1_000_000, "acks": "all", "compression.type": codec}
        producer = Producer({"bootstrap.servers": self._broker.address, **settings})
        for row in range(self._rows):
            headers: list[tuple[str, str | bytes | None]] = [
                ("carrier", b"UA"),
                ("trace", b"%016x" % row),
                ("delay", struct.pack(">i", row % 1000)),
            ]
            while True:
                try:
                    producer.produce(topic, PAYLOAD, headers=headers)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0

    def _consume(self, topic: str) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        facts = {"bootstrap.servers": self._broker.address, "group.id": "bench", "enable.auto.commit": False}
        # by default librdkafka stops fetching for a second whenever 100,000 messages wait
        consumer = Consumer({**facts, "queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 2})
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        rows = 0
        try:
            while rows < self._rows:
                # looked at and let go of: a growing list would be paid for by Python's garbage collector
                for message in consumer.consume(10_000, 1.0):
                    headers: Any = dict(message.headers() or [])
                    delay = int.from_bytes(headers["delay"], "big")
                    _row = (message.offset(), headers["carrier"].decode(), headers["trace"].decode(), delay)
                    rows += 1
        finally:
            consumer.close()

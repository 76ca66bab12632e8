"""What a gateway costs beside a plain producer of its cluster: librdkafka, Iggy and NSQ clients, one Kafka node."""

from __future__ import annotations

import os
import struct
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Producer

from bench.measure import cpu_s, kernels_loaded
from lading import testing
from lading.testing import BrokerProcess
from lading.transports.fitting import fill_missing_columns
from lading.transports.open import open_transport
from tests.interop import kafka_nodes
from tests.interop.gateway_clients import NsqClient
from tests.interop.kafka_clients import admin_of

QUESTION = "A gateway beside librdkafka on the same Kafka node: messages/s of batches, ms of single messages"
SIZE: Final = 200
BATCH: Final = 1000
CONNECTIONS: Final = 4
PARTITIONS: Final = 4
Row = dict[str, Any]


def run(quick: bool) -> list[Row]:
    """Return a row for each client: batches over 4 connections or partitions, then single messages over one."""
    messages, singles = (40_000, 200) if quick else (400_000, 2_000)
    with (
        tempfile.TemporaryDirectory() as directory,
        kafka_nodes.running(Path(directory), count=1) as nodes,
        testing.broker(settings={"store": nodes.url}) as gateway,
    ):
        kernels_loaded(gateway)
        admin = admin_of.AdminClient({"bootstrap.servers": nodes.address})
        admin.create_topics([admin_of.NewTopic("legs", PARTITIONS, 1)])["legs"].result(60)
        _wait_until_known(gateway)
        clients: dict[str, tuple[Callable[[int], None], Callable[[int], list[float]]]] = {
            "librdkafka at the cluster": (_plain_batches(nodes.address), _plain_singles(nodes.address)),
            "iggy:// at a gateway": (_transport_batches(_iggy(gateway)), _transport_singles(_iggy(gateway))),
            "lading:// at a gateway": (_transport_batches(gateway.url), _transport_singles(gateway.url)),
            "NSQ at a gateway": (_nsq_batches(gateway), _nsq_singles(gateway)),
        }
        rows: list[Row] = []
        for name, (send_batches, send_singles) in clients.items():
            send_batches(messages // 10)
            before_s, began_s = cpu_s(gateway.pid), time.monotonic()
            send_batches(messages)
            rate = messages / (time.monotonic() - began_s)
            used_s = cpu_s(gateway.pid) - before_s
            send_singles(singles // 10)
            times_ms = sorted(1e3 * one for one in send_singles(singles))
            rows.append(
                {
                    "client": name,
                    "messages/s": round(rate),
                    "of librdkafka": round(rate / (rows[0]["messages/s"] if rows else rate), 2),
                    "gateway's CPU s per million": round(used_s / messages * 1e6, 1),
                    "single p50 ms": round(times_ms[len(times_ms) // 2], 2),
                    "single p99 ms": round(times_ms[len(times_ms) * 99 // 100], 2),
                    "load": round(os.getloadavg()[0], 1),
                }
            )
        return rows


def _iggy(gateway: BrokerProcess) -> str:
    return f"iggy://{gateway.endpoints['iggy_tcp']}"


def _wait_until_known(gateway: BrokerProcess) -> None:
    with closing(open_transport(gateway.url)) as transport:
        while "legs" not in {one.name for one in transport.topics()}:
            time.sleep(0.05)


def _plain_batches(address: str) -> Callable[[int], None]:
    def send(count: int) -> None:
        producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5})
        payload = bytes(SIZE)
        for number in range(count):
            while True:
                try:
                    producer.produce("legs", payload, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
        assert producer.flush(120) == 0

    return send


def _plain_singles(address: str) -> Callable[[int], list[float]]:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0})

    def send() -> None:
        producer.produce("legs", bytes(SIZE), partition=0)
        assert producer.flush(60) == 0

    return lambda count: [_time(send) for _ in range(count)]


def _transport_batches(url: str) -> Callable[[int], None]:
    batch = _make_batch(BATCH)

    def send_some(partition: int, count: int) -> None:
        with closing(open_transport(url)) as transport:
            for _ in range(count // BATCH):
                transport.send("legs", partition, batch)

    def send(count: int) -> None:
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            list(threads.map(send_some, range(CONNECTIONS), [count // CONNECTIONS] * CONNECTIONS))

    return send


def _transport_singles(url: str) -> Callable[[int], list[float]]:
    def send(count: int) -> list[float]:
        with closing(open_transport(url)) as transport:
            return [_time(lambda: transport.send("legs", 0, _make_batch(1))) for _ in range(count)]

    return send


def _nsq_batches(gateway: BrokerProcess) -> Callable[[int], None]:
    bodies = struct.pack(">i", BATCH) + (struct.pack(">i", SIZE) + bytes(SIZE)) * BATCH
    command = b"MPUB legs\n" + struct.pack(">i", len(bodies)) + bodies

    def send_some(count: int) -> None:
        client = NsqClient(gateway.endpoints["nsqd_tcp"])
        for _ in range(count // BATCH):
            client.send(command)
            assert client.receive()[1] == b"OK"
        client.close()

    def send(count: int) -> None:
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            list(threads.map(send_some, [count // CONNECTIONS] * CONNECTIONS))

    return send


def _nsq_singles(gateway: BrokerProcess) -> Callable[[int], list[float]]:
    command = b"PUB legs\n" + struct.pack(">i", SIZE) + bytes(SIZE)

    def send(count: int) -> list[float]:
        client = NsqClient(gateway.endpoints["nsqd_tcp"])

        def publish() -> None:
            client.send(command)
            assert client.receive()[1] == b"OK"

        found = [_time(publish) for _ in range(count)]
        client.close()
        return found

    return send


def _make_batch(rows: int) -> pa.RecordBatch:
    times = pa.array([None] * rows, pa.timestamp("us", "UTC"))
    columns: dict[str, Any] = {"payload": pa.array([bytes(SIZE)] * rows, pa.binary()), "timestamp": times}
    return fill_missing_columns(pa.RecordBatch.from_pydict(columns))


def _time(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s

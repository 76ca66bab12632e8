"""A pipeline under ``spark-submit`` on a standalone cluster, from three Kafka nodes; each kind of process is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.interop import kafka_broker, kafka_nodes
from tests.interop.kafka_clients import admin_of, confluent

from . import standalone

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

PARTITIONS, FIRST, MORE = 6, 150_000, 50_000
TOPIC = "flights"
WAIT_S = 240
TOML = """
[pipeline]
id = "flights"
trigger = "1s"
max_rows = 12_000
max_rows_per_task = 2_000

[source]
from = "{url}"
topic = "flights"

[headers]
carrier = "string required"
delay = {{ type = "int", encoding = "text" }}

[good]
to = "parquet:{tables}/good"
columns = ["offset", "carrier", "delay", "payload"]

[[route]]
where = "delay > 60"
to = "parquet:{tables}/late"
columns = ["offset", "carrier", "delay", "payload"]

[quarantine]
to = "parquet:{tables}/quarantine"
"""


def fate(number: int) -> str:
    """Return the table that a message belongs to."""
    if number % 50 == 1 or number % 70 == 2:
        return "quarantine"
    return "late" if number % 200 > 60 else "good"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, full: bool) -> Iterator[kafka_nodes.Nodes]:
    """Three Kafka nodes."""
    if not full:
        pytest.skip("a cluster of eight processes takes minutes; LADING_TEST_FULL=1 starts it")
    try:
        with kafka_nodes.running(tmp_path_factory.mktemp("nodes")) as started:
            yield started
    except kafka_broker.Unavailable as reason:
        pytest.skip(str(reason))


class Sender:
    """Sends numbered messages with Confluent's client, each acknowledged by two nodes."""

    def __init__(self, address: str) -> None:
        settings = {"enable.idempotence": True, "message.timeout.ms": 120_000, "queue.buffering.max.messages": FIRST}
        self._producer = confluent.Producer({"bootstrap.servers": address, "log_level": 2, **settings})
        self._failed: list[object] = []
        self.sent = 0

    def send(self, count: int) -> None:
        """Send so many, and wait until they are acknowledged."""
        for number in range(self.sent, self.sent + count):
            delay = "late!" if number % 70 == 2 else str(number % 200)
            headers = [("delay", delay.encode())] + ([] if number % 50 == 1 else [("carrier", b"UA")])
            self._producer.produce(
                TOPIC, b"%d" % number, partition=number % PARTITIONS, headers=headers, on_delivery=self._note
            )
            if number % 1_000 == 0:
                self._producer.poll(0)
        assert self._producer.flush(WAIT_S) == 0 and not self._failed, self._failed[:3]
        self.sent += count

    def _note(self, error: object, message: object) -> None:
        if error is not None:
            self._failed.append(error)


def wait_until(true: Callable[[], bool], driver: standalone.Machine) -> None:
    """Wait for it while the driver runs."""
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert driver.child is not None and driver.child.poll() is None, driver.log.read_text()[-3000:]
        assert time.monotonic() < deadline, driver.log.read_text()[-3000:]
        time.sleep(0.2)


def test_each_message_once_though_worker_driver_and_kafka_node_are_killed(
    nodes: kafka_nodes.Nodes, tmp_path: Path
) -> None:
    begun = time.monotonic()
    built = json.loads(
        subprocess.run(
            [sys.executable, "-m", "lading.cli.main", "pipeline", "package", str(tmp_path / "d"), "--output", "json"],
            check=True, capture_output=True, text=True, timeout=600,
        ).stdout
    )  # fmt: skip
    packed_s = time.monotonic() - begun
    tables = tmp_path / "shared"
    file = tmp_path / "driver" / "flights.toml"
    file.parent.mkdir()
    file.write_text(TOML.format(url=nodes.url, tables=tables))
    admin = admin_of.AdminClient({"bootstrap.servers": nodes.address, "log_level": 2})
    admin.create_topics([admin_of.NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
    sender = Sender(nodes.address)
    sender.send(FIRST)

    def batches() -> int:
        return len(list((tables / "good" / "_lading" / "manifests").glob("*.json")))

    def rows() -> dict[str, list[int]]:
        held = {}
        for name in ("good", "late", "quarantine"):
            table = ds.dataset(tables / name, format="parquet").to_table(columns=["payload"])
            held[name] = [int(each or b"-1") for each in table.column("payload").to_pylist()]
        return held

    with standalone.running(tmp_path) as cluster:
        driver = cluster.driver(
            file.parent,
            [
                "--archives", f"{built['archive']}#env", "--conf", "spark.driver.host=127.0.0.1",
                "--driver-memory", "512m", "--executor-memory", "512m", "--conf", "spark.ui.enabled=false",
                built["entry"], str(file), "--follow", "--output", "json",
            ],
            {
                "PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": "./env/bin/python",
                "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            },
        )  # fmt: skip
        driver.start()
        launched = time.monotonic()
        wait_until(lambda: batches() >= 1, driver)
        first_s = time.monotonic() - launched
        wait_until(lambda: batches() >= 3, driver)
        at_worker = batches()
        victim = cluster.workers[1]
        victim.kill()
        sender.send(MORE)
        wait_until(lambda: batches() >= at_worker + 3, driver)
        at_driver = batches()
        driver.kill()
        victim.start("Successfully registered with master")
        sender.send(MORE)
        assert sum(map(len, rows().values())) < sender.sent
        driver.start()
        wait_until(lambda: batches() >= at_driver + 2, driver)
        at_node = batches()
        nodes.nodes[3].kill()
        sender.send(MORE)
        wait_until(lambda: sum(map(len, rows().values())) >= sender.sent, driver)
        nodes.nodes[3].start()
        # what came with the package was enough: nobody compiled, and nobody used an environment of this machine
        for worker in cluster.workers:
            assert list(worker.directory.glob("work/app-*/*/env/share/lading/kernels-*/complete"))
            assert not list((worker.directory / "home").rglob("kernels-*"))
        driver.kill()
    held = rows()
    for name, numbers in held.items():
        assert sorted(numbers) == [number for number in range(sender.sent) if fate(number) == name], name
    print(
        f"\npackage: {built['packages']} packages, {built['bytes'] / 1e6:.0f} MB in {packed_s:.0f} s; first batch "
        f"{first_s:.0f} s after spark-submit\n"
        f"killed: a worker at batch {at_worker}, the driver at batch {at_driver}, a Kafka node at batch {at_node}; "
        f"{batches()} batches\n"
        f"sent {sender.sent:,} = good {len(held['good']):,} + routed {len(held['late']):,} + quarantined "
        f"{len(held['quarantine']):,}; lost 0, twice 0; {time.monotonic() - begun:.0f} s"
    )

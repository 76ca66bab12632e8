"""A cluster that goes silent: its connections stay open and nothing comes, as behind a cut cable."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

import lading
from lading import testing
from lading.model.errors import LadingError, Unreachable
from lading.testing import BrokerProcess
from lading.transports.fitting import fill_missing_columns
from lading.transports.kafka.cluster import KafkaCluster
from lading.transports.kafka.socket import KafkaSecurity
from lading.transports.open import open_transport

RECOVERY_S = 5.0
MIB = 1 << 20


@contextmanager
def silence(broker: BrokerProcess) -> Iterator[None]:
    """Stop a broker's process: its machine still takes connections, as the kernel does that."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def make_batch(payloads: list[bytes]) -> pa.RecordBatch:
    times = pa.array([None] * len(payloads), pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_pydict({"payload": pa.array(payloads, pa.binary()), "timestamp": times})
    return fill_missing_columns(batch)


def read_memory_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def read_payloads(gateway: BrokerProcess) -> list[bytes]:
    found = lading.read_arrow(gateway.url, "legs", columns="payload")["payload"].to_pylist()
    return [payload or b"" for payload in found]


def wait_until_reported(gateway: BrokerProcess) -> None:
    """Return when ``/health`` names the silent cluster."""
    deadline = time.monotonic() + 30
    while "did not answer within 3 s" not in (
        told := httpx.get(f"http://{gateway.endpoints['admin']}/health", timeout=10).text
    ):
        assert time.monotonic() < deadline, told
        time.sleep(0.05)


def test_a_request_of_little_patience_ends_with_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        cluster = KafkaCluster([listener.getsockname()], KafkaSecurity(), timeout_s=30, retries=1000)
        cluster.limit_patience(0.1, 0.5)
        # as if it had responded before: one that never did is given up at once
        cluster._answered = True
        begun_s = time.monotonic()
        with pytest.raises(Unreachable, match=r"did not answer within 0\.1 s"):
            cluster.metadata([])
        assert 0.5 <= time.monotonic() - begun_s < 5
        cluster.close()


@pytest.mark.timeout(180)
def test_messages_that_wait_for_a_silent_cluster_arrive_in_order_when_it_is_back() -> None:
    with testing.broker() as cluster:
        store = f"kafka://{cluster.endpoints['kafka']}"
        with testing.broker(settings={"store": store, "broker.unsynced_bytes_max": MIB}) as gateway:
            with lading.Admin(gateway.url) as admin:
                admin.create_topic("legs")
            urls = [gateway.url, f"iggy://{gateway.endpoints['iggy_tcp']}"] * 4

            def send(number: int) -> None:
                with closing(open_transport(urls[number % len(urls)], timeout_s=60)) as transport:
                    for block in range(4):
                        payloads = [b"%d %d" % (number, block) + bytes(MIB // 4)] * 2
                        transport.send("legs", 0, make_batch(payloads))

            with ThreadPoolExecutor(len(urls)) as threads:
                send(100)
                before_bytes = read_memory_bytes(gateway.pid)
                with silence(cluster):
                    sending = [threads.submit(send, number) for number in range(len(urls))]
                    wait_until_reported(gateway)
                    assert not any(one.done() for one in sending)
                    # 16 MiB wait at clients, of which the gateway takes the bound, and what was read with it
                    assert read_memory_bytes(gateway.pid) - before_bytes < 24 * MIB
                    back_s = time.monotonic()
                for one in sending:
                    one.result(60)
                took_s = time.monotonic() - back_s
            assert took_s < RECOVERY_S
            found = read_payloads(gateway)
            for number in (100, *range(len(urls))):
                start = b"%d " % number
                blocks = [int(one[len(start) :].rstrip(b"\0")) for one in found if one.startswith(start)]
                assert blocks == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.timeout(180)
def test_a_cluster_that_stays_silent_is_an_error_of_the_protocol() -> None:
    with testing.broker() as cluster, testing.broker(settings={"store": f"kafka://{cluster.endpoints['kafka']}"}) as at:
        with lading.Admin(at.url) as admin:
            admin.create_topic("legs")
        with closing(open_transport(at.url, retries=0, timeout_s=60)) as transport:
            transport.send("legs", 0, make_batch([b"first"]))
            with silence(cluster):
                begun_s = time.monotonic()
                with pytest.raises(LadingError, match="did not acknowledge"):
                    transport.send("legs", 0, make_batch([b"second"]))
                assert time.monotonic() - begun_s < 30
            transport.send("legs", 0, make_batch([b"third"]))
        found = read_payloads(at)
        # whether the second is there is unknown to its sender
        assert [one for one in found if one != b"second"] == [b"first", b"third"]

"""What an adversary makes the broker take for a while is given back: 50 MB at most are left of it, on every listener.

Each case is a seeded sample: a few of its kin, drawn and mixed by chance, against one broker; then its connections are
closed and the resident memory of the process is read until it is back.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import Request, urlopen

import cramjam
import pytest

from lading import testing
from tests.endpoints.kafka_frames import KafkaFrames, batch, one_batch, produce
from tests.endpoints.nsq_client import NsqClient, sized

MIB = 1 << 20
LEFT_BYTES_MAX = 50 * MIB
TIMEOUT_S = 60
SEED = 13

Case = Callable[[testing.BrokerProcess, random.Random, int], None]


def resident_bytes(running: testing.BrokerProcess) -> int:
    resident, of_files = map(int, Path(f"/proc/{running.pid}/statm").read_text().split()[1:3])
    return (resident - of_files) * os.sysconf("SC_PAGE_SIZE")


def get(running: testing.BrokerProcess, path: str) -> bytes:
    with urlopen(Request(f"http://{running.endpoints['admin']}{path}"), timeout=TIMEOUT_S) as answer:
        body: bytes = answer.read()
    return body


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


def send_all(connections: list[socket.socket], data: list[bytes]) -> None:
    """Send, as far as somebody takes it, and close."""
    for connection, each in zip(connections, data, strict=True):
        with suppress(OSError):
            connection.settimeout(2)
            connection.sendall(each)
    for connection in connections:
        connection.close()


def bombs(running: testing.BrokerProcess, chance: random.Random, times: int) -> None:
    """Batches that become hundreds of megabytes: 20 of them left 4,697 MB."""
    made = {
        4: bytes(cramjam.zstd.compress(bytes(300 * MIB))),
        1: gzip.compress(bytes(200 * MIB), 1),
        3: bytes(cramjam.lz4.compress(bytes(200 * MIB))),
        2: bytes(cramjam.snappy.compress_raw(bytes(20 * MIB))),
    }
    kafka = KafkaFrames(running.endpoints["kafka"])
    kafka.socket.settimeout(TIMEOUT_S)
    for _ in range(times):
        codec = chance.choice(list(made))
        answer = kafka.ask("Produce", 7, **produce("t", batch(made[codec], 1, attributes=codec)))
        assert answer.responses[0].partition_responses[0].error_code
    kafka.close()


def heads(running: testing.BrokerProcess, chance: random.Random, times: int) -> None:
    """Endless heads of HTTP requests, and answers that nobody reads."""
    names = [name for name in running.endpoints if name.endswith("http") or name == "admin"]
    endless = [
        b"GET /ping HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 500_000,
        b"GET /ping HTTP/1.1\r\nHost: localhost\r\nX-A: " + bytes(4 * MIB).replace(b"\0", b"a"),
        b"GET /" + bytes(4 * MIB).replace(b"\0", b"a"),
        b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100_000,
        b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n" + bytes(800_000),
    ]
    for _ in range(times):
        some = [connect(running.endpoints[chance.choice(names)]) for _ in range(4)]
        send_all(some, [chance.choice(endless) for _ in some])


def unread(running: testing.BrokerProcess, chance: random.Random, times: int) -> None:
    """NSQ subscribers that publish and never read: 1.5 GB in 15 s."""
    clients = []
    for number in range(times):
        client = NsqClient(running.endpoints["nsqd_tcp"])
        client.send(b"SUB unread%d c\n" % (number % 3))
        client.send(b"RDY 2500\n")
        client.send_until_full(sized(b"PUB unread%d\n" % (number % 3), bytes(chance.randrange(1, 60_000))) * 20, 40)
        clients.append(client)
    for client in clients:
        client.close()


def halves(running: testing.BrokerProcess, chance: random.Random, times: int) -> None:
    """Halves of large requests, on every protocol."""
    size = 36 * MIB
    begun = {
        "kafka": lambda: (90 * MIB).to_bytes(4, "big") + bytes(chance.randrange(size)),
        "iggy_tcp": lambda: struct.pack("<II", size, 101) + bytes(chance.randrange(size - 8)),
        "nsqd_tcp": lambda: b"  V2MPUB t\n" + struct.pack(">II", 5 * MIB, 1) + bytes(chance.randrange(4 * MIB)),
    }
    names = [chance.choice(list(begun)) for _ in range(times)]
    connections = [connect(running.endpoints[name]) for name in names]
    send_all(connections, [begun[name]() for name in names])
    some = [connect(running.endpoints["kafka"]) for _ in range(500)]
    send_all(some, [b"\0\0\1\0\0" for _ in some])


def members(running: testing.BrokerProcess, chance: random.Random, times: int) -> None:
    """Members of a group with megabytes of metadata: 12 with 60 MB kept 930 MB after they had left."""
    clients = [KafkaFrames(running.endpoints["kafka"]) for _ in range(times)]
    for client in clients:
        protocols = [{"name": "range", "metadata": bytes(chance.randrange(1, 8 * MIB))}]
        frame = client.request(
            "JoinGroup", 2, group_id="large", session_timeout_ms=10_000, rebalance_timeout_ms=1_000, member_id="",
            protocol_type="consumer", protocols=protocols,
        )  # fmt: skip
        with suppress(OSError):
            client.send(frame)
    time.sleep(0.5)
    for client in clients:
        client.close()


def topics(running: testing.BrokerProcess, chance: random.Random, times: int) -> None:
    """Topics of many partitions, created and deleted again."""
    kafka = KafkaFrames(running.endpoints["kafka"])
    kafka.socket.settimeout(4 * TIMEOUT_S)
    names = [f"many-{chance.randrange(1 << 40):x}" for _ in range(times)]
    rows = [
        {"name": name, "num_partitions": 100, "replication_factor": 1, "assignments": [], "configs": []}
        for name in names
    ]
    made = kafka.ask("CreateTopics", 2, topics=rows, timeout_ms=60_000, validate_only=False)
    assert {row.error_code for row in made.topics} == {0}
    gone = kafka.ask("DeleteTopics", 1, topic_names=names, timeout_ms=60_000)
    assert {row.error_code for row in gone.responses} == {0}
    kafka.close()


def stats(running: testing.BrokerProcess, chance: random.Random, times: int) -> None:
    """A pipelined flood of requests for Iggy's statistics, whose responses nobody reads."""
    some = [connect(running.endpoints["iggy_tcp"]) for _ in range(4)]
    send_all(some, [struct.pack("<II", 4, 10) * (times * chance.randrange(1_000, 5_000)) for _ in some])


def registrations(running: testing.BrokerProcess, chance: random.Random, times: int) -> None:
    """A node that registers more topics with nsqlookupd than it may: 435,000 were taken."""
    identity = b'{"version":"1","tcp_port":1,"http_port":2,"hostname":"h","broadcast_address":"127.0.0.1"}'
    begin = b"  V1IDENTIFY\n" + struct.pack(">I", len(identity)) + identity
    for _ in range(times):
        names = (b"REGISTER t%x 0\n" % chance.randrange(1 << 40) for _ in range(30_000))
        send_all([connect(running.endpoints["nsqlookupd_tcp"])], [begin + b"".join(names)])


def filters(running: testing.BrokerProcess, chance: random.Random, times: int) -> None:
    """NSQ clients with patterns that would compile for long: they are passed over."""
    for _ in range(times):
        pattern = "a{0,1000}" * chance.randrange(1, 400)
        identity = json.dumps({
            "client_id": "c", "extend_support": True,
            "ext_filter": {"type": 2, "filter_ext_key": "k", "filter_data": pattern},
        }).encode()  # fmt: skip
        begin = b"  V2IDENTIFY\n" + struct.pack(">I", len(identity)) + identity + b"SUB filtered c\n"
        send_all([connect(running.endpoints["nsqd_tcp"])], [begin])


CASES: list[tuple[Case, int, int]] = [
    (bombs, 6, 20),
    (heads, 8, 60),
    (unread, 6, 30),
    (halves, 8, 24),
    (members, 6, 12),
    (topics, 4, 40),
    (stats, 2, 8),
    (registrations, 2, 8),
    (filters, 20, 200),
]
"""Each with how often its parts run in a sample and in a whole run."""


@pytest.fixture(scope="module")
def running() -> Iterator[testing.BrokerProcess]:
    """One broker, at work for a while: kernels are loaded, and each protocol was spoken."""
    with testing.broker(durability="os") as broker:
        kafka = KafkaFrames(broker.endpoints["kafka"])
        kafka.ask("Metadata", 4, topics=[{"name": "t"}], allow_auto_topic_creation=True)
        for data in (b"small", bytes(500_000)):
            kafka.ask("Produce", 7, **produce("t", one_batch(data)))
        kafka.close()
        deadline = time.monotonic() + 10 * TIMEOUT_S
        while b"lading_kernels_ready 1.0" not in get(broker, "/metrics"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield broker


@pytest.mark.turns(3)
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("case", "sample", "whole"), CASES, ids=[case.__name__ for case, _, _ in CASES])
def test_memory_comes_back(running: testing.BrokerProcess, case: Case, sample: int, whole: int, full: bool) -> None:
    # what the first of a kind costs once and for all, such as modules that are loaded, is no part of it
    case(running, random.Random(SEED), 1)
    before = resident_bytes(running)
    case(running, random.Random(SEED), whole if full else sample)
    peak = left = resident_bytes(running)
    deadline = time.monotonic() + TIMEOUT_S
    while left - before > LEFT_BYTES_MAX and time.monotonic() < deadline:
        time.sleep(0.1)
        left = resident_bytes(running)
        peak = max(peak, left)
    print(f"{case.__name__}: {before / MIB:.0f} MiB before, {peak / MIB:.0f} at its end, {left / MIB:.0f} left")
    assert left - before <= LEFT_BYTES_MAX
    assert json.loads(get(running, "/health"))["status"] == "ok"

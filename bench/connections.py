"""Many connections, each of which waits for the response to one small request: NSQ beside nsqd, Kafka beside Kafka,
with and without a producer id, and Iggy with the setting ``fast_connections`` on and off.

The same client for all sides, a process of its own, sends one message of 100 B at a time on 10, 100, 1,000 and 5,000
connections, by turns. It is Python, so that it bounds the rates; what tells the sides apart is the CPU time of the
server for a message. Neither side syncs before it responds. ``LADING_BENCH_CONNECTIONS`` names other numbers, such as
``10,1000``.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import _waiting_clients
from bench._nsq_frames import OK_FRAME
from bench.measure import kernels_loaded, median, threads_cpu_s
from lading import testing
from tests.endpoints import frames as iggy
from tests.endpoints.iggy_sends import frame as iggy_frame
from tests.endpoints.iggy_sends import send
from tests.endpoints.kafka_frames import one_batch, produce, request_frame
from tests.endpoints.nsq_client import pub
from tests.endpoints.test_iggy_releases import CREATE_STREAM, CREATE_TOPIC, LOGIN, NEVER, login, named, short
from tests.interop import go_programs, kafka_broker

QUESTION = "Connections that each wait for a response: messages/s, CPU us a message, p50 and p99 in us"
CONNECTIONS, QUICK_CONNECTIONS = (10, 100, 1_000, 5_000), (10, 100)
CONNECTIONS_MAX = 10_000
ROUNDS = 3
WARM_UP_S = 15.0
SECONDS, QUICK_S = 2.0, 0.5
"""Of each run, and as much again for each 2,500 connections."""
BODY = b"x" * 100
OPEN: dict[str, Any] = {"connections__peer_share": 1.0, "log__open_files_max": 256}
"""One client has all connections."""
TOPIC = "bench"
OURS = (("lading, fast_connections off", False), ("lading", True))


@dataclass
class WaitedSide:
    """A server, and what its clients send."""

    protocol: str
    name: str
    address: str
    pid: int
    first: bytes
    request: bytes
    response: bytes
    numbered: tuple[int, int] = (-1, -1)
    """Start and end of the batch in the request, if each connection is a Kafka producer with an id."""
    greeting_bytes: int = 0
    """Size of the response to ``first``."""
    figures: dict[int, list[tuple[float, float, float, float]]] = field(default_factory=dict)
    """By connections: messages/s, CPU us a message, p50 and p99 in us."""


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: protocol, connections, side, its figures, and those of ours as ratios of the other's in the same run."""
    asked = os.environ.get("LADING_BENCH_CONNECTIONS")
    counts = [int(each) for each in asked.split(",")] if asked else (QUICK_CONNECTIONS if quick else CONNECTIONS)
    rounds, seconds = (1, QUICK_S) if quick else (ROUNDS, SECONDS)
    rows: list[dict[str, Any]] = []
    for open_sides in (_open_nsq, _open_kafka, _open_kafka_numbered, _open_iggy):
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            sides = open_sides(stack, directory)
            for side in sides:
                # topics are made, and code is compiled, which a JVM does for long
                _measure(side, 10, 1.0 if quick else WARM_UP_S)
                side.figures.clear()
            for count in counts:
                for _ in range(rounds):
                    for side in sides:
                        _measure(side, count, seconds * (1 + count / 2_500))
            rows += _rows(sides, counts)
    return rows


def _open_nsq(stack: ExitStack, directory: Path) -> list[WaitedSide]:
    told = (b"  V2", pub(TOPIC, BODY), OK_FRAME)
    sides = []
    try:
        nsqd = stack.enter_context(go_programs.running(directory))
        sides.append(WaitedSide("NSQ", "nsqd", nsqd.nsqd_tcp, nsqd.nsqd_pid, *told))
    except go_programs.Unavailable as missing:
        print(f"without nsqd: {missing}", file=sys.stderr)
    for name, is_fast in OURS:
        broker = stack.enter_context(
            testing.broker(
                durability="os", fast_connections=is_fast, endpoints__nsqd_tcp__connections_max=CONNECTIONS_MAX, **OPEN
            )
        )
        kernels_loaded(broker)
        sides.append(WaitedSide("NSQ", name, broker.endpoints["nsqd_tcp"], broker.pid, *told))
    return sides


def _open_kafka(stack: ExitStack, directory: Path) -> list[WaitedSide]:
    return _open_kafka_sides(stack, directory, is_numbered=False)


def _open_kafka_numbered(stack: ExitStack, directory: Path) -> list[WaitedSide]:
    return _open_kafka_sides(stack, directory, is_numbered=True)


def _open_kafka_sides(stack: ExitStack, directory: Path, *, is_numbered: bool) -> list[WaitedSide]:
    addresses: list[tuple[str, str, int]] = []
    try:
        kafka = stack.enter_context(kafka_broker.running(directory))
        addresses.append(("kafka", kafka.address, kafka.pid))
    except kafka_broker.Unavailable as missing:
        print(f"without Kafka: {missing}", file=sys.stderr)
    for name, is_fast in OURS:
        broker = stack.enter_context(
            testing.broker(
                durability="os", fast_connections=is_fast, endpoints__kafka__connections_max=CONNECTIONS_MAX, **OPEN
            )
        )
        kernels_loaded(broker)
        addresses.append((name, broker.endpoints["kafka"], broker.pid))
    sides = []
    for name, address, pid in addresses:
        _create_kafka_topic(address)
        batch = one_batch(BODY)
        frame = request_frame("Produce", 9, 7, **produce(TOPIC, batch))
        request = struct.pack(">I", len(frame)) + frame
        at = request.index(batch)
        numbered = (at, at + len(batch)) if is_numbered else (-1, -1)
        protocol = "Kafka, producer ids" if is_numbered else "Kafka"
        sides.append(WaitedSide(protocol, name, address, pid, b"", request, b"", numbered))
    return sides


def _open_iggy(stack: ExitStack, directory: Path) -> list[WaitedSide]:
    sides = []
    for name, is_fast in OURS:
        broker = stack.enter_context(
            testing.broker(
                durability="os", fast_connections=is_fast, endpoints__iggy_tcp__connections_max=CONNECTIONS_MAX, **OPEN
            )
        )
        kernels_loaded(broker)
        told = _prepare_iggy(broker.endpoints["iggy_tcp"])
        sides.append(WaitedSide("Iggy 0.10", name, broker.endpoints["iggy_tcp"], broker.pid, *told))
    return sides


def _prepare_iggy(address: str) -> tuple[bytes, bytes, bytes, tuple[int, int], int]:
    """Create a stream and a topic; return a login, a send and its response, no batch, and the bytes of the login's."""
    release = "0.10.0"
    client = iggy.Frames(address)
    client.send(LOGIN, login(release))
    status, body = client.answer()
    assert status == 0
    assert client.ask(CREATE_STREAM, short("stream"))[0] == 0
    topic = struct.pack("<IBQQB", 1, 1, NEVER, 0, 0) + short("one")
    assert client.ask(CREATE_TOPIC, named("stream") + topic)[0] == 0
    begin = iggy_frame(LOGIN, login(release))
    return begin, send(release, BODY), bytes(iggy.HEAD.size), (-1, -1), iggy.HEAD.size + len(body)


def _create_kafka_topic(address: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(20)


def _measure(side: WaitedSide, count: int, seconds: float) -> None:
    host, _, port = side.address.rpartition(":")
    numbers = (*map(str, side.numbered), str(side.greeting_bytes))
    told = (host, port, str(count), str(seconds), side.first.hex(), side.request.hex(), side.response.hex(), *numbers)
    used_s = threads_cpu_s(side.pid)
    done = subprocess.run(
        [sys.executable, _waiting_clients.__file__, *told], stdout=subprocess.PIPE, text=True, check=True, timeout=300
    )
    used_s = threads_cpu_s(side.pid) - used_s
    messages, taken_s, p50_us, p99_us = map(float, done.stdout.split())
    side.figures.setdefault(count, []).append((messages / taken_s, used_s / messages * 1e6, p50_us, p99_us))


def _rows(sides: Sequence[WaitedSide], counts: Sequence[int]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for count in counts:
        theirs: tuple[float, ...] | None = None
        for side in sides:
            rate, cpu_us, p50_us, p99_us = (median(values) for values in zip(*side.figures[count], strict=True))
            row = {
                "protocol": side.protocol, "connections": count, "side": side.name, "messages/s": round(rate),
                "CPU us": round(cpu_us, 1), "p50 us": round(p50_us), "p99 us": round(p99_us),
            }  # fmt: skip
            if theirs is None and not side.name.startswith("lading"):
                theirs = (rate, cpu_us)
            elif theirs is not None:
                row |= {"rate ÷ theirs": round(rate / theirs[0], 2), "CPU ÷ theirs": round(cpu_us / theirs[1], 2)}
            rows.append(row)
    return rows

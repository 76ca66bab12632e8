"""Many connections, each of which waits for the response to one small request: NSQ beside nsqd, Kafka beside Kafka.

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
from tests.endpoints.kafka_frames import one_batch, produce, request_frame
from tests.endpoints.nsq_client import pub
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
    figures: dict[int, list[tuple[float, float, float, float]]] = field(default_factory=dict)
    """By connections: messages/s, CPU us a message, p50 and p99 in us."""


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: protocol, connections, side, its figures, and those of ours as ratios of the other's in the same run."""
    asked = os.environ.get("LADING_BENCH_CONNECTIONS")
    counts = [int(each) for each in asked.split(",")] if asked else (QUICK_CONNECTIONS if quick else CONNECTIONS)
    rounds, seconds = (1, QUICK_S) if quick else (ROUNDS, SECONDS)
    rows: list[dict[str, Any]] = []
    for open_sides in (_open_nsq, _open_kafka):
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
        frame = request_frame("Produce", 9, 7, **produce(TOPIC, one_batch(BODY)))
        sides.append(WaitedSide("Kafka", name, address, pid, b"", struct.pack(">I", len(frame)) + frame, b""))
    return sides


def _create_kafka_topic(address: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(20)


def _measure(side: WaitedSide, count: int, seconds: float) -> None:
    host, _, port = side.address.rpartition(":")
    told = (host, port, str(count), str(seconds), side.first.hex(), side.request.hex(), side.response.hex())
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

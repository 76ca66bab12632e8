"""The Iggy face under the Rust client of its generation: sends and polls by batch size, durability and connections.

The client bounds most of these figures, so each rate stands beside what the client does against a server that stores
nothing (``of client's most``). Rates of the real 0.0.40 server, which never syncs, were taken with this client on
another day, in batches of 1000: sent 333 k/s over 1 connection and 341 over 4, polled 1,026 and 2,077.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.measure import anonymous_mb, cpu_s, kernels_loaded, median
from lading import testing
from tests.endpoints.frames import Frames
from tests.interop import rust_client

QUESTION = "Iggy TCP under the Rust client: messages/s and CPU seconds per million, by batch, durability, connections"

MESSAGES = {1: 20_000, 10: 100_000, 100: 400_000, 1000: 1_000_000}
"""Messages a round, by batch size."""
STREAM = 1


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: what, batch, connections, durability, k messages/s (median), share of the client's most, CPU, latency."""
    program = str(rust_client.build(release=True))
    rounds = 1 if quick else 5
    scale = 10 if quick else 1
    rows: list[dict[str, Any]] = []
    with _null_server() as address:
        most = {
            (batch, connections): median(
                load(program, "send", address, 1, batch, count // scale, connections)["rate"] for _ in range(rounds)
            )
            for batch, count in MESSAGES.items()
            for connections in (1, 4)
        }
    for durability in ("os", "fsync"):
        with testing.broker(durability=durability) as broker:
            kernels_loaded(broker)
            topics = iter(range(1, 1000))
            for batch, count in MESSAGES.items():
                for connections in (1, 4):
                    rows += _measured(
                        program, broker, topics, batch, count // scale, connections, durability, rounds, most
                    )
            print(
                f"  anonymous memory after the {durability} rounds: {anonymous_mb(broker.pid):.0f} MB", file=sys.stderr
            )
    return rows


def _measured(
    program: str,
    broker: testing.BrokerProcess,
    topics: Iterator[int],
    batch: int,
    count: int,
    connections: int,
    durability: str,
    rounds: int,
    most: dict[tuple[int, int], float],
) -> list[dict[str, Any]]:
    address = broker.endpoints["iggy_tcp"]
    taken: dict[str, list[dict[str, float]]] = {"send": [], "poll": []}
    for _ in range(rounds):
        topic = next(topics)
        create(address, topic, connections)
        for what in ("send", "poll"):
            began_cpu_s = cpu_s(broker.pid)
            figures = load(program, what, address, topic, batch, count, connections)
            figures["cpu"] = (cpu_s(broker.pid) - began_cpu_s) / count * 1e6
            taken[what].append(figures)
    return [
        {
            "what": what,
            "batch": batch,
            "connections": connections,
            "durability": durability,
            "k messages/s": round(median(one["rate"] for one in figures) / 1000, 1),
            "of client's most": round(median(one["rate"] for one in figures) / most[batch, connections], 2)
            if what == "send"
            else None,
            "CPU s per million": round(median(one["cpu"] for one in figures), 3),
            "p50 us": round(median(one["p50_us"] for one in figures)),
            "p99 us": round(median(one["p99_us"] for one in figures)),
        }
        for what, figures in taken.items()
    ]


def load(
    program: str, what: str, address: str, topic: int, batch: int, count: int, connections: int
) -> dict[str, float]:
    """Let the client send or poll; return what it tells, and ``rate`` in messages/s."""
    figures: dict[str, float] = rust_client.run(
        Path(program), what, address, str(STREAM), str(topic), str(batch), str(count), str(connections)
    )[0]
    figures["rate"] = figures["messages"] / figures["seconds"]
    return figures


def create(address: str, topic: int, partitions: int) -> None:
    """Create a topic, and its stream where it is missing."""
    frames = Frames(address)
    frames.ask(202, struct.pack("<I", STREAM) + b"bench")
    name = f"topic{topic}".encode()
    assert frames.ask(302, b"\1\4" + struct.pack("<III", STREAM, topic, partitions) + name) == (0, b"")
    frames.close()


@contextmanager
def _null_server() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-m", "bench._null_iggy"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait(10)

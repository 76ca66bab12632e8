"""Iggy's transports on the same work: one client asks one request after the other, over TCP, TLS, QUIC, WebSocket.

The clients are in Python and as plain as they can be, QUIC's is aioquic with its state machine in Python on both sides:
what counts is the broker's CPU, which is told beside the rate. Over TCP and QUIC the crate 0.0.40 is measured too, if
it can be built: the same program, with a QUIC stack that is not written in Python.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bench.measure import cpu_s, kernels_loaded, median
from lading import testing
from tests.behaviours.relays import Carrier, QuicCarrier, TlsCarrier, WebSocketCarrier
from tests.endpoints.frames import HEAD, Frames, header, message, poll, to_partition
from tests.interop import rust_client

QUESTION = "Iggy's transports on the same work: rate, share of TCP's, CPU of the broker"

SECURE = "iggy_tcp.secure"
BATCHES = {1: 3_000, 100: 60_000, 1000: 200_000}
"""Messages a round, by batch size."""
STREAM = 1
RUST_STREAM = 2


class TcpCarrier(Carrier):
    """Plain TCP."""

    def __init__(self, address: str) -> None:
        self._frames = Frames(address)

    def exchange(self, frame: bytes) -> bytes:
        self._frames.socket.sendall(frame)
        status, body = self._frames.answer()
        return HEAD.pack(status, len(body)) + body

    def close(self) -> None:
        self._frames.close()


TRANSPORTS: dict[str, tuple[str, Callable[[str], Carrier]]] = {
    "TCP": ("iggy_tcp", TcpCarrier),
    "TLS": (SECURE, TlsCarrier),
    "WebSocket": ("iggy_websocket", WebSocketCarrier),
    "QUIC": ("iggy_quic", QuicCarrier),
}


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: client, transport, what, batch, k messages/s (median), share of TCP's, CPU of the broker, p50."""
    rounds, scale = (1, 10) if quick else (5, 1)
    settings = {
        "endpoints.iggy_tcp.listeners.secure.address": testing.FREE_PORT,
        "endpoints.iggy_tcp.listeners.secure.tls.enabled": True,
    }
    rows: list[dict[str, Any]] = []
    with testing.broker(durability="os", settings=settings) as broker:
        kernels_loaded(broker)
        topics = iter(range(1, 1000))
        for batch, count in BATCHES.items():
            taken: dict[tuple[str, str], list[dict[str, float]]] = {}
            # by turns: what else the machine does meets all alike
            for _ in range(rounds):
                for transport in TRANSPORTS:
                    for what, figures in _exchange(broker, transport, next(topics), batch, count // scale).items():
                        taken.setdefault((transport, what), []).append(figures)
            rows += _to_rows("Python", batch, taken)
        with suppress(rust_client.Unavailable):
            rows += _run_crate(broker, rounds, scale)
    return rows


def _exchange(
    broker: testing.BrokerProcess, transport: str, topic: int, batch: int, count: int
) -> dict[str, dict[str, float]]:
    """Send and read back ``count`` messages over a new connection."""
    place = _create(broker.endpoints["iggy_tcp"], STREAM, topic)
    endpoint, connect = TRANSPORTS[transport]
    carrier = connect(broker.endpoints[endpoint])
    headers = header(b"carrier", 2, b"UA") + header(b"trace", 1, bytes(16)) + header(b"delay", 6, bytes(4))
    sent = place + to_partition(1) + message(b"x" * 100, headers) * batch
    send = HEAD.pack(4 + len(sent), 101) + sent
    reads = [poll(place, offset, batch) for offset in range(0, count, batch)]
    requests = {"send": [send] * (count // batch), "poll": [HEAD.pack(4 + len(read), 100) + read for read in reads]}
    found: dict[str, dict[str, float]] = {}
    for what, frames in requests.items():
        times_s = []
        began_cpu_s, began_s = cpu_s(broker.pid), time.perf_counter()
        for frame in frames:
            asked_s = time.perf_counter()
            answer = carrier.exchange(frame)
            times_s.append(time.perf_counter() - asked_s)
            assert answer[:4] == bytes(4)
            assert what == "send" or struct.unpack_from("<I", answer, 8)[0] == batch
        took_s, took_cpu_s = time.perf_counter() - began_s, cpu_s(broker.pid) - began_cpu_s
        found[what] = {"rate": count / took_s, "cpu": took_cpu_s / count * 1e6, "p50_us": median(times_s) * 1e6}
    carrier.close()
    return found


def _run_crate(broker: testing.BrokerProcess, rounds: int, scale: int) -> list[dict[str, Any]]:
    """Rows of the crate over TCP and QUIC."""
    program = rust_client.build(release=True)
    addresses = {"TCP": broker.endpoints["iggy_tcp"], "QUIC": f"quic://{broker.endpoints['iggy_quic']}"}
    topics = iter(range(1, 1000))
    rows = []
    for batch, count in BATCHES.items():
        taken: dict[tuple[str, str], list[dict[str, float]]] = {}
        for _ in range(rounds):
            for transport, address in addresses.items():
                topic = next(topics)
                _create(broker.endpoints["iggy_tcp"], RUST_STREAM, topic)
                for what in ("send", "poll"):
                    began_cpu_s = cpu_s(broker.pid)
                    words = (what, address, RUST_STREAM, topic, batch, count // scale, 1)
                    figures: dict[str, float] = rust_client.run(program, *map(str, words))[0]
                    figures["rate"] = figures["messages"] / figures["seconds"]
                    figures["cpu"] = (cpu_s(broker.pid) - began_cpu_s) / figures["messages"] * 1e6
                    taken.setdefault((transport, what), []).append(figures)
        rows += _to_rows("crate 0.0.40", batch, taken)
    return rows


def _to_rows(client: str, batch: int, taken: dict[tuple[str, str], list[dict[str, float]]]) -> list[dict[str, Any]]:
    def middle(transport: str, what: str, figure: str) -> float:
        return median(one[figure] for one in taken[transport, what])

    return [
        {
            "client": client,
            "batch": batch,
            "what": what,
            "transport": transport,
            "k messages/s": round(middle(transport, what, "rate") / 1000, 1),
            "of TCP's": round(middle(transport, what, "rate") / middle("TCP", what, "rate"), 2),
            "CPU us a message": round(middle(transport, what, "cpu"), 2),
            "p50 us": round(middle(transport, what, "p50_us")),
        }
        for transport, what in sorted(taken, key=lambda key: key[1], reverse=True)
    ]


def _create(address: str, stream: int, topic: int) -> bytes:
    """Create a topic of one partition. Return the identifiers of stream and topic as they lie in requests."""
    frames = Frames(address)
    frames.ask(202, struct.pack("<I", stream) + b"bench%d" % stream)
    identifier = struct.pack("<BBI", 1, 4, stream)
    assert frames.ask(302, identifier + struct.pack("<II", topic, 1) + b"topic%d" % topic) == (0, b"")
    frames.close()
    return identifier + struct.pack("<BBI", 1, 4, topic)

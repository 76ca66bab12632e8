"""The NSQ face beside upstream's nsqd, under the same Go clients, by turns in one run.

go-nsq waits for each answer, so one publisher is bound by wake-ups and 50 by the server. The consumer asks for 2,500 in
flight and finishes each message. Latency is from PUB to the handler at 1,000 messages/s with output buffering off.
go-nsq is what bounds that consumer: another one reads frames from a plain socket and finishes all of a read at once.
nsqd never syncs; ours is measured both with a sync before each answer and without. The rows of ext headers are ours
alone, over a plain socket: upstream has none.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from bench._nsq_frames import READY, finish_messages, read_oks
from bench.measure import kernels_loaded, median, threads_cpu_s
from lading import testing
from tests.endpoints.connection import Connection
from tests.interop import go_programs

QUESTION = "NSQ clients on our broker ÷ on upstream's nsqd: go-nsq, 100 B, messages/s and CPU seconds per million"
ROUNDS = 5
SIZE = 100
COUNTS = {"PUB": 20_000, "PUB, 50 publishers": 100_000, "MPUB of 200": 400_000, "consume": 200_000}
BY_SOCKET = "consume by socket"
SOCKET_COUNT = 400_000
LATENCY_COUNT, PER_SECOND = 5_000, 1_000
EXT = json.dumps({"##client_dispatch_tag": "a", "carrier": "UA", "delay": 12}, separators=(",", ":")).encode()
_numbers = count(1)


@dataclass
class NsqSide:
    """A server and what was seen of it."""

    name: str
    tcp: str
    http: str
    pid: int
    rates: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)
    latency: list[tuple[float, float]] = field(default_factory=list)
    ca_file: str = ""
    """Certificates to trust; with them clients change to TLS."""


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: what, messages/s of nsqd, ours and ours synced, ratios, CPU seconds per million; median of 5."""
    scale, rounds = (10, 1) if quick else (1, ROUNDS)
    try:
        program = go_programs.client("load")
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            nsqd = stack.enter_context(go_programs.running(directory))
            sides = [NsqSide("nsqd", nsqd.nsqd_tcp, nsqd.nsqd_http, nsqd.nsqd_pid)]
            for name, durability in (("lading", "os"), ("lading synced", "fsync")):
                broker = stack.enter_context(testing.broker(durability=durability))
                kernels_loaded(broker)
                sides.append(NsqSide(name, broker.endpoints["nsqd_tcp"], broker.endpoints["nsqd_http"], broker.pid))
            client = go_programs.Conversation(program)
            stack.callback(client.close)
            for _ in range(rounds):
                for side in sides:
                    drive(client, side, scale)
                    consume_by_socket(side, SOCKET_COUNT // scale)
                for side in sides[1:]:
                    _ext(side, scale)
    except go_programs.Unavailable as missing:
        print(f"not measured: {missing}", file=sys.stderr)
        return []
    return _rows(sides)


def _topic(side: NsqSide, channel: bool, ext: bool = False) -> str:
    name = f"bench_{next(_numbers)}"
    if ext:
        connection = Connection(side.tcp)
        connection.socket.sendall(b"  V2INTERNAL_CREATE_TOPIC %s 0 true\n" % name.encode())
        read_oks(connection.socket, 1)
        connection.close()
    else:
        httpx.post(f"http://{side.http}/topic/create", params={"topic": name}).raise_for_status()
    if channel:
        httpx.post(f"http://{side.http}/channel/create", params={"topic": name, "channel": "bench"}).raise_for_status()
    return name


def drive(client: go_programs.Conversation, side: NsqSide, scale: int) -> None:
    """Publish, consume and take latencies once, ``1 / scale`` of the messages; rates and CPU go into ``side``."""
    kept = _topic(side, channel=True)
    runs: list[tuple[str, dict[str, Any]]] = [
        ("PUB", {"op": "publish", "batch": 1, "publishers": 1, "topic": _topic(side, channel=False)}),
        ("PUB, 50 publishers", {"op": "publish", "batch": 1, "publishers": 50, "topic": _topic(side, channel=False)}),
        ("MPUB of 200", {"op": "publish", "batch": 200, "publishers": 1, "topic": kept}),
        ("consume", {"op": "consume", "channel": "bench", "in_flight": 2500, "topic": kept}),
    ]
    for what, request in runs:
        messages = COUNTS[what] // scale
        used_s = threads_cpu_s(side.pid)
        told = _asked(client, side, size=SIZE, count=messages, **request)
        side.rates.setdefault(what, []).append(messages / told["seconds"])
        side.cpu.setdefault(what, []).append((threads_cpu_s(side.pid) - used_s) / messages * 1e6)
    request = {"op": "latency", "channel": "bench", "in_flight": 100, "topic": _topic(side, channel=True)}
    told = _asked(client, side, size=SIZE, count=LATENCY_COUNT // scale, per_second=PER_SECOND, **request)
    side.latency.append((told["p50_us"], told["p99_us"]))


def _asked(client: go_programs.Conversation, side: NsqSide, **request: Any) -> dict[str, Any]:
    told = client.ask(address=side.tcp, ca_file=side.ca_file, **request)
    if told["error"]:
        raise RuntimeError(f"{side.name}, {request['op']}: {told['error']}")
    return told


def _ext(side: NsqSide, scale: int) -> None:
    """PUB_EXT one by one, and MPUB_EXT of 200, each after the answer of the one before."""
    item = struct.pack(">H", len(EXT)) + EXT + b"x" * SIZE
    single = struct.pack(">I", len(item)) + item
    batch = struct.pack(">I", 200) + 200 * single
    for what, name, body, messages in (
        ("PUB_EXT", b"PUB_EXT", single, 1),
        ("MPUB_EXT of 200", b"MPUB_EXT", struct.pack(">I", len(batch)) + batch, 200),
    ):
        command = name + b" " + _topic(side, channel=False, ext=True).encode() + b" 0\n" + body
        connection = Connection(side.tcp)
        connection.socket.sendall(b"  V2")
        requests = (400_000 // scale if messages > 1 else 20_000 // scale) // messages
        used_s, begun = threads_cpu_s(side.pid), time.perf_counter()
        for _ in range(requests):
            connection.socket.sendall(command)
            read_oks(connection.socket, 1)
        took = time.perf_counter() - begun
        connection.close()
        side.rates.setdefault(what, []).append(requests * messages / took)
        side.cpu.setdefault(what, []).append((threads_cpu_s(side.pid) - used_s) / requests / messages * 1e6)


def consume_by_socket(side: NsqSide, messages: int) -> None:
    """Consume what MPUB has filled a topic with: frames are of one size, so that a read is finished in one step."""
    connection = Connection(side.tcp)
    topic = _topic(side, channel=True).encode()
    body = struct.pack(">I", 200) + 200 * (struct.pack(">I", SIZE) + b"x" * SIZE)
    fill = b"MPUB " + topic + b"\n" + struct.pack(">I", len(body)) + body
    connection.socket.sendall(b"  V2")
    for _ in range(messages // 200):
        connection.socket.sendall(fill)
        read_oks(connection.socket, 1)
    connection.socket.sendall(b"SUB " + topic + b" bench\n")
    read_oks(connection.socket, 1)
    used_s, begun = threads_cpu_s(side.pid), time.perf_counter()
    connection.socket.sendall(b"RDY %d\n" % READY)
    finish_messages(connection.socket, messages, SIZE)
    took = time.perf_counter() - begun
    connection.close()
    side.rates.setdefault(BY_SOCKET, []).append(messages / took)
    side.cpu.setdefault(BY_SOCKET, []).append((threads_cpu_s(side.pid) - used_s) / messages * 1e6)


def _rows(sides: list[NsqSide]) -> list[dict[str, Any]]:
    theirs, *ours = sides
    rows: list[dict[str, Any]] = []
    for what in ours[0].rates:
        row: dict[str, Any] = {"what": f"{what}, messages/s"}
        for side in sides:
            row[side.name] = round(median(side.rates[what])) if what in side.rates else None
        for side in ours:
            row[f"{side.name} ÷ nsqd"] = round(row[side.name] / row["nsqd"], 2) if row["nsqd"] else None
        used = [round(median(side.cpu[what]), 2) if what in side.cpu else None for side in sides]
        row["CPU s/M"] = " / ".join("-" if one is None else f"{one:g}" for one in used)
        rows.append(row)
    for part, name in enumerate(("p50", "p99")):
        values = {side.name: median(pair[part] for pair in side.latency) for side in sides}
        ratios = {f"{side.name} ÷ nsqd": round(values[side.name] / values[theirs.name], 2) for side in ours}
        rows.append({"what": f"{name} at {PER_SECOND:,}/s, us", **{k: round(v) for k, v in values.items()}, **ratios})
    return rows

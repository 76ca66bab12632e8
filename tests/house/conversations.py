"""What connections do with the same bytes, cut in any way, on a log that acknowledges at once, late, or with an error.

A conversation is a stream of bytes, a way to cut it and a way in which the log acknowledges. What the endpoint does
with it (writes, pauses, ends, metrics) is kept as a digest in ``tests/vectors/conversations.json``, taken from the
connection classes that each protocol had before there was one core. ``python -m tests.house.conversations`` writes the
digests of conversations that have none yet; ``--show NAME`` prints what one does.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final, NamedTuple, cast
from unittest import mock

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.dialects.kafka.requests import prepare_codecs
from lading.dialects.kafka.versions import SERVED
from lading.dialects.protocols import ENDPOINTS
from lading.endpoints.base.services import Services
from lading.endpoints.base.turn_queue import TurnQueue
from lading.kernels import engine
from lading.log import disk
from lading.log.group_commit import SyncNow, WriteOnly
from lading.runtime import clock
from lading.runtime.metrics import Metrics
from lading.settings.settings import Durability, Settings
from tests.endpoints import frames as iggy
from tests.endpoints.kafka_frames import fetch, one_batch, produce, request_frame
from tests.endpoints.nsq_client import mpub, pub, sized
from tests.house.scripted import ScriptedLoop, ScriptedTransport, unbound_listener

VECTORS: Final = Path(__file__).parents[1] / "vectors"
RECORDED: Final = VECTORS / "conversations.json"
START_US: Final = 1_700_000_000_000_000
TLS_HELLO: Final = bytes.fromhex("16030100a5010000a10303") + bytes(100)
HELD_BACK_BYTES: Final = 2_000
"""So much may wait for the disk in a conversation whose log is late."""
SYNCS_BEFORE_FAULT: Final = 3
LONG: Final = 40_000
WAYS_OF_A_STREAM: Final = 2
EVERY_BYTE_OF: Final = 3

Steps = Sequence[tuple[str, bytes]]


class FailingCommit(SyncNow):
    """A disk that fails after some syncs."""

    def __init__(self) -> None:
        self._left = SYNCS_BEFORE_FAULT

    def submit(self, log: Any, done: Any = None) -> None:
        self._left -= 1
        if self._left >= 0:
            super().submit(log, done)
            return
        error = OSError(5, "Input/output error")
        log.begin_sync()
        log.fail_sync(error)
        if done is not None:
            done(error)


class Conversation(NamedTuple):
    """What one client says, and how the log behind its endpoint acknowledges."""

    name: str
    endpoint: str
    log: str
    """"instant", "prompt", "late" or "failing"."""
    steps: Steps


# -- what clients say


def _iggy(code: int, payload: bytes = b"") -> bytes:
    return iggy.HEAD.pack(4 + len(payload), code) + payload


_ONE = struct.pack("<BBI", 1, 4, 1)
_TOPIC = _ONE + _ONE
_IGGY_TOPIC = _iggy(202, struct.pack("<I", 1) + b"stream") + _iggy(302, _ONE + struct.pack("<II", 1, 2) + b"topic")


def _iggy_send(number: int, size: int = 10) -> bytes:
    message = iggy.message(b"%d " % number + b"x" * size, iggy.header(b"key", 2, b"value"), number + 1)
    return _iggy(101, _TOPIC + iggy.to_partition(1 + number % 2) + message)


def _iggy_streams() -> dict[str, bytes]:
    captured = [json.loads(line) for line in (VECTORS / "iggy_classic_capture.jsonl").read_text().splitlines()]
    sends = b"".join(map(_iggy_send, range(100)))
    poll = _iggy(100, iggy.poll(_TOPIC))
    ping, bad_send = _iggy(1), _iggy(101, _TOPIC + iggy.to_partition(9) + iggy.message(b"x"))
    mixed = b"".join(
        _iggy_send(number, 50 * number) + (poll, ping, bad_send, _iggy(20), _iggy(300, _ONE))[number % 5]
        for number in range(25)
    )
    return {
        "captured": b"".join(bytes.fromhex(one["request_hex"]) for one in captured if "stats" not in one["name"]),
        "sends": _IGGY_TOPIC + sends + poll + ping,
        "mixed": _IGGY_TOPIC + mixed,
        "large": _IGGY_TOPIC + _iggy_send(1, LONG) * 4 + poll * 4,
        "pings": ping * 30,
        "too short": _IGGY_TOPIC + _iggy_send(1) + poll + _iggy_send(2) + struct.pack("<II", 3, 1) + ping,
        "too long": _IGGY_TOPIC + _iggy_send(1) + struct.pack("<II", 1 << 30, 101) + b"x" * 100,
        "half": _IGGY_TOPIC + _iggy_send(1) + _iggy_send(2)[:-3],
        "tls": TLS_HELLO,
    }


def _kafka(name: str, version: int, correlation: int = 7, **fields: Any) -> bytes:
    frame = request_frame(name, version, correlation, **fields)
    return struct.pack(">i", len(frame)) + frame


def _kafka_produce(number: int, size: int = 20, *, acks: int = -1, spoilt: bool = False) -> bytes:
    data = one_batch(b"%d " % number + b"x" * size)
    if spoilt:
        data = data[:-1] + bytes([data[-1] ^ 1])
    return _kafka("Produce", 9 - 2 * (number % 2), number, **produce("topic", data, acks=acks))


def _kafka_streams() -> dict[str, bytes]:
    topic = {"name": "topic", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    create = _kafka("CreateTopics", 4, topics=[topic], timeout_ms=1000, validate_only=False)
    fetching = _kafka("Fetch", 11, 8, **fetch("topic"))
    versions, metadata = _kafka("ApiVersions", 0, 9), _kafka("Metadata", 1, 10, topics=None)
    captured = [
        bytes.fromhex(frame["request_hex"])
        for file in ("kafka_frames.json", "kafka_requests.json")
        for frame in json.loads((VECTORS / file).read_text())["frames"]
        # what is told of the broker's own process differs with the machine
        if frame["api"] not in ("DescribeLogDirs", "JoinGroup", "SyncGroup")
    ]
    mixed = b"".join(
        _kafka_produce(number, 40 * number) + (fetching, versions, metadata, b"")[number % 4] for number in range(30)
    )
    many = one_batch(*(b"%d" % number for number in range(200)))
    too_long = struct.pack(">i", 1 << 30)
    return {
        "captured": create + b"".join(struct.pack(">i", len(frame)) + frame for frame in captured),
        "produces": create + b"".join(map(_kafka_produce, range(160))) + fetching,
        "mixed": create + mixed,
        "large": create
        + b"".join(_kafka_produce(number, 300_000) for number in range(14))
        + _kafka("Fetch", 11, 8, **fetch("topic", max_bytes=16 << 20, partition_bytes=16 << 20)) * 2
        + versions,
        "many": create + _kafka("Produce", 9, 3, **produce("topic", many)) * 3 + metadata,
        "spoilt": create + _kafka_produce(1) + _kafka_produce(3, spoilt=True) + _kafka_produce(5),
        "unanswered": create + b"".join(_kafka_produce(number, acks=0) for number in range(9)) + versions,
        "unanswered and spoilt": create + _kafka_produce(1, acks=0) + _kafka_produce(3, acks=0, spoilt=True) + versions,
        "unknown": create + _kafka_produce(1) + struct.pack(">i", 10) + struct.pack(">hhih", 999, 0, 1, -1) + versions,
        "too long": create + _kafka_produce(1) + too_long + b"x" * 20,
        "half": create + _kafka_produce(1) + _kafka_produce(2)[:-3],
        "tls": TLS_HELLO,
    }


def _nsq_streams() -> dict[str, bytes]:
    captured = [json.loads(line) for line in (VECTORS / "nsqd_capture.jsonl").read_text().splitlines()[1:]]
    said = {
        f"captured {one['case']}": b"".join(
            bytes.fromhex(part["hex"])
            for part in one["exchange"]
            if part["dir"] == "c" and "hex" in part and "truncated_len" not in part
        )
        for one in captured
        if one["transport"] == "tcp" and not one["case"].startswith("lookup")
    }
    publications = b"".join(pub("topic", b"%d" % number) for number in range(300))
    mixed = b"".join(
        pub("topic", b"x" * 50 * number)
        + (mpub("topic", b"a", b"b"), b"NOP\n", pub("other", b"y"), b"TOUCH 0123456789abcdef\n", b"")[number % 5]
        for number in range(1, 30)
    )
    subscribed = b"  V2" + sized(b"IDENTIFY\n", b'{"heartbeat_interval":1000,"msg_timeout":60000}')
    subscribed += b"SUB topic channel\nRDY 10\n"
    fins = b"".join(b"FIN " + struct.pack(">QQ", 1 + number, 0) + b"\n" for number in range(40))
    return {
        "publications": b"  V2" + publications + b"NOP\n",
        "mixed": b"  V2" + mixed,
        "large": b"  V2" + pub("topic", b"x" * LONG) * 6 + mpub("topic", *[b"y" * 500] * 50),
        "subscribed": subscribed + b"RDY 20\n" + fins + b"RDY 0\nCLS\n",
        "many commands": subscribed + b"RDY 5\n" * 2100,
        "bad magic": b"  V1" + pub("topic", b"x"),
        "bad command": b"  V2" + pub("topic", b"x") + b"WHAT\n" + pub("topic", b"y"),
        "bad size": b"  V2" + pub("topic", b"x") + b"PUB topic\n\0\0\0\0" + pub("topic", b"y"),
        "half": b"  V2" + pub("topic", b"x") + pub("topic", b"y")[:-1],
        "tls": TLS_HELLO,
        **dict(list(said.items())[::12]),
    }


STREAMS: Final[dict[str, Callable[[], dict[str, bytes]]]] = {
    "iggy_tcp": _iggy_streams,
    "kafka": _kafka_streams,
    "nsqd_tcp": _nsq_streams,
}

LOGS: Final = ("instant", "prompt", "late", "failing")
EVENTS: Final = ("flush", "flush", "flush", "pause", "resume", "turn", "wait")
"""What may happen between two reads of a conversation that is cut at random."""


def _conversations() -> Iterator[Conversation]:
    for endpoint, streams in STREAMS.items():
        for stream, data in streams().items():
            for log in LOGS:
                name = f"{endpoint} {stream}, {log} log"
                yield Conversation(f"{name}, whole", endpoint, log, [("data", data), ("flush", b""), ("eof", b"")])
                yield Conversation(f"{name}, eof at once", endpoint, log, [("data", data), ("eof", b"")])
                yield Conversation(f"{name}, stopped", endpoint, log, _cut(data, f"{name} stop", ends=("stop",)))
                for number in range(3):
                    yield Conversation(f"{name}, cut {number}", endpoint, log, _cut(data, f"{name} {number}"))
            if len(data) < 3_000:
                every = [("data", data[at : at + 1]) for at in range(len(data))]
                yield Conversation(f"{endpoint} {stream}, every byte", endpoint, "prompt", [*every, ("eof", b"")])


def _cut(data: bytes, seed: str, ends: Sequence[str] = ("eof", "lost", "stop", "flush")) -> Steps:
    """Return the stream in pieces of any length, with what may happen between them, and at the end."""
    chance = random.Random(seed)
    steps: list[tuple[str, bytes]] = []
    largest = chance.choice((3, 30, 300, 3_000)) if len(data) < 20_000 else chance.choice((3_000, 30_000, 300_000))
    at = 0
    while at < len(data):
        size = chance.randint(1, largest)
        steps.append(("data", data[at : at + size]))
        at += size
        while chance.random() < 0.3:
            steps.append((chance.choice(EVENTS), b""))
    end = chance.choice(ends)
    steps += [(end, b""), ("resume", b""), ("flush", b""), ("wait", b"")]
    return steps


@cache
def list_conversations() -> Mapping[str, Conversation]:
    """Return all conversations by their names."""
    return {one.name: one for one in _conversations()}


def choose_conversations(endpoint: str, log: str) -> list[Conversation]:
    """Return the conversations of the ordinary run: of each stream two ways in turn, so that each way has its turns.

    Each stream has six ways, and two at each of four logs: all of them come up. Byte by byte goes every third stream.
    """
    by_stream: dict[str, list[Conversation]] = {}
    for each in list_conversations().values():
        if (each.endpoint, each.log) == (endpoint, log):
            by_stream.setdefault(each.name.split(",")[0], []).append(each)
    chosen = []
    for number, ways in enumerate(by_stream.values()):
        *others, last = ways
        if last.name.endswith("every byte"):
            chosen += [last] if number % EVERY_BYTE_OF == 0 else []
        else:
            others = ways
        turn = number + 2 * LOGS.index(log)
        chosen += [others[(turn + more) % len(others)] for more in range(WAYS_OF_A_STREAM)]
    return chosen


# -- what endpoints do


class RecordingTransport(ScriptedTransport):
    """A transport that keeps what was asked of it in one list, writes that follow each other joined."""

    def __init__(self) -> None:
        super().__init__()
        self.record: list[str | bytes] = []

    def _keep(self, event: str) -> None:
        self.events.append(event)
        if not (event == "close" and event in self.record):
            self.record.append(event)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.record and isinstance(self.record[-1], bytes):
            self.record[-1] += bytes(data)
        elif data:
            self.record.append(bytes(data))

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def is_closing(self) -> bool:
        return "close" in self.events or "abort" in self.events

    @property
    def is_reading(self) -> bool:
        kept = [event for event in self.events if event in ("pause_reading", "resume_reading")]
        return not kept or kept[-1] == "resume_reading"

    def write_eof(self) -> None:
        self._keep("write_eof")

    def pause_reading(self) -> None:
        self._keep("pause_reading")

    def resume_reading(self) -> None:
        self._keep("resume_reading")

    def close(self) -> None:
        self._keep("close")

    def abort(self) -> None:
        # nothing comes of it for a connection that is gone: a timer may still ask for it
        if "lost" not in self.record:
            self._keep("abort")


class Driver:
    """One client at one endpoint, and the broker behind it."""

    def __init__(self, loop: ScriptedLoop, broker: Broker, server: Any, services: Services, *, late: bool) -> None:
        self._loop, self._broker, self._server, self._services, self._late = loop, broker, server, services, late
        assert loop.factory is not None
        self.protocol = loop.factory()
        self._transport = RecordingTransport()
        self._undelivered = b""
        self._eof = self._lost = self._paused = False
        self._stop: Any = None
        self.protocol.connection_made(cast("Any", self._transport))

    def do(self, step: str, data: bytes) -> None:
        """Take one step, with all that follows from it at once."""
        self._transport.record.append(step)
        if step == "data":
            self._undelivered += data
        elif step == "flush":
            self._broker.appender.flush()
        elif step == "pause" and not (self._paused or self._lost):
            self._paused = True
            self.protocol.pause_writing()
        elif step == "resume" and self._paused and not self._lost:
            self._paused = False
            self.protocol.resume_writing()
        elif step == "wait":
            self._loop.advance(0.7)
        elif step == "eof":
            self._eof = True
        elif step == "lost" and not self._lost:
            self._lose()
        elif step == "stop" and not self._lost and not self._services.stopping:
            self._services.begin_stop()
            self._stop = self._loop.create_task(self._server.stop())
        left_bytes = None
        while left_bytes != len(self._undelivered):
            # an endpoint that has paused reading, so that others have their turn, reads on in a later pass
            left_bytes = len(self._undelivered)
            self._deliver()
            self._loop.turn()
        self._deliver()
        self._end()

    def finish(self) -> list[str | bytes]:
        """End the connection where it has not ended, and return all that happened."""
        self.do("flush", b"")
        self._loop.advance(6.0)
        self._end()
        if not self._lost:
            self._transport.record.append("still there")
            self._lose()
        self._loop.turn()
        return self._transport.record

    def _deliver(self) -> None:
        while self._undelivered and self._transport.is_reading and not (self._lost or self._transport.is_closing()):
            room = cast("memoryview", self.protocol.get_buffer(-1))
            size = min(len(room), len(self._undelivered))
            room[:size] = self._undelivered[:size]
            self._undelivered = self._undelivered[size:]
            try:
                self.protocol.buffer_updated(size)
            except Exception as error:
                self._transport.record.append(f"raised {type(error).__name__}")
                self._transport.abort()
            self._end()
        if self._eof and not (self._undelivered or self._lost or self._transport.is_closing()):
            self._eof = False
            if not self.protocol.eof_received():
                self._transport.close()
        self._end()

    def _end(self) -> None:
        if self._transport.is_closing() and not self._lost:
            self._loop.turn()
            self._lose()

    def _lose(self) -> None:
        self._lost = True
        self._transport.record.append("lost")
        self.protocol.connection_lost(None)


@contextmanager
def _fixed(loop: ScriptedLoop) -> Iterator[None]:
    """Clocks that the loop turns, and chance that is the same each time."""
    chance = random.Random(1)

    def now_s() -> float:
        return START_US / 1e6 + loop.time()

    def now_ns() -> int:
        return START_US * 1000 + int(loop.time() * 1e9)

    with ExitStack() as patches:
        for target, name, value in (
            (time, "monotonic_ns", now_ns),
            (time, "time_ns", now_ns),
            (time, "monotonic", now_s),
            (time, "time", now_s),
            (os, "urandom", chance.randbytes),
            # what a sync says is scripted: the machine's own disk need not be asked
            (os, "fsync", lambda handle: None),
            (disk, "_sync_data", lambda handle: None),
            (clock, "_START_US", 0),
        ):
            patches.enter_context(mock.patch.object(target, name, value))
        yield


def converse(conversation: Conversation, directory: Path) -> list[str | bytes]:
    """Return all that an endpoint does in a conversation: steps, and what came of each."""
    # with all requests of Kafka that there are
    endpoints = {"kafka": {"client_metrics": "*"}}
    settings = Settings.model_validate({"data": directory, "busy_poll_us": 0, "endpoints": endpoints})
    log = conversation.log
    commit = {"instant": WriteOnly, "prompt": SyncNow, "late": SyncNow, "failing": FailingCommit}[log]()
    unsynced_bytes_max = HELD_BACK_BYTES if log == "late" else 1 << 30
    durability: Durability = "os" if log == "instant" else "fsync"
    with ScriptedLoop() as loop, ThreadPoolExecutor(1) as workers, _fixed(loop):
        wanted = BrokerSettings(durability=durability, unsynced_bytes_max=unsynced_bytes_max)
        broker = Broker.open(directory, wanted, now_us=START_US, commit=commit)
        if log != "late":
            broker.appender.on_pending = lambda: loop.call_soon(broker.appender.flush)
        services = Services(broker, settings, Metrics(), workers)
        # how long a turn takes is the machine's chance: here all that wait have theirs in one pass
        services.turns = TurnQueue(clock=lambda: 0.0)
        server = resolve_name(ENDPOINTS[conversation.endpoint].factory)(services, conversation.endpoint)
        with unbound_listener() as listener:
            loop.finish(server.start(listener))
        driver = Driver(loop, broker, server, services, late=log == "late")
        for step, data in conversation.steps:
            driver.do(step, data)
        record = driver.finish()
        broker.stop()
        metrics = services.metrics
        names = ["sent_bytes", "received_bytes", "dropped", "messages_in", "messages_out"]
        # a request whose response was ready, and never sent, may be counted or not
        names += ["requests"] if "close" in record else []
        counted = {
            name: sorted((labels, value) for labels, value in getattr(metrics, name).values.items() if value)
            for name in names
        }
        return [*record, repr(counted), repr(dict(metrics.connections))]


def to_digest(record: Sequence[str | bytes]) -> str:
    """Return what stands for a record in the file of recorded conversations."""
    return hashlib.sha256(repr(record).encode()).hexdigest()[:16]


def warm_up() -> None:
    """Load all kernels, and what endpoints load when they are first used: some of it takes chance of its own."""
    for home in engine.list_kernel_modules():
        engine.load(home)
    prepare_codecs(SERVED)
    for endpoint in STREAMS:
        with tempfile.TemporaryDirectory() as directory:
            converse(next(each for each in list_conversations().values() if each.endpoint == endpoint), Path(directory))


def main(arguments: Sequence[str]) -> None:
    """Write the digests of conversations that have none, or show what one does."""
    warm_up()
    shown = arguments[1] if arguments[:1] == ["--show"] else None
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    found = {}
    for name, conversation in list_conversations().items():
        if shown in (None, name) and (shown or name not in recorded):
            with tempfile.TemporaryDirectory() as directory:
                record = converse(conversation, Path(directory))
            found[name] = to_digest(record)
            if shown:
                sys.stdout.write("".join(f"{one!r}\n" for one in record))
    if not shown:
        kept = {name: digest for name, digest in recorded.items() if name in list_conversations()} | found
        RECORDED.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

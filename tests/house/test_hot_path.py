"""Calls that one request costs, Python's and C's, counted by the interpreter: exact, whatever else the machine does.

A rise of a figure fails. Where it falls, write the new figure down, so that nobody takes the gain back unnoticed.
"""

from __future__ import annotations

import gc
import struct
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from types import FrameType
from typing import Any, Final

import pytest

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.dialects.protocols import ENDPOINTS
from lading.endpoints.base.services import Services
from lading.endpoints.base.turn_queue import TurnQueue
from lading.kernels import engine, machine_code
from lading.log.group_commit import SyncNow, WriteOnly
from lading.runtime.metrics import Metrics
from lading.settings.settings import Durability, Settings
from tests import kernel_arguments
from tests.dialects.iggy_current import batch, frame, parse_batches
from tests.endpoints import current_frames as current
from tests.endpoints import frames as iggy
from tests.endpoints.kafka_frames import fetch, one_batch, produce, request_frame
from tests.endpoints.nsq_client import pub
from tests.house.scripted import ScriptedConnection, ScriptedLoop, unbound_listener

CALLS_MAX: Final = {
    ("Iggy send", "os"): 83,
    ("Iggy send", "fsync"): 104,
    ("Iggy poll", "os"): 89,
    ("Iggy poll", "fsync"): 89,
    ("current Iggy send", "os"): 100,
    ("current Iggy send", "fsync"): 121,
    ("current Iggy poll", "os"): 104,
    ("current Iggy poll", "fsync"): 104,
    ("Kafka Produce", "os"): 118,
    ("Kafka Produce", "fsync"): 135,
    ("Kafka Fetch", "os"): 141,
    ("Kafka Fetch", "fsync"): 141,
    ("NSQ PUB", "os"): 73,
    ("NSQ PUB", "fsync"): 99,
    ("NSQ 64 FINs", "os"): 42,
    ("NSQ 64 FINs", "fsync"): 42,
}
"""Calls a request, by what is asked and durability ("fsync": the sync itself ends within the pass)."""

ROUNDS: Final = 33
"""A figure is the middle one of so many requests: now and then a request also seals a chunk or grows a list."""
WARM_UP_ROUNDS: Final = 10
FINS: Final = 64
PUBLISHERS: Final = 50
TOGETHER_CALLS_MAX: Final = 1340
"""Calls of all PUBs that so many clients send in one pass of the loop."""

pytestmark = [
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the figures are those of Python 3.11"),
    # a cold cache of kernels is filled first
    pytest.mark.timeout(600),
]
Case = Callable[[ScriptedConnection], Iterator[bytes]]


def _iggy_topic(client: ScriptedConnection) -> bytes:
    """Create a topic with one partition; return its identifiers."""
    stream, topic = struct.pack("<BBI", 1, 4, 1), struct.pack("<BBI", 1, 4, 1)
    assert client.ask(_iggy_frame(202, struct.pack("<I", 1) + b"stream")) == bytes(8)
    assert client.ask(_iggy_frame(302, stream + struct.pack("<II", 1, 1) + b"topic")) == bytes(8)
    return stream + topic


def _iggy_frame(code: int, payload: bytes) -> bytes:
    return iggy.HEAD.pack(4 + len(payload), code) + payload


def iggy_send(client: ScriptedConnection) -> Iterator[bytes]:
    """Sends of one message with a header."""
    message = iggy.message(b"x" * 100, iggy.header(b"carrier", 2, b"UA"))
    request = _iggy_frame(101, _iggy_topic(client) + iggy.to_partition(1) + message)
    while True:
        yield request
        assert client.transport.take() == bytes(8)


def iggy_poll(client: ScriptedConnection) -> Iterator[bytes]:
    """Polls of the last ten messages."""
    topic = _iggy_topic(client)
    for number in range(20):
        assert client.ask(_iggy_frame(101, topic + iggy.to_partition(1) + iggy.message(b"%d" % number))) == bytes(8)
    request = _iggy_frame(100, iggy.poll(topic, offset=10, count=10))
    while True:
        yield request
        assert iggy.payloads(client.transport.take()[8:]) == [b"%d" % number for number in range(10, 20)]


def _current_topic(client: ScriptedConnection) -> bytes:
    """Log in, create a topic with one partition; return its names."""
    where, name = b"\x02\x06stream", b"\x05topic"
    for ask in (
        current.request(current.REGISTER, current.LOGIN),
        current.request(current.CREATE_STREAM, where[1:]),
        current.request(current.CREATE_TOPIC, where + struct.pack("<I", 1) + name),
    ):
        assert struct.unpack_from("<I", client.ask(ask), 216) == (0,)
    return where + b"\x02" + name


def iggy_current_send(client: ScriptedConnection) -> Iterator[bytes]:
    """Sends of a batch of one message with a header."""
    topic = _current_topic(client)
    one = batch([frame(b"x" * 100, [(2, b"carrier", 2, b"UA")])])
    request = current.request(current.SEND, current.sent(topic, one))
    while True:
        yield request
        assert struct.unpack_from("<I", client.transport.take(), 216) == (0,)


def iggy_current_poll(client: ScriptedConnection) -> Iterator[bytes]:
    """Polls of the first ten messages."""
    topic = _current_topic(client)
    for number in range(20):
        client.ask(current.request(current.SEND, current.sent(topic, batch([frame(b"%d" % number)]))))
    request = current.request(current.READ, current.poll(topic, 10), code=current.POLL)
    while True:
        yield request
        polled = parse_batches(client.transport.take()[256 + 16 :])
        assert [message.payload for message in polled] == [b"%d" % number for number in range(10)]


def _kafka_frame(name: str, version: int, **fields: Any) -> bytes:
    frame = request_frame(name, version, 7, **fields)
    return struct.pack(">i", len(frame)) + frame


def _kafka_topic(client: ScriptedConnection) -> str:
    topic = {"name": "topic", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    assert client.ask(_kafka_frame("CreateTopics", 4, topics=[topic], timeout_ms=1000, validate_only=False))
    return "topic"


def kafka_produce(client: ScriptedConnection) -> Iterator[bytes]:
    """Batches of one record to the partition of the last Produce."""
    request = _kafka_frame("Produce", 9, **produce(_kafka_topic(client), one_batch(b"x" * 100)))
    answered = 0
    while True:
        yield request
        answer = client.transport.take()
        assert struct.pack(">q", answered) in answer
        answered += 1


def kafka_fetch(client: ScriptedConnection) -> Iterator[bytes]:
    """Fetches of what a partition holds."""
    topic = _kafka_topic(client)
    batch = one_batch(b"x" * 100)
    for _ in range(10):
        client.ask(_kafka_frame("Produce", 9, **produce(topic, batch)))
    request = _kafka_frame("Fetch", 11, **fetch(topic))
    while True:
        yield request
        assert client.transport.take().count(b"x" * 100) == 10


def nsq_pub(client: ScriptedConnection) -> Iterator[bytes]:
    """PUBs of one message."""
    client.send(b"  V2")
    request = pub("topic", b"x" * 100)
    while True:
        yield request
        assert client.transport.take()[8:] == b"OK"


def nsq_fin(client: ScriptedConnection) -> Iterator[bytes]:
    """FINs of 64 messages in one read; the next 64 are published and delivered between them."""
    client.send(b"  V2SUB topic channel\n")
    client.send(b"RDY 100\n")
    while True:
        client.transport.take()
        for _ in range(FINS):
            client.send(pub("topic", b"x" * 100))
        ids = list(_message_ids(client.transport.take()))
        assert len(ids) == FINS
        yield b"".join(b"FIN %s\n" % each for each in ids)


def _message_ids(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size, kind = struct.unpack_from(">Ii", data, at)
        if kind == 2:
            yield data[at + 8 + 10 : at + 8 + 26]
        at += 4 + size


CASES: Final[dict[str, tuple[str, Case]]] = {
    "Iggy send": ("iggy_tcp", iggy_send),
    "Iggy poll": ("iggy_tcp", iggy_poll),
    "current Iggy send": ("iggy_tcp", iggy_current_send),
    "current Iggy poll": ("iggy_tcp", iggy_current_poll),
    "Kafka Produce": ("kafka", kafka_produce),
    "Kafka Fetch": ("kafka", kafka_fetch),
    "NSQ PUB": ("nsqd_tcp", nsq_pub),
    f"NSQ {FINS} FINs": ("nsqd_tcp", nsq_fin),
}


@pytest.fixture(scope="module", autouse=True)
def kernels() -> Iterator[None]:
    """What is counted is what a broker does once its kernels are loaded."""
    with pytest.MonkeyPatch.context() as patch:
        # checks of arguments, which tests have and a broker has not, are calls too
        patch.setattr(machine_code, "link_kernels", kernel_arguments.link_unchecked)
        patch.setattr(engine, "_loaded", {})
        for home in engine.list_kernel_modules():
            engine.load(home)
        yield


@contextmanager
def connected(directory: Path, endpoint: str, durability: Durability) -> Iterator[ScriptedConnection]:
    """A client of a broker that lies in ``directory``, wired as ``lading serve`` wires it."""
    # looking again before sleeping follows the clock: its calls would not be the same each time
    settings = Settings(data=directory, busy_poll_us=0)
    commit = WriteOnly() if durability == "os" else SyncNow()
    broker = Broker.open(directory, BrokerSettings(durability=durability), now_us=1, commit=commit)
    with ScriptedLoop() as loop, ThreadPoolExecutor(1) as workers:
        broker.appender.on_pending = lambda: loop.call_soon(broker.appender.flush)
        factory = resolve_name(ENDPOINTS[endpoint].factory)
        services = Services(broker, settings, Metrics(), workers)
        # a turn that takes long on a busy machine would put the next one off, with other calls than the turn before
        services.turns = TurnQueue(clock=lambda: 0.0)
        server = factory(services, endpoint)
        with unbound_listener() as listener:
            loop.finish(server.start(listener))
        client = loop.connect()
        try:
            yield client
        finally:
            client.close()
            broker.stop()


def count_calls(work: Callable[[bytes], None], data: bytes) -> int:
    """Calls of Python and C functions within ``work(data)``, those of this scaffold left out."""
    scaffold = str(Path(__file__).parent)
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        # a call of Python shows as the frame that begins, one of C as the frame that calls
        if event in ("call", "c_call") and not frame.f_code.co_filename.startswith(scaffold):
            calls += 1

    sys.setprofile(count)
    try:
        work(data)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("durability", ["os", "fsync"])
@pytest.mark.parametrize("name", CASES)
def test_calls_per_request(tmp_path: Path, name: str, durability: Durability) -> None:
    endpoint, case = CASES[name]
    with connected(tmp_path, endpoint, durability) as client:
        requests = case(client)
        counted = []
        gc.disable()
        try:
            for number in range(WARM_UP_ROUNDS + ROUNDS):
                request = next(requests)
                calls = count_calls(client.send, request)
                if number >= WARM_UP_ROUNDS:
                    counted.append(calls)
        finally:
            gc.enable()
        next(requests)
    calls, bound = sorted(counted)[ROUNDS // 2], CALLS_MAX[name, durability]
    assert calls <= bound, f"{name}, durability {durability}: {calls} calls a request, {bound} before"


def test_calls_of_publications_that_come_together(tmp_path: Path) -> None:
    with connected(tmp_path, "nsqd_tcp", "os") as first:
        clients = [first, *(first.loop.connect() for _ in range(PUBLISHERS - 1))]
        for client in clients:
            client.send(b"  V2")

        def publish(request: bytes) -> None:
            for client in clients:
                client.arrive(request)
            first.loop.turn()

        counted = []
        gc.disable()
        try:
            for number in range(WARM_UP_ROUNDS + ROUNDS):
                calls = count_calls(publish, pub("topic", b"x" * 100))
                assert all(client.transport.take()[8:] == b"OK" for client in clients)
                if number >= WARM_UP_ROUNDS:
                    counted.append(calls)
        finally:
            gc.enable()
    calls = sorted(counted)[ROUNDS // 2]
    assert calls <= TOGETHER_CALLS_MAX, f"{calls} calls of {PUBLISHERS} publications, {TOGETHER_CALLS_MAX} before"

"""Floods of small requests: what one connection does in one turn is bounded, and so is a pass of the loop for all.

Work is counted in calls, as the interpreter sees them: exact, whatever else the machine does.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

import pytest

from lading.endpoints.base.turn_queue import LONG_TURN_S, LONG_TURNS, PASS_S, TurnQueue
from lading.endpoints.io.websocket import FRAGMENTS_MAX
from lading.kernels import engine
from lading.settings.settings import Settings
from tests.endpoints import current_frames as current
from tests.endpoints.authority import Authority
from tests.endpoints.kafka_frames import request_frame
from tests.endpoints.nsq_client import pub, sized
from tests.endpoints.request_cost import World, opened_world
from tests.endpoints.websocket_frames import BINARY, CONT, HANDSHAKE, PING, encode_frame
from tests.house.scripted import ScriptedConnection, ScriptedHttpConnection
from tests.house.test_hot_path import connected, count_calls

READ_BYTES: Final = 16 << 10
CALLS_MAX: Final = 6_000
"""In one turn: about a millisecond. FINs of unknown ids took 23,387 calls in one, ApiVersions of Kafka 30,849."""
KEY: Final = b"\x01\x02\x03\x04"
MANY_HEADERS: Final = json.dumps({f"key-{number}": "value" for number in range(180)}).encode()
PING_REQUEST: Final = struct.pack("<II", 4, 1)


def _kafka(name: str, version: int, **fields: Any) -> bytes:
    request = request_frame(name, version, 7, **fields)
    return struct.pack(">i", len(request)) + request


def _opened(client: ScriptedConnection) -> None:
    client.ask(HANDSHAKE.encode() + b"\r\n")


def _subscribed(client: ScriptedConnection) -> None:
    client.ask(b"  V2SUB topic channel\n")


def _identified(client: ScriptedConnection) -> None:
    facts = {"version": "1", "tcp_port": 1, "http_port": 2, "broadcast_address": "127.0.0.1"}
    client.ask(b"  V1" + sized(b"IDENTIFY\n", json.dumps(facts).encode()))


def _logged_in(client: ScriptedConnection) -> None:
    client.ask(current.request(current.REGISTER, current.LOGIN))


FLOODS: Final[dict[str, tuple[str, Callable[[ScriptedConnection], object], bytes]]] = {
    "NSQ NOP": ("nsqd_tcp", lambda client: client.ask(b"  V2"), b"NOP\n"),
    "NSQ unknown commands": ("nsqd_tcp", _subscribed, b"RDY x\n"),
    "NSQ RDY": ("nsqd_tcp", _subscribed, b"RDY 1\n"),
    "NSQ TOUCH of unknown ids": ("nsqd_tcp", _subscribed, b"TOUCH 0123456789abcdef\n"),
    "NSQ FIN of unknown ids": ("nsqd_tcp", _subscribed, b"FIN 0123456789abcdef\n"),
    "NSQ empty MPUB": ("nsqd_tcp", lambda client: client.ask(b"  V2"), sized(b"MPUB t\n", bytes(4))),
    "NSQ PUB": ("nsqd_tcp", lambda client: client.ask(b"  V2"), pub("t", b"x")),
    "NSQ PUB of many headers": (
        "nsqd_tcp",
        lambda client: client.ask(b"  V2"),
        sized(b"PUB_EXT t\n", struct.pack(">H", len(MANY_HEADERS)) + MANY_HEADERS + b"x"),
    ),
    "NSQ IDENTIFY again": ("nsqd_tcp", _subscribed, sized(b"IDENTIFY\n", b"{}")),
    "nsqlookupd REGISTER": ("nsqlookupd_tcp", _identified, b"REGISTER t c\n"),
    "nsqlookupd UNREGISTER": ("nsqlookupd_tcp", _identified, b"UNREGISTER t c\n"),
    "nsqlookupd PING": ("nsqlookupd_tcp", lambda client: client.ask(b"  V1"), b"PING\n"),
    "Kafka ApiVersions": ("kafka", lambda client: None, _kafka("ApiVersions", 0)),
    "Kafka Metadata of nothing": ("kafka", lambda client: None, _kafka("Metadata", 1, topics=[])),
    "Iggy ping": ("iggy_tcp", lambda client: None, struct.pack("<II", 4, 1)),
    "Iggy unknown commands": ("iggy_tcp", lambda client: None, struct.pack("<II", 4, 9_999)),
    "current Iggy ping": ("iggy_tcp", _logged_in, current.request(current.READ, code=current.PING)),
    "current Iggy ping of strangers": (
        "iggy_tcp",
        lambda client: client.ask(current.request(current.READ, code=current.PING)),
        current.request(current.READ, code=current.PING),
    ),
    "current Iggy unknown commands": ("iggy_tcp", _logged_in, current.request(current.READ, code=9_999)),
    "current Iggy sends of nothing": ("iggy_tcp", _logged_in, current.request(current.SEND, b"")),
    "WebSocket empty fragments": ("iggy_websocket", _opened, encode_frame(CONT, b"", KEY, fin=False)),
    "WebSocket pings": ("iggy_websocket", _opened, encode_frame(PING, b"", KEY)),
    "Iggy ping in a WebSocket": ("iggy_websocket", _opened, encode_frame(BINARY, struct.pack("<II", 4, 1), KEY)),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_taken_in_turns(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # as in the first second after a start: NSQ stored 1,490 small messages, or four of 3,000 headers, in one turn then
    monkeypatch.setattr(engine, "_loaded", {})
    endpoint, begin, request = FLOODS[name]
    with connected(tmp_path, endpoint, "os") as client:
        begin(client)
        first = encode_frame(BINARY, b"", KEY, fin=False) if "fragments" in name else b""
        flood = first + request * (READ_BYTES // len(request) - 1)
        # the first request of a kind loads modules
        client.ask(first + request) if not first else None
        protocol = client.protocol
        room = cast("memoryview", protocol.get_buffer(-1))
        size = min(len(room), len(flood))
        room[:size] = flood[:size]
        turns: list[Callable[[], None]] = []
        calls = count_calls(lambda _: protocol.buffer_updated(size), b"")
        assert calls < CALLS_MAX
        ready = client.loop._ready
        while ready:
            callback, arguments = ready.popleft()
            turns.append(callback)
            callback(*arguments)
        # and all of it is taken in the end, unless it ended the connection
        inbox = protocol.inbox  # type: ignore[attr-defined]
        assert inbox.at == inbox.have or client.transport.is_closing() or "write_eof" in client.transport.events


@pytest.mark.parametrize("version", [0, 1, 3])
def test_the_first_request_of_a_client_of_kafka_is_little(tmp_path: Path, version: int) -> None:
    """ApiVersions encoded 50 rows: after three of these turns a client waited for floods as if it were part of one."""
    fields = {"client_software_name": "a", "client_software_version": "1"} if version == 3 else {}
    request = _kafka("ApiVersions", version, **fields)
    with connected(tmp_path, "kafka", "os") as client:
        first = client.ask(request)
        assert client.ask(request[:8] + b"\0\0\x12\x34" + request[12:]) == first[:4] + b"\0\0\x12\x34" + first[8:]
        assert struct.unpack_from(">ii", first) == (len(first) - 4, 7)
        assert count_calls(client.send, request) < 200
        assert client.transport.take() == first


@pytest.mark.parametrize("endpoint", ["iggy_tcp", "kafka", "admin"])
def test_handshakes_of_tls_are_answered_in_turns(tmp_path: Path, endpoint: str) -> None:
    """A hello costs up to a millisecond: those of 200 clients came in one pass of the loop, and were answered there."""
    file = Authority(tmp_path).sign("here")
    tls = {"enabled": True, "certificate": file, "key": file}
    settings = Settings.model_validate({"data": tmp_path / "data", "endpoints": {endpoint: {"tls": tls}}})
    with opened_world(tmp_path / "data", has_users=False, settings=settings) as world:
        client = cast("ScriptedConnection | ScriptedHttpConnection", world.connect(endpoint))
        trusting = ssl.create_default_context(cafile=tmp_path / "authority.pem")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
        for _ in range(2):
            with suppress(ssl.SSLWantReadError):
                session.do_handshake()
            client.arrive(outgoing.read())
            assert not client.transport.written
            world.loop.turn()
            incoming.write(client.transport.take())
        assert session.version() == "TLSv1.3"


def test_parts_of_a_message_are_bounded(tmp_path: Path) -> None:
    with connected(tmp_path, "iggy_websocket", "os") as client:
        _opened(client)
        client.send(encode_frame(BINARY, b"", KEY, fin=False))
        for _ in range(FRAGMENTS_MAX // 512):
            client.send(encode_frame(CONT, b"", KEY, fin=False) * 512)
        # RFC 6455 section 7.4.1: 1009 is a message that is too big
        assert struct.pack("!H", 1009) in client.transport.take()


def test_a_pass_of_the_loop_is_bounded_for_all_connections() -> None:
    """200 connections whose turns take a millisecond each: others wait for a few of them, not for all."""
    now_s, order, passes = 0.0, list[int](), list[int]()

    async def work() -> None:
        queue = TurnQueue(clock=lambda: now_s)

        def go_on(number: int, left: int) -> None:
            nonlocal now_s
            now_s += 0.001
            order.append(number)
            if number == 3 and left == 2:
                raise RuntimeError("a fault of one connection")
            if left > 1:
                queue.add(lambda: go_on(number, left - 1))

        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        for number in range(200):
            queue.add(lambda number=number: go_on(number, 2))  # type: ignore[misc]
        while len(order) < 2 * 200 - 1:
            before = len(order)
            await asyncio.sleep(0)
            passes.append(len(order) - before)

    asyncio.run(work())
    assert max(passes) <= PASS_S / 0.001 + 1
    assert order[:200] == list(range(200))


def test_a_connection_that_sends_much_alone_waits_seldom() -> None:
    """It waited after each 16 KiB, for nobody: a stream of PUBs cost the broker 25 ticks of CPU instead of 16."""
    turns, sizes = TurnQueue(clock=lambda: 0.0), list[int]()

    async def work() -> None:
        for waiting in (1, 1, 1, 1, 1, 1, 2, 1, 1):
            for _ in range(waiting):
                turns.add(lambda: None)
            await asyncio.sleep(0)
            sizes.append(turns.allowance.left_bytes >> 10)

    asyncio.run(work())
    assert sizes == [32, 64, 128, 256, 256, 256, 16, 32, 64]


def test_work_that_begins_later_counts() -> None:
    begun = 0

    async def work() -> None:
        queue = TurnQueue(clock=lambda: 0.0)

        def go_on() -> None:
            nonlocal begun
            begun += 1

        for _ in range(100):
            queue.add(go_on, PASS_S / 4)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert begun <= 10

    asyncio.run(work())


def _use_up_allowance(world: World) -> None:
    """As if much had been taken at once in this pass of the loop."""
    world.services.turns.allowance.left_bytes = 0


@pytest.mark.parametrize("name", ["NSQ NOP", "nsqlookupd PING", "Kafka ApiVersions", "Iggy ping", "WebSocket pings"])
def test_an_honest_client_waits_for_a_few_of_many_that_become_readable_together(tmp_path: Path, name: str) -> None:
    """Each of 60 connections took its whole turn when it became readable, all of them in one pass of the loop."""
    endpoint, begin, request = FLOODS[name]
    with opened_world(tmp_path, has_users=False) as world:
        honest = cast("ScriptedConnection", world.connect("iggy_tcp"))
        strangers = [cast("ScriptedConnection", world.connect(endpoint)) for _ in range(60)]
        for stranger in strangers:
            begin(stranger)
        strangers[0].ask(request)
        honest.ask(PING_REQUEST)
        calls = 0
        # 6,000 calls are about a millisecond
        world.services.turns.clock = lambda: calls / 6_000_000

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        def let_one_pass_go_by() -> None:
            for stranger in strangers:
                if not stranger.transport.is_paused():
                    room = cast("memoryview", stranger.protocol.get_buffer(-1))
                    size = min(len(room), READ_BYTES) // len(request) * len(request)
                    room[:size] = (request * (size // len(request) + 1))[:size]
                    stranger.protocol.buffer_updated(size)
            honest.arrive(PING_REQUEST)
            ready = world.loop._ready
            for _ in range(len(ready)):
                callback, arguments = ready.popleft()
                callback(*arguments)

        sys.setprofile(count)
        try:
            let_one_pass_go_by()
        finally:
            sys.setprofile(None)
        assert honest.transport.take() == bytes(8)
        # each of the 60 may take up to 6,000; the allowance, a pass of the queue, and a look at each of the 60
        assert calls < 60_000


def test_iggy_commands_that_come_one_by_one_take_no_turn_of_others(tmp_path: Path) -> None:
    """Each eighth one ended its client's turn, though nothing was left: the next one waited for all other clients."""
    for endpoint, request in (
        ("iggy_tcp", PING_REQUEST),
        ("iggy_tcp", current.request(current.READ, code=current.PING)),
    ):
        with opened_world(tmp_path / str(len(request)), has_users=False) as world:
            client = cast("ScriptedConnection", world.connect(endpoint))
            for _ in range(20):
                client.arrive(request)
                assert client.transport.take()
                assert not world.loop._ready


def test_a_client_with_little_to_do_goes_before_those_with_much(tmp_path: Path) -> None:
    order = []
    with opened_world(tmp_path, has_users=False) as world:
        world.services.turns.add(lambda: order.append("much"))
        client = cast("ScriptedConnection", world.connect("iggy_tcp"))
        _use_up_allowance(world)
        client.arrive(PING_REQUEST)
        assert not client.transport.written
        world.services.turns.add(lambda: order.append("much, and later"))
        world.loop.turn()
        assert client.transport.take() == bytes(8)
        _use_up_allowance(world)
        world.services.turns.add(lambda: order.append(f"answered: {len(client.transport.written)}"))
        client.arrive(PING_REQUEST)
        world.loop.turn()
    assert order == ["much", "much, and later", "answered: 8"]


def test_a_client_whose_turns_are_long_waits_behind_others_however_little_it_sends(tmp_path: Path) -> None:
    now_s = 0.0
    with opened_world(tmp_path, has_users=False) as world:
        client = cast("ScriptedConnection", world.connect("iggy_tcp"))
        order: list[int] = []

        def tick() -> float:
            nonlocal now_s
            now_s += 2 * LONG_TURN_S
            return now_s

        world.services.turns.clock = tick
        for _ in range(LONG_TURNS + 1):
            _use_up_allowance(world)
            client.arrive(PING_REQUEST + PING_REQUEST[:4])
            client.arrive(PING_REQUEST[4:])
            world.services.turns.add_with_little(lambda: order.append(len(client.transport.written)))
            world.loop.turn()
            assert client.transport.take() == bytes(16)
    assert order == [16] * LONG_TURNS + [0]


@pytest.mark.parametrize("endpoint", ["iggy_tcp", "nsqd_tcp"])
def test_what_came_before_the_end_is_taken_though_it_waits_for_a_turn(tmp_path: Path, endpoint: str) -> None:
    request, response = {"iggy_tcp": (PING_REQUEST, bytes(8)), "nsqd_tcp": (pub("topic", b"x"), b"OK")}[endpoint]
    with opened_world(tmp_path, has_users=False) as world:
        client = cast("ScriptedConnection", world.connect(endpoint))
        client.ask(b"  V2" if endpoint == "nsqd_tcp" else PING_REQUEST)
        _use_up_allowance(world)
        client.arrive(request)
        assert client.protocol.eof_received()
        world.loop.turn()
        assert client.transport.take().endswith(response)
        assert client.transport.is_closing() or "write_eof" in client.transport.events


def test_http_requests_that_come_together_begin_in_turns(tmp_path: Path) -> None:
    """A request takes half a millisecond in the pass after it came: those of 60 clients began in one."""
    with opened_world(tmp_path, has_users=False) as world:
        world.services.turns.clock = lambda: 0.0
        clients = [cast("ScriptedHttpConnection", world.connect("nsqd_http")) for _ in range(60)]
        begun = []
        for client in clients:
            client.arrive(b"GET /ping HTTP/1.1\r\nhost: a\r\n\r\n")
        begun.append(sum(client.protocol.cycle is not None for client in clients))
        for _ in range(20):
            ready = world.loop._ready
            for _ in range(len(ready)):
                callback, arguments = ready.popleft()
                callback(*arguments)
            begun.append(sum(client.protocol.cycle is not None for client in clients))
        world.loop.turn()
        # the guard refuses the host
        assert [client.transport.take()[:12] for client in clients] == [b"HTTP/1.1 403"] * 60
    assert max(after - before for before, after in zip([0, *begun], begun, strict=False)) <= 10

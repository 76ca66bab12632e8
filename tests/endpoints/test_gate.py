"""Half requests and silent clients on the TCP listeners: they cost neither places nor memory of those who ask."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress

import httpx
import pytest
from starlette.requests import Request

from lading import testing
from lading.endpoints.base.inbox import BUFFER_BYTES, Inbox
from lading.endpoints.base.receive_budget import GRACE_S, SMALL_BYTES, ReceiveAccount, ReceiveBudget
from lading.endpoints.http_shared.http import read_body
from lading.model.errors import Refusal
from tests.endpoints.connection import Connection
from tests.endpoints.frames import Frames
from tests.endpoints.kafka_frames import KafkaFrames, one_batch, produce, request_frame

TIMEOUT_S = 30
MIB = 1 << 20
HALVES = {
    "kafka": b"\0\0\1\0\0\x12",
    "iggy_tcp": b"\xff\0\0\0\1\0",
    "nsqd_tcp": b"  V",
    "nsqlookupd_tcp": b"  V",
}


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def impatient() -> Iterator[testing.BrokerProcess]:
    """A broker that waits for nobody."""
    patience = {
        "connections.first_request_timeout_ms": 1_500,
        "connections.request_timeout_ms": 1_500,
        "connections.idle_timeout_ms": 600_000,
    }
    with testing.broker(durability="os", settings=patience) as running:
        yield running


def send_half(running: testing.BrokerProcess, name: str) -> Connection:
    connection = Connection(running.endpoints[name])
    connection.socket.settimeout(TIMEOUT_S)
    connection.socket.sendall(HALVES[name])
    return connection


def test_who_begins_a_request_and_does_not_end_it_is_closed(impatient: testing.BrokerProcess) -> None:
    begun = [send_half(impatient, name) for name in HALVES]
    assert all(connection.closed() for connection in begun)
    host, port = begun[0].socket.getsockname()
    line = f"kafka {host}:{port} closing the connection: its first request is not whole after"
    until(lambda: line in impatient.log_file.read_text())


def test_a_later_request_has_a_deadline_too_and_who_has_asked_may_rest(impatient: testing.BrokerProcess) -> None:
    ask = request_frame("ApiVersions", 0, 1)
    resting, later = KafkaFrames(impatient.endpoints["kafka"]), KafkaFrames(impatient.endpoints["kafka"])
    for kafka in (resting, later):
        kafka.socket.settimeout(TIMEOUT_S)
        kafka.send(ask)
        assert kafka.answer()
    iggy, late_iggy, silent = (Frames(impatient.endpoints["iggy_tcp"]) for _ in range(3))
    assert iggy.ask(1) == late_iggy.ask(1) == (0, b"")
    later.socket.sendall(HALVES["kafka"])
    late_iggy.socket.settimeout(TIMEOUT_S)
    late_iggy.socket.sendall(HALVES["iggy_tcp"])
    assert later.closed() and late_iggy.closed()
    # these said nothing for as long, and are still there
    assert iggy.ask(1) == silent.ask(1) == (0, b"")
    resting.send(ask)
    assert resting.answer()


def call_from(connection: Connection, host: str, address: str) -> None:
    """Make a connection anew, from another address of this machine."""
    connection.close()
    there, port = address.rsplit(":", 1)
    connection.socket = socket.create_connection((there, int(port)), timeout=TIMEOUT_S, source_address=(host, 0))


def from_address(host: str, address: str) -> KafkaFrames:
    kafka = KafkaFrames(address)
    call_from(kafka, host, address)
    return kafka


def identify_node(running: testing.BrokerProcess, host: str) -> Connection:
    """A node of NSQ that has said who it is; ConnectionError if it has no place."""
    address = running.endpoints["nsqlookupd_tcp"]
    node = Connection(address)
    call_from(node, host, address)
    facts = json.dumps({"version": "1", "tcp_port": 9, "http_port": 8, "broadcast_address": host}).encode()
    node.socket.sendall(b"  V1IDENTIFY\n" + struct.pack(">i", len(facts)) + facts)
    node.receive(struct.unpack(">i", node.receive(4))[0])
    return node


def test_nodes_of_one_address_have_a_share_of_the_places() -> None:
    """Whoever connected first had them all, and nodes of other addresses could not register."""
    settings = {"endpoints.nsqlookupd_tcp.connections_max": 4, "connections.peer_share": 0.5}
    with testing.broker(durability="os", settings=settings) as running:
        nodes = [identify_node(running, "127.0.0.1") for _ in range(2)]
        for _ in range(3):
            with pytest.raises(ConnectionError):
                identify_node(running, "127.0.0.1")
        nodes += [identify_node(running, "127.0.0.2") for _ in range(2)]
        for node in nodes:
            node.socket.sendall(b"PING\n")
            assert node.receive(6)[-2:] == b"OK"


@pytest.mark.turns(2, part=1)
def test_a_node_that_reads_nothing_is_closed() -> None:
    """Its place, and what waited for it to read, were kept for ever."""
    settings = {"connections.unread_timeout_ms": 500, "endpoints.nsqlookupd_tcp.registrations_max": 1}
    with testing.broker(durability="os", settings=settings) as running:
        node = identify_node(running, "127.0.0.1")
        # each is answered with a sentence that names the topic
        refused = b"REGISTER %s\n" % (b"t" * 60) * 1_000
        with pytest.raises(ConnectionError):
            while True:
                node.socket.sendall(refused)


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", HALVES)
def test_half_requests_lock_nobody_out(name: str) -> None:
    """4,200 half frames reset every new Kafka client until they left."""
    with testing.broker(durability="os", settings={f"endpoints.{name}.connections_max": 40}) as running:
        halves = []
        for _ in range(60):
            halves.append(Connection(running.endpoints[name]))
            halves[-1].socket.sendall(HALVES[name])
        if name == "kafka":
            kafka = KafkaFrames(running.endpoints[name])
            assert kafka.ask("ApiVersions", 0).error_code == 0
        elif name == "iggy_tcp":
            assert Frames(running.endpoints[name]).ask(1) == (0, b"")
        elif name == "nsqlookupd_tcp":
            node = identify_node(running, "127.0.0.1")
            node.socket.sendall(b"PING\n")
            assert node.receive(6)[-2:] == b"OK"
        else:
            nsq = Connection(running.endpoints[name])
            nsq.socket.sendall(b"  V2PUB t\n" + struct.pack(">I", 1) + b"x")
            assert nsq.receive(10)[-2:] == b"OK"


def test_halves_of_large_requests_do_not_use_up_what_others_need() -> None:
    """Seven connections with 99 MB each used up the memory for everybody's requests."""
    settings = {"connections.receive_bytes_max": "32MiB", "broker.unsynced_bytes_max": "64MiB"}
    with testing.broker(durability="os", settings=settings) as running:
        halves = []
        for _ in range(7):
            halves.append(Connection(running.endpoints["kafka"]))
            with suppress(ConnectionError):
                halves[-1].socket.sendall((20 * MIB).to_bytes(4, "big") + b"\0\0" + bytes(7 * MIB))
        value = bytes(900_000)
        for host in ("127.0.0.1", "127.0.0.2"):
            kafka = from_address(host, running.endpoints["kafka"])
            kafka.ask("Metadata", 4, topics=[{"name": "t"}], allow_auto_topic_creation=True)
            answer = kafka.ask("Produce", 7, **produce("t", one_batch(value)))
            assert answer.responses[0].partition_responses[0].error_code == 0


HALF_BODY = (
    b"POST /mpub?topic=bodies&binary=true HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (5 * MIB)
) + bytes(5 * MIB - 1)


@pytest.mark.turns(2, part=0)
def test_halves_of_large_bodies_do_not_use_up_what_others_need() -> None:
    """A body took its memory in small steps, in nobody's name: a few halves left none for anybody."""
    with testing.broker(durability="os", connections__receive_bytes_max="20MiB") as running:
        address = running.endpoints["nsqd_http"]
        halves = [Connection(address) for _ in range(10)]
        for half in halves:
            half.socket.settimeout(TIMEOUT_S)
            # one that is refused is not read to its end
            with suppress(OSError):
                half.socket.sendall(HALF_BODY)
        for host in ("127.0.0.1", "127.0.0.2"):
            transport = httpx.HTTPTransport(local_address=host)
            with httpx.Client(transport=transport, timeout=TIMEOUT_S) as client:
                assert client.post(f"http://{address}/pub?topic=bodies", content=bytes(900_000)).status_code == 200


class ArrivingRequest:
    """An HTTP request of ``host`` whose body arrives when the test says so."""

    def __init__(self, host: str) -> None:
        self._parts: asyncio.Queue[tuple[bytes, bool]] = asyncio.Queue()
        scope = {"type": "http", "headers": [], "client": (host, 1)}
        self.request = Request(scope, self._receive)

    def arrive(self, part: bytes, more: bool = True) -> None:
        self._parts.put_nowait((part, more))

    async def _receive(self) -> dict[str, object]:
        part, more = await self._parts.get()
        return {"type": "http.request", "body": part, "more_body": more}


@pytest.mark.parametrize("is_late", [False, True])
def test_the_oldest_half_body_gives_way(is_late: bool) -> None:
    """``is_late``: its rest comes at the moment at which it has given way."""
    now_s = 0.0
    budget = ReceiveBudget(16 * MIB, clock_s=lambda: now_s)

    async def run() -> None:
        nonlocal now_s
        halves = [ArrivingRequest("10.0.0.1") for _ in range(3)]
        tasks = [asyncio.create_task(read_body(one.request, 8 * MIB, budget)) for one in halves]
        for one in halves[:2]:
            one.arrive(bytes(6 * MIB))
        while budget.left_bytes > 4 * MIB:
            await asyncio.sleep(0)
        now_s = GRACE_S
        halves[2].arrive(bytes(6 * MIB), more=False)
        if is_late:
            await asyncio.sleep(0)
            halves[0].arrive(b"late", more=False)
        assert len(await tasks[2]) == 6 * MIB
        with pytest.raises(Refusal, match="too many large requests"):
            await tasks[0]
        halves[1].arrive(bytes(2 * MIB), more=False)
        assert len(await tasks[1]) == 8 * MIB
        assert budget.left_bytes == 16 * MIB

    asyncio.run(run())


class Holder:
    """Holds memory, and gives it back when told to."""

    def __init__(self, budget: ReceiveBudget, peer: str) -> None:
        self.account: ReceiveAccount = budget.open(peer, self.give_way)
        self.gave_way = False

    def give_way(self) -> None:
        self.gave_way = True
        self.account.give(self.account.held_bytes)


def test_the_oldest_half_request_of_who_holds_most_gives_way() -> None:
    now_s = 0.0
    budget = ReceiveBudget(512 * MIB, 0.75, clock_s=lambda: now_s)
    greedy = [Holder(budget, "10.0.0.1") for _ in range(7)]
    assert [one.account.take(128 * MIB) for one in greedy] == 3 * [True] + 4 * [False]
    other = Holder(budget, "10.0.0.2")
    # the share of one address leaves room for another, and a reserve for small requests of all
    assert other.account.take(60 * MIB)
    assert greedy[6].account.take(SMALL_BYTES)
    # nothing is old enough to give way
    assert not other.account.take(128 * MIB)
    now_s = GRACE_S
    assert other.account.take(128 * MIB)
    assert [one.gave_way for one in greedy] == [True] + 6 * [False]
    # an address that has its share makes room among its own
    assert greedy[3].account.take(128 * MIB) and greedy[4].account.take(128 * MIB)
    assert [one.gave_way for one in greedy] == 3 * [True] + 4 * [False]
    assert not other.gave_way


def test_other_limits_of_the_memory_hold_at_once() -> None:
    now_s = 0.0
    budget = ReceiveBudget(32 * MIB, clock_s=lambda: now_s)
    one, other = Holder(budget, "a"), Holder(budget, "b")
    assert one.account.take(20 * MIB)
    budget.set_limits(16 * MIB, 0.5)
    # what is held stays, and is too much
    assert not one.gave_way and not other.account.take(1)
    one.account.give(20 * MIB)
    assert other.account.take(8 * MIB) and not other.account.take(2 * MIB)
    budget.set_limits(32 * MIB, 0.5)
    assert other.account.take(2 * MIB)
    other.account.give(10 * MIB)
    assert budget.left_bytes == 32 * MIB


def test_what_is_given_back_is_there_again() -> None:
    budget = ReceiveBudget(8 * MIB)
    one = Holder(budget, "a")
    assert one.account.take(7 * MIB)
    assert not budget.acquire(7 * MIB)
    one.account.give(7 * MIB)
    assert budget.acquire(7 * MIB)
    budget.release(7 * MIB)
    assert budget.left_bytes == 8 * MIB


def test_a_buffer_that_grows_and_the_one_before_are_counted_while_both_exist() -> None:
    """Only the larger one was: half as much again was taken beyond the bound."""
    # what other threads of the process of tests take meanwhile adds, so that of several the least counts
    assert min(_measure_uncounted_bytes() for _ in range(3)) < BUFFER_BYTES + (2 << 10)


def _measure_uncounted_bytes() -> int:
    """Let an inbox grow until it is refused; return what it took at most beyond what was counted by then."""
    budget = ReceiveBudget(8 * MIB)
    inbox = Inbox(budget)
    piece = bytes(64 << 10)
    counted_bytes = received_bytes = uncounted_bytes = 0
    grant = budget.grant

    def note_grant(account: ReceiveAccount, size_bytes: int) -> bool:
        nonlocal counted_bytes
        is_granted = grant(account, size_bytes)
        counted_bytes = max(counted_bytes, 8 * MIB - budget.left_bytes)
        return is_granted

    budget.grant = note_grant  # type: ignore[method-assign]
    tracemalloc.start()
    before_bytes = tracemalloc.get_traced_memory()[0]
    while inbox.append(piece):
        received_bytes += len(piece)
        peak_bytes = tracemalloc.get_traced_memory()[1] - before_bytes
        uncounted_bytes = max(uncounted_bytes, peak_bytes - counted_bytes)
    tracemalloc.stop()
    # two of four MiB are too many beside the reserve
    assert received_bytes == 4 * MIB and len(inbox.view) == 4 * MIB
    # nothing of the refused step is counted on
    assert budget.left_bytes == 8 * MIB - (4 * MIB - BUFFER_BYTES)
    inbox.close()
    assert budget.left_bytes == 8 * MIB
    return uncounted_bytes

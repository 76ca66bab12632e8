"""Half requests and silent clients on the TCP listeners: they cost neither places nor memory of those who ask."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from lading import testing
from lading.endpoints.receive_budget import GRACE_S, SMALL_BYTES, ReceiveAccount, ReceiveBudget
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
def impatient() -> Iterator[testing.Running]:
    """A broker that waits for nobody."""
    patience = {
        "connections.first_request_timeout_ms": 1_500,
        "connections.request_timeout_ms": 1_500,
        "connections.idle_timeout_ms": 600_000,
    }
    with testing.broker(durability="os", settings=patience) as running:
        yield running


def send_half(running: testing.Running, name: str) -> Connection:
    connection = Connection(running.endpoints[name])
    connection.socket.settimeout(TIMEOUT_S)
    connection.socket.sendall(HALVES[name])
    return connection


def test_who_begins_a_request_and_does_not_end_it_is_closed(impatient: testing.Running) -> None:
    begun = [send_half(impatient, name) for name in HALVES]
    assert all(connection.closed() for connection in begun)
    host, port = begun[0].socket.getsockname()
    line = f"kafka {host}:{port} closing the connection: its first request is not whole after"
    until(lambda: line in impatient.log_file.read_text())


def test_a_later_request_has_a_deadline_too_and_who_has_asked_may_rest(impatient: testing.Running) -> None:
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


@pytest.mark.parametrize("name", ["kafka", "iggy_tcp", "nsqd_tcp"])
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
        else:
            nsq = Connection(running.endpoints[name])
            nsq.socket.sendall(b"  V2PUB t\n" + struct.pack(">I", 1) + b"x")
            assert nsq.receive(10)[-2:] == b"OK"


def from_address(host: str, address: str) -> KafkaFrames:
    """A connection from another address of this machine."""
    kafka = KafkaFrames(address)
    kafka.close()
    there, port = address.rsplit(":", 1)
    kafka.socket = socket.create_connection((there, int(port)), timeout=TIMEOUT_S, source_address=(host, 0))
    return kafka


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


def test_what_is_given_back_is_there_again() -> None:
    budget = ReceiveBudget(8 * MIB)
    one = Holder(budget, "a")
    assert one.account.take(7 * MIB)
    assert not budget.take(7 * MIB)
    one.account.give(7 * MIB)
    assert budget.take(7 * MIB)
    budget.give(7 * MIB)
    assert budget.left_bytes == 8 * MIB

"""nsqlookupd's half of a connection, in a loop and at a time that the test turns."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.endpoints.base.services import Services
from lading.endpoints.nsq.lookupd import lookup as lookups
from lading.endpoints.nsq.lookupd.tcp import COMMANDS_PER_TURN, endpoint
from lading.runtime.metrics import Metrics
from lading.settings.settings import Settings
from tests.house.scripted import ScriptedConnection, ScriptedLoop, unbound_listener
from tests.house.test_hot_path import count_calls

FACTS = {"version": "1", "tcp_port": 9, "http_port": 8, "broadcast_address": "there"}
BODY = json.dumps(FACTS).encode()
IDENTIFY = b"IDENTIFY\n" + struct.pack(">i", len(BODY)) + BODY
OK = b"\0\0\0\2OK"


class Room:
    """A lookup and its loop."""

    def __init__(self, loop: ScriptedLoop, services: Services) -> None:
        self.loop = loop
        self.services = services
        self.now_us = 1
        server = endpoint(services, "nsqlookupd_tcp")
        server.clock = lambda: self.now_us  # type: ignore[attr-defined]
        with unbound_listener() as listener:
            loop.finish(server.start(listener))

    def connect(self) -> ScriptedConnection:
        return self.loop.connect()

    def wait(self, seconds: float) -> None:
        self.now_us += int(seconds * 1e6)
        self.loop.advance(seconds)

    def dropped(self, reason: str) -> float:
        return self.services.metrics.dropped.values["nsqlookupd_tcp", reason]

    @property
    def nodes(self) -> int:
        return len(lookups.of(self.services).others)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    broker = Broker.open(tmp_path, BrokerSettings(durability="os"), now_us=1)
    with ScriptedLoop() as loop, ThreadPoolExecutor(1) as workers:
        yield Room(loop, Services(broker, Settings(data=tmp_path), Metrics(), workers))
    broker.stop()


def test_a_node_may_come_byte_by_byte(room: Room) -> None:
    node = room.connect()
    for byte in b"  V1PING\n" + IDENTIFY + b"REGISTER t 0\n":
        node.send(bytes([byte]))
    sent = node.transport.take()
    assert sent.startswith(OK) and sent.endswith(OK)
    (size,) = struct.unpack_from(">i", sent, len(OK))
    assert json.loads(sent[len(OK) + 4 : len(OK) + 4 + size]).keys() >= {"tcp_port", "version", "hostname"}
    assert room.nodes == 1
    node.close()
    assert room.nodes == 0


def test_many_commands_are_answered_in_turns(room: Room) -> None:
    node = room.connect()
    node.send(b"  V1" + b"PING\n" * (3 * COMMANDS_PER_TURN))
    assert node.transport.take() == OK * (3 * COMMANDS_PER_TURN)


def test_who_says_no_magic_is_gone_after_three_seconds(room: Room) -> None:
    node = room.connect()
    node.send(b"  V")
    room.wait(2.9)
    assert node.transport.events == []
    room.wait(0.2)
    assert (node.transport.events, room.dropped("silent")) == (["close"], 1)


def test_a_node_that_says_nothing_is_gone_after_fifteen_seconds(room: Room) -> None:
    node = room.connect()
    node.send(b"  V1")
    for _ in range(5):
        room.wait(14.0)
        node.send(b"PING\n")
    room.wait(14.0)
    # half a line is nothing
    node.send(b"PIN")
    assert node.transport.events == []
    room.wait(2.0)
    assert (node.transport.events, room.dropped("silent")) == (["close"], 1)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"  V2", b"E_BAD_PROTOCOL"),
        (b"  V1WHAT\n", b"E_INVALID invalid command WHAT"),
        (b"  V1REGISTER t\n", b"E_INVALID client must IDENTIFY"),
        (b"  V1IDENTIFY\n\0\0\0\0", b"E_BAD_BODY IDENTIFY invalid body size 0"),
        (b"  V1IDENTIFY\n\0\0\0\2[]", b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (b"  V1" + IDENTIFY + b"IDENTIFY\n", b"E_INVALID cannot IDENTIFY again"),
    ],
)
def test_a_fault_is_the_last_answer(room: Room, said: bytes, answer: bytes) -> None:
    node = room.connect()
    node.send(said)
    assert node.transport.take().endswith(struct.pack(">i", len(answer)) + answer)
    node.send(b"PING\n")
    assert node.transport.take() == b""
    assert "close" in node.transport.events


def test_a_line_without_an_end_is_answered_at_the_end(room: Room) -> None:
    node = room.connect()
    node.send(b"  V1PING\nPING")
    assert node.transport.take() == OK
    node.protocol.eof_received()
    assert node.transport.take() == OK


def test_a_line_that_is_too_long_is_no_node(room: Room) -> None:
    node = room.connect()
    node.send(b"  V1" + b"x" * 5000)
    assert (node.transport.take(), "close" in node.transport.events) == (b"", True)


def test_a_node_that_does_not_read_is_told_no_more(room: Room) -> None:
    node = room.connect()
    node.send(b"  V1")
    node.protocol.pause_writing()
    node.send(b"PING\n")
    # its silence is that of its reading, for which there is another deadline
    room.wait(20.0)
    assert (node.transport.take(), node.transport.events) == (b"", [])
    node.protocol.resume_writing()
    assert node.transport.take() == OK


def test_a_command_costs_the_same_however_many_nodes_and_tombstones_there_are(room: Room) -> None:
    """Each REGISTER added up what all nodes have, each command began a timer, each tombstone copied all others."""
    lookup, calls = lookups.of(room.services), []
    for number in (1, 200):
        for _ in range(number):
            room.connect().send(b"  V1" + IDENTIFY)
            lookup.tombstone("t", f"node-{len(lookup.others)}")
        node = room.connect()
        node.send(b"  V1" + IDENTIFY)
        commands = b"".join(b"REGISTER t%d 0\n" % topic for topic in range(COMMANDS_PER_TURN - 2))
        calls.append(count_calls(lambda _: node.arrive(commands), b""))  # noqa: B023
    assert calls[1] <= calls[0] + 20
    assert calls[0] < 60 * COMMANDS_PER_TURN


def test_registrations_of_nodes_that_are_gone_leave_room(room: Room) -> None:
    lookup = lookups.of(room.services)
    first, second = room.connect(), room.connect()
    for node in (first, second):
        node.send(b"  V1" + IDENTIFY + b"REGISTER t 0\nREGISTER t 0 c\n")
    producer = next(iter(lookup.others))
    assert not lookup.has_room(producer, 2)
    first.send(b"UNREGISTER t 0 c\n")
    second.close()
    (producer,) = lookup.others
    assert lookup._total.count == producer.registrations_count == 1
    first.close()
    assert lookup._total.count == 0


class _CountedTopics(dict[str, dict[int, set[str]]]):
    """Topics of a node, with the number of times that anyone looked for one of them."""

    looks_count = 0

    def __contains__(self, name: object) -> bool:
        _CountedTopics.looks_count += 1
        return super().__contains__(name)


def test_a_lookup_looks_at_the_nodes_of_its_topic_only(room: Room) -> None:
    """``/topics?metaInfo=true`` looked at each node for each topic: a million looks for 1,000 of both."""
    lookup = lookups.of(room.services)
    nodes = [room.connect() for _ in range(50)]
    for number, node in enumerate(nodes):
        node.send(b"  V1" + IDENTIFY + b"REGISTER own%d c\nREGISTER shared c\n" % number)
    for producer in lookup.others:
        producer.topics = _CountedTopics(producer.topics)
    _CountedTopics.looks_count = 0
    for number in range(50):
        assert lookup.channels(f"own{number}") == ["c"]
        assert lookup.knows(f"own{number}")
    # one node is looked at for each topic: twice by ``_producers_of`` of each of the two
    assert _CountedTopics.looks_count <= 2 * 50
    assert len(lookup.lookup("shared")["producers"]) == 50
    assert not lookup.knows("missing")
    nodes[0].send(b"UNREGISTER own0\n")
    assert not lookup.knows("own0")
    assert lookup.forget("shared", "c")
    assert lookup.channels("shared") == []
    assert lookup.forget("shared")
    assert not lookup.knows("shared")


def test_the_topics_of_a_lost_node_are_forgotten_in_turns(room: Room) -> None:
    lookup = lookups.of(room.services)
    lost, kept = room.connect(), room.connect()
    for node in (lost, kept):
        node.send(b"  V1" + IDENTIFY)
    for first in range(0, 3_000, 50):
        lost.send(b"".join(b"REGISTER t%d c\n" % number for number in range(first, first + 50)))
    kept.send(b"REGISTER t0 c\n")
    assert len(lookup._by_topic) == 3_000
    calls = count_calls(lambda _: lost.protocol.connection_lost(None), b"")
    assert calls < 1_500
    assert len(lookup._by_topic) > 2_000
    # but none of them is found any more
    assert not lookup.knows("t2999")
    assert len(lookup.lookup("t0")["producers"]) == 1
    room.loop.turn()
    assert set(lookup._by_topic) == {"t0"}

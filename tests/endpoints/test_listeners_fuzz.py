"""Mutated input on every listener, behind clients that are subscribed or joined: nobody else waits for it.

An input may be answered, refused or closed on. It is a failure when the broker then takes more than a second for
``/health``, as a loop that no input ends is a hang of everybody, or does not answer another client of Iggy.
"""

from __future__ import annotations

import json
import random
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

from lading import testing
from tests.dialects.test_iggy_releases import captured
from tests.endpoints.connection import Connection
from tests.endpoints.frames import HEAD, Frames, message, poll, to_partition
from tests.endpoints.health import Health
from tests.endpoints.kafka_frames import KafkaFrames
from tests.endpoints.nsq_client import mpub, mpub_ext, pub, sized
from tests.endpoints.quic_frames import QuicFrames
from tests.endpoints.quic_packets import FRAMES, QuicPackets
from tests.endpoints.websocket_frames import (
    BINARY,
    CLOSE,
    CONT,
    HANDSHAKE,
    PING,
    TEXT,
    RawWebSocket,
    WebSocketFrames,
    encode_frame,
)

ROUNDS, ROUNDS_FULL = 50, 20_000
RECORDED = json.loads((Path(__file__).parents[1] / "vectors" / "kafka_requests.json").read_text())["frames"]
FACTS = {"version": "0.3.7-HA.1", "tcp_port": 9, "http_port": 8, "broadcast_address": "10.9.8.7", "hostname": "other"}
EDGES = (0, 1, 10, 13, 32, 48, 127, 128, 255)
TOPIC = struct.pack("<BBI", 1, 4, 1) * 2
ONE = struct.pack("<I", 1)
VERBS = ((b"FIN ", b"\n"), (b"REQ ", b" 0\n"), (b"TOUCH ", b"\n"))
_numbers = count(1)
IGGY_PING, LOGIN = 1, 38
SEND, POLL, STREAM_CREATE, TOPIC_CREATE, GROUP_CREATE, JOIN, LEAVE = 101, 100, 202, 302, 602, 604, 605

SETTINGS = {"endpoints.kafka.request_bytes_max": "4MiB", "broker.rebalance_delay_ms": 0}

Inputs = Sequence[bytes]
Client = Connection | QuicFrames
M = TypeVar("M", bound=Frames | QuicFrames)
Open = Callable[[str], Client]
"""A connection to this address, as far into its conversation as inputs shall meet it."""


@pytest.fixture(scope="module")
def running() -> Iterator[testing.BrokerProcess]:
    with testing.broker(durability="os", settings=SETTINGS) as broker:
        first = Frames(broker.endpoints["iggy_tcp"])
        assert first.ask(STREAM_CREATE, ONE + b"stream") == (0, b"")
        assert first.ask(TOPIC_CREATE, TOPIC[:6] + struct.pack("<II", 1, 2) + b"topic") == (0, b"")
        assert first.ask(GROUP_CREATE, TOPIC + ONE) == (0, b"")
        first.close()
        yield broker


def subscribed(address: str) -> Connection:
    """A client of NSQ with messages in flight, whose ids the inputs know or do not."""
    client = Connection(address)
    identity = b'{"extend_support":true,"heartbeat_interval":60000}'
    for said in (b"  V2" + sized(b"IDENTIFY\n", identity), pub("fuzz", b"x", b'{"a":1}'), b"SUB fuzz ch\n"):
        client.socket.sendall(said)
        assert client.receive(struct.unpack(">I", client.receive(4))[0])[4:] == b"OK"
    client.socket.sendall(b"RDY 5\n")
    return client


def registered(address: str) -> Connection:
    """A node that has registered a topic at the lookup."""
    node = Connection(address)
    node.socket.sendall(b"  V1" + sized(b"IDENTIFY\n", json.dumps(FACTS).encode()) + b"REGISTER fuzz-node 1\n")
    for _ in range(2):
        node.receive(struct.unpack(">i", node.receive(4))[0])
    return node


def joined_iggy(kind: Callable[[str], M]) -> Callable[[str], M]:
    """Opens connections of such a client that is a member of an Iggy consumer group."""

    def open_(address: str) -> M:
        member = kind(address)
        assert member.ask(JOIN, TOPIC + ONE) == (0, b"")
        return member

    return open_


def joined_kafka(address: str) -> Connection:
    """The one member of a Kafka group of its own."""
    member, group = KafkaFrames(address), f"fuzz-{next(_numbers)}"
    told = {"group_id": group, "session_timeout_ms": 6000, "rebalance_timeout_ms": 6000, "member_id": ""}
    protocols = [{"name": "range", "metadata": b"\0\1\0\0\0\1\0\4fuzz\0\0\0\0"}]
    joined = member.ask("JoinGroup", 2, **told, protocol_type="consumer", protocols=protocols)
    place = {"group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id}
    assert member.ask("SyncGroup", 1, **place, assignments=[]).error_code == 0
    return member


def iggy_inputs() -> Inputs:
    requests = [
        (SEND, TOPIC + to_partition(2) + message(b"payload") * 3),
        (POLL, poll(TOPIC, partition=2)),
        (POLL, struct.pack("<BI", 2, 1) + TOPIC + struct.pack("<IBQIB", 1, 5, 0, 10, 1)),
        (JOIN, TOPIC + ONE),
        (LEAVE, TOPIC + ONE),
        (1, b""),
    ]
    return [HEAD.pack(4 + len(payload), code) + payload for code, payload in requests]


def joined_by_websocket(address: str) -> Connection:
    """A member of an Iggy consumer group, by messages of a WebSocket."""
    member = RawWebSocket(address)
    member.frame(BINARY, HEAD.pack(4 + len(TOPIC + ONE), JOIN) + TOPIC + ONE)
    assert member.receive_frame() == (BINARY, bytes(8))
    return member


def say(client: Client, data: bytes, *, end: bool) -> None:
    """Write the input; ``end`` says that nothing comes after it."""
    if isinstance(client, QuicPackets):
        client.send_packet(data)
        return
    if isinstance(client, QuicFrames):
        client.send(data, end=end)
        # the second pass brings what did not fit into the first window
        for _ in range(2):
            client.step(0.01)
        return
    client.socket.sendall(data)
    if end:
        client.socket.shutdown(socket.SHUT_WR)


def logged_in(login: bytes) -> Open:
    """Opens connections of an Iggy client that has logged in and is a member of a group."""

    def open_(address: str) -> Connection:
        member = Frames(address)
        assert member.ask(LOGIN, login) == (0, ONE)
        assert member.ask(JOIN, TOPIC + TOPIC[:6]) == (0, b"")
        return member

    return open_


def release_inputs(client: str) -> Inputs:
    """What a published client was seen to send, and what it may send of users, groups and offsets."""
    name, ident = b"\5group", TOPIC[:6]
    requests = [
        *captured(client).values(),
        (SEND, TOPIC + to_partition(2) + message(b"payload") * 3),
        (POLL, b"\2" + ident + TOPIC + struct.pack("<IBQIB", 0, 5, 0, 10, 1)),
        (POLL, b"\1\2" + name + TOPIC + struct.pack("<IBQIB", 1, 1, 0, 10, 1)),
        *((code, b"\1\2" + name + TOPIC + ONE + bytes(8)) for code in (120, 121)),
        (GROUP_CREATE, TOPIC + bytes(4) + name),
        *((code, TOPIC + b"\2" + name) for code in (600, 603, 604, 605)),
        *((code, TOPIC + ONE + b"\1") for code in (102, 305)),
        *((code, b"\2" + name) for code in (31, 44, 200)),
        *((code, b"") for code in (10, 12, 20, 22, 32, 39, 201)),
    ]
    return [HEAD.pack(4 + len(payload), code) + payload for code, payload in requests]


def websocket_inputs(messages: Inputs) -> Inputs:
    """Return messages as frames that are masked by zeros, so that what they hold can be changed as it lies."""
    key, first = bytes(4), messages[0]
    whole = [encode_frame(BINARY, one, key) for one in messages]
    half = encode_frame(BINARY, first[:4], key, fin=False) + encode_frame(CONT, first[4:8], key)
    return [*whole, half, *(encode_frame(opcode, b"", key) for opcode in (TEXT, PING, CLOSE))]


def kafka_inputs() -> Inputs:
    frames = [bytes.fromhex(frame["request_hex"]) for frame in RECORDED]
    return [struct.pack(">i", len(frame)) + frame for frame in frames]


NSQ_INPUTS: Inputs = (
    pub("fuzz", b"x", b'{"a":1}'),
    pub("fuzz", b"plain"),
    mpub("fuzz", b"a", b"b"),
    mpub_ext("fuzz", (b'{"a":"b"}', b"x")),
    *(verb + bytes(7) + b"\1" + bytes(8) + end for verb, end in VERBS),
    (b"FIN " + bytes(7) + b"\2" + bytes(8) + b"\n") * 3,
    b"FIN 0123456789abcdef\r\n",
    b"RDY 5\nNOP\nCLS\n",
)
LOOKUP_INPUTS: Inputs = (
    b"REGISTER fuzz-node 1 ch\n",
    b"UNREGISTER fuzz-node 1 ch\n",
    b"PING\n" * 5,
    sized(b"IDENTIFY\n", json.dumps(FACTS).encode()),
)


def request(method: str, target: str, body: bytes = b"", *lines: str) -> bytes:
    """An HTTP request that keeps its connection."""
    head = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


MESSAGES = b'{"partitioning":{"kind":"partition_id","value":"AQAAAA=="},"messages":[{"payload":"aGVsbG8="}]}'
LISTENERS: Mapping[str, tuple[Open, Inputs]] = {
    "iggy_tcp": (joined_iggy(Frames), iggy_inputs()),
    **{
        f"iggy_tcp of {client}": (logged_in(captured(client)["login_user"][1]), release_inputs(client))
        for client in ("iggy-py_0.1.0", "iggy-py_0.2.0", "iggy-py_0.4.0", "apache-iggy_0.5.0", "apache-iggy_0.8.0")
    },
    "iggy_websocket": (joined_by_websocket, websocket_inputs(iggy_inputs())),
    "iggy_websocket before the upgrade": (
        Connection,
        (f"{HANDSHAKE}\r\n".encode(), request("POST", "/", b"a body that no frame begins with")),
    ),
    "iggy_quic": (joined_iggy(QuicFrames), iggy_inputs()),
    "iggy_quic by packets": (joined_iggy(QuicPackets), FRAMES),
    "iggy_http": (
        Connection,
        (
            request("GET", "/streams/1/topics/1/messages?partition_id=1&count=5&kind=offset&value=0"),
            request("POST", "/streams/1/topics/1/messages", MESSAGES, "Content-Type: application/json"),
            request("GET", "/stats"),
        ),
    ),
    "kafka": (joined_kafka, kafka_inputs()),
    "nsqd_tcp": (subscribed, NSQ_INPUTS),
    "nsqd_http": (
        Connection,
        (
            request("POST", "/pub_ext?topic=fuzz&ext=%7B%22a%22:1%7D", b"body", "X-Nsqext-Gate: B7"),
            request("POST", "/mpub?topic=fuzz&binary=true", b"\0\0\0\1\0\0\0\1x"),
            request("GET", "/stats?format=json&topic=fuzz"),
            request("POST", "/channel/setoffset?topic=fuzz&channel=web", b"timestamp:1"),
        ),
    ),
    "nsqlookupd_tcp": (registered, LOOKUP_INPUTS),
    "nsqlookupd_http": (
        Connection,
        (
            request("GET", "/lookup?topic=fuzz&access=r&metainfo=true"),
            request("POST", "/topic/create?topic=fuzz&partition_num=1&replicator=1&extend=true"),
            request("GET", "/nodes"),
        ),
    ),
    "admin": (
        Connection,
        (
            request("GET", "/topics"),
            request("GET", "/metrics"),
            request("GET", "/health", b"", "Transfer-Encoding: chunked"),
            request("POST", "/topics", b'{"stream":"s","topic":"t","partitions":1}', "Content-Type: application/json"),
        ),
    ),
}
"""By listener: how a client gets to the middle of a conversation, and what it may say there."""
BYSTANDERS: Mapping[str, Callable[[str], Frames | QuicFrames | WebSocketFrames]] = {
    "iggy_tcp": joined_iggy(Frames),
    "iggy_quic": joined_iggy(QuicFrames),
    "iggy_websocket": WebSocketFrames,
}
"""By endpoint: clients that are served all the while."""


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Return the input with up to three changes: bytes at the edge of something, cut, doubled, put in, left out."""
    found = bytearray(data)
    for _ in range(chance.randint(0, 3)):
        at = chance.randrange(len(found) + 1)
        match chance.randrange(6):
            case 0 | 1:
                found[at : at + 1] = bytes((chance.choice(EDGES),))
            case 2:
                found[at : at + 4] = struct.pack(">i", chance.choice((-1, 0, 1 << 30, (1 << 31) - 1, -(1 << 31))))
            case 3:
                del found[at : at + chance.randrange(1, 9)]
            case 4:
                found[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 5:
                found += found[:at]
    return bytes(found)


@pytest.mark.turns(3)
@pytest.mark.parametrize("listener", LISTENERS)
def test_no_input_keeps_others_waiting(running: testing.BrokerProcess, listener: str, full: bool) -> None:
    open_, inputs = LISTENERS[listener]
    endpoint = listener.split()[0]
    address = running.endpoints[endpoint]
    bystander = BYSTANDERS[endpoint](address) if endpoint in BYSTANDERS else None
    chance = random.Random(listener)
    said_before = len(running.log_file.read_text())
    with closing(Health(running)) as health:
        for data in inputs:
            said = [data, *(mutate(data, chance) for _ in range((ROUNDS_FULL if full else ROUNDS) // len(inputs)))]
            for each in said:
                client = open_(address)
                with suppress(ConnectionError):
                    say(client, each, end=chance.random() < 0.2)
                health.check((listener, each))
                assert bystander is None or bystander.ask(IGGY_PING) == (0, b""), (listener, each)
                client.close()
    if bystander is not None:
        bystander.close()
    assert running.process.poll() is None
    words = running.log_file.read_text()[said_before:]
    assert "Traceback" not in words, words

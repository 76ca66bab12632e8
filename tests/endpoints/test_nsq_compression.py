"""nsqd's connections that are compressed by IDENTIFY: deflate and snappy, plain and within TLS, and what they bound."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import struct
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from lading import testing
from lading.endpoints.base.inbox import BUSY_BUFFER_BYTES_MAX
from tests.endpoints.authority import Authority
from tests.endpoints.compressed_socket import STREAMS
from tests.endpoints.nsq_client import NsqClient, mpub, pub, sized
from tests.endpoints.request_cost import World, best, opened_world

KINDS = ("deflate", "snappy")
MAGIC = b"  V2"
OK = struct.pack(">II", 6, 0) + b"OK"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ca")


@pytest.fixture(scope="module")
def encrypted(authority: Authority) -> Iterator[testing.BrokerProcess]:
    settings: dict[str, Any] = {"tls.enabled": True, "tls.required": False, "tls.certificate": authority.sign("server")}
    with testing.broker(settings={f"endpoints.nsqd_tcp.{key}": value for key, value in settings.items()}) as running:
        yield running


def open_compressed(address: str, kind: str, context: ssl.SSLContext | None = None, **told: Any) -> NsqClient:
    asked: dict[str, Any] = {kind: True, "tls_v1": context is not None, **told}
    client = NsqClient(address, **asked)
    if context is not None:
        client.start_tls(context)
        assert client.frame() == (0, b"OK")
    assert client.identity[kind] is True
    client.start_compression(kind)
    assert client.frame() == (0, b"OK")
    return client


def require_delivery(broker: testing.BrokerProcess, client: NsqClient, topic: str) -> None:
    """Publish, read and finish over a compressed connection, small and large."""
    bodies = [b"small", bytes(300_000), os.urandom(200_000), b"last"]
    for body in bodies[:2]:
        assert client.ask(pub(topic, body)) == b"OK"
    assert client.ask(mpub(topic, *bodies[2:])) == b"OK"
    assert client.ask(b"SUB %s c\n" % topic.encode()) == b"OK"
    client.send(b"RDY 10\n")
    messages = client.messages(4)
    assert [message.body for message in messages] == bodies
    client.fin(*messages)
    assert client.ask(b"CLS\n") == b"CLOSE_WAIT"


@pytest.mark.parametrize("kind", KINDS)
def test_a_compressed_connection_does_all_that_a_plain_one_does(broker: testing.BrokerProcess, kind: str) -> None:
    client = open_compressed(broker.endpoints["nsqd_tcp"], kind)
    require_delivery(broker, client, f"plain-{kind}")
    stats = httpx.get(f"http://{broker.endpoints['nsqd_http']}/stats?format=json&topic=plain-{kind}").json()
    (channel,) = stats["topics"][0]["channels"]
    assert (channel["in_flight_count"], channel["depth"]) == (0, 0)
    assert {name: channel["clients"][0][name] for name in KINDS} == {name: name == kind for name in KINDS}
    # once is enough
    assert client.ask(sized(b"IDENTIFY\n", b"{}")).startswith(b"E_INVALID cannot IDENTIFY")
    assert client.closed()
    client.close()


@pytest.mark.turns(3)
@pytest.mark.parametrize("with_tls", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_compression_within_tls_comes_after_it(
    encrypted: testing.BrokerProcess, authority: Authority, kind: str, with_tls: bool
) -> None:
    context = ssl.create_default_context(cafile=authority.file) if with_tls else None
    client = open_compressed(encrypted.endpoints["nsqd_tcp"], kind, context)
    require_delivery(encrypted, client, f"tls-{kind}-{with_tls}")
    client.close()


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", KINDS)
def test_heartbeats_reach_a_compressed_client(broker: testing.BrokerProcess, kind: str) -> None:
    client = open_compressed(broker.endpoints["nsqd_tcp"], kind, heartbeat_interval=1000)
    assert client._read(19, 5) == b"\0\0\0\x0f\0\0\0\0_heartbeat_"
    client.close()


def test_both_at_once_are_refused(broker: testing.BrokerProcess) -> None:
    client = NsqClient(broker.endpoints["nsqd_tcp"])
    refused = b"E_IDENTIFY_FAILED cannot enable both deflate and snappy compression"
    assert client.identify(feature_negotiation=True, deflate=True, snappy=True) == refused
    assert client.closed()
    client.close()
    # nsqd looks at neither without a negotiation
    client = NsqClient(broker.endpoints["nsqd_tcp"])
    assert client.identify(deflate=True, snappy=True) == b"OK"
    assert client.ask(pub("unchanged", b"x")) == b"OK"
    client.close()


def test_what_is_switched_off_is_not_offered_and_levels_are_bounded() -> None:
    settings = {"endpoints.nsqd_tcp.snappy": False, "endpoints.nsqd_tcp.deflate_level_max": 3}
    with testing.broker(settings=settings) as broker:
        client = NsqClient(broker.endpoints["nsqd_tcp"], snappy=True, deflate=True, deflate_level=9)
        told = {key: client.identity[key] for key in ("snappy", "deflate", "deflate_level", "max_deflate_level")}
        assert told == {"snappy": False, "deflate": True, "deflate_level": 3, "max_deflate_level": 3}
        client.start_compression("deflate")
        assert client.frame() == (0, b"OK")
        client.close()
        config = f"http://{broker.endpoints['nsqd_http']}/config/"
        options = {name: httpx.get(config + name).json() for name in ("snappy", "deflate", "max_deflate_level")}
        assert options == {"snappy": False, "deflate": True, "max_deflate_level": 3}


# nsqd 1.3.0, and the fork, whose level is 0 for a client that names none
@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("compat", "levels"),
    [
        ("upstream", {None: 6, 0: 6, 1: 1, 6: 6, 9: 6, -1: 6}),
        ("youzan", {None: 0, 0: 0, 1: 1, 6: 6, 9: 6}),
    ],
)
def test_levels_are_those_of_the_server(compat: str, levels: dict[int | None, int]) -> None:
    with testing.broker(settings={"nsq.compat": compat}) as broker:
        for asked, level in levels.items():
            told: dict[str, Any] = {} if asked is None else {"deflate_level": asked}
            client = open_compressed(broker.endpoints["nsqd_tcp"], "deflate", **told)
            assert client.identity["deflate_level"] == level
            assert client.ask(sized(b"AUTH\n", b"x")).startswith(b"E_AUTH_DISABLED")
            client.close()
        plain = NsqClient(broker.endpoints["nsqd_tcp"], client_id="plain")
        assert plain.identity["deflate_level"] == levels[None]
        plain.close()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sent_right_behind_identify_is_taken(broker: testing.BrokerProcess, kind: str) -> None:
    stream = STREAMS[kind]()
    body = json.dumps({"feature_negotiation": True, kind: True}).encode()
    host, _, port = broker.endpoints["nsqd_tcp"].rpartition(":")
    with socket.create_connection((host, int(port)), 10) as client:
        client.sendall(MAGIC + sized(b"IDENTIFY\n", body) + stream.compress(pub("ahead", b"x")))
        (size,) = struct.unpack(">I", client.recv(4, socket.MSG_WAITALL))
        client.recv(size, socket.MSG_WAITALL)
        answers = b""
        while len(answers) < 2 * len(OK):
            answers += stream.decompress(client.recv(1 << 16))
        assert answers == OK * 2


@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_may_come_by_itself(broker: testing.BrokerProcess, kind: str) -> None:
    client = open_compressed(broker.endpoints["nsqd_tcp"], kind)
    opened: Any = client._socket
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in opened.stream.compress(pub(f"bytes-{kind}", b"x" * 100)):
        opened._plain.sendall(bytes([byte]))
    assert client.frame() == (0, b"OK")
    client.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_that_breaks_ends_behind_what_came_before(broker: testing.BrokerProcess, kind: str) -> None:
    client = open_compressed(broker.endpoints["nsqd_tcp"], kind)
    opened: Any = client._socket
    noise = b"\xfe\xff\xff\xff" * 10
    command = opened.stream.compress(pub(f"broken-{kind}", b"x"))
    if kind == "snappy":
        opened._plain.sendall(command + noise)
        assert client.frame() == (0, b"OK")
    else:
        # zlib gives nothing of a read that ends in an error
        opened._plain.sendall(command)
        assert client.frame() == (0, b"OK")
        opened._plain.sendall(noise)
    assert client.closed()
    client.close()
    metrics = httpx.get(f"http://{broker.endpoints['admin']}/metrics").text
    assert re.search(r'lading_dropped_total\{endpoint="nsqd_tcp",reason="compression"\} \d', metrics), metrics
    assert f"closing the connection: {kind} " in broker.log_file.read_text()


def test_a_client_that_ends_its_stream_is_answered_first(broker: testing.BrokerProcess) -> None:
    client = open_compressed(broker.endpoints["nsqd_tcp"], "deflate")
    opened: Any = client._socket
    stream = zlib.compressobj(6, zlib.DEFLATED, -15)
    opened._plain.sendall(stream.compress(pub("ended", b"x")) + stream.flush())
    assert client.frame() == (0, b"OK")
    assert client.closed()
    client.close()


# -- what it costs


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with opened_world(tmp_path, has_users=False) as opened:
        yield opened


def connect(world: World, kind: str) -> tuple[Any, Any]:
    """A compressed client, and its stream."""
    client, stream = world.connect("nsqd_tcp"), STREAMS[kind]()
    body = json.dumps({"feature_negotiation": True, kind: True}).encode()
    client.send(MAGIC + sized(b"IDENTIFY\n", body))
    identified = client.transport.take()
    size = int.from_bytes(identified[:4], "big") + 4
    assert stream.decompress(identified[size:]) == OK
    return client, stream


def send(world: World, client: Any, data: bytes) -> None:
    """Let ``data`` arrive; a connection whose buffer is full is read on after its turn, as by asyncio."""
    for start in range(0, len(data), 1 << 13):
        world.send(client, data[start : start + (1 << 13)])
        world.loop.turn()


@pytest.mark.turns(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("unit", "count"), [(b"NOP\n", 1 << 15), (bytes(1 << 16), 1 << 7)])
def test_a_small_stream_that_stands_for_much_holds_nobody_up(world: World, kind: str, unit: bytes, count: int) -> None:
    """Many commands, and a line of 8 MiB that never ends."""
    costs = []
    for _ in range(3):
        client, stream = connect(world, kind)
        data = stream.compress(unit * count)
        assert len(data) < 1 << 19
        costs.append(world.measure(partial(send, world, client, data)))
        client.protocol.connection_lost(None)
    assert best(costs).longest_pass_s < 0.020


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_is_larger_than_allowed_takes_no_memory(world: World, kind: str) -> None:
    client, stream = connect(world, kind)
    data = stream.compress(b"PUB t\n" + struct.pack(">i", 1 << 30) + bytes(32 << 20))
    cost = world.measure(partial(send, world, client, data), has_memory=True)
    assert cost.peak_bytes < BUSY_BUFFER_BYTES_MAX
    assert b"E_BAD_MESSAGE" in stream.decompress(client.transport.take())


@pytest.mark.parametrize("kind", KINDS)
def test_memory_of_streams_is_counted_and_given_back(world: World, kind: str) -> None:
    budget = world.services.receive
    before = budget.left_bytes
    client, _ = connect(world, kind)
    assert budget.left_bytes < before
    client.protocol.connection_lost(None)
    assert budget.left_bytes == before


def test_without_memory_for_streams_the_client_is_told(world: World) -> None:
    world.services.receive.set_limits(1024, 1.0)
    client = world.connect("nsqd_tcp")
    client.send(MAGIC + sized(b"IDENTIFY\n", b'{"feature_negotiation":true,"snappy":true}'))
    assert b"E_IDENTIFY_FAILED no memory for a compressed connection; retry later" in client.transport.take()

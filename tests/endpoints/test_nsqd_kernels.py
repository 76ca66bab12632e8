"""A long MPUB that comes before the kernels are loaded waits for them: it is stored at once, all of it or nothing."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from lading.dialects.nsq import publishing, send_fallback, send_layout
from lading.kernels import engine
from tests.endpoints.http_parts import encode_request
from tests.endpoints.nsq_client import mpub, sized
from tests.endpoints.request_cost import World, opened_world
from tests.house.scripted import ScriptedConnection, ScriptedHttpConnection

OK = b"\0\0\0\x06\0\0\0\0OK"
EXT = json.dumps({f"key-{number}": "value" for number in range(3_000)}).encode()
LONG = {
    "messages": mpub("t", *[b"x"] * 1_000),
    "headers": sized(b"MPUB_EXT t\n", struct.pack(">IIH", 1, 2 + len(EXT) + 1, len(EXT)) + EXT + b"x"),
}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """With a topic, in a broker whose kernels are being loaded."""
    monkeypatch.setattr(engine, "_loaded", {})
    monkeypatch.setattr(engine, "_requested", set())
    # a loader that another test of this process has started would load what is asked for
    monkeypatch.setattr(engine, "_request", lambda home: None)
    monkeypatch.setattr(engine, "_background", threading.current_thread())
    with opened_world(tmp_path, has_users=False) as world:
        world.create_topic("t")
        yield world


def _count_messages(world: World) -> int:
    (topic,) = world.broker.topology.topics()
    return topic.partitions[0].log.next_offset


def _load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engine._loaded, publishing.KERNEL_MODULE, send_fallback)


def test_a_long_mpub_waits_for_the_kernels_and_what_follows_waits_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = cast("ScriptedConnection", world.connect("nsqd_tcp"))
    client.send(b"  V2")
    client.send(LONG["messages"] + sized(b"PUB t\n", b"last"))
    world.loop.advance(5)
    assert client.transport.take() == b""
    assert _count_messages(world) == 0
    _load(monkeypatch)
    world.loop.advance(1)
    assert client.transport.take() == OK * 2
    assert _count_messages(world) == 1_001


def test_it_is_stored_without_kernels_if_they_cannot_be_loaded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = cast("ScriptedConnection", world.connect("nsqd_tcp"))
    client.send(b"  V2")
    client.send(LONG["messages"])
    assert client.transport.take() == b""
    monkeypatch.setattr(engine, "_background", threading.Thread())
    world.loop.advance(1)
    assert client.transport.take() == OK
    assert _count_messages(world) == 1_000


def test_an_mpub_is_bounded_if_kernels_cannot_be_loaded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million messages kept the event loop for 5 to 20 s where there is nothing to wait for."""
    monkeypatch.setattr(engine, "_background", threading.Thread())
    longest = [b"x"] * publishing.COMPILING_ITEMS_MAX
    client = cast("ScriptedConnection", world.connect("nsqd_tcp"))
    client.send(b"  V2")
    assert client.ask(mpub("t", *longest)) == OK
    assert b"E_BAD_BODY" in client.ask(mpub("t", *longest, b"x"))
    http = cast("ScriptedHttpConnection", world.connect("nsqd_http"))
    body = mpub("t", *longest, b"x").partition(b"\n")[2][4:]
    assert b" 413 " in http.ask(encode_request("POST", "/mpub?topic=t&binary=true", body)).partition(b"\r\n")[0]
    assert _count_messages(world) == publishing.COMPILING_ITEMS_MAX


def test_a_short_mpub_waits_for_nothing(world: World) -> None:
    client = cast("ScriptedConnection", world.connect("nsqd_tcp"))
    client.send(b"  V2")
    assert client.ask(mpub("t", *[b"x"] * publishing.FALLBACK_ITEMS_MAX)) == OK


def test_only_the_longest_waits_while_kernels_are_compiled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_is_compiling", True)
    client = cast("ScriptedConnection", world.connect("nsqd_tcp"))
    client.send(b"  V2")
    assert client.ask(LONG["messages"]) == OK
    assert client.ask(mpub("t", *[b"x"] * (publishing.COMPILING_ITEMS_MAX + 1))) == b""


def test_long_headers_of_an_mpub_wait_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    size_bytes = len(LONG["headers"])
    assert publishing.needs_kernels(1, size_bytes, send_layout.EXT)
    assert not publishing.needs_kernels(1, size_bytes, None)
    # what is refused for its count is refused at once
    assert not publishing.needs_kernels(1 << 20, 1_000, None)
    _load(monkeypatch)
    assert not publishing.needs_kernels(1_000_000, size_bytes, None)


def test_the_same_over_http(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = cast("ScriptedHttpConnection", world.connect("nsqd_http"))
    receive = world.services.receive
    free_bytes = receive.left_bytes
    client.send(encode_request("POST", "/mpub?topic=t", b"x\n" * 1_000))
    world.loop.advance(5)
    assert client.transport.take() == b""
    # as MPUB has it: the count, and a size and a byte for each
    assert receive.left_bytes == free_bytes - 4 - 5 * 1_000
    _load(monkeypatch)
    world.loop.advance(1)
    assert client.transport.take().startswith(b"HTTP/1.1 200 OK")
    assert _count_messages(world) == 1_000
    assert receive.left_bytes == free_bytes


def test_bodies_that_wait_for_kernels_share_the_memory_of_those_that_arrive(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waited with up to 5 MiB that were counted nowhere, for a minute if kernels are compiled."""
    world.services.receive.set_limits(10_000, 1.0)
    client = cast("ScriptedHttpConnection", world.connect("nsqd_http"))
    client.send(encode_request("POST", "/mpub?topic=t", b"x\n" * 1_000))
    world.loop.advance(1)
    assert client.transport.take() == b""
    other = cast("ScriptedHttpConnection", world.connect("nsqd_http"))
    other.send(encode_request("POST", "/mpub?topic=t", b"x\n" * 1_200))
    world.loop.advance(1)
    assert other.transport.take().startswith(b"HTTP/1.1 503")
    _load(monkeypatch)
    world.loop.advance(1)
    assert client.transport.take().startswith(b"HTTP/1.1 200 OK")

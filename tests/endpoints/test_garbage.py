"""Garbage: what is long-lived and ends is freed without a search, and a search looks only at what is new."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import weakref
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from lading.broker.broker import Broker
from lading.broker.channels.partition_dispatcher import PartitionDispatcher
from lading.broker.channels.subscriber import Subscriber
from lading.broker.core.change import complete
from lading.broker.core.settings import TopicSettings
from lading.broker.core.topology import Partition, Topic
from lading.cli.main import START_OBJECTS
from lading.endpoints.base.garbage import PER_MIDDLE, YOUNG_OBJECTS, YOUNG_PER_FULL, collecting_in_pieces
from lading.endpoints.base.services import Services
from lading.endpoints.http_shared.http_connection import HttpConnection, make_context
from lading.endpoints.io.tcp import Connection
from lading.endpoints.kafka.session import BODY_BYTES_INLINE
from lading.runtime.metrics import Metrics
from lading.serve import serve
from lading.settings.settings import Settings
from tests.endpoints.frames import HEAD
from tests.house.test_hot_path import CASES, connected

CREATE_STREAM = 202
ALIVE = 300_000
"""Objects that stay, of which an ordinary full collection looks at all."""


@pytest.fixture
def frozen() -> Iterator[None]:
    """Nothing of the tests before is looked at, nor collected."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def uncollected(frozen: None) -> Iterator[None]:
    """Only what nothing refers to is freed."""
    gc.disable()
    yield
    gc.enable()


class Link:
    """An object that may refer to itself."""

    other: Link


def test_a_full_collection_looks_only_at_what_is_new(frozen: None) -> None:
    looked: list[int] = []

    def count(phase: str, info: Mapping[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            looked.append(len(gc.get_objects()))

    gc.callbacks.append(count)
    try:
        with collecting_in_pieces():
            alive = [[number] for number in range(ALIVE)]
            cycle = Link()
            cycle.other = cycle
            gone = weakref.ref(cycle)
            del cycle
            alive += [[number] for number in range(ALIVE)]
    finally:
        gc.callbacks.remove(count)
    young, per_middle, _ = gc.get_threshold()
    new_max = (YOUNG_PER_FULL + 1) * (per_middle + 1) * (young + 1)
    # the first also looks at what came before the block
    assert looked[1:]
    assert max(looked[1:]) < 1.2 * new_max
    assert gone() is None
    assert len(alive) == 2 * ALIVE


def test_a_broker_collects_in_pieces_though_its_start_put_collections_off(
    frozen: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the ready line on: what follows it leaves the pieces as small as they are."""
    monkeypatch.setattr("lading.kernels.engine.load_in_background", lambda: None)
    before = gc.get_threshold()
    gc.set_threshold(START_OBJECTS)
    try:
        with collecting_in_pieces():
            serve._warm_up()
            assert gc.get_threshold() == (YOUNG_OBJECTS, PER_MIDDLE, YOUNG_PER_FULL)
    finally:
        gc.set_threshold(*before)


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", CASES)
def test_a_connection_that_is_gone_is_freed_at_once(tmp_path: Path, name: str, uncollected: None) -> None:
    endpoint, case = CASES[name]
    with connected(tmp_path, endpoint, "fsync") as client:
        requests = case(client)
        for _ in range(3):
            client.send(next(requests))
        if name.startswith("NSQ"):
            # who has published alone is remembered until another one does
            client = client.loop.connect()
            client.send(b"  V2SUB topic another\nRDY 1\n")
        connection = weakref.ref(cast("Connection", client.protocol))
        session = weakref.ref(cast("Connection", client.protocol).session)
        client.close()
        assert connection() is None
        assert session() is None


def test_a_connection_whose_request_was_refused_is_freed_at_once(tmp_path: Path, uncollected: None) -> None:
    """Where a request waits for a worker, its error knows the frames that it went through."""
    with connected(tmp_path, "iggy_tcp", "fsync") as client:
        connection = weakref.ref(cast("Connection", client.protocol))
        create = HEAD.pack(4 + 4 + 5, CREATE_STREAM) + struct.pack("<I", 77) + b"again"
        assert client.ask(create)[:4] == bytes(4)
        assert client.ask(create)[:4] != bytes(4)
        client.close()
        assert connection() is None


def test_a_connection_whose_long_request_was_malformed_is_freed_at_once(tmp_path: Path, uncollected: None) -> None:
    with connected(tmp_path, "kafka", "fsync") as client:
        connection = weakref.ref(cast("Connection", client.protocol))
        # Metadata 4 of a client without a name: more topics than there are bytes
        request = struct.pack(">hhih", 3, 4, 1, -1) + b"\x7f" * (BODY_BYTES_INLINE + 1)
        client.send(struct.pack(">i", len(request)) + request)
        client.close()
        assert connection() is None


def test_a_connection_over_http_that_is_gone_is_freed_at_once(tmp_path: Path, uncollected: None) -> None:
    """Its share of the memory for requests knows whom to ask for it back."""
    with ThreadPoolExecutor(1) as workers, asyncio.Runner() as runner:
        broker = Broker.open(tmp_path, now_us=1)
        try:
            services = Services(broker, Settings(data=tmp_path), Metrics(), workers)
            connection = runner.run(_meet_http(services))
        finally:
            broker.stop()
        assert connection() is None


async def _meet_http(services: Services) -> weakref.ref[HttpConnection]:
    """Connect to an HTTP listener by a socket, leave, and return the connection that there was."""
    made: list[weakref.ref[HttpConnection]] = []
    context = make_context("nsqd_http", services, frozenset())
    config = Config(lambda scope, receive, send: None)
    config.load()

    def make() -> HttpConnection:
        connection = HttpConnection(context, config, ServerState(), {})
        made.append(weakref.ref(connection))
        return connection

    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours:
        await loop.connect_accepted_socket(make, theirs)
    while len(context.places):
        await asyncio.sleep(0)
    # the pass of the loop in which it ends refers to it
    await asyncio.sleep(0)
    return made[0]


def list_objects(*kinds: type) -> set[int]:
    """Return the identities of all objects of these classes: a broker has Kafka's internal topics from the start."""
    return {id(one) for one in gc.get_objects() if isinstance(one, kinds)}


def test_a_topic_with_a_channel_that_is_deleted_is_freed_at_once(tmp_path: Path, uncollected: None) -> None:
    """Its log has files open: a thousand such topics would need a thousand descriptors."""
    broker = Broker.open(tmp_path, now_us=1)
    try:
        internal = list_objects(Topic, Partition, PartitionDispatcher)
        stream = complete(broker.changes.ensure_stream("default", now_us=1))
        topic = complete(broker.changes.create_topic(stream, None, "t", 2, now_us=1, settings=TopicSettings()))
        channel = broker.channels.open(topic, "c")
        subscriber = Subscriber(lambda delivery: None)
        channel.subscribe(subscriber)
        subscriber.set_ready(1)
        broker.channels.pump(2)
        complete(broker.changes.delete_partitions(topic, 1))
        log = weakref.ref(topic.partitions[0].log)
        complete(broker.changes.delete_topic(topic))
        assert channel.deleted
        del topic, channel
        assert log() is None
        assert list_objects(Topic, Partition, PartitionDispatcher) == internal
    finally:
        broker.stop()


def test_a_topic_that_is_deleted_is_freed_at_once(tmp_path: Path, uncollected: None) -> None:
    broker = Broker.open(tmp_path, now_us=1)
    try:
        internal = list_objects(Topic, Partition)
        stream = complete(broker.changes.ensure_stream("default", now_us=1))
        topic = complete(broker.changes.create_topic(stream, None, "t", 3, now_us=1, settings=TopicSettings()))
        complete(broker.changes.delete_partitions(topic, 1))
        log = weakref.ref(topic.partitions[0].log)
        complete(broker.changes.delete_topic(topic))
        del topic
        assert log() is None
        assert list_objects(Topic, Partition) == internal
    finally:
        broker.stop()

"""Garbage: what is long-lived and ends is freed without a search, and a search looks only at what is new."""

from __future__ import annotations

import gc
import struct
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from lading.broker.broker import Broker
from lading.broker.channels.partition_dispatcher import PartitionDispatcher
from lading.broker.channels.subscriber import Subscriber
from lading.broker.core.settings import TopicSettings
from lading.broker.core.topology import Partition, Topic
from lading.broker.core.topology_changes import complete
from lading.endpoints.base.garbage import YOUNG_PER_FULL, collecting_in_pieces
from lading.endpoints.io.tcp import Connection
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


def test_a_topic_with_a_channel_that_is_deleted_is_freed_at_once(tmp_path: Path, uncollected: None) -> None:
    """Its log has files open: a thousand such topics would need a thousand descriptors."""
    broker = Broker.open(tmp_path, now_us=1)
    try:
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
        assert not [one for one in gc.get_objects() if isinstance(one, Topic | Partition | PartitionDispatcher)]
    finally:
        broker.stop()


def test_a_topic_that_is_deleted_is_freed_at_once(tmp_path: Path, uncollected: None) -> None:
    broker = Broker.open(tmp_path, now_us=1)
    try:
        stream = complete(broker.changes.ensure_stream("default", now_us=1))
        topic = complete(broker.changes.create_topic(stream, None, "t", 3, now_us=1, settings=TopicSettings()))
        complete(broker.changes.delete_partitions(topic, 1))
        log = weakref.ref(topic.partitions[0].log)
        complete(broker.changes.delete_topic(topic))
        del topic
        assert log() is None
        assert not [one for one in gc.get_objects() if isinstance(one, Topic | Partition)]
    finally:
        broker.stop()

"""PUB commands of many connections in one pass: one append, one answer to each, and the same refusal for all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from lading.broker.broker import Broker
from lading.broker.core.read import read
from lading.broker.core.settings import BrokerSettings
from lading.dialects import registry
from lading.dialects.nsq import protocol as nsq_row
from lading.dialects.nsq.publishing import RUN_BYTES_MAX
from lading.endpoints.base.inbox import Inbox
from lading.endpoints.base.responses import Slot
from lading.endpoints.base.services import Services, now_us
from lading.endpoints.nsq.nsqd import node as nodes
from lading.endpoints.nsq.nsqd.publication import Publication
from lading.endpoints.nsq.nsqd.publish import Publisher
from lading.endpoints.nsq.nsqd.publish_coalescing import COMMAND_BYTES_MAX, PublishCoalescer
from lading.endpoints.nsq.nsqd.session import NAME
from lading.log.group_commit import SyncNow
from lading.model.scan_request import ScanRequest
from lading.runtime.metrics import Metrics
from lading.settings.settings import Settings
from tests.endpoints.nsq_client import pub
from tests.endpoints.test_orders_of_waiting import HeldSyncs
from tests.faults.faulty import FaultyDisk

LINE = b"PUB t\n"
OK = b"\0\0\0\6\0\0\0\0OK"


def full(operation: str, path: Path, data: Any) -> Any:
    """The fault of a disk that has no room."""
    if operation == "write":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    return data


class Client:
    """Where a connection would stand: it notes when it was told to answer, and whether it was cut off."""

    def __init__(self) -> None:
        self.told = 0
        self.cut = self.waits = False

    def fill(self, parts: object) -> None:
        self.told += 1

    def abort(self) -> None:
        self.cut = True

    def wait_for_disk(self) -> None:
        self.waits = True


class Face:
    """A gathering on a real broker; a pass of the event loop ends with ``flush``."""

    def __init__(self, broker: Broker, workers: ThreadPoolExecutor) -> None:
        self.broker = broker
        self.asked = self.served = 0
        broker.appender.on_pending = self._ask
        self.services = services = Services(broker, Settings(), Metrics(), workers)
        self.requests = services.metrics.requests.values
        self.publisher = Publisher(nodes.of(services), NAME)
        self.gathering = PublishCoalescer(
            self.publisher, NAME, self.requests, broker.appender.call_before_flush, self._serve
        )

    def _ask(self) -> None:
        self.asked += 1

    def _serve(self) -> None:
        self.served += 1

    def join(self, client: Client, body: bytes, topic: str = "t") -> Publication:
        inbox, command, line = Inbox(self.services.receive), pub(topic, body), b"PUB %s\n" % topic.encode()
        assert inbox.append(command)
        route = self.publisher.routes.get(line) or self.publisher.find_route(line)
        joint = self.gathering.publish(route, line, len(line), inbox, len(command), client, now_us())
        if not joint.done:
            joint.slots.append(cast("Slot", client))
        return joint

    def kept(self) -> list[bytes]:
        partition = self.broker.topology.resolve("t").partition(0)
        reading = read(
            partition, 0, reader=nsq_row.CHANNEL, max_messages=10**6, max_bytes=1 << 30,
            counters=self.broker.counters,
        )  # fmt: skip
        batches = (
            registry.to_batch(part)
            for run, first, end in reading.pieces
            for part in registry.dialect(run.dialect).decode(run, ScanRequest(first=first, end=end))
        )
        return [payload for batch in batches for payload in cast("Any", batch).column("payload").to_pylist()]


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture(params=["fsync", "os"])
def face(request: pytest.FixtureRequest, tmp_path: Path, disk: FaultyDisk) -> Iterator[Face]:
    commit = SyncNow() if request.param == "fsync" else None
    settings = BrokerSettings(durability=request.param)
    broker = Broker.open(tmp_path, settings, now_us=now_us(), disk=disk, commit=commit)
    with ThreadPoolExecutor(1) as workers:
        yield Face(broker, workers)
    disk.fault = lambda operation, path, data: data
    broker.stop()


def test_one_append_for_all_that_come_together(face: Face) -> None:
    clients = [Client() for _ in range(20)]
    for turn in range(3):
        appends, told = face.broker.counters.appends, [client.told for client in clients]
        joints = [face.join(client, b"%d-%d" % (turn, at)) for at, client in enumerate(clients)]
        assert (len(set(map(id, joints))), face.asked) == (2, turn + 1)
        assert [client.told for client in clients[1:]] == told[1:]
        face.broker.appender.flush()
        assert all(joint.done and joint.answers == OK for joint in joints)
        assert [client.told for client in clients[1:]] == [before + 1 for before in told[1:]]
        # the first of a pass does not wait for the others
        assert face.broker.counters.appends == appends + 2
    assert face.kept() == [b"%d-%d" % (turn, at) for turn in range(3) for at in range(20)]
    assert face.requests[NAME, "PUB", "OK"] == 60
    assert face.served == 6


def test_who_is_alone_waits_for_nobody(face: Face) -> None:
    client = Client()
    for number in range(5):
        joint = face.join(client, b"%d" % number)
        assert joint.done == (face.broker.settings.durability == "os")
        face.broker.appender.flush()
        assert joint.done
    assert face.kept() == [b"%d" % number for number in range(5)]


def test_much_at_once_is_taken_in_pieces(face: Face) -> None:
    clients = [Client() for _ in range(60)]
    bodies = [bytes([65 + at % 26]) * (COMMAND_BYTES_MAX - 100) for at in range(60)]
    assert sum(map(len, bodies)) > 3 * RUN_BYTES_MAX
    joints = [face.join(client, body) for client, body in zip(clients, bodies, strict=True)]
    face.broker.appender.flush()
    assert all(joint.done and joint.answers == OK for joint in joints)
    assert sorted(face.kept()) == sorted(bodies)


def test_all_hear_why_the_disk_refuses(face: Face, disk: FaultyDisk) -> None:
    clients = [Client() for _ in range(5)]
    for client in clients:
        face.join(client, b"good")
    face.broker.appender.flush()
    disk.fault = full
    joints = [face.join(client, b"lost") for client in clients]
    face.broker.appender.flush()
    for joint in joints:
        assert joint.done
        assert joint.answers[8:].startswith(b"E_PUB_FAILED")
    assert all(client.told and not client.cut for client in clients[1:])
    assert face.kept() == 5 * [b"good"]


@pytest.mark.parametrize("size_bytes", [10, 3000])
def test_all_wait_for_a_disk_that_is_behind(tmp_path: Path, size_bytes: int) -> None:
    settings = BrokerSettings(durability="fsync", unsynced_bytes_max=5000)
    broker = Broker.open(tmp_path, settings, now_us=now_us(), commit=HeldSyncs())
    with ThreadPoolExecutor(1) as workers:
        face, clients = Face(broker, workers), [Client() for _ in range(3)]
        for client in clients:
            face.join(client, b"x" * size_bytes)
        # what waits for the end of the pass is not on its way to the disk yet
        assert not any(client.waits for client in clients)
        broker.appender.flush()
        is_behind = size_bytes == 3000
        assert [client.waits for client in clients] == [False, is_behind, is_behind]
        face.join(alone := Client(), b"x")
        assert (alone.waits, alone.told) == (is_behind, 0)
    broker.stop()


def test_a_topic_that_goes_in_the_same_pass_is_made_again(face: Face) -> None:
    clients = [Client() for _ in range(3)]
    for client in clients:
        face.join(client, b"old")
    face.broker.appender.flush()
    joints = [face.join(client, b"new") for client in clients]
    topic = face.broker.topology.resolve("t")
    face.broker.at_once.delete_topic(topic.stream.id, topic.id)
    face.broker.appender.flush()
    assert [joint.answers for joint in joints[1:]] == [OK, OK]
    assert face.kept() == [b"new", b"new"]


def test_a_fault_of_one_line_does_not_reach_others(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [Client() for _ in range(3)]
    for client, topic in zip(clients, ("first", "t", "other"), strict=True):
        face.join(client, b"warm", topic)
        face.broker.appender.flush()
    real = face.publisher.publish_alike

    def publish(route: Any, *arguments: Any) -> Any:
        if route.name == "t":
            raise RuntimeError("a fault of the broker")
        return real(route, *arguments)

    monkeypatch.setattr(face.publisher, "publish_alike", publish)
    # the last one that was alone first: the others are gathered
    joints = [face.join(clients[number], b"x", topic) for number, topic in ((2, "other"), (1, "t"), (0, "first"))]
    face.broker.appender.flush()
    assert [client.cut for client in clients] == [False, True, False]
    assert [joint.done for joint in joints] == [True, False, True]

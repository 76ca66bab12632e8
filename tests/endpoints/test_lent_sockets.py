"""Sockets of publishers that are lent to a pass: clients get, and the log holds, what they do if none is ever lent."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import re
import select
import socket
import struct
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from lading.broker.broker import Broker
from lading.broker.core.read import read
from lading.broker.core.settings import BrokerSettings
from lading.dialects import registry
from lading.dialects.nsq import protocol as nsq_row
from lading.dialects.nsq import publishing
from lading.endpoints.base.services import Services, now_us
from lading.endpoints.io import lent_lines, lent_sockets
from lading.endpoints.io.fast_connection import FastConnection
from lading.endpoints.io.lent_lines import LEND_AFTER
from lading.endpoints.nsq.nsqd.server import NsqdServer
from lading.endpoints.nsq.nsqd.session import NAME, NsqdSession
from lading.kernels import engine
from lading.log.group_commit import SyncNow, WriteOnly
from lading.model.errors import Refusal
from lading.model.scan_request import ScanRequest
from lading.runtime.metrics import Metrics
from lading.serve.serve import _runner
from lading.settings.settings import Settings
from tests.endpoints.loop_client import LoopClient, compare_until_lent, note_loans
from tests.endpoints.nsq_client import mpub, pub
from tests.endpoints.test_orders_of_waiting import HeldSyncs
from tests.faults.faulty import FaultyDisk

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="only Linux has epoll")

OK = b"\0\0\0\6\0\0\0\0OK"
HEARTBEAT = struct.pack(">II", 15, 0) + b"_heartbeat_"
NAMES = ("t", "u", "v")


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    for home in (publishing.KERNEL_MODULE, publishing.LENT_KERNEL_MODULE, "lading.kernels.socket_kernels"):
        engine.load(home)


class Nsqd:
    """nsqd on a loop and sockets of the system, with its connections to look at."""

    def __init__(self, broker: Broker, workers: ThreadPoolExecutor, *, is_fast: bool = True) -> None:
        loop = asyncio.get_running_loop()
        self.broker = broker

        def flush_soon() -> None:
            loop.call_soon(broker.appender.flush)

        broker.appender.on_pending = flush_soon
        for queue in (broker.topology.wakeups, broker.appender.completions):
            queue.call_soon = loop.call_soon
        settings = Settings(busy_poll_us=0, fast_connections=is_fast)
        self.services = Services(broker, settings, Metrics(), workers)
        self.server = NsqdServer(self.services)
        self.address = ("", 0)

    async def start(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.address = listener.getsockname()
        await self.server.start(listener)

    @property
    def connections(self) -> list[FastConnection]:
        return [cast("FastConnection", each) for each in self.server._connections]

    def count_lent(self) -> int:
        owner = self.server._pass
        return 0 if owner is None else len(owner._connections)

    async def connect(self, *, buffer_bytes: int = 0) -> Client:
        sock = socket.socket()
        if buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, self.address)
        client = Client(self, sock)
        await client.send(b"  V2")
        return client

    async def create_topics(self) -> None:
        """Create all topics: one that is created later makes commands wait, and what lines mean is looked up anew."""
        first = await self.connect()
        for name in NAMES:
            await first.publish(name, b"warm")

    async def lend(self, topic: str = "t") -> Client:
        """Return a client whose socket is lent: it has published ``warm`` a few times."""
        client, before = await self.connect(), self.count_lent()
        for _ in range(10 * LEND_AFTER):
            await client.publish(topic, b"warm")
            await asyncio.sleep(0)
            if self.count_lent() > before:
                return client
        raise AssertionError("it is not lent")

    def kept(self, topic: str = "t") -> list[bytes]:
        try:
            partition = self.broker.topology.resolve(topic).partition(0)
        except Refusal:
            return []
        reading = read(
            partition, 0, reader=nsq_row.CHANNEL, max_messages=10**6, max_bytes=1 << 30,
            counters=self.broker.counters,
        )  # fmt: skip
        batches = (
            registry.to_batch(part)
            for run, first, end in reading.pieces
            for part in registry.dialect(run.dialect).decode(run, ScanRequest(first=first, end=end))
        )
        kept = [payload for batch in batches for payload in cast("Any", batch).column("payload").to_pylist()]
        return [payload for payload in kept if payload != b"warm"]

    def metric(self, name: str) -> float:
        return float(getattr(self.services.metrics, name).values[NAME,])


class Client(LoopClient):
    """One client, within the loop of the server."""

    def __init__(self, nsqd: Nsqd, sock: socket.socket) -> None:
        super().__init__(sock)
        self.nsqd = nsqd

    async def publish(self, topic: str, body: bytes) -> None:
        await self.send(pub(topic, body))
        assert await self.read(len(OK)) == OK

    def session(self) -> NsqdSession:
        mine = self.sock.getsockname()
        name = f"{mine[0]}:{mine[1]}"
        found = [each.session for each in self.nsqd.connections]
        return next(cast("NsqdSession", each) for each in found if cast("NsqdSession", each).address == name)

    def close(self) -> None:
        self.sock.close()


Scenario = Callable[[Nsqd], Awaitable[None]]
DURABILITIES = {"os": WriteOnly, "fsync": SyncNow, "held": HeldSyncs}


def serve(
    directory: Path, scenario: Scenario, durability: str, *, is_fast: bool = True, disk: FaultyDisk | None = None
) -> None:
    """Run a scenario against a broker of its own."""
    commit = DURABILITIES[durability]()
    settings = BrokerSettings(durability="os" if durability == "os" else "fsync")

    async def run() -> None:
        broker = Broker.open(directory, settings, now_us=now_us(), disk=disk, commit=commit)
        with ThreadPoolExecutor(1) as workers:
            nsqd = Nsqd(broker, workers, is_fast=is_fast)
            await nsqd.start()
            try:
                await scenario(nsqd)
            finally:
                if disk is not None:
                    disk.fault = lambda operation, path, data: data
                nsqd.services.begin_stop()
                await nsqd.server.stop()
                broker.stop()

    with _runner() as runner:
        runner.run(asyncio.wait_for(run(), 60))


both = pytest.mark.parametrize("durability", ["os", "fsync"])


@both
def test_messages_responses_and_counts_are_exact(tmp_path: Path, durability: str) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        clients = [await nsqd.lend() for _ in range(5)]
        before = {name: nsqd.metric(name) for name in ("received_bytes", "sent_bytes", "messages_in")}
        requests = nsqd.services.metrics.requests.values[NAME, "PUB", "OK"]
        appends, messages = nsqd.broker.counters.appends, nsqd.broker.counters.messages_in
        published = [dict(client.session().published)["t"] for client in clients]
        for number in range(20):
            for at, client in enumerate(clients):
                await client.send(pub("t", b"%d-%d" % (at, number)))
            for client in clients:
                assert await client.read(len(OK)) == OK
        assert nsqd.count_lent() == 5
        sent = sum(len(pub("t", b"%d-%d" % (at, number))) for number in range(20) for at in range(5))
        assert nsqd.metric("received_bytes") - before["received_bytes"] == sent
        assert nsqd.metric("sent_bytes") - before["sent_bytes"] == 100 * len(OK)
        assert nsqd.metric("messages_in") - before["messages_in"] == 100
        assert nsqd.services.metrics.requests.values[NAME, "PUB", "OK"] - requests == 100
        assert nsqd.broker.counters.messages_in - messages == 100
        assert nsqd.broker.counters.appends - appends <= 100
        assert [client.session().published["t"] for client in clients] == [count + 20 for count in published]
        kept = nsqd.kept()
        for at in range(5):
            mine = [payload for payload in kept if payload.startswith(b"%d-" % at)]
            assert mine == [b"%d-%d" % (at, number) for number in range(20)]
        assert len(kept) == 100

    serve(tmp_path, scenario, durability)


@both
def test_several_topics_in_one_pass(tmp_path: Path, durability: str) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        clients = [(await nsqd.lend(name), name) for name in NAMES for _ in range(2)]
        for number in range(10):
            for client, name in clients:
                await client.send(pub(name, b"%d" % number))
            for client, _ in clients:
                assert await client.read(len(OK)) == OK
        assert nsqd.count_lent() == len(clients)
        for name in NAMES:
            assert sorted(nsqd.kept(name)) == sorted([b"%d" % number for number in range(10)] * 2)

    serve(tmp_path, scenario, durability)


def test_switched_off_nothing_is_lent(tmp_path: Path) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        with pytest.raises(AssertionError, match="not lent"):
            await nsqd.lend()
        assert nsqd.server._pass is None

    serve(tmp_path, scenario, "os", is_fast=False)


# -- what takes the socket back


@both
def test_other_commands_take_the_socket_back(tmp_path: Path, durability: str) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        client = await nsqd.lend()
        await client.send(mpub("t", b"a", b"b") + pub("t", b"c"))
        assert await client.read(2 * len(OK)) == 2 * OK
        assert nsqd.count_lent() == 0
        whole = pub("t", b"in pieces")
        for at in range(1, len(whole)):
            await (client := await nsqd.lend()).send(whole[:at])
            await asyncio.sleep(0.001)
            assert (nsqd.count_lent(), len(client.session().unread)) == (0, at)
            await client.send(whole[at:])
            assert await client.read(len(OK)) == OK
        assert nsqd.kept() == [b"a", b"b", b"c", *[b"in pieces"] * (len(whole) - 1)]

    serve(tmp_path, scenario, durability)


def test_a_subscription(tmp_path: Path) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        client = await nsqd.lend()
        await client.send(b"SUB t channel\n")
        assert await client.read(len(OK)) == OK
        for _ in range(4 * LEND_AFTER):
            await client.publish("t", b"a subscriber publishes too")
            assert nsqd.count_lent() == 0
        await client.send(b"RDY 1\n")
        assert (await client.read(4 + 4 + 26 + len(b"warm"))).endswith(b"warm")
        assert nsqd.count_lent() == 0

    serve(tmp_path, scenario, "os")


@both
def test_a_topic_that_is_deleted_meanwhile(tmp_path: Path, durability: str) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        clients = [await nsqd.lend(), await nsqd.lend()]
        first = nsqd.broker.topology.resolve("t")
        nsqd.broker.at_once.delete_topic(first.stream.id, first.id)
        for client in clients:
            await client.publish("t", b"in the new one")
        assert nsqd.broker.topology.resolve("t") is not first
        assert nsqd.kept() == [b"in the new one"] * 2

    serve(tmp_path, scenario, durability)


def test_a_heartbeat_and_a_client_that_is_heard(tmp_path: Path) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        client = await nsqd.lend()
        (connection,) = nsqd.connections
        session = client.session()
        heard_us = session._heard_us
        progress = connection.progress()
        await client.publish("t", b"x")
        # what the gate and the heartbeat go by counts what the pass has taken
        assert connection.progress() > progress
        assert session._heard_us > heard_us
        connection._tick()
        assert nsqd.count_lent() == 0
        assert await client.read(len(HEARTBEAT)) == HEARTBEAT
        await client.publish("t", b"y")
        assert nsqd.kept() == [b"x", b"y"]

    serve(tmp_path, scenario, "os")


@both
def test_a_client_that_half_closes(tmp_path: Path, durability: str) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        client = await nsqd.lend()
        await client.send(pub("t", b"last"))
        client.sock.shutdown(socket.SHUT_WR)
        assert await client.read_to_end() == OK
        assert nsqd.kept() == [b"last"]
        await _until(lambda: not nsqd.connections)
        assert nsqd.count_lent() == 0

    serve(tmp_path, scenario, durability)


def test_a_client_that_is_gone_and_the_next_with_its_file_number(tmp_path: Path) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        for number in range(4):
            client = await nsqd.lend()
            # a reset, as from a process that was killed
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await client.send(pub("t", b"%d" % number))
            client.close()
            await _until(lambda: not nsqd.connections)
            assert nsqd.count_lent() == 0
        client = await nsqd.lend()
        await client.publish("t", b"still served")
        assert nsqd.kept()[-1] == b"still served"

    serve(tmp_path, scenario, "os")


def test_a_socket_that_the_loop_closes_by_itself(tmp_path: Path) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        client = await nsqd.lend()
        (lost,) = nsqd.connections
        # as a fault within the loop would do it: without a word to the connection
        assert lost._transport is not None
        lost._transport.abort()
        others = [await nsqd.lend() for _ in range(3)]
        for number, other in enumerate(others):
            await other.publish("t", b"%d" % number)
        assert nsqd.count_lent() == 3
        assert nsqd.kept() == [b"0", b"1", b"2"]
        with suppress(ConnectionError):
            assert await client.read_to_end() == b""

    serve(tmp_path, scenario, "os")


def test_a_client_that_reads_no_responses(tmp_path: Path) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        client = await nsqd.lend()
        (connection,) = nsqd.connections
        connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # type: ignore[union-attr]
        real, calls = nsqd.server._pass._send, 0  # type: ignore[union-attr]

        def send(files: Any, data: Any, size: int, unsent: Any) -> int:
            nonlocal calls
            calls += 1
            # three bytes of the response fit, and no more
            os.write(int(files[0]), data[:3].tobytes())
            unsent[0] = 0, 3
            return 1

        nsqd.server._pass._send = send  # type: ignore[union-attr]
        await client.publish("t", b"cut")
        nsqd.server._pass._send = real  # type: ignore[union-attr]
        assert (calls, nsqd.count_lent()) == (1, 0)
        await client.publish("t", b"after it")
        assert nsqd.kept() == [b"cut", b"after it"]

    serve(tmp_path, scenario, "os")


def test_a_broker_that_stops(tmp_path: Path) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        clients = [await nsqd.lend() for _ in range(3)]
        for client in clients:
            await client.publish("t", b"before")
        nsqd.services.begin_stop()
        await clients[0].send(pub("t", b"not begun"))
        await nsqd.server.stop()
        assert [await client.read_to_end() for client in clients[1:]] == [b""] * 2
        with suppress(ConnectionError):
            assert await clients[0].read_to_end() == b""
        assert nsqd.kept() == [b"before"] * 3

    serve(tmp_path, scenario, "os")


# -- the disk


@both
def test_a_disk_without_room(tmp_path: Path, durability: str) -> None:
    def full(operation: str, path: Path, data: Any) -> Any:
        if operation == "write" and path.suffix == ".log":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return data

    answers: dict[bool, list[bytes]] = {}
    for is_fast in (True, False):
        disk = FaultyDisk()

        async def scenario(nsqd: Nsqd, is_fast: bool = is_fast, disk: FaultyDisk = disk) -> None:
            clients = [await (nsqd.lend() if is_fast else nsqd.connect()) for _ in range(3)]
            await clients[0].publish("t", b"before")
            disk.fault = full
            for client in clients:
                await client.send(pub("t", b"lost"))
            answers[is_fast] = []
            for client in clients:
                size = await client.read(4)
                answer = await client.read(*struct.unpack(">I", size))
                # the name of the topic's directory is by chance
                answers[is_fast].append(re.sub(rb"[0-9a-f]{32}", b"ID", answer))
            disk.fault = lambda operation, path, data: data
            for client in clients:
                await client.publish("t", b"after")
            assert nsqd.kept() == [b"before", *[b"after"] * 3]

        serve(tmp_path / str(is_fast), scenario, durability, is_fast=is_fast, disk=disk)
    assert answers[True] == answers[False]
    assert all(b"E_PUB_FAILED" in answer for answer in answers[True])


def test_responses_wait_for_the_disk(tmp_path: Path) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        commit = cast("HeldSyncs", nsqd.broker.commit)
        ticker = asyncio.create_task(_complete_again_and_again(commit))
        clients = [await nsqd.lend() for _ in range(4)]
        ticker.cancel()
        commit.complete()
        for number, client in enumerate(clients):
            await client.send(pub("t", b"%d" % number))
        await asyncio.sleep(0.01)
        assert nsqd.count_lent() == 4
        # one sends more while it waits, one has sent its last byte, one is gone
        await clients[1].send(pub("t", b"more") + b"NOP\n" + pub("t", b"and more"))
        clients[2].sock.shutdown(socket.SHUT_WR)
        clients[3].close()
        await _until(lambda: nsqd.count_lent() == 1)
        for client in clients[:3]:
            with pytest.raises(BlockingIOError):
                client.sock.recv(1)
        for _ in range(4):
            commit.complete()
            await asyncio.sleep(0.005)
        assert await clients[0].read(len(OK)) == OK
        assert await clients[1].read(3 * len(OK)) == 3 * OK
        assert await clients[2].read_to_end() == OK
        assert sorted(nsqd.kept()) == sorted([b"0", b"1", b"2", b"3", b"more", b"and more"])

    serve(tmp_path, scenario, "held")


def test_a_sync_that_fails(tmp_path: Path) -> None:
    disk = FaultyDisk()

    async def scenario(nsqd: Nsqd) -> None:
        clients = [await nsqd.lend() for _ in range(3)]

        def fail(operation: str, path: Path, data: Any) -> Any:
            if operation == "sync":
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            return data

        disk.fault = fail
        for client in clients:
            await client.send(pub("t", b"lost"))
        for client in clients:
            (size,) = struct.unpack(">I", await client.read(4))
            assert b"E_PUB_FAILED" in await client.read(size)
        assert b"lost" not in nsqd.kept()

    serve(tmp_path, scenario, "fsync", disk=disk)


def test_congestion_holds_publishers_up(tmp_path: Path) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        commit = cast("HeldSyncs", nsqd.broker.commit)
        ticker = asyncio.create_task(_complete_again_and_again(commit))
        clients = [await nsqd.lend() for _ in range(3)]
        ticker.cancel()
        commit.complete()
        nsqd.broker.appender._unsynced_bytes_max = 10
        for client in clients:
            await client.send(pub("t", b"a long body"))
        await asyncio.sleep(0.01)
        assert nsqd.count_lent() == 0
        assert all(client.session().is_congested for client in clients)
        commit.complete()
        for client in clients:
            assert await client.read(len(OK)) == OK
        await asyncio.sleep(0.01)
        assert not any(client.session().is_congested for client in clients)

    serve(tmp_path, scenario, "held")


def test_a_fault_of_one_line_does_not_reach_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        await nsqd.create_topics()
        clients = [await nsqd.lend("t"), await nsqd.lend("u"), await nsqd.lend("u"), await nsqd.lend("v")]
        publisher = nsqd.server._pass._protocol._publisher  # type: ignore[union-attr]
        real = publisher.publish_alike

        def publish(route: Any, *arguments: Any) -> Any:
            if route.name == "t":
                raise RuntimeError("a fault of the broker")
            return real(route, *arguments)

        publisher.publish_alike = publish
        others = [pub("u", b"whole"), pub("u", b"half")[:-1], pub("v", b"whole")]
        for client, data in zip(clients, [pub("t", b"lost"), *others], strict=True):
            client.sock.send(data)
        assert await clients[0].read_to_end() == b""
        await clients[2].send(b"f")
        for client in clients[1:]:
            assert await client.read(len(OK)) == OK
        publisher.publish_alike = real
        assert (nsqd.kept("t"), sorted(nsqd.kept("u")), nsqd.kept("v")) == ([], [b"half", b"whole"], [b"whole"])

    serve(tmp_path, scenario, "os")
    assert "could not be begun" in caplog.text


def test_a_fault_of_one_session_does_not_reach_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        clients = [await nsqd.lend() for _ in range(3)]

        def receive(now_us: int) -> Any:
            raise RuntimeError("a fault of the session")

        clients[1].session().receive = receive  # type: ignore[method-assign]
        for client in clients:
            client.sock.send(mpub("t", b"a", b"b"))
        assert await clients[1].read_to_end() == b""
        for client in (clients[0], clients[2]):
            assert await client.read(len(OK)) == OK
        assert nsqd.kept() == [b"a", b"b"] * 2

    serve(tmp_path, scenario, "os")
    assert "could not receive" in caplog.text


def test_a_slow_pass_is_reported_once_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        client = await nsqd.lend()
        time_us, step_us, long_us = now_us(), 0, lent_sockets.SLOW_PASS_US

        def advance() -> int:
            nonlocal time_us
            time_us += step_us
            return time_us

        nsqd.server._pass._clock = advance  # type: ignore[union-attr]
        minute_us = lent_sockets.SLOW_PASS_EVERY_US
        for taken_us, waited_us, reports in (
            (long_us // 2, 0, 0),
            (long_us, 0, 1),
            (long_us, 0, 1),
            (long_us, minute_us, 2),
        ):
            time_us, step_us = time_us + waited_us, taken_us
            await client.publish("t", b"x")
            assert caplog.text.count("pass over lent sockets of nsqd_tcp: took 100 ms for 1 requests") == reports

    serve(tmp_path, scenario, "os")


# -- on and off, side by side


def _choose_stream(chance: random.Random) -> list[bytes]:
    """Bytes of one client, by write: single publications mostly, and whatever else a client may send."""
    writes: list[bytes] = []
    for _ in range(chance.randrange(20, 60)):
        topic = chance.choice(NAMES) if chance.random() < 0.1 else "t"
        body = chance.randbytes(chance.choice((1, 5, 100, 2000)))
        kind = chance.randrange(22)
        if kind < 16:
            writes.append(pub(topic, body))
        elif kind == 16:
            writes.append(mpub(topic, body, b"second"))
        elif kind == 17:
            writes.append(b"NOP\n" + pub(topic, body))
        elif kind == 18:
            writes.append(pub(topic, body) * 3)
        elif kind == 19:
            writes.append(b"DPUB t 1\n" + pub("t", body)[6:])
        elif kind == 20:
            writes.append(pub(topic, bytes(20_000)))
        else:
            data = pub(topic, body)
            at = chance.randrange(1, len(data))
            writes += [data[:at], data[at:]]
    # the end of a connection, in several ways
    last = (b"", b"", pub("t", b""), b"PUB not/valid\n\0\0\0\1x", b"CLS\n", pub("t", b"half")[:-2])
    return [*writes, chance.choice(last)]


async def _converse(nsqd: Nsqd, writes: list[bytes], waits: list[int]) -> bytes:
    client = await nsqd.connect()
    return await client.converse(writes, waits)


@pytest.mark.timeout(1800)
@both
def test_clients_get_the_same_with_the_pass_and_without(
    tmp_path: Path, durability: str, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # lend again after each publication that comes alone
    for name in ("LEND_AFTER", "LEND_AFTER_MAX"):
        monkeypatch.setattr(lent_lines, name, 1)
    # none lent, and the comparison would show nothing
    if not full:
        compare_until_lent(lambda seed: _compare(tmp_path / str(seed), durability, seed, 4))
        return
    assert sum(_compare(tmp_path / str(seed), durability, seed, 20) for seed in range(100)) >= 90


def _compare(directory: Path, durability: str, seed: int, streams_count: int) -> bool:
    """Compare the responses with the pass and without; return whether a socket was lent."""
    chance = random.Random(seed)
    streams = [_choose_stream(chance) for _ in range(streams_count)]
    waits = [[chance.choice((1, 8, 8, 8)) for _ in stream] for stream in streams]
    was_lent: dict[bool, bool] = {}
    answers: dict[bool, list[bytes]] = {}
    kept: dict[bool, list[list[bytes]]] = {}
    for is_fast in (True, False):

        async def scenario(nsqd: Nsqd, is_fast: bool = is_fast) -> None:
            lent: list[int] = []
            note_loans(nsqd.server._pass, lent)
            await nsqd.create_topics()
            answers[is_fast] = list(await asyncio.gather(*map(_converse, [nsqd] * streams_count, streams, waits)))
            kept[is_fast] = [sorted(nsqd.kept(name)) for name in NAMES]
            was_lent[is_fast] = bool(lent)

        serve(directory / str(is_fast), scenario, durability, is_fast=is_fast)
    assert answers[True] == answers[False], f"seed {seed}"
    assert kept[True] == kept[False], f"seed {seed}"
    assert not was_lent[False]
    return was_lent[True]


async def _complete_again_and_again(commit: HeldSyncs) -> None:
    while True:
        commit.complete()
        await asyncio.sleep(0)


async def _until(is_so: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if is_so():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it does not come to that")

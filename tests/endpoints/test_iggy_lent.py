"""Iggy clients whose sockets are lent to the pass of their endpoint: they get the same as without it."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import select
import socket
import struct
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, cast

import pytest

from lading.broker.broker import Broker
from lading.broker.core.read import read
from lading.broker.core.settings import BrokerSettings
from lading.dialects import registry
from lading.dialects.iggy.classic import messages as classic_messages
from lading.dialects.iggy.classic import single_send
from lading.dialects.iggy.zero_copy import messages as zero_copy_messages
from lading.dialects.nsq import protocol as nsq_row
from lading.endpoints.base.services import Services, now_us
from lading.endpoints.iggy.endpoint import create_tcp
from lading.endpoints.io import lent_lines
from lading.endpoints.io.fast_connection import LendingServer
from lading.endpoints.io.lent_lines import LEND_AFTER
from lading.endpoints.io.lent_sockets import SOCKET_KERNELS
from lading.kernels import engine
from lading.model.scan_request import ScanRequest
from lading.runtime.metrics import Metrics
from lading.serve.serve import _runner
from lading.settings.settings import Settings
from tests.endpoints.iggy_sends import BALANCED, by_key, frame, send
from tests.endpoints.loop_client import LoopClient, compare_until_lent, note_loans
from tests.endpoints.test_iggy_releases import CREATE_STREAM, CREATE_TOPIC, LOGIN, NEVER, login, named, short
from tests.endpoints.test_lent_sockets import DURABILITIES
from tests.endpoints.test_orders_of_waiting import HeldSyncs
from tests.faults.faulty import FaultyDisk

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="only Linux has epoll")

NAME: Final = "iggy_tcp"
OK: Final = bytes(8)
TOPICS: Final = {"one": 1, "two": 2}
"""Partitions of each topic."""
RELEASES: Final = ("0.4.0", "0.10.0")
"""One whose messages are classic, and one whose messages have an index before them."""


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    sends = (classic_messages.SEND_KERNEL_MODULE, zero_copy_messages.SEND_KERNEL_MODULE)
    for home in (*sends, single_send.KERNEL_MODULE, SOCKET_KERNELS):
        engine.load(home)


class Iggy:
    """An Iggy endpoint on a loop and sockets of the system, with its connections to look at."""

    def __init__(self, broker: Broker, workers: ThreadPoolExecutor, *, is_fast: bool) -> None:
        loop = asyncio.get_running_loop()
        self.broker = broker

        def flush_soon() -> None:
            loop.call_soon(broker.appender.flush)

        broker.appender.on_pending = flush_soon
        for queue in (broker.topology.wakeups, broker.appender.completions):
            queue.call_soon = loop.call_soon
        self.services = Services(broker, Settings(busy_poll_us=0, fast_connections=is_fast), Metrics(), workers)
        self.server = cast("LendingServer", create_tcp(self.services, NAME))
        self.address = ("", 0)

    async def start(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.address = listener.getsockname()
        await self.server.start(listener)
        first = await self.connect(RELEASES[1])
        assert (await first.ask(frame(CREATE_STREAM, short("stream"))))[:4] == bytes(4)
        for name, partitions in TOPICS.items():
            topic = named("stream") + struct.pack("<IBQQB", partitions, 1, NEVER, 0, 0) + short(name)
            assert (await first.ask(frame(CREATE_TOPIC, topic)))[:4] == bytes(4)
        first.sock.close()

    def count_lent(self) -> int:
        owner = self.server._pass
        return 0 if owner is None else len(owner._connections)

    async def connect(self, release: str) -> Client:
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, self.address)
        client = Client(sock)
        assert (await client.ask(frame(LOGIN, login(release))))[:4] == bytes(4)
        return client

    async def lend(self, release: str, **fields: Any) -> Client:
        """Return a client whose socket is lent: it has sent a message a few times."""
        client, before = await self.connect(release), self.count_lent()
        for _ in range(4 * LEND_AFTER):
            assert await client.ask(send(release, b"warm", **fields)) == OK
            await asyncio.sleep(0)
            if self.count_lent() > before:
                return client
        raise AssertionError("it is not lent")

    def log_partition(self, topic: str, number: int = 0) -> Any:
        return next(each for each in self.broker.topology.list_topics() if each.name == topic).partition(number)

    def log(self, topic: str = "one", number: int = 0) -> Any:
        return self.log_partition(topic, number).log

    def read_payloads(self, first: int) -> list[bytes]:
        """The payloads of topic ``one`` from an offset on."""
        reading = read(
            self.log_partition("one"), first, reader=nsq_row.CHANNEL, max_messages=10**6, max_bytes=1 << 30,
            counters=self.broker.counters,
        )  # fmt: skip
        batches = (
            registry.to_batch(part)
            for run, first, end in reading.pieces
            for part in registry.dialect(run.dialect).decode(run, ScanRequest(first=first, end=end))
        )
        return [payload for batch in batches for payload in cast("Any", batch).column("payload").to_pylist()]

    def metric(self, name: str) -> float:
        return float(getattr(self.services.metrics, name).values[NAME,])

    def count_requests(self, status: str = "0") -> float:
        values = self.services.metrics.requests.values
        return float(sum(number for (_, name, code), number in values.items() if "end" in name and code == status))


class Client(LoopClient):
    """One client, within the loop of the server."""

    async def answer(self) -> bytes:
        head = await self.read(8)
        return head + await self.read(struct.unpack("<I", head[4:])[0]) if head else b""

    async def ask(self, request: bytes) -> bytes:
        await self.send(request)
        return await self.answer()


Scenario = Callable[[Iggy], Awaitable[None]]


def serve(
    directory: Path, scenario: Scenario, durability: str, *, is_fast: bool = True, disk: FaultyDisk | None = None
) -> None:
    commit = DURABILITIES[durability]()
    settings = BrokerSettings(durability="os" if durability == "os" else "fsync")

    async def run() -> None:
        broker = Broker.open(directory, settings, now_us=now_us(), disk=disk, commit=commit)
        with ThreadPoolExecutor(1) as workers:
            iggy = Iggy(broker, workers, is_fast=is_fast)
            ticker = asyncio.create_task(_complete_again_and_again(commit)) if durability == "held" else None
            await iggy.start()
            if ticker is not None:
                ticker.cancel()
            try:
                await scenario(iggy)
            finally:
                if disk is not None:
                    disk.fault = lambda operation, path, data: data
                iggy.services.begin_stop()
                await iggy.server.stop()
                broker.stop()

    with _runner() as runner:
        runner.run(asyncio.wait_for(run(), 120))


both = pytest.mark.parametrize("durability", ["os", "fsync"])
releases = pytest.mark.parametrize("release", RELEASES)


@releases
@both
def test_messages_responses_and_counts_are_exact(tmp_path: Path, durability: str, release: str) -> None:
    async def scenario(iggy: Iggy) -> None:
        clients = [await iggy.lend(release) for _ in range(4)]
        log = iggy.log()
        before = {name: iggy.metric(name) for name in ("received_bytes", "sent_bytes", "messages_in")}
        end, requests, appends = log.next_offset, iggy.count_requests(), iggy.broker.counters.appends
        received = 0
        for turn in range(20):
            for number, client in enumerate(clients):
                data = send(release, *[b"%d of %d" % (number, turn)] * (1 + number))
                received += len(data)
                await client.send(data)
            for client in clients:
                assert await client.answer() == OK
        assert iggy.count_lent() == 4
        assert log.next_offset - end == 200
        assert iggy.metric("received_bytes") - before["received_bytes"] == received
        assert iggy.metric("sent_bytes") - before["sent_bytes"] == 80 * len(OK)
        assert iggy.metric("messages_in") - before["messages_in"] == 200
        assert iggy.count_requests() - requests == 80
        assert 0 < iggy.broker.counters.appends - appends <= 80
        kept = iggy.read_payloads(end)
        for number in range(4):
            mine = [each for each in kept if each.startswith(b"%d of" % number)]
            assert mine == [b"%d of %d" % (number, turn) for turn in range(20) for _ in range(1 + number)]

    serve(tmp_path, scenario, durability)


@releases
def test_where_messages_go(tmp_path: Path, release: str) -> None:
    async def scenario(iggy: Iggy) -> None:
        keyed = await iggy.lend(release, topic="two", to=by_key(b"a key"))
        ends = [iggy.log("two", number).next_offset for number in range(2)]
        assert 0 in ends
        for _ in range(5):
            assert await keyed.ask(send(release, b"x", topic="two", to=by_key(b"a key"))) == OK
        assert [iggy.log("two", number).next_offset for number in range(2)] == [end + 5 if end else 0 for end in ends]
        await iggy.lend(release, to=BALANCED)
        assert iggy.count_lent() == 2

    serve(tmp_path, scenario, "os")


@releases
@both
def test_partitions_in_turn(tmp_path: Path, durability: str, release: str) -> None:
    async def scenario(iggy: Iggy) -> None:
        clients = [await iggy.lend(release, topic="two", to=BALANCED) for _ in range(3)]
        assert abs(iggy.log("two", 0).next_offset - iggy.log("two", 1).next_offset) <= 1
        for turn in range(20):
            # one alone, and several in one pass
            for client in clients[: 1 + turn % 3]:
                await client.send(send(release, b"x", topic="two", to=BALANCED))
            for client in clients[: 1 + turn % 3]:
                assert await client.answer() == OK
            assert abs(iggy.log("two", 0).next_offset - iggy.log("two", 1).next_offset) <= 1
        assert iggy.count_lent() == 3

    serve(tmp_path, scenario, durability)


def test_clients_of_two_releases_in_one_topic(tmp_path: Path) -> None:
    async def scenario(iggy: Iggy) -> None:
        clients = [(await iggy.lend(release), release) for release in RELEASES for _ in range(2)]
        end = iggy.log().next_offset
        for turn in range(10):
            for client, release in clients:
                await client.send(send(release, b"%d" % turn))
            for client, _ in clients:
                assert await client.answer() == OK
        assert (iggy.count_lent(), iggy.log().next_offset - end) == (4, 40)

    serve(tmp_path, scenario, "os")


@releases
def test_a_refused_message_is_refused_alone(tmp_path: Path, release: str) -> None:
    answers = {}
    for is_fast in (True, False):

        async def scenario(iggy: Iggy, is_fast: bool = is_fast) -> None:
            clients = [await (iggy.lend(release) if is_fast else iggy.connect(release)) for _ in range(3)]
            end = iggy.log().next_offset
            requests = [send(release, b"good"), send(release, b"bad", damage=2), send(release, b"good too")]
            for client, request in zip(clients, requests, strict=True):
                client.sock.send(request)
            answers[is_fast] = [await client.answer() for client in clients]
            assert iggy.log().next_offset - end == 2
            assert await clients[1].ask(send(release, b"good")) == OK

        serve(tmp_path / str(is_fast), scenario, "os", is_fast=is_fast)
    assert answers[True] == answers[False]
    assert [each == OK for each in answers[True]] == [True, False, True]


@releases
def test_other_requests_take_the_socket_back(tmp_path: Path, release: str) -> None:
    async def scenario(iggy: Iggy) -> None:
        whole = send(release, b"in pieces")
        for at in (1, 4, 8, 20, len(whole) - 1):
            client = await iggy.lend(release)
            await client.send(whole[:at])
            await _until(lambda: iggy.count_lent() == 0)
            await client.send(whole[at:])
            assert await client.answer() == OK
            client.sock.close()
        client = await iggy.lend(release)
        await client.send(2 * whole)
        assert await client.read(16) == 2 * OK
        client = await iggy.lend(release)
        # a topic that is deleted
        topic = next(iter(iggy.broker.topology.list_topics()))
        iggy.broker.at_once.delete_topic(topic.stream.id, topic.id)
        assert (await client.ask(send(release, b"x", topic=topic.name)))[:4] != bytes(4)
        assert iggy.count_lent() == 0

    serve(tmp_path, scenario, "os")


def test_responses_wait_for_the_disk(tmp_path: Path) -> None:
    async def scenario(iggy: Iggy) -> None:
        commit = cast("HeldSyncs", iggy.broker.commit)
        ticker = asyncio.create_task(_complete_again_and_again(commit))
        clients = [await iggy.lend(RELEASES[0]) for _ in range(4)]
        ticker.cancel()
        commit.complete()
        for client in clients:
            await client.send(send(RELEASES[0], b"x"))
        await asyncio.sleep(0.02)
        assert iggy.count_lent() == 4
        # one sends more while it waits, one has sent its last byte, one is gone
        await clients[1].send(send(RELEASES[0], b"more"))
        clients[2].sock.shutdown(socket.SHUT_WR)
        clients[3].sock.close()
        await _until(lambda: iggy.count_lent() == 1)
        for client in clients[:3]:
            with pytest.raises(BlockingIOError):
                client.sock.recv(1)
        for _ in range(4):
            commit.complete()
            await asyncio.sleep(0.005)
        assert await clients[0].answer() == OK
        assert await clients[1].read(16) == 2 * OK
        assert await clients[2].read(1 << 20) == OK

    serve(tmp_path, scenario, "held")


@releases
@both
def test_a_disk_without_room(tmp_path: Path, durability: str, release: str) -> None:
    def fail(operation: str, path: Path, data: Any) -> Any:
        if operation == "write" and path.suffix == ".log":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return data

    answers: dict[bool, list[bytes]] = {}
    for is_fast in (True, False):
        disk = FaultyDisk()

        async def scenario(iggy: Iggy, is_fast: bool = is_fast, disk: FaultyDisk = disk) -> None:
            clients = [await (iggy.lend(release) if is_fast else iggy.connect(release)) for _ in range(3)]
            assert await clients[0].ask(send(release, b"before")) == OK
            disk.fault = fail
            for client in clients:
                await client.send(send(release, b"lost"))
            answers[is_fast] = [await client.answer() for client in clients]
            disk.fault = lambda operation, path, data: data
            assert [await client.ask(send(release, b"after")) for client in clients] == [OK] * 3

        serve(tmp_path / str(is_fast), scenario, durability, is_fast=is_fast, disk=disk)
    assert [each[:4] for each in answers[True]] == [each[:4] for each in answers[False]]
    assert OK not in answers[True]


# -- on and off, side by side


def _choose_stream(chance: random.Random, release: str, topic: str) -> list[bytes]:
    """Writes of one client: single sends mostly, and whatever else a client may send."""
    writes: list[bytes] = []
    to = chance.choice((None, BALANCED, by_key(b"key")))
    for number in range(chance.randrange(15, 40)):
        payloads = [chance.randbytes(chance.choice((1, 100, 2000, 20_000))) for _ in range(chance.choice((1, 1, 2)))]
        name = "missing" if chance.random() < 0.05 else topic
        data = send(release, *payloads, topic=name, to=to, damage=chance.choice((0,) * 12 + (1, 3, 70)))
        kind = chance.randrange(12)
        if kind == 0:
            writes.append(data + send(release, b"second %d" % number, topic=topic))
        elif kind == 1:
            at = chance.randrange(1, len(data))
            writes += [data[:at], data[at:]]
        elif kind == 2:
            writes.append(frame(chance.choice((1, 9999)), b""))
        else:
            writes.append(data)
    return [*writes, chance.choice((b"", b"\1\0\0\0", send(release, b"half", topic=topic)[:-2]))]


async def _converse(iggy: Iggy, release: str, writes: list[bytes], waits: list[int]) -> bytes:
    client = await iggy.connect(release)
    return await client.converse(writes, waits)


@pytest.mark.timeout(1800)
@both
def test_clients_get_the_same_with_the_pass_and_without(
    tmp_path: Path, durability: str, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # lend again after each request that comes alone
    for name in ("LEND_AFTER", "LEND_AFTER_MAX"):
        monkeypatch.setattr(lent_lines, name, 1)
    # none lent, and the comparison would show nothing
    if not full:
        compare_until_lent(lambda seed: _compare(tmp_path / str(seed), durability, seed))
        return
    assert sum(_compare(tmp_path / str(seed), durability, seed) for seed in range(100)) >= 90


def _compare(directory: Path, durability: str, seed: int) -> bool:
    """Compare the responses with the pass and without; return whether a socket was lent."""
    chance = random.Random(seed)
    chosen = [(chance.choice(RELEASES), topic) for topic in TOPICS]
    streams = [_choose_stream(chance, release, topic) for release, topic in chosen]
    waits = [[chance.choice((1, 8, 8, 8)) for _ in stream] for stream in streams]
    was_lent: dict[bool, bool] = {}
    answers: dict[bool, list[bytes]] = {}
    kept: dict[bool, list[int]] = {}
    for is_fast in (True, False):

        async def scenario(iggy: Iggy, is_fast: bool = is_fast) -> None:
            lent: list[int] = []
            note_loans(iggy.server._pass, lent)
            talks = [
                _converse(iggy, release, stream, wait)
                for (release, _), stream, wait in zip(chosen, streams, waits, strict=True)
            ]
            answers[is_fast] = list(await asyncio.gather(*talks))
            kept[is_fast] = [
                iggy.log(topic, number).next_offset for topic, count in TOPICS.items() for number in range(count)
            ]
            was_lent[is_fast] = bool(lent)

        serve(directory / str(is_fast), scenario, durability, is_fast=is_fast)
    assert answers[True] == answers[False], f"seed {seed}"
    assert kept[True] == kept[False], f"seed {seed}"
    assert not was_lent[False]
    return was_lent[True]


async def _complete_again_and_again(commit: Any) -> None:
    while True:
        commit.complete()
        await asyncio.sleep(0)


async def _until(is_so: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if is_so():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it does not come to that")

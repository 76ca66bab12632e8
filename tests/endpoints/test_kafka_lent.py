"""Kafka clients whose sockets are lent to the pass of their endpoint: they get the same as without it."""

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
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import pytest

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.dialects.kafka import single_produce, validation
from lading.dialects.kafka.layout import ATTRIBUTES_AT, LOG_APPEND_TIME
from lading.dialects.kafka.requests import prepare_codec
from lading.dialects.kafka.versions import API_VERSIONS
from lading.endpoints.base.services import Services, now_us
from lading.endpoints.io import lent_lines
from lading.endpoints.io.fast_connection import FastConnection
from lading.endpoints.io.lent_lines import LEND_AFTER
from lading.endpoints.io.lent_sockets import SOCKET_KERNELS
from lading.endpoints.kafka.server import KafkaServer
from lading.kernels import engine
from lading.model.errors import Refusal
from lading.model.names import DEFAULT_STREAM
from lading.runtime.metrics import Metrics
from lading.serve.serve import _runner
from lading.settings.settings import Settings
from tests.endpoints.kafka_frames import batch, fetch, message, one_batch, produce, record, request_frame
from tests.endpoints.loop_client import LoopClient, compare_until_lent, note_loans
from tests.endpoints.test_lent_sockets import DURABILITIES
from tests.endpoints.test_orders_of_waiting import HeldSyncs
from tests.faults.faulty import FaultyDisk

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="only Linux has epoll")

TOPICS: Final = ("t", "u")
VERSIONS: Final = (3, 8, 9)


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    for home in (validation.KERNEL_MODULE, single_produce.KERNEL_MODULE, SOCKET_KERNELS):
        engine.load(home)
    # the first of a process is decoded by a worker, and a client that half-closes meanwhile ends the session
    prepare_codec(API_VERSIONS, 0)


def encode(data: bytes, correlation: int = 1, *, version: int = 9, topic: str = "t", **fields: Any) -> bytes:
    frame = request_frame("Produce", version, correlation, **produce(topic, data, **fields))
    return struct.pack(">I", len(frame)) + frame


class Kafka:
    """A Kafka endpoint on a loop and sockets of the system, with its connections to look at."""

    def __init__(self, broker: Broker, workers: ThreadPoolExecutor, *, is_fast: bool) -> None:
        loop = asyncio.get_running_loop()
        self.broker = broker

        def flush_soon() -> None:
            loop.call_soon(broker.appender.flush)

        broker.appender.on_pending = flush_soon
        for queue in (broker.topology.wakeups, broker.appender.completions):
            queue.call_soon = loop.call_soon
        self.services = Services(broker, Settings(busy_poll_us=0, fast_connections=is_fast), Metrics(), workers)
        self.server = KafkaServer(self.services, "kafka")
        self.address = ("", 0)

    async def start(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.address = listener.getsockname()
        for name in TOPICS:
            # a second start has them
            with suppress(Refusal):
                self.broker.at_once.create_topic_in_stream(DEFAULT_STREAM, name, 2, now_us())
        await self.server.start(listener)

    @property
    def connections(self) -> list[FastConnection]:
        return [cast("FastConnection", each) for each in self.server._connections]

    def count_lent(self) -> int:
        owner = self.server._pass
        return 0 if owner is None else len(owner._connections)

    async def connect(self) -> Client:
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, self.address)
        return Client(sock)

    async def lend(self, producer: Producer | None = None, **fields: Any) -> Client:
        """Return a client whose socket is lent: it has sent a plain batch a few times."""
        client, before = await self.connect(), self.count_lent()
        for _ in range(10 * LEND_AFTER):
            data = one_batch(b"warm") if producer is None else producer.make(b"warm")
            await client.ask(encode(data, **fields))
            await asyncio.sleep(0)
            if self.count_lent() > before:
                return client
        raise AssertionError("it is not lent")

    def metric(self, name: str) -> float:
        return float(getattr(self.services.metrics, name).values["kafka",])

    def count_requests(self) -> float:
        return float(self.services.metrics.requests.values["kafka", "Produce", "0"])


class Producer:
    """A producer with an id, which numbers its records."""

    def __init__(self, ident: int, epoch: int = 0) -> None:
        self.ident, self.epoch = ident, epoch
        self.sequence = 0

    def make(self, *values: bytes, ahead: int = 0, **fields: Any) -> bytes:
        """A batch with the next numbers; ``ahead``: with other ones, and those that come next do not change."""
        data = one_batch(*values, producer=(self.ident, self.epoch, self.sequence + ahead), **fields)
        self.sequence += 0 if ahead else len(values)
        return data


class Client(LoopClient):
    """One client, within the loop of the server."""

    async def answer(self) -> bytes:
        head = await self.read(4)
        return head + await self.read(*struct.unpack(">I", head)) if head else b""

    async def ask(self, request: bytes) -> bytes:
        await self.send(request)
        return await self.answer()


def decode_row(answer: bytes) -> Any:
    """The partition of a response, by kafka-python."""
    (topic,) = message("ProduceResponse").decode(answer[4:], version=9, header=True).responses
    (row,) = topic.partition_responses
    return row


def decode(answer: bytes) -> tuple[int, int, int, int]:
    """Correlation id, partition, error and offset of a response."""
    row = decode_row(answer)
    return struct.unpack(">i", answer[4:8])[0], row.index, row.error_code, row.base_offset


Scenario = Callable[[Kafka], Awaitable[None]]


def serve(
    directory: Path, scenario: Scenario, durability: str, *, is_fast: bool = True, disk: FaultyDisk | None = None
) -> None:
    commit = DURABILITIES[durability]()
    settings = BrokerSettings(durability="os" if durability == "os" else "fsync")

    async def run() -> None:
        broker = Broker.open(directory, settings, now_us=now_us(), disk=disk, commit=commit)
        with ThreadPoolExecutor(1) as workers:
            kafka = Kafka(broker, workers, is_fast=is_fast)
            await kafka.start()
            try:
                await scenario(kafka)
            finally:
                if disk is not None:
                    disk.fault = lambda operation, path, data: data
                kafka.services.begin_stop()
                await kafka.server.stop()
                broker.stop()

    with _runner() as runner:
        runner.run(asyncio.wait_for(run(), 120))


both = pytest.mark.parametrize("durability", ["os", "fsync"])


@both
def test_offsets_responses_and_counts_are_exact(tmp_path: Path, durability: str) -> None:
    async def scenario(kafka: Kafka) -> None:
        clients = [await kafka.lend(partition=number % 2) for number in range(4)]
        before = {name: kafka.metric(name) for name in ("received_bytes", "sent_bytes", "messages_in")}
        requests, appends = kafka.count_requests(), kafka.broker.counters.appends
        partitions = kafka.broker.topology.resolve("t").partitions
        ends = [partition.log.next_offset for partition in partitions]
        received = sent = 0
        for turn in range(20):
            asked = [encode(one_batch(b"a", b"b"), 100 * turn + at, partition=at % 2) for at in range(4)]
            for client, request in zip(clients, asked, strict=True):
                await client.send(request)
            answers = [await client.answer() for client in clients]
            received, sent = received + sum(map(len, asked)), sent + sum(map(len, answers))
            rows = [decode(answer) for answer in answers]
            assert [row[:3] for row in rows] == [(100 * turn + at, at % 2, 0) for at in range(4)]
            for number in range(2):
                offsets = sorted(row[3] for row in rows if row[1] == number)
                assert offsets == [ends[number] + 4 * turn, ends[number] + 4 * turn + 2]
        assert kafka.count_lent() == 4
        assert kafka.metric("received_bytes") - before["received_bytes"] == received
        assert kafka.metric("sent_bytes") - before["sent_bytes"] == sent
        assert kafka.metric("messages_in") - before["messages_in"] == 160
        assert kafka.count_requests() - requests == 80
        # several requests of a pass are one append
        assert 0 < kafka.broker.counters.appends - appends <= 80

    serve(tmp_path, scenario, durability)


@both
def test_numbers_of_producers_are_checked(tmp_path: Path, durability: str) -> None:
    async def scenario(kafka: Kafka) -> None:
        producers = [Producer(ident, epoch=1) for ident in (5, 6, 7)]
        clients = [await kafka.lend(producer) for producer in producers]
        plain = await kafka.lend()
        log = kafka.broker.topology.resolve("t").partition(0).log
        appends = kafka.broker.counters.appends
        for turn in range(20):
            end = log.next_offset
            for number, (client, producer) in enumerate(zip(clients, producers, strict=True)):
                await client.send(encode(producer.make(b"a", b"b"), 10 * turn + number))
            await plain.send(encode(one_batch(b"c"), 10 * turn + 9))
            rows = [decode(await client.answer()) for client in (*clients, plain)]
            assert [row[:3] for row in rows] == [(10 * turn + number, 0, 0) for number in (0, 1, 2, 9)]
            starts = sorted((row[3], 1 if row[0] % 10 == 9 else 2) for row in rows)
            assert [at for at, _ in starts] == [end + sum(size for _, size in starts[:n]) for n in range(4)]
        assert kafka.count_lent() == 4
        assert 0 < kafka.broker.counters.appends - appends <= 80
        # one repeats its last batch beside others that continue: only it is given back
        last = decode(await clients[0].ask(encode(producers[0].make(b"last"), 1)))
        end = log.next_offset
        await clients[0].send(encode(producers[0].make(b"last", ahead=-1), 2))
        for client, producer in zip(clients[1:], producers[1:], strict=True):
            await client.send(encode(producer.make(b"next"), 3))
        assert decode(await clients[0].answer()) == (2, 0, 0, last[3])
        assert sorted([decode(await client.answer())[3] for client in clients[1:]]) == [end, end + 1]
        assert kafka.count_lent() == 3
        # a gap, an epoch that is over, and a new one (OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH of Kafka)
        assert decode(await clients[1].ask(encode(producers[1].make(b"x", ahead=1), 4)))[2] == 45
        assert decode(await clients[2].ask(encode(Producer(7, epoch=0).make(b"x"), 4)))[2] == 47
        assert decode(await plain.ask(encode(Producer(7, epoch=2).make(b"x"), 4)))[2] == 0
        assert log.next_offset == end + 3
        assert kafka.count_lent() == 0

    serve(tmp_path, scenario, durability)


def test_two_sockets_of_one_producer(tmp_path: Path) -> None:
    async def scenario(kafka: Kafka) -> None:
        producer = Producer(9)
        clients = [await kafka.lend(producer) for _ in range(2)]
        # as a client that has lost a connection: it cannot know whether the first one has arrived
        again = encode(producer.make(b"x"), 1)
        for client in clients:
            client.sock.send(again)
        rows = [decode(await client.answer()) for client in clients]
        assert rows[0] == rows[1]
        assert rows[0][:3] == (1, 0, 0)
        assert kafka.count_lent() == 1

    serve(tmp_path, scenario, "os")


def test_a_producer_with_a_name_writes_in_transactions_only(tmp_path: Path) -> None:
    codes = {}
    for is_fast in (True, False):

        async def scenario(kafka: Kafka, is_fast: bool = is_fast) -> None:
            identity = kafka.broker.producers.init_producer_id("one", 60_000_000, None, now_us=now_us()).value
            client = await (kafka.lend() if is_fast else kafka.connect())
            codes[is_fast] = decode(await client.ask(encode(Producer(identity.producer_id).make(b"x"))))[2]

        serve(tmp_path / str(is_fast), scenario, "os", is_fast=is_fast)
    assert codes[True] == codes[False] != 0


def test_producers_are_known_after_a_start(tmp_path: Path) -> None:
    producer = Producer(5)
    repeated = b""

    async def send(kafka: Kafka) -> None:
        nonlocal repeated
        client = await kafka.lend(producer)
        for _ in range(5):
            repeated = producer.make(b"x", b"y")
            expected.append(decode(await client.ask(encode(repeated))))
        assert kafka.count_lent() == 1

    async def repeat(kafka: Kafka) -> None:
        client = await kafka.connect()
        assert decode(await client.ask(encode(repeated))) == expected[-1]
        assert decode(await client.ask(encode(producer.make(b"z"))))[3] == expected[-1][3] + 2

    expected: list[tuple[int, int, int, int]] = []
    serve(tmp_path, send, "fsync")
    serve(tmp_path, repeat, "fsync")


def test_a_topic_that_changes_or_is_deleted(tmp_path: Path) -> None:
    async def scenario(kafka: Kafka) -> None:
        clients = [await kafka.lend() for _ in range(2)]
        topic = kafka.broker.topology.resolve("t")
        # batches get the time of the append, which the pass does not set
        kafka.broker.at_once.alter_topic(topic, replace(topic.settings, append_time=True))
        for client in clients:
            offset = decode(await client.ask(encode(one_batch(b"x"))))[3]
            frame = request_frame("Fetch", 4, 3, **fetch("t", offset))
            fetched = await client.ask(struct.pack(">I", len(frame)) + frame)
            assert fetched[-len(one_batch(b"x")) :][ATTRIBUTES_AT + 1] == LOG_APPEND_TIME
        assert kafka.count_lent() == 0
        kafka.broker.at_once.delete_topic(topic.stream.id, topic.id)
        assert [decode(await client.ask(encode(one_batch(b"x"))))[2] for client in clients] == [3, 3]

    serve(tmp_path, scenario, "os")


def test_a_partition_that_does_not_exist(tmp_path: Path) -> None:
    async def scenario(kafka: Kafka) -> None:
        client = await kafka.lend()
        for number in (7, -5, -(1 << 31)):
            assert decode(await client.ask(encode(one_batch(b"x"), 5, partition=number)))[:3] == (5, number, 3)
            client = await kafka.lend()
        assert decode(await client.ask(encode(one_batch(b"x"), 6)))[:3] == (6, 0, 0)

    serve(tmp_path, scenario, "os")


def test_a_client_that_half_closes_and_a_stop(tmp_path: Path) -> None:
    async def scenario(kafka: Kafka) -> None:
        client, other = await kafka.lend(), await kafka.lend()
        await client.send(encode(one_batch(b"last"), 9))
        client.sock.shutdown(socket.SHUT_WR)
        assert decode(await client.read_to_end())[0] == 9
        await _until(lambda: len(kafka.connections) == 1)
        assert kafka.count_lent() == 1
        await kafka.server.stop()
        assert await other.read_to_end() == b""

    serve(tmp_path, scenario, "os")


def test_responses_wait_for_the_disk_each_its_own(tmp_path: Path) -> None:
    async def scenario(kafka: Kafka) -> None:
        commit = cast("HeldSyncs", kafka.broker.commit)
        ticker = asyncio.create_task(_complete_again_and_again(commit))
        clients = [await kafka.lend() for _ in range(4)]
        ticker.cancel()
        commit.complete()
        for number, client in enumerate(clients):
            await client.send(encode(one_batch(b"x"), number))
        await asyncio.sleep(0.02)
        assert kafka.count_lent() == 4
        # one sends more while it waits, one has sent its last byte, one is gone
        await clients[1].send(encode(one_batch(b"more"), 11))
        clients[2].sock.shutdown(socket.SHUT_WR)
        clients[3].sock.close()
        await _until(lambda: kafka.count_lent() == 1)
        for client in clients[:3]:
            with pytest.raises(BlockingIOError):
                client.sock.recv(1)
        for _ in range(4):
            commit.complete()
            await asyncio.sleep(0.005)
        rows = [decode(await clients[0].answer()), decode(await clients[1].answer()), decode(await clients[1].answer())]
        rows.append(decode(await clients[2].read_to_end()))
        assert [row[:3] for row in rows] == [(0, 0, 0), (1, 0, 0), (11, 0, 0), (2, 0, 0)]
        assert len({row[3] for row in rows}) == 4

    serve(tmp_path, scenario, "held")


@pytest.mark.parametrize("numbered", [False, True])
@both
def test_a_disk_without_room(tmp_path: Path, durability: str, numbered: bool) -> None:
    def fail(operation: str, path: Path, data: Any) -> Any:
        if operation == "write" and path.suffix == ".log":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return data

    codes: dict[bool, list[int]] = {}
    for is_fast in (True, False):
        disk = FaultyDisk()

        async def scenario(kafka: Kafka, is_fast: bool = is_fast, disk: FaultyDisk = disk) -> None:
            producers = [Producer(number) for number in range(3)] if numbered else [None] * 3

            def make(number: int, value: bytes) -> bytes:
                producer = producers[number]
                return one_batch(value) if producer is None else producer.make(value)

            clients = [await (kafka.lend(each) if is_fast else kafka.connect()) for each in producers]
            assert decode(await clients[0].ask(encode(make(0, b"before"))))[2] == 0
            disk.fault = fail
            lost = [make(number, b"lost") for number in range(3)]
            for number, client in enumerate(clients):
                await client.send(encode(lost[number], number))
            rows = [decode(await client.answer()) for client in clients]
            assert [row[0] for row in rows] == [0, 1, 2]
            codes[is_fast] = [row[2] for row in rows]
            disk.fault = lambda operation, path, data: data
            # sent again, with the same numbers: none of them was stored
            end = kafka.broker.topology.resolve("t").partition(0).log.next_offset
            again = [decode(await client.ask(encode(data))) for client, data in zip(clients, lost, strict=True)]
            assert [(row[2], row[3]) for row in again] == [(0, end), (0, end + 1), (0, end + 2)]

        serve(tmp_path / str(is_fast), scenario, durability, is_fast=is_fast, disk=disk)
    assert codes[True] == codes[False]
    assert 0 not in codes[True]


def test_a_fault_of_an_append_ends_only_its_clients(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(kafka: Kafka) -> None:
        clients = [await kafka.lend(topic=topic) for topic in ("t", "u")]
        producer = cast("Any", kafka.server)._shared.producer
        real = producer.append_judged

        def append(kernels: Any, partition: Any, *arguments: Any) -> Any:
            if partition.topic.name == "t":
                raise RuntimeError("a fault of the broker")
            return real(kernels, partition, *arguments)

        producer.append_judged = append
        for client, topic in zip(clients, ("t", "u"), strict=True):
            client.sock.send(encode(one_batch(b"x"), 4, topic=topic))
        with suppress(ConnectionError):
            assert await clients[0].read_to_end() == b""
        assert decode(await clients[1].answer())[:3] == (4, 0, 0)

    serve(tmp_path, scenario, "os")
    assert "could not be begun" in caplog.text


# -- on and off, side by side


def _choose_batch(chance: random.Random, producer: Producer | None) -> bytes:
    kind = chance.randrange(14)
    if producer is not None and kind > 4:
        ahead = chance.choice((0,) * 12 + (-1, -2, 1, -50))
        if chance.random() < 0.05:
            producer.epoch, producer.sequence = producer.epoch + chance.choice((1, 1, -1)), 0
        return producer.make(*[b"x"] * chance.choice((1, 1, 2)), ahead=ahead)
    values = [chance.randbytes(chance.choice((1, 100, 2000))) for _ in range(chance.choice((1, 1, 2)))]
    if kind == 0:
        return batch(record(0, b"x"), 1, producer=(-1, -1, -1), crc=1)
    if kind == 1:
        return one_batch(*values, last_delta=5)
    if kind == 2:
        return one_batch(*values) * 2
    if kind == 3:
        return one_batch(*values, max_ms=5)
    if kind == 4:
        return one_batch(bytes(20_000))
    return one_batch(*values)


def _choose_stream(chance: random.Random, partition: int) -> list[bytes]:
    """Writes of one client: single Produce requests mostly, and whatever else a client may send."""
    writes: list[bytes] = []
    version = chance.choice(VERSIONS)
    producer = chance.choice((None, Producer(chance.randrange(3), 1)))
    for number in range(chance.randrange(15, 40)):
        topic = "u" if chance.random() < 0.1 else "t"
        acks = chance.choice((-1,) * 9 + (1, 0))
        chosen = _choose_batch(chance, producer)
        data = encode(chosen, number, version=version, topic=topic, partition=partition, acks=acks)
        kind = chance.randrange(12)
        if kind == 0:
            writes.append(data + encode(one_batch(b"second"), 1000 + number, version=version, partition=partition))
        elif kind == 1:
            at = chance.randrange(1, len(data))
            writes += [data[:at], data[at:]]
        elif kind == 2:
            frame = request_frame("ApiVersions", 0, 2000 + number)
            writes.append(struct.pack(">I", len(frame)) + frame)
        else:
            writes.append(data)
    return [*writes, chance.choice((b"", b"", b"\x7f\xff\xff\xff", encode(one_batch(b"half"))[:-2]))]


async def _converse(kafka: Kafka, writes: list[bytes], waits: list[int]) -> bytes:
    client = await kafka.connect()
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
    # a partition for each, so that offsets do not depend on who comes first
    streams = [_choose_stream(chance, partition) for partition in range(2)]
    waits = [[chance.choice((1, 8, 8, 8)) for _ in stream] for stream in streams]
    answers: dict[bool, list[bytes]] = {}
    was_lent: dict[bool, bool] = {}
    kept: dict[bool, list[int]] = {}
    for is_fast in (True, False):

        async def scenario(kafka: Kafka, is_fast: bool = is_fast) -> None:
            lent: list[int] = []
            note_loans(kafka.server._pass, lent)
            answers[is_fast] = list(await asyncio.gather(*map(_converse, [kafka] * 2, streams, waits)))
            kept[is_fast] = [
                partition.log.next_offset
                for topic in TOPICS
                for partition in kafka.broker.topology.resolve(topic).partitions
            ]
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

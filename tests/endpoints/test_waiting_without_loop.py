"""What waits for more, or for a worker, is told the time and woken by its connection: here by hand, without a loop."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future as WorkerFuture
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.broker.core.topology import Topic
from lading.dialects.nsq.identify import Identity
from lading.endpoints.base.inbox import Inbox
from lading.endpoints.base.request_budget import MemoryReservation
from lading.endpoints.base.responses import ResponseQueue
from lading.endpoints.base.route_cache import RouteCache
from lading.endpoints.base.services import Services
from lading.endpoints.iggy.answers import Answer
from lading.endpoints.iggy.poll import Poller
from lading.endpoints.io.lent_lines import LoanCountdown
from lading.endpoints.kafka.fetch import answer_fetch
from lading.endpoints.kafka.fetcher import Fetcher
from lading.endpoints.kafka.handling import NAME, Context
from lading.endpoints.kafka.produce import ProduceHandler
from lading.endpoints.kafka.request_context import ProduceHead, ProduceRoute
from lading.endpoints.nsq.nsqd.consume import MEMORY_RETRY_US, NsqConsumer
from lading.log.group_commit import WriteOnly
from lading.runtime.metrics import Metrics
from lading.settings.settings import Settings
from tests.endpoints import frames as iggy
from tests.endpoints.kafka_frames import fetch, one_batch, produce, request_frame

WAIT_MS = 500


class HandTurnedContext:
    """A connection whose time stands still until the test lets it pass."""

    is_lost = False
    produce_head_bytes = 0
    produced: ProduceHead | None = None

    def __init__(self, services: Services) -> None:
        self.inbox = Inbox(services.receive)
        self.responses = ResponseQueue(1 << 20, 1 << 20)
        self.sent: list[bytes] = []
        self.responses.open(self, services.metrics.sent_bytes.values, ("kafka",), self.call_soon, lambda: None)
        self.throttle_end_us = self.throttle_ms = 0
        self.cancels: set[Any] = set()
        self.loan = LoanCountdown()
        self.principal = services.broker.access.admit(is_open=False)
        self.produce_routes: RouteCache[tuple[int, bytes], ProduceRoute] = RouteCache(services.broker.topology)
        self.fetch_topics: RouteCache[tuple[bool, bytes], Topic] = RouteCache(services.broker.topology)
        self.soon: list[Callable[[], None]] = []
        self.later: dict[Callable[[], None], int] = {}

    def write(self, data: Any) -> None:
        self.sent.append(bytes(data))

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> Callable[[], None]:
        self.later[callback] = delay_us

        def cancel() -> None:
            self.later.pop(callback, None)

        return cancel

    def turn(self) -> None:
        """Run what was put off to the next pass."""
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()

    def run_in_worker(self, work: Callable[[], Any], on_done: Callable[[Any], None]) -> None:
        done: WorkerFuture[Any] = WorkerFuture()
        try:
            done.set_result(work())
        except MemoryError as error:
            done.set_exception(error)
        on_done(done)

    def run_to_end(self, work: Awaitable[Any], on_done: Callable[[Any], None]) -> None:
        raise AssertionError("no request here outlives its client")

    def take_reservation(self) -> MemoryReservation:
        raise AssertionError("no request here is long")

    def release(self, reservation: MemoryReservation) -> None:
        raise AssertionError("no request here is long")

    def count(self, name: str, error: int) -> None:
        assert not error, name

    def hold(self, is_held: bool) -> None:
        """Nothing is behind."""

    def wait_for_disk(self) -> None:
        """The disk is never behind."""

    def throttle(self, delay_us: int) -> None:
        raise AssertionError("nobody has a quota")

    def tell_old_format(self, sentence: str) -> None:
        raise AssertionError(sentence)

    close_on_error = tell_old_format

    def refuse(self, slot: Any, why: str) -> None:
        raise AssertionError(why)

    def origin(self) -> dict[str, str]:
        return {}


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    broker = Broker.open(tmp_path, BrokerSettings(durability="os"), now_us=1, commit=WriteOnly())
    with ThreadPoolExecutor(1) as workers:
        yield Services(broker, Settings(data=tmp_path, busy_poll_us=0), Metrics(), workers)
        broker.stop()


@pytest.fixture
def context(services: Services) -> Context:
    services.broker.at_once.create_topic_in_stream("default", "topic", 1, now_us=1)
    return Context(services, services.settings.endpoints.kafka, NAME)


def ask(connection: HandTurnedContext, take: Callable[[int, int], None], frame: bytes) -> None:
    """Let a request arrive whole."""
    connection.inbox.drop()
    assert connection.inbox.append(frame)
    take(0, len(frame))


def produce_one(context: Context) -> None:
    """Produce a record from another connection."""
    other, handler = HandTurnedContext(context.services), ProduceHandler(context)
    request = request_frame("Produce", 9, 1, **produce("topic", one_batch(b"record")))
    ask(other, lambda start, end: handler.receive(other, start, end), request)
    context.broker.appender.flush()
    assert other.sent


@pytest.fixture
def waiting(context: Context) -> HandTurnedContext:
    """A connection whose Fetch waits for a first record."""
    connection, fetcher = HandTurnedContext(context.services), Fetcher(context)
    request = request_frame("Fetch", 11, 7, **fetch("topic", wait_ms=WAIT_MS))
    ask(connection, lambda start, end: answer_fetch(fetcher, connection, connection.inbox.view[start:end]), request)
    assert not connection.sent
    assert list(connection.later.values()) == [1_000 * WAIT_MS]
    return connection


def test_fetch_answers_when_its_time_is_over(waiting: HandTurnedContext) -> None:
    (time_is_over,) = waiting.later
    time_is_over()
    (answer,) = waiting.sent
    assert b"record" not in answer
    assert not waiting.later
    assert not waiting.cancels


def test_fetch_answers_in_the_pass_after_more_came(waiting: HandTurnedContext, context: Context) -> None:
    produce_one(context)
    assert not waiting.sent
    waiting.turn()
    (answer,) = waiting.sent
    assert b"record" in answer
    assert not waiting.later
    assert not waiting.cancels


def test_fetch_of_a_client_that_is_gone_waits_for_nothing(waiting: HandTurnedContext, context: Context) -> None:
    (fetch,) = waiting.cancels
    fetch.cancel()
    produce_one(context)
    waiting.turn()
    assert not waiting.sent
    assert not waiting.later


def test_poll_across_dialects_is_work_for_a_worker(services: Services, context: Context) -> None:
    produce_one(context)
    poller = Poller(services, "iggy_tcp", services.settings.endpoints.iggy_tcp)
    topic = services.broker.topology.resolve("topic")
    place = struct.pack("<BBIBBI", 1, 4, topic.stream.id, 1, 4, topic.id)
    work = poller.poll(memoryview(iggy.poll(place, offset=0, count=10)), None, 1)
    assert callable(work)
    answer = work()
    assert isinstance(answer, Answer)
    assert answer.count == 1
    assert b"".join(answer.parts).endswith(struct.pack("<I", 6) + b"record")


class NsqReader:
    """A subscriber of a channel on a topic with a record of Kafka; its messages are frames that were sent."""

    def __init__(self, context: Context) -> None:
        self.connection = cast("Any", HandTurnedContext(context.services))
        self.sent: list[bytes] = []
        self._channels = context.broker.channels
        channel = self._channels.open(context.broker.topology.resolve("topic"), "channel")
        self.consumer = NsqConsumer(
            context.services,
            channel,
            Identity(),
            self.connection,
            lambda frames: self.sent.append(frames.tobytes()),
            lambda why: None,
            with_ext=False,
            detail=False,
            name="nsqd_tcp/reader",
        )
        channel.subscribe(self.consumer.subscriber)

    def pump(self) -> None:
        """Have what is ready delivered."""
        self.consumer.subscriber.set_ready(10)
        self._channels.pump(1)


def test_messages_of_other_dialects_reach_nsq_through_a_worker(context: Context) -> None:
    reader = NsqReader(context)
    produce_one(context)
    reader.pump()
    (frame,) = reader.sent
    assert frame.endswith(b"record")


def test_nsq_reader_is_tried_again_when_memory_was_missing(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def take_no_memory(page: object, fit: object) -> None:
        raise MemoryError

    reader = NsqReader(context)
    produce_one(context)
    with monkeypatch.context() as scarce:
        scarce.setattr("lading.endpoints.nsq.nsqd.consume.convert_records", take_no_memory)
        reader.pump()
    assert not reader.sent
    ((try_again, delay_us),) = reader.connection.later.items()
    assert delay_us == MEMORY_RETRY_US
    try_again()
    assert reader.sent[0].endswith(b"record")

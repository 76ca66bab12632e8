"""A message that is there reaches who waits for it, in every order of the steps of both, without a time-out's help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.broker.core.topology import Partition
from lading.endpoints.base.services import Services
from lading.endpoints.kafka.fetch import answer_fetch
from lading.endpoints.kafka.fetcher import Fetcher
from lading.endpoints.kafka.handling import NAME, Context
from lading.endpoints.kafka.produce import ProduceHandler
from lading.log.group_commit import SyncNow
from lading.log.interface import Syncable
from lading.runtime.metrics import Metrics
from lading.settings.settings import Settings
from tests.broker import room
from tests.endpoints.kafka_frames import fetch, one_batch, produce, request_frame
from tests.endpoints.test_waiting_without_loop import HandTurnedContext, NsqReader, ask

WAIT_MS = 500
TURNS_MAX = 10


class HeldSyncs(SyncNow):
    """Syncs that end when the test says; what is written during one waits for the next, as in ``GroupCommit``."""

    def __init__(self) -> None:
        self._held: list[Callable[[], None]] = []

    def submit(self, log: Syncable, done: Callable[[OSError | None], None] | None = None) -> None:
        self._held.append(partial(super().submit, log, done))

    def complete(self) -> None:
        held, self._held = self._held, []
        for sync in held:
            sync()

    def drain(self, timeout_s: float = 30.0) -> bool:
        self.complete()
        return True


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    commit = HeldSyncs()
    broker = Broker.open(tmp_path, BrokerSettings(), now_us=1, commit=commit)
    with ThreadPoolExecutor(1) as workers:
        services = Services(broker, Settings(data=tmp_path, busy_poll_us=0), Metrics(), workers)
        broker.at_once.create_topic_in_stream("default", "topic", 2, now_us=1)
        yield Context(services, services.settings.endpoints.kafka, NAME)
        broker.stop()


def orders(*lines: str) -> list[str]:
    """All orders of the letters of all lines that keep the order of each."""
    kept = set()
    for order in permutations("".join(str(number) * len(line) for number, line in enumerate(lines))):
        steps = [iter(line) for line in lines]
        kept.add("".join(next(steps[int(number)]) for number in order))
    return sorted(kept)


def produced_by_kafka(context: Context, partition: Partition) -> None:
    other, handler = HandTurnedContext(context.services), ProduceHandler(context)
    fields = produce("topic", one_batch(b"record"), partition=partition.number)
    request = request_frame("Produce", 9, 1, **fields)
    ask(other, lambda start, end: handler.receive(other, start, end), request)


def produced_by_iggy(context: Context, partition: Partition) -> None:
    room.append(context.broker, partition, b"record")


@pytest.mark.parametrize("send", [produced_by_kafka, produced_by_iggy])
def test_a_fetch_gets_a_message_in_every_order(context: Context, send: Callable[[Context, Partition], None]) -> None:
    """Appended, written, synced; asked for, a pass of the loop that may look again; another one that is not written."""
    broker, fetcher = context.broker, Fetcher(context)
    partition = broker.topology.resolve("topic").partition(0)
    for order in orders("aws", "ft", "A"):
        offset, connection = partition.log.high_watermark, HandTurnedContext(context.services)

        def ask_for_it(connection: HandTurnedContext = connection, offset: int = offset) -> None:
            request = request_frame("Fetch", 11, 7, **fetch("topic", offset, wait_ms=WAIT_MS))
            inbox = connection.inbox
            ask(connection, lambda start, end: answer_fetch(fetcher, connection, inbox.view[start:end]), request)

        send_one = partial(send, context, partition)
        steps: dict[str, Callable[[], object]] = {
            "a": send_one, "w": broker.appender.flush, "s": broker.commit.complete,
            "f": ask_for_it, "t": connection.turn, "A": send_one,
        }  # fmt: skip
        for step in order:
            steps[step]()
        for _ in range(TURNS_MAX):
            connection.turn()
        (answer,) = connection.sent
        assert b"record" in answer, order
        assert not (connection.later or connection.cancels or partition.read_waiters), order
        broker.appender.flush()
        broker.commit.complete()


def test_a_subscriber_gets_a_message_in_every_order(context: Context) -> None:
    """Appended, written, synced; ready for one; delivered: what wakes the channel is all that has it deliver."""
    broker = context.broker
    topic = broker.topology.resolve("topic")
    reader = NsqReader(context)
    subscriber, channel = reader.consumer.subscriber, broker.channels.open(topic, "channel")
    woken: list[bool] = []
    broker.channels.on_work = partial(woken.append, True)

    def deliver() -> None:
        # as the node does it: only when it was asked to
        if woken:
            woken.clear()
            broker.channels.pump(1)

    woken.append(True)
    deliver()
    for number, order in enumerate(orders("aws", "rd", "d")):
        partition = topic.partition(number % 2)
        steps: dict[str, Callable[[], object]] = {
            "a": partial(produced_by_kafka, context, partition), "w": broker.appender.flush,
            "s": broker.commit.complete, "r": partial(subscriber.set_ready, 1), "d": deliver,
        }  # fmt: skip
        for step in order:
            steps[step]()
        for _ in range(TURNS_MAX):
            deliver()
            reader.connection.turn()
        (frame,) = reader.sent
        assert frame.endswith(b"record"), order
        reader.sent.clear()
        # ready for none, and nothing is in flight: the next order begins as this one did
        subscriber.set_ready(0)
        done = np.array([partition.log.high_watermark - 1], np.int64)
        assert channel.finish(subscriber, partition.number, done) == 1
        deliver()

"""The threads of a gateway that produce: one partition's failure, or its empty turn, ends nothing of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Event
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from lading.kafka_log import producers as module
from lading.kafka_log.gateway import PRODUCERS_COUNT
from lading.kafka_log.producers import OutgoingMessages, Producers
from lading.model.errors import LadingError, Unreachable
from lading.transports.kafka.transport import KafkaTransport

WAIT_S = 10.0
PLACE = ("air.legs", 0)


class NoCluster:
    """A cluster that is asked nothing."""

    timeout_s = 3.0


class NoTransport:
    """A connection that nothing is sent by."""

    cluster = NoCluster()

    def limit_patience(self, silence_s: float, patience_s: float) -> None:
        assert (silence_s, patience_s) == (3.0, 0.0)

    def close(self) -> None:
        return None


class HeldWriter:
    """Writers whose first send waits, and fails."""

    begun: Event
    released: Event
    sends: ClassVar[int]

    def __init__(self, _cluster: object) -> None:
        return None

    def send(self, _topic: str, _partition: int, batch: Any, *, on_acknowledged: Any, **_how: Any) -> None:
        HeldWriter.sends += 1
        if self.sends == 1:
            self.begun.set()
            assert self.released.wait(WAIT_S)
            raise LadingError("no leader")
        on_acknowledged(0, len(batch), 100)


class LeaderlessWriter:
    """A writer of a partition that has no leader until ``released``; other partitions have one."""

    released: Event
    sent: ClassVar[list[tuple[int, int]]]

    def __init__(self, _cluster: object) -> None:
        return None

    def send(self, _topic: str, partition: int, batch: Any, *, on_acknowledged: Any, **_how: Any) -> None:
        if partition == PLACE[1] and not self.released.is_set():
            raise Unreachable("the cluster does not respond")
        self.sent.extend((partition, one.first) for one in batch)
        on_acknowledged(0, len(batch), 100)


class SlowWriter:
    """Writers whose batches are acknowledged once ``released``; ``begun`` has their partitions."""

    begun: ClassVar[SimpleQueue[int]]
    released: Event

    def __init__(self, _cluster: object) -> None:
        return None

    def send(self, _topic: str, partition: int, batch: Any, *, on_acknowledged: Any, **_how: Any) -> None:
        self.begun.put(partition)
        assert self.released.wait(WAIT_S)
        on_acknowledged(0, len(batch), 100)


class NotedOutcome:
    """What a partition is called back with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def acknowledge(self, first: int, end: int, base_offset: int) -> None:
        self.calls.append(("acknowledge", first))

    def refuse(self, first: int, end: int, error: LadingError) -> None:
        self.calls.append(("refuse", first))

    def fail(self, first: int, error: LadingError) -> None:
        self.calls.append(("fail", first))


@pytest.fixture
def posted() -> SimpleQueue[Callable[[], None]]:
    return SimpleQueue()


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch, posted: SimpleQueue[Callable[[], None]]) -> Iterator[Producers]:
    HeldWriter.begun, HeldWriter.released, HeldWriter.sends = Event(), Event(), 0
    monkeypatch.setattr(module, "KafkaWriter", HeldWriter)
    monkeypatch.setattr(module, "to_batch", list)
    made = Producers(lambda: cast("KafkaTransport", NoTransport()), posted.put, 1, WAIT_S)
    yield made
    HeldWriter.released.set()
    made.close(WAIT_S)


@pytest.fixture
def leaderless(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, posted: SimpleQueue[Callable[[], None]]
) -> Iterator[Producers]:
    """Producers for ``LeaderlessWriter``, with the patience that the test's parameter says."""
    LeaderlessWriter.released, LeaderlessWriter.sent = Event(), []
    monkeypatch.setattr(module, "KafkaWriter", LeaderlessWriter)
    monkeypatch.setattr(module, "to_batch", list)
    made = Producers(lambda: cast("KafkaTransport", NoTransport()), posted.put, 1, getattr(request, "param", WAIT_S))
    yield made
    LeaderlessWriter.released.set()
    made.close(WAIT_S)


def message(number: int) -> OutgoingMessages:
    return OutgoingMessages(1, 0, np.zeros(1, np.uint8), 0, 1, number, 1, 0, 0)


def test_a_turn_without_messages_ends_no_thread(producers: Producers, posted: SimpleQueue[Callable[[], None]]) -> None:
    """A failure takes back what was submitted in the same pass, so that its end has nothing to submit."""
    outcome = NotedOutcome()
    producers.submit(PLACE, [], outcome)
    HeldWriter.released.set()
    producers.submit(("air.legs", 1), [message(0)], outcome)
    posted.get(timeout=WAIT_S)()
    assert outcome.calls == [("fail", 0)]


def test_a_failure_of_a_deleted_topic_drops_nothing_of_the_next_one(
    producers: Producers, posted: SimpleQueue[Callable[[], None]]
) -> None:
    """Messages that were dropped unseen passed for acknowledged as soon as the next ones were."""
    deleted, created = NotedOutcome(), NotedOutcome()
    producers.submit(PLACE, [message(0)], deleted)
    assert HeldWriter.begun.wait(WAIT_S)
    producers.submit(PLACE, [message(0)], created)
    HeldWriter.released.set()
    for _ in range(2):
        posted.get(timeout=WAIT_S)()
    producers.submit(PLACE, [message(1)], created)
    posted.get(timeout=WAIT_S)()
    assert deleted.calls == [("fail", 0)] and created.calls == [("acknowledge", 0), ("acknowledge", 1)]


def test_a_partition_without_a_leader_holds_up_no_other(
    leaderless: Producers, posted: SimpleQueue[Callable[[], None]]
) -> None:
    """One such partition made all others of its thread wait for 20 seconds."""
    waiting, other = NotedOutcome(), NotedOutcome()
    leaderless.submit(PLACE, [message(0)], waiting)
    leaderless.submit(("air.legs", 1), [message(0)], other)
    posted.get(timeout=WAIT_S)()
    assert (waiting.calls, other.calls) == ([], [("acknowledge", 0)])
    leaderless.submit(PLACE, [message(1)], waiting)
    LeaderlessWriter.released.set()
    for _ in range(2):
        posted.get(timeout=WAIT_S)()
    assert waiting.calls == [("acknowledge", 0), ("acknowledge", 1)]


@pytest.mark.parametrize("leaderless", [0.1], indirect=True)
def test_a_partition_that_stays_without_a_leader_fails(
    leaderless: Producers, posted: SimpleQueue[Callable[[], None]]
) -> None:
    outcome = NotedOutcome()
    leaderless.submit(PLACE, [message(0)], outcome)
    posted.get(timeout=WAIT_S)()
    assert outcome.calls == [("fail", 0)]


def test_what_waits_for_a_deleted_topic_is_not_sent_to_the_next_one(
    leaderless: Producers, posted: SimpleQueue[Callable[[], None]]
) -> None:
    deleted, created = NotedOutcome(), NotedOutcome()
    leaderless.submit(PLACE, [message(0)], deleted)
    leaderless.submit(("air.legs", 1), [message(0)], NotedOutcome())
    posted.get(timeout=WAIT_S)()
    leaderless.forget(PLACE, deleted)
    LeaderlessWriter.released.set()
    leaderless.submit(PLACE, [message(7)], created)
    posted.get(timeout=WAIT_S)()
    assert (deleted.calls, created.calls) == ([], [("acknowledge", 7)])
    assert LeaderlessWriter.sent == [(1, 0), (0, 7)]


def test_single_messages_to_many_partitions_are_sent_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four threads sent them, each waiting for the acknowledgement of a partition before it sent to the next."""
    SlowWriter.begun, SlowWriter.released = SimpleQueue(), Event()
    monkeypatch.setattr(module, "KafkaWriter", SlowWriter)
    monkeypatch.setattr(module, "to_batch", list)
    posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
    made = Producers(lambda: cast("KafkaTransport", NoTransport()), posted.put, PRODUCERS_COUNT, WAIT_S)
    for partition in range(32):
        made.submit(("air.legs", partition), [message(0)], NotedOutcome())
    # each of 16 threads has at least one of these names
    begun = {SlowWriter.begun.get(timeout=WAIT_S) for _ in range(16)}
    SlowWriter.released.set()
    made.close(WAIT_S)
    assert len(begun) == 16

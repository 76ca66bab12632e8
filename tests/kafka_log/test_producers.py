"""The threads of a gateway that produce: one partition's failure, or its empty turn, ends nothing of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Event
from typing import Any, cast

import numpy as np
import pytest

from lading.kafka_log import producers as module
from lading.kafka_log.producers import OutgoingMessages, Producers
from lading.model.errors import LadingError
from lading.transports.kafka.transport import KafkaTransport

WAIT_S = 10.0
PLACE = ("air.legs", 0)


class NoTransport:
    """A connection that nothing is sent by."""

    cluster = None

    def close(self) -> None:
        return None


class HeldWriter:
    """A writer whose first send waits, and fails."""

    begun: Event
    released: Event

    def __init__(self, _cluster: object) -> None:
        self.sends = 0

    def send(self, _topic: str, _partition: int, batch: Any, *, on_acknowledged: Any, **_how: Any) -> None:
        self.sends += 1
        if self.sends == 1:
            self.begun.set()
            assert self.released.wait(WAIT_S)
            raise LadingError("no leader")
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
    HeldWriter.begun, HeldWriter.released = Event(), Event()
    monkeypatch.setattr(module, "KafkaWriter", HeldWriter)
    monkeypatch.setattr(module, "to_batch", list)
    made = Producers(lambda: cast("KafkaTransport", NoTransport()), posted.put, 1)
    yield made
    HeldWriter.released.set()
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

"""The thread that watches ends: a cluster that does not respond is a problem until it does."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from lading.kafka_log import ends
from lading.kafka_log.ends import AWAITED_S, SWEEP_S, UNWATCHED_S, AwaitedPlaces, EndsWatcher
from lading.transports.kafka.offsets import OffsetAndEpoch
from lading.transports.kafka.transport import KafkaTransport


class FailingTransport:
    """A cluster that is away at first; what is asked afterwards is noted."""

    def __init__(self) -> None:
        self.is_away = True

    def wait_for_news(self, places: Any, wait_ms: int) -> int:
        if self.is_away:
            raise ConnectionError("nobody listens")
        raise LookupError("responds")

    def close(self) -> None:
        pass


def test_a_cluster_that_does_not_respond_is_a_problem() -> None:
    transport = FailingTransport()
    awaited = AwaitedPlaces()
    awaited.note(("topic", 0))
    watcher = EndsWatcher(
        cast("KafkaTransport", transport), lambda: {("topic", 0): 0}, awaited, lambda *ends: None,
        lambda callback: None, lambda: 0.0,
    )  # fmt: skip
    # the sweep is over
    watcher._sweep_at_s = 1.0
    assert watcher.problem is None
    watcher.start()
    wait_for_problem(watcher, "nobody listens")
    transport.is_away = False
    # it is asked again
    wait_for_problem(watcher, "responds")
    watcher.close()


def wait_for_problem(watcher: EndsWatcher, word: str) -> None:
    deadline = time.monotonic() + 10
    while word not in (watcher.problem or ""):
        assert time.monotonic() < deadline, watcher.problem
        time.sleep(0.01)


PLACES = {("legs", number): 5 for number in range(100)}


def test_only_partitions_with_readers_are_asked_for_between_two_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    asked: list[set[tuple[str, int]]] = []
    watched: list[set[tuple[str, int]]] = []
    taken: list[Any] = []

    class QuietTransport:
        cluster = None

        def wait_for_news(self, places: Any, wait_ms: int) -> int:
            watched.append(set(places))
            return 0

    def list_offsets(_cluster: Any, places: Any, timestamp_ms: int) -> Any:
        asked.append(set(places))
        return {place: OffsetAndEpoch(6 if place == ("legs", 7) else 5, 0) for place in places}

    monkeypatch.setattr(ends, "list_offsets", list_offsets)
    awaited = AwaitedPlaces(lambda: now_s)
    watcher = EndsWatcher(
        cast("KafkaTransport", QuietTransport()), lambda: PLACES, awaited,
        lambda higher, lower, firsts: taken.append(higher), lambda callback: callback(), lambda: now_s,
    )  # fmt: skip
    assert watcher.look()
    assert asked == [set(PLACES)] and not watched
    assert taken == [{("legs", 7): OffsetAndEpoch(6, 0)}]
    awaited.note(("legs", 3))
    awaited.note(("gone", 0))
    for _ in range(3):
        watcher.look()
    assert asked[1:] == watched == [{("legs", 3)}] * 3
    now_s += SWEEP_S
    watcher.look()
    assert asked[-1] == set(PLACES)
    # its reader stays away
    now_s += AWAITED_S
    watcher.look()
    assert asked[-1] == set(PLACES) and awaited.list_places() == []


def test_ends_are_listed_instead_of_watched_while_a_quota_is_exhausted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch ends with a whole batch, which readers then could not fetch: it counts for the quota as theirs do."""
    now_s = 0.0
    watches = 0
    listed: list[int] = []

    class ThrottledTransport:
        cluster = None

        def wait_for_news(self, places: Any, wait_ms: int) -> int:
            nonlocal watches
            watches += 1
            return 5000

    def list_offsets(_cluster: Any, places: Any, timestamp_ms: int) -> Any:
        listed.append(watches)
        return {place: OffsetAndEpoch(6, 0) for place in places}

    monkeypatch.setattr(ends, "list_offsets", list_offsets)
    monkeypatch.setattr(ends, "WAIT_MS", 1)
    awaited = AwaitedPlaces(lambda: now_s)
    awaited.note(("legs", 3))
    taken: list[Any] = []
    watcher = EndsWatcher(
        cast("KafkaTransport", ThrottledTransport()), lambda: {("legs", 3): 5}, awaited,
        lambda higher, lower, firsts: taken.append(higher), lambda callback: callback(), lambda: now_s,
    )  # fmt: skip
    # the sweep is over
    watcher._sweep_at_s = 10 * UNWATCHED_S
    for _ in range(3):
        assert watcher.look()
    assert (listed, len(taken)) == ([1, 1, 1], 3)
    now_s += UNWATCHED_S
    awaited.note(("legs", 3))
    watcher.look()
    assert listed == [1, 1, 1, 2]

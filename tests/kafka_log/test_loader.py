"""The threads of a gateway that load messages: a partition without a leader holds up no other one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lading.dialects.kafka.errors import THROTTLING_QUOTA_EXCEEDED
from lading.kafka_log.loader import Loader
from lading.kafka_log.log import ClusterLog
from lading.model.errors import LadingError, Reason, Refusal, Unreachable
from lading.transports.fetched import FetchResult
from lading.transports.kafka.cluster import kafka_error
from lading.transports.kafka.transport import KafkaTransport

WAIT_S = 10.0
LEADERLESS = 0
QUOTA_BYTES = 20_000
"""What the cluster gives at a time."""


class ScriptedTransport:
    """A connection to a cluster in which partition 0 has no leader until ``released``."""

    cluster = SimpleNamespace(timeout_s=3.0)

    def __init__(self, released: Event) -> None:
        self._released = released

    def limit_patience(self, silence_s: float, patience_s: float) -> None:
        assert (silence_s, patience_s) == (3.0, 0.0)

    def offset_at(self, topic: str, partition: int, timestamp_us: int) -> int:
        if partition == LEADERLESS and not self._released.is_set():
            raise Unreachable("no leader")
        return 7

    def fetch(self, topic: str, partition: int, offset: int, *, max_bytes: int) -> FetchResult:
        if max_bytes > QUOTA_BYTES:
            raise kafka_error("topic 'legs'", THROTTLING_QUOTA_EXCEEDED)
        return FetchResult(topic, partition, [], offset, 0, offset)

    def close(self) -> None:
        return None


@pytest.fixture
def released() -> Event:
    return Event()


@pytest.fixture
def posted() -> SimpleQueue[Callable[[], None]]:
    return SimpleQueue()


@pytest.fixture
def loader(
    request: pytest.FixtureRequest, released: Event, posted: SimpleQueue[Callable[[], None]]
) -> Iterator[Loader]:
    """One thread, with the patience that the test's parameter says."""
    made = Loader(
        lambda: cast("KafkaTransport", ScriptedTransport(released)), posted.put, 1, getattr(request, "param", WAIT_S)
    )
    yield made
    made.close()
    for thread in cast("Any", made)._threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()


def make_log(partition: int) -> ClusterLog:
    return ClusterLog(("legs", partition), bytes(16), 0, 10)


def find(loader: Loader, partition: int, calls: list[tuple[int, LadingError | None]]) -> ClusterLog:
    log = make_log(partition)
    loader.find_time(log, 5)(lambda error: calls.append((partition, error)))
    return log


def test_a_load_without_a_leader_holds_up_no_other(
    loader: Loader, released: Event, posted: SimpleQueue[Callable[[], None]]
) -> None:
    """Four readers of such a partition kept all others waiting for 20 seconds."""
    calls: list[tuple[int, LadingError | None]] = []
    log = find(loader, LEADERLESS, calls)
    find(loader, 1, calls)
    posted.get(timeout=WAIT_S)()
    assert calls == [(1, None)]
    released.set()
    posted.get(timeout=WAIT_S)()
    assert calls == [(1, None), (LEADERLESS, None)]
    assert log.offset_at(5) == 7


@pytest.mark.parametrize("loader", [0.1], indirect=True)
def test_a_load_that_stays_without_a_leader_fails_with_a_line_of_the_log(
    loader: Loader, posted: SimpleQueue[Callable[[], None]], caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[tuple[int, LadingError | None]] = []
    log = find(loader, LEADERLESS, calls)
    posted.get(timeout=WAIT_S)()
    loader.find_time(log, 6)(lambda error: None)
    posted.get(timeout=WAIT_S)()
    assert [record.message for record in caplog.records] == [str(calls[0][1])]
    ((_, error),) = calls
    assert isinstance(error, Refusal) and error.reason is Reason.STOPPING and "no leader" in str(error)


def test_a_load_that_a_quota_refuses_asks_for_less(loader: Loader, posted: SimpleQueue[Callable[[], None]]) -> None:
    """Kafka gives all of it or nothing: beside other readers the quota had never room for a megabyte."""
    calls: list[LadingError | None] = []
    loader.load(make_log(1), 5, 100)(calls.append)
    posted.get(timeout=WAIT_S)()
    assert calls == [None]

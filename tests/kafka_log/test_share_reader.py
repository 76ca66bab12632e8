"""The thread of a channel: what a subscriber has finished is not delivered again, if a leader did not hear of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lading.kafka_log import share_reader as module
from lading.kafka_log.share_reader import ShareGroupReader
from lading.transports.kafka.share import ACCEPT, RELEASE, Acknowledgement, AcquiredMessages

WAIT_S = 10.0
HELD = 3
"""Messages of the partition: each session of the member acquires those that are not accepted."""
Event = tuple[str, list[Any]]


class ForgetfulMember:
    """A member whose first acknowledgement breaks its session: its messages are acquired again."""

    has_partitions = True

    def __init__(self, *_arguments: object) -> None:
        self.lost: set[int] = set()
        self.confirmed: list[Acknowledgement] = []
        self.accepted: list[int] = []
        self._is_open = False
        self._is_broken = False

    def heartbeat(self) -> float:
        return 1000.0

    def fetch(self, count: int, wait_ms: int, settled: Iterable[Acknowledgement]) -> list[AcquiredMessages]:
        self.acknowledge(settled)
        if self._is_open:
            return []
        self._is_open = True
        left = [offset for offset in range(HELD) if offset not in self.accepted]
        return [AcquiredMessages(0, cast("Any", None), [(one, one, 1) for one in left], 30.0)]

    def acknowledge(self, settled: Iterable[Acknowledgement]) -> None:
        rows = list(settled)
        if not rows:
            return
        if not self._is_broken:
            self._is_broken, self._is_open = True, False
            self.lost.add(0)
            raise OSError("the leader was killed")
        if self._is_open:
            self.confirmed += rows
            self.accepted += [one.first for one in rows if one.kind == ACCEPT]

    def leave(self) -> None:
        return None


class NotedChannel:
    """Notes what the thread reports, in order."""

    def __init__(self) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()

    def on_acquired(self, reader: object, found: Sequence[AcquiredMessages], due_dates: object) -> None:
        self.events.put(("acquired", [(first, last) for one in found for first, last, _ in one.ranges]))

    def on_lost(self, reader: object, partitions: Sequence[int]) -> None:
        self.events.put(("lost", list(partitions)))


@pytest.fixture
def channel() -> NotedChannel:
    return NotedChannel()


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch, channel: NotedChannel) -> Iterator[ShareGroupReader]:
    monkeypatch.setattr(module, "ShareMember", ForgetfulMember)
    monkeypatch.setattr(module, "find_due_dates", lambda found: {})
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    transport: Any = SimpleNamespace(cluster=None, close=lambda: None)

    def post(callback: Callable[[], None]) -> None:
        callback()

    made = ShareGroupReader(lambda: transport, post, "group", "legs", bytes(16), channel)
    made.start()
    yield made
    made.end()
    made.join(WAIT_S)
    assert not made.is_alive()


@pytest.mark.parametrize("kind", [ACCEPT, RELEASE])
def test_a_finished_message_is_not_delivered_again_after_a_lost_session(
    reader: ShareGroupReader, channel: NotedChannel, kind: int
) -> None:
    """A FIN has no response: the node that was killed before it heard of one gave the message out again."""
    reader.want(HELD)
    assert channel.events.get(timeout=WAIT_S) == ("acquired", [(0, 0), (1, 1), (2, 2)])
    reader.settle([Acknowledgement(0, 1, 1, kind)])
    assert channel.events.get(timeout=WAIT_S) == ("lost", [0])
    reader.want(HELD)
    again = [(0, 0), (2, 2)] if kind == ACCEPT else [(0, 0), (1, 1), (2, 2)]
    assert channel.events.get(timeout=WAIT_S) == ("acquired", again)

"""States of messages over a cluster: records by block, of which the first of two with one number counts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from lading.broker.core.counters import Counters
from lading.broker.core.settings import TopicSettings
from lading.broker.core.topology import Partition, Stream, Topic
from lading.kafka_log import states
from lading.kafka_log.log import ClusterLog
from lading.kafka_log.state_records import (
    BLOCK_OFFSETS,
    NO_RECORD,
    BlockPlace,
    BlockRecord,
    StateRecords,
    StateTable,
    split_by_block,
)
from lading.kafka_log.states import ClusterStates, StateThread
from lading.model.errors import LadingError, Refusal
from lading.model.state import State
from tests.kafka_log.test_group_members import wait_until

UUID = bytes(16)
PLACE = BlockPlace("legs", 0, 0)
POISONED, AVAILABLE = int(State.POISONED), int(State.AVAILABLE)


class NotedThread(StateThread):
    """The thread over a topic in memory; ``others`` is what another gateway writes just before."""

    def __init__(self, written: list[tuple[bytes, bytes | None]], table: StateTable) -> None:
        self.written, self.others, self.failure = written, list[tuple[bytes, bytes | None]](), cast("Any", None)
        transport = SimpleNamespace(send=self._send, close=lambda: None)
        super().__init__(lambda: cast("Any", transport), lambda callback: callback(), table)

    def _send(self, _topic: str, _partition: int, batch: pa.RecordBatch) -> None:
        if self.failure is not None:
            raise self.failure
        self.written += self.others
        self.others = []
        keys = [key or b"" for key in batch["key"].to_pylist()]
        self.written += zip(keys, batch["payload"].to_pylist(), strict=True)

    def _read(self) -> list[BlockPlace]:
        rows = self.written[self._read_to :]
        self._read_to = len(self.written)
        return [place for row in rows if (place := self._records.apply(*row)) is not None]


class Gateway:
    """The states of one gateway."""

    def __init__(self, written: list[tuple[bytes, bytes | None]]) -> None:
        self.table = StateTable()
        self.thread = NotedThread(written, self.table)
        self.thread.load()
        self.topic = Topic(Stream(1, "default", 0), 1, "legs", UUID, 0, TopicSettings())
        self.log = ClusterLog(("legs", 0), UUID, 0, 3 * BLOCK_OFFSETS)
        self.log.show_states(self.table)
        self.partition = Partition(self.topic, 0, cast("Any", self.log))
        self.states = ClusterStates(cast("Any", None), cast("Any", None), Counters(), lambda partition: None)
        self.states.thread = self.thread
        self.thread.start()

    def set(self, first: int, end: int, state: int) -> list[Refusal | None]:
        done: list[Refusal | None] = []
        self.states.set_soon(self.partition, [(first, end)], state, done=done.append, now_us=0)
        wait_until(lambda: done)
        return done

    def list_hidden(self) -> list[tuple[int, int, int]]:
        return self.log.unavailable_ranges(0, 3 * BLOCK_OFFSETS)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Gateway]]:
    """Starts gateways over one topic."""
    monkeypatch.setattr(states, "LOOK_S", 0.02)
    written: list[tuple[bytes, bytes | None]] = []
    gateways: list[Gateway] = []

    def start_one() -> Gateway:
        gateways.append(Gateway(written))
        return gateways[-1]

    yield start_one
    for gateway in gateways:
        gateway.thread.close(10)


def test_states_that_one_gateway_sets_count_at_all(start: Callable[[], Gateway]) -> None:
    one, other = start(), start()
    # over the border of two blocks
    low, high = BLOCK_OFFSETS - 2, BLOCK_OFFSETS + 3
    assert one.set(low, high, POISONED) == [None]
    hidden = [(low, high, POISONED)]
    assert one.list_hidden() == hidden and one.log.has_unavailable
    wait_until(lambda: other.list_hidden() == hidden)
    assert other.set(low, low + 1, AVAILABLE) == [None]
    wait_until(lambda: one.list_hidden() == [(low + 1, high, POISONED)])
    # one that starts later has them before its first read
    assert start().list_hidden() == [(low + 1, high, POISONED)]
    # a request that changes nothing writes nothing
    count = len(one.thread.written)
    assert one.set(low + 1, high, POISONED) == [None] and len(one.thread.written) == count


def test_two_gateways_that_set_states_of_one_block_at_once_both_do(start: Callable[[], Gateway]) -> None:
    one = start()
    rival = NO_RECORD.change(UUID.hex(), 5, 6, POISONED)
    one.thread.others = [(PLACE.key, rival.pack())]
    assert one.set(8, 9, POISONED) == [None]
    assert one.list_hidden() == [(5, 6, POISONED), (8, 9, POISONED)]
    # compaction keeps the last record of a block: it is the one that counts
    compacted = StateRecords()
    compacted.apply(*one.thread.written[-1])
    assert compacted.blocks[PLACE].ranges == ((5, 6, POISONED), (8, 9, POISONED))


def test_a_topic_that_is_created_again_has_no_states(start: Callable[[], Gateway]) -> None:
    one = start()
    assert one.set(8, 9, POISONED) == [None]
    again = ClusterLog(("legs", 0), b"\x01" * 16, 0, 20)
    again.show_states(one.table)
    assert again.unavailable_ranges(0, 20) == [] and not again.has_unavailable


def test_a_cluster_that_does_not_respond_refuses_and_hides_nothing(start: Callable[[], Gateway]) -> None:
    one = start()
    one.thread.failure = LadingError("silent")
    (refusal,) = one.set(8, 9, POISONED)
    assert refusal is not None and "silent" in str(refusal) and one.list_hidden() == []
    one.thread.failure = None
    assert one.set(8, 9, POISONED) == [None]


def test_memory_is_bounded(start: Callable[[], Gateway], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "RANGES_MAX", 2)
    one = start()
    assert one.set(1, 2, POISONED) == [None] and one.set(3, 4, POISONED) == [None]
    (refusal,) = one.set(5, 6, POISONED)
    assert refusal is not None and "at most 2" in str(refusal)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"legs/0", b"{}"),
        (b"legs/0/0", b"[]"),
        (b"legs/0/0", b"[" * 200_000),
        (b"legs/0/0", b'{"version": 1, "topic_id": "aa", "serial": 1e999, "ranges": []}'),
        (b"legs/0/0", BlockRecord("aa", 1, ((0, BLOCK_OFFSETS + 1, POISONED),)).pack()),
        (b"legs/0/0", BlockRecord("aa", 1, ((0, 1, 99),)).pack()),
    ],
)
def test_a_foreign_record_is_logged_and_left_out(key: bytes, value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    records = StateRecords()
    with caplog.at_level(logging.WARNING, "lading.store"):
        assert records.apply(key, value) is None
    assert "is left out" in caplog.text and records.blocks == {}


def test_ranges_are_split_by_block() -> None:
    parts = list(split_by_block("legs", 0, [(BLOCK_OFFSETS - 1, 2 * BLOCK_OFFSETS + 1)]))
    assert [(place.block, first, end) for place, first, end in parts] == [
        (0, BLOCK_OFFSETS - 1, BLOCK_OFFSETS), (1, BLOCK_OFFSETS, 2 * BLOCK_OFFSETS),
        (2, 2 * BLOCK_OFFSETS, 2 * BLOCK_OFFSETS + 1),
    ]  # fmt: skip

"""Any order of appends, reads, stored positions and restarts agrees with a list of messages."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lading.broker.iggy.poll import Last, Next, Offset
from lading.dialects.iggy.classic import protocol as iggy_row
from lading.dialects.native import protocol as native_row
from lading.model.errors import Refusal
from tests.broker.room import CONSUMER, FULL, NOW, SECOND, append, block, opened, read, rows, topic_of


class BrokerMachine(RuleBasedStateMachine):
    """One partition against a list: what was appended, what is synced, what is aborted, what is hidden."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self._path = Path(self._directory.name)
        self.broker = opened(self._path, segment_bytes=1 << 16)
        self.partition = topic_of(self.broker).partition(0)
        self.written: list[bytes] = []
        self.synced = 0
        self.aborted: set[int] = set()
        self.hidden: set[int] = set()
        self.open: dict[int, list[int]] = {}
        self.position: int | None = None
        self.now_us = NOW

    def teardown(self) -> None:
        self.broker.stop()
        self._directory.cleanup()

    @property
    def stable(self) -> int:
        return min([self.synced, *(offsets[0] for offsets in self.open.values() if offsets)])

    def visible(self, *, hiding: bool = False) -> list[tuple[int, bytes]]:
        skipped = self.aborted | (self.hidden if hiding else set())
        return [(at, self.written[at]) for at in range(self.stable) if at not in skipped]

    @rule(sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=5))
    def append(self, sizes: list[int]) -> None:
        payloads = [f"{len(self.written) + at}:".encode().ljust(size, b".") for at, size in enumerate(sizes)]
        self.now_us += 1000
        done = append(self.broker, self.partition, *payloads, now_us=self.now_us)
        assert done.base_offset == len(self.written)
        self.written += payloads

    @rule(count=st.integers(1, 4), transactional=st.booleans())
    def append_native(self, count: int, transactional: bool) -> None:
        transaction = next(iter(self.open), 0) if transactional else 0
        payloads = [f"{len(self.written) + at}:native".encode() for at in range(count)]
        data = block(*payloads, transaction=transaction)
        done = self.broker.native_appender.append(self.partition, memoryview(data), now_us=self.now_us)
        if transaction:
            self.open[transaction] += range(done.base_offset, done.end_offset)
        self.written += payloads

    @rule()
    def flush(self) -> None:
        self.broker.appender.flush()
        self.synced = len(self.written)

    @precondition(lambda self: len(self.open) < 2)
    @rule()
    def begin(self) -> None:
        self.open[self.broker.native_transactions.begin(now_us=NOW)] = []

    @precondition(lambda self: self.open)
    @rule(commit=st.booleans())
    def decide(self, commit: bool) -> None:
        self.flush()
        transaction, offsets = self.open.popitem()
        if commit:
            self.broker.native_transactions.commit(f"key {transaction}", [transaction], now_us=NOW)
        else:
            self.broker.native_transactions.abort([transaction], now_us=NOW)
            self.aborted.update(offsets)

    @rule(first=st.integers(0, 60), count=st.integers(1, 10), state=st.sampled_from([1, 20]))
    def set_state(self, first: int, count: int, state: int) -> None:
        try:
            self.broker.states.set(self.partition, [(first, first + count)], state, now_us=NOW)
        except Refusal:
            assert first + count > self.synced
        else:
            change = set(range(first, first + count))
            self.hidden = self.hidden - change if state == 1 else self.hidden | change

    @rule(offset=st.integers(0, 80), count=st.integers(1, 30), hiding=st.booleans())
    def read(self, offset: int, count: int, hiding: bool) -> None:
        reader = native_row.AVAILABLE if hiding else iggy_row.SHOWING
        expected = [row for row in self.visible(hiding=hiding) if row[0] >= offset][:count]
        reading = read(self.broker, self.partition, offset, reader, max_messages=count)
        assert rows(reading) == expected
        assert reading.count == len(expected)

    @rule(count=st.integers(1, 10))
    def poll_next(self, count: int) -> None:
        start = 0 if self.position is None else self.position + 1
        expected = [row for row in self.visible() if row[0] >= start][:count]
        polled = self.broker.poller.poll(
            self.partition.topic, CONSUMER, None, 0, Next(), count, True, max_bytes=1 << 30, now_us=NOW
        )
        assert rows(polled.reading) == expected
        if expected:
            self.position = expected[-1][0]

    @rule(count=st.integers(1, 10), offset=st.integers(0, 80))
    def poll_elsewhere(self, count: int, offset: int) -> None:
        topic = self.partition.topic
        last = self.broker.poller.poll(topic, CONSUMER, None, 0, Last(), count, False, max_bytes=1 << 30, now_us=NOW)
        assert rows(last.reading) == self.visible()[-count:]
        some = self.broker.poller.poll(
            topic, CONSUMER, None, 0, Offset(offset), count, False, max_bytes=1 << 30, now_us=NOW
        )
        assert rows(some.reading) == [row for row in self.visible() if row[0] >= offset][:count]

    @rule(offset=st.integers(0, 80))
    def store(self, offset: int) -> None:
        try:
            self.broker.poller.store_position(self.partition.topic, CONSUMER, None, 0, offset, now_us=NOW)
        except Refusal:
            assert offset > max(self.synced - 1, 0)
        else:
            self.position = offset if self.synced else self.position

    @rule()
    def restart(self) -> None:
        self.broker.stop()
        self.synced = len(self.written)
        self._reopen()

    @rule()
    def crash(self) -> None:
        """As ``kill -9`` after the positions were written: what was acknowledged is there, of the rest a prefix."""
        self.now_us += SECOND
        self.broker.tick(self.now_us)
        self.broker.catalog.close()
        self._reopen()
        kept = self.partition.log.next_offset
        assert self.synced <= kept <= len(self.written)
        del self.written[kept:]
        self.synced = kept
        for offsets in self.open.values():
            offsets[:] = [offset for offset in offsets if offset < kept]

    def _reopen(self) -> None:
        self.broker = opened(self._path, segment_bytes=1 << 16)
        self.partition = self.broker.topology.topic("s", "t").partition(0)

    @invariant()
    def ends_agree(self) -> None:
        log = self.partition.log
        assert (log.next_offset, log.high_watermark, log.last_stable_offset) == (
            len(self.written),
            self.synced,
            self.stable,
        )
        assert self.broker.poller.position(self.partition.topic, CONSUMER, 0) == self.position


TestBrokerMachine = BrokerMachine.TestCase
TestBrokerMachine.settings = settings(
    max_examples=300 if FULL else 12, stateful_step_count=40, deadline=None, derandomize=not FULL
)

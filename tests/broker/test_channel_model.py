"""Any order of publishing, answers, joins, leaves, time, retention and crashes agrees with a table of messages.

Nothing is delivered to a subscriber it is not for, nothing waits while somebody it is for takes more, nothing is lost.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from lading.broker.channels import Channel, Delivery, Subscriber, partition_dispatcher
from lading.model.errors import Reason, Refusal
from tests.broker.channel_room import put
from tests.broker.room import FULL, NOW, SECOND, opened, topic_of

TAGS = ("", "A", "B")
TIMEOUT_US = 20 * SECOND
TIMEOUT_MAX_US = 45 * SECOND
PARTITIONS = 2

Key = tuple[int, int]


@dataclass
class Expected:
    """What the table knows of one message."""

    tag: str
    status: str = "waiting"
    """waiting, flying, deferred, done; lost once retention took it or it was hidden."""
    owner: int = 0
    until_us: int = 0
    delivered_us: int = 0
    attempts: int = 0


class ChannelMachine(RuleBasedStateMachine):
    """One channel over two partitions."""

    figures: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self.now_us = NOW
        self.subscribers: dict[int, Subscriber] = {}
        self.table: dict[Key, Expected] = {}
        self.hidden: set[Key] = set()
        self.wanted = 0
        self.steps = 0
        """Since the last restart, so that not every run consists of these."""
        self._open()
        topic_of(self.broker, PARTITIONS)
        self._find()
        self.stored = self._snapshot()

    def _open(self) -> None:
        self.broker = opened(Path(self._directory.name), segment_bytes=1 << 12)
        self.broker.channels.on_work = self._work

    def _find(self) -> None:
        self.topic = self.broker.topology.topic("s", "t")
        self.channel: Channel = self.broker.channels.open(self.topic, "c")

    def _work(self) -> None:
        self.wanted += 1

    def _snapshot(self) -> dict[Key, Expected]:
        return {key: replace(one) for key, one in self.table.items()}

    def teardown(self) -> None:
        try:
            self._drain()
        finally:
            self.broker.stop()
            self._directory.cleanup()

    # -- what a delivery must be

    def _take(self, subscriber: Subscriber, delivery: Delivery) -> None:
        number = delivery.partition.number
        for offset, attempt in zip(delivery.offsets.tolist(), delivery.attempts.tolist(), strict=True):
            one = self.table[number, offset]
            assert one.status == "waiting", f"{one} was delivered"
            assert (number, offset) not in self.hidden
            assert delivery.partition.log.first_offset <= offset < delivery.partition.log.last_stable_offset
            assert subscriber.tag == self._point(one.tag), "misdelivery"
            one.attempts += 1
            assert attempt == one.attempts, f"{number}/{offset} {one} was delivered as attempt {attempt}"
            one.status, one.owner, one.delivered_us = "flying", subscriber.number, self.now_us
            one.until_us = self.now_us + TIMEOUT_US
            self.figures["deliveries"] += 1

    def _point(self, tag: str) -> str:
        return tag if any(one.tag == tag for one in self.subscribers.values()) else ""

    def _settle(self) -> None:
        """Pump as an endpoint does; then nobody who takes more waits for what is there."""
        self.steps += 1
        for _ in range(1000):
            due_us = self.broker.channels.pump(self.now_us)
            if due_us is not None:
                self.now_us = max(self.now_us, due_us)
            elif not self.wanted:
                break
            self.wanted = 0
        else:
            pytest.fail("pump never comes to rest")
        self._lose()
        takers = {one.tag for one in self.subscribers.values() if one.credit > 0}
        for (number, offset), one in self.table.items():
            if one.status == "waiting" and offset < self.topic.partition(number).log.last_stable_offset:
                assert self._point(one.tag) not in takers, f"{number}/{offset} {one} waits though somebody takes it"
        flying = Counter(one.owner for one in self.table.values() if one.status == "flying")
        for subscriber in self.subscribers.values():
            assert subscriber.in_flight == flying[subscriber.number]

    def _lose(self) -> None:
        for (number, offset), one in self.table.items():
            first = self.topic.partition(number).log.first_offset
            if one.status in ("waiting", "deferred") and (offset < first or (number, offset) in self.hidden):
                one.status = "lost"
                self.figures["lost to retention or states"] += 1

    # -- rules

    @initialize()
    def begin(self) -> None:
        self.subscribe(0, 5)
        self.subscribe(1, 3)

    @rule(number=st.integers(0, 1), tags=st.lists(st.sampled_from([None, "A", "B", "C"]), min_size=3, max_size=16))
    def publish(self, number: int, tags: list[str | None]) -> None:
        partition = self.topic.partition(number)
        first = put(self.broker, partition, *(b"x" * 40 for _ in tags), tags=tags, now_us=self.now_us)
        for at, tag in enumerate(tags):
            self.table[number, first + at] = Expected(tag or "")
        self.figures["published"] += len(tags)
        self._settle()

    @precondition(lambda self: len(self.subscribers) < 5)
    @rule(tag=st.integers(0, 2), ready=st.integers(1, 12))
    def subscribe(self, tag: int, ready: int) -> None:
        def take(delivery: Delivery) -> None:
            self._take(subscriber, delivery)

        subscriber = Subscriber(take, tag=TAGS[tag], timeout_us=TIMEOUT_US, timeout_max_us=TIMEOUT_MAX_US)
        self.subscribers[subscriber.number] = subscriber
        self.channel.subscribe(subscriber)
        subscriber.set_ready(ready)
        self.figures["joins"] += 1
        self._settle()

    @precondition(lambda self: self.subscribers)
    @rule(which=st.integers(0, 4))
    def leave(self, which: int) -> None:
        subscriber = self._one(which)
        del self.subscribers[subscriber.number]
        self.channel.leave(subscriber)
        for one in self._flying(subscriber):
            one[1].status = "waiting"
            one[1].attempts -= 1
        self.figures["leaves"] += 1
        self._settle()

    @precondition(lambda self: self.subscribers)
    @rule(which=st.integers(0, 4), ready=st.integers(0, 8), blocked=st.booleans())
    def ready(self, which: int, ready: int, blocked: bool) -> None:
        self._one(which).set_ready(ready)
        self._one(which).blocked = blocked and ready % 3 == 0
        self._settle()

    @precondition(lambda self: self.subscribers)
    @rule(which=st.integers(0, 4), count=st.integers(1, 12), backwards=st.booleans())
    def finish(self, which: int, count: int, backwards: bool) -> None:
        subscriber = self._busy(which)
        for number in range(PARTITIONS):
            mine = [(key, one) for key, one in self._flying(subscriber) if key[0] == number][:count]
            offsets = [key[1] for key, _ in (reversed(mine) if backwards else mine)]
            stranger = max(offsets, default=0) + 1000
            taken = self.channel.finish(subscriber, number, np.array([*offsets, stranger], np.int64))
            assert taken == len(offsets)
            for _, one in mine:
                one.status = "done"
            self.figures["finished"] += len(mine)
        self._settle()

    @precondition(lambda self: any(one.in_flight for one in self.subscribers.values()))
    @rule(which=st.integers(0, 4), count=st.integers(1, 12))
    def finish_more(self, which: int, count: int) -> None:
        """What subscribers do most of the time."""
        self.finish(which, count, False)

    @precondition(lambda self: self.subscribers)
    @rule(which=st.integers(0, 4), at=st.integers(0, 8), delay_s=st.sampled_from([0, 0, 3, 30]))
    def requeue(self, which: int, at: int, delay_s: int) -> None:
        subscriber = self._busy(which)
        flying = self._flying(subscriber)
        if flying:
            (number, offset), one = flying[at % len(flying)]
            self.channel.requeue(subscriber, number, offset, delay_s * SECOND, now_us=self.now_us)
            one.status = "deferred" if delay_s else "waiting"
            one.until_us = self.now_us + delay_s * SECOND
            self.figures["requeued"] += 1
            self._settle()

    @precondition(lambda self: self.subscribers)
    @rule(which=st.integers(0, 4), at=st.integers(0, 8))
    def touch(self, which: int, at: int) -> None:
        subscriber = self._busy(which)
        if flying := self._flying(subscriber):
            (number, offset), one = flying[at % len(flying)]
            self.channel.touch(subscriber, number, offset, now_us=self.now_us)
            one.until_us = min(self.now_us + TIMEOUT_US, one.delivered_us + TIMEOUT_MAX_US)

    @rule(number=st.integers(0, 1), offset=st.integers(0, 60))
    def answer_for_what_is_not_ours(self, number: int, offset: int) -> None:
        for subscriber in self.subscribers.values():
            one = self.table.get((number, offset))
            if one is None or one.status != "flying" or one.owner != subscriber.number:
                assert self.channel.finish(subscriber, number, np.array([offset], np.int64)) == 0
                with pytest.raises(Refusal) as caught:
                    self.channel.touch(subscriber, number, offset, now_us=self.now_us)
                assert caught.value.reason is Reason.NOT_IN_FLIGHT

    @rule(seconds=st.sampled_from([0, 0, 1, 1, 1, 5, 5, 21, 60]))
    def wait(self, seconds: int) -> None:
        self.now_us += seconds * SECOND
        for one in self.table.values():
            if one.status in ("flying", "deferred") and one.until_us <= self.now_us:
                self.figures["time-outs" if one.status == "flying" else "delays over"] += 1
                one.status = "waiting"
        self.broker.tick(self.now_us)
        self.stored = self._snapshot()
        self.broker.channels.store(self.now_us)
        self._settle()

    @rule(number=st.integers(0, 1), share=st.sampled_from([0, 0, 1, 4]))
    def retention(self, number: int, share: int) -> None:
        log = self.topic.partition(number).log
        log.truncate_before(log.first_offset + (log.last_stable_offset - log.first_offset) * share // 20)
        self._lose()
        self._settle()

    @rule(number=st.integers(0, 1), offset=st.integers(0, 100), count=st.integers(1, 4))
    def hide(self, number: int, offset: int, count: int) -> None:
        try:
            self.broker.states.set(self.topic.partition(number), [(offset, offset + count)], 20, now_us=self.now_us)
        except Refusal:
            return
        self.hidden |= {(number, offset + at) for at in range(count)}
        self._lose()
        self._settle()

    @rule()
    def pause(self) -> None:
        self.channel.pause()
        self.broker.channels.pump(self.now_us)
        self.channel.unpause()
        # how a channel is set is stored at once, with where it is
        self.stored = self._snapshot()
        self._settle()

    @precondition(lambda self: self.steps > 10)
    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        """Stopped in order everything is known; killed, what was stored last."""
        if kill:
            self.broker.catalog.close()
            known, self.figures["kills"] = self.stored, self.figures["kills"] + 1
        else:
            self.broker.stop()
            known = self.table
        self.steps = 0
        self.subscribers.clear()
        lost = {key for key, one in self.table.items() if one.status == "lost"}
        self.table = {key: replace(known.get(key, Expected(one.tag))) for key, one in self.table.items()}
        for key, one in self.table.items():
            if key in lost and one.status != "done":
                one.status = "lost"
            elif one.status == "flying":
                one.status = "waiting"
        self.stored = self._snapshot()
        self._open()
        self._find()
        self.broker.tick(self.now_us)
        for one in self.table.values():
            if one.status == "deferred" and one.until_us <= self.now_us:
                one.status = "waiting"
        self._settle()
        self.begin()

    # -- parts

    def _one(self, which: int) -> Subscriber:
        return list(self.subscribers.values())[which % len(self.subscribers)]

    def _busy(self, which: int) -> Subscriber:
        """One that has messages, if any has."""
        busy = [one for one in self.subscribers.values() if one.in_flight]
        return busy[which % len(busy)] if busy else self._one(which)

    def _flying(self, subscriber: Subscriber) -> list[tuple[Key, Expected]]:
        return [
            (key, one) for key, one in self.table.items() if one.status == "flying" and one.owner == subscriber.number
        ]

    def _drain(self) -> None:
        """What is not done comes to somebody who takes everything, once, and then nothing is left."""
        for subscriber in list(self.subscribers.values()):
            del self.subscribers[subscriber.number]
            self.channel.leave(subscriber)
            for _, one in self._flying(subscriber):
                one.status, one.attempts = "waiting", one.attempts - 1
        self.subscribe(0, 2500)
        self.wait(60)
        (subscriber,) = self.subscribers.values()
        for number in range(PARTITIONS):
            offsets = sorted(key[1] for key, _ in self._flying(subscriber) if key[0] == number)
            assert self.channel.finish(subscriber, number, np.array(offsets, np.int64)) == len(offsets)
        left = [one for one in self.table.values() if one.status not in ("flying", "lost", "done")]
        assert not left, f"never delivered: {left}"
        counts = self.channel.statistics()
        assert (counts.in_flight, counts.deferred) == (0, 0)
        assert all(
            one.window.first == one.window.end == one.partition.log.last_stable_offset and not len(one.out_of_window)
            for one in self.channel.lanes
        )
        self.figures["runs"] += 1


class NarrowMachine(ChannelMachine):
    """The same where every bound is so low that windows overflow, pages hold little and passes end early."""

    BOUNDS: ClassVar[dict[str, int]] = {
        "LOOKAHEAD_MAX": 12,
        "PAGE_MESSAGES": 4,
        "PAGE_BYTES": 512,
        "PASS_MESSAGES": 8,
        "SPILL": 3,
        "RESOLVE": 3,
    }

    def __init__(self) -> None:
        self._before = {name: getattr(partition_dispatcher, name) for name in self.BOUNDS}
        for name, value in self.BOUNDS.items():
            setattr(partition_dispatcher, name, value)
        super().__init__()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            for name, value in self._before.items():
                setattr(partition_dispatcher, name, value)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("machine", [ChannelMachine, NarrowMachine])
@pytest.mark.turns(2)
def test_channels_agree_with_the_table(machine: type[ChannelMachine], capsys: pytest.CaptureFixture[str]) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    machine.figures = Counter()
    examples = 1500 if FULL else 15
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=examples, stateful_step_count=50, deadline=None, derandomize=not FULL),
    )
    with capsys.disabled():
        counted = ", ".join(f"{name} {count:,}" for name, count in sorted(machine.figures.items()))
        print(f"\nchannel model check, {machine.__name__}: misdelivered 0, lost 0; {counted}")

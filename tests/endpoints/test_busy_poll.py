"""Looking again before sleeping: only after a run of requests, never longer than told, nothing while nobody asks."""

from __future__ import annotations

import asyncio
import resource
import time
from collections import deque
from collections.abc import Callable

from lading.endpoints.base.busy_poll import RUN, BusyPoll


class Loop:
    """A loop with a clock of its own: every turn takes one microsecond."""

    def __init__(self, limit_us: int) -> None:
        self.now_ns = 10**15
        self.turns = 0
        self._ready: deque[Callable[[], None]] = deque()
        self.poll = BusyPoll(
            limit_us, clock_ns=lambda: self.now_ns, call_soon=self._ready.append, give_way=self._give_way
        )
        self.given_way = 0

    def _give_way(self) -> None:
        self.given_way += 1

    def pass_us(self, time_us: int) -> int:
        """Let time go by; how many turns of it did not sleep."""
        end_ns, before = self.now_ns + 1_000 * time_us, self.turns
        while self.now_ns < end_ns:
            if self._ready:
                self._ready.popleft()()
                self.turns += 1
                self.now_ns += 1_000
            else:
                self.now_ns = end_ns
        return self.turns - before

    def asked(self, times: int, every_us: int) -> int:
        """Requests at even distances; how many turns did not sleep meanwhile."""
        turns = 0
        for _ in range(times):
            self.poll.record_response()
            turns += self.pass_us(every_us)
        return turns


def test_who_asks_one_after_the_other_is_waited_for() -> None:
    loop = Loop(200)
    assert loop.asked(RUN, 80) == 0
    # from the next one on the loop does not sleep between two requests, and others may have the core at each turn
    assert loop.asked(100, 80) == 8_000
    assert loop.given_way >= 7_900
    # nobody asks any more: at most the limit
    assert loop.pass_us(10**6) <= 201 - 80
    assert loop.pass_us(10**6) == 0


def test_who_asks_seldom_costs_nothing() -> None:
    for every_us in (200, 1_000, 100_000):
        assert Loop(200).asked(10_000, every_us) == 0


def test_a_burst_costs_the_limit_once() -> None:
    loop = Loop(200)
    for _ in range(100):
        assert loop.asked(RUN, 10) == 0
        assert loop.pass_us(1_000) == 0
    for _ in range(100):
        loop.asked(2 * RUN, 10)
        assert loop.pass_us(1_000) <= 200
        assert loop.pass_us(1_000) == 0


def test_it_can_be_switched_off() -> None:
    loop = Loop(0)
    assert loop.asked(1_000, 1) == 0
    assert loop.pass_us(1_000) == 0


def test_the_running_loop_sleeps_when_nobody_asks() -> None:
    async def run() -> tuple[int, float]:
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1

        # longer than a busy machine may take the core away between the last request and the first turn
        poll = BusyPoll(20_000, give_way=turn)
        for _ in range(2 * RUN):
            poll.record_response()
        await asyncio.sleep(0.05)
        used, begun = resource.getrusage(resource.RUSAGE_THREAD), time.monotonic()
        await asyncio.sleep(0.3)
        after = resource.getrusage(resource.RUSAGE_THREAD)
        return turns, (after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime) / (time.monotonic() - begun)

    turns, share = asyncio.run(run())
    assert turns > 0
    assert share < 0.1

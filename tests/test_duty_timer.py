"""The broker's duties go on after whatever a tick or the event loop does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest
import uvloop

from lading.serve.duties import LATE_S, DutyTimer

TIMEOUT_S = 10


class LateLoop(uvloop.Loop):
    """A loop whose process loses the CPU between two readings of the clock: what is due has passed already.

    uvloop answers that with a handle that has no ``when``.
    """

    def call_at(self, when, callback, *arguments, context=None):  # type: ignore[no-untyped-def,override]
        return super().call_at(self.time() - 1.0, callback, *arguments, context=context)


def ticks(tick: Callable[[int], float], count: int) -> None:
    """Run a timer on a late loop until it has ticked so often."""

    async def run() -> None:
        done = asyncio.Event()
        seen = 0

        def one() -> float:
            nonlocal seen
            seen += 1
            if seen == count:
                done.set()
            return tick(seen)

        timer = DutyTimer(asyncio.get_running_loop(), one, lambda lag_s: None)
        with timer.running():
            await asyncio.wait_for(done.wait(), TIMEOUT_S)

    with asyncio.Runner(loop_factory=LateLoop) as runner:
        runner.run(run())


def test_duties_go_on_when_the_due_time_has_passed_already() -> None:
    ticks(lambda number: 0.0, 20)


def test_duties_go_on_after_a_tick_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    def tick(number: int) -> float:
        if number % 2:
            raise ZeroDivisionError("a fault")
        return 0.0

    with caplog.at_level(logging.ERROR):
        ticks(tick, 6)
    assert "a fault" in caplog.text


def test_duties_that_do_not_run_are_told() -> None:
    class Clock:
        now_s = 100.0

        def time(self) -> float:
            return self.now_s

        def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.Handle:
            return asyncio.Handle(callback, (), asyncio.new_event_loop())

    clock = Clock()
    timer = DutyTimer(clock, lambda: 0.0, lambda lag_s: None)  # type: ignore[arg-type]
    with timer.running():
        assert timer.health_problem() is None
        clock.now_s += LATE_S + 1
        problem = timer.health_problem()
        assert problem is not None and "6.0 s late" in problem

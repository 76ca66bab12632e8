"""The work that a serving broker does without a request: timed work, and copies of poisoned messages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Final

from ..broker.core.maintenance import TICK_US
from ..endpoints.base.append_wait import wait_acknowledged
from ..endpoints.base.services import Services
from ..model.errors import Refusal
from ..runtime.clock import date_us, now_us
from ..runtime.metrics import Gauge
from ..runtime.owned_directory import DataDirectoryWatch

log = logging.getLogger("lading")

LOOK_US: Final = 500_000
"""Seconds between checks that the data directory exists: acknowledgements stop within a second after it was deleted."""
LETTERS_WAIT_MIN_S: Final = 0.01
LETTERS_RETRY_S: Final = 1.0
AFTER_MIN_S: Final = 0.01
AFTER_MAX_S: Final = 1.0
LATE_S: Final = 5.0
"""Duties that are overdue by this much are reported by ``/health``."""


def make_duty_timer(services: Services) -> DutyTimer:
    """Return the timer of the broker's own duties, shown by /health and the metrics."""
    broker, metrics = services.broker, services.metrics

    directory = DataDirectoryWatch(services.settings.data)
    look_us = now_us() + LOOK_US

    def look_at_directory() -> None:
        nonlocal look_us
        if directory.problem is None and now_us() >= look_us:
            look_us = now_us() + LOOK_US
            if (problem := directory.look()) is not None:
                log.error("%s", problem)
                broker.stop_writing(problem)

    def tick() -> float:
        look_at_directory()
        return (broker.tick(now_us(), date_us()) - now_us()) / 1e6

    timer = DutyTimer(asyncio.get_running_loop(), tick, metrics.loop_lag_seconds.observe)
    broker.on_due = lambda: timer.call_after(TICK_US / 1e6)
    services.health.add_check("duties", timer.health_problem)
    services.health.add_check("data directory", lambda: directory.problem)
    services.health.add_check("catalog", lambda: broker.catalog.problem)
    services.health.add_check("store", broker.find_store_problem)
    metrics.add(
        Gauge(
            "lading_duties_late_seconds",
            "For how long the broker's own work (time-outs, retention, stored positions) has been due.", (),
            lambda: (((), timer.late_s),),
        )
    )  # fmt: skip
    metrics.add(
        Gauge(
            "lading_failed_logins", "Logins with a wrong password or token since the start, of all protocols.", (),
            lambda: (((), float(services.authenticator.failures_count)),),
        )
    )  # fmt: skip
    return timer


async def copy_dead_letters(services: Services) -> None:
    """Copy messages that were marked poisoned, in a worker, one block at a time, until cancelled."""
    broker = services.broker
    letters = broker.dead_letters
    woken = asyncio.Event()
    letters.on_pending = woken.set
    while True:
        try:
            due_us = letters.next_due_us
            with contextlib.suppress(TimeoutError):
                wait_s = None if due_us is None else max((due_us - now_us()) / 1e6, LETTERS_WAIT_MIN_S)
                async with asyncio.timeout(wait_s):
                    await woken.wait()
            woken.clear()
            while not broker.appender.congested and (copy := letters.next(now_us())) is not None:
                await services.run_in_worker(1, 0, type(copy).encode, copy)
                append = letters.send(copy, now_us())
                if append is not None:
                    with contextlib.suppress(Refusal):
                        # a refused duty is tried again when it is next due
                        await wait_acknowledged(append)
        except Exception:
            log.exception("copying dead letters failed; it is tried again")
            await asyncio.sleep(LETTERS_RETRY_S)


class DutyTimer:
    """Calls ``tick`` on the event loop when it is due, even if the last one failed.

    ``tick`` returns in how many seconds it wants to be called again. The due time is kept here instead of read from
    the loop's handle: if it has passed already, uvloop's ``call_at`` returns a handle without a time.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, tick: Callable[[], float], observe_lag_s: Callable[[float], None]
    ) -> None:
        self._loop = loop
        self._tick = tick
        self._observe_lag_s = observe_lag_s
        self._due_s = loop.time()
        self._handle: asyncio.Handle | None = None
        self._is_running = False

    @property
    def late_s(self) -> float:
        """Seconds for which the tick has been overdue."""
        return max(self._loop.time() - self._due_s, 0.0) if self._is_running else 0.0

    def health_problem(self) -> str | None:
        """Return the sentence for ``/health`` if duties do not run, else None."""
        late_s = self.late_s
        if late_s < LATE_S:
            return None
        return f"time-outs, retention and stored positions are {late_s:.1f} s late; look for an error in the log"

    def call_after(self, seconds: float) -> None:
        """Call the tick in this many seconds, instead of at the time that the last tick asked for."""
        if not self._is_running:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._due_s = self._loop.time() + min(max(seconds, AFTER_MIN_S), AFTER_MAX_S)
        self._handle = self._loop.call_at(self._due_s, self._run)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Call the tick from now on until the end of the block."""
        self._is_running = True
        self.call_after(0.0)
        try:
            yield
        finally:
            self._is_running = False
            if self._handle is not None:
                self._handle.cancel()

    def _run(self) -> None:
        after_s = AFTER_MAX_S
        try:
            self._observe_lag_s(self.late_s)
            after_s = self._tick()
        except Exception:
            # a failed duty must not end the service: log it and try again
            log.exception("a maintenance task of the broker failed; it will be tried again")
        finally:
            self.call_after(after_s)

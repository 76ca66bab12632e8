"""Busy polling: the event loop polls again before it sleeps, for clients that send one small request after another.

A core with nothing to do sleeps, and to wake it takes longer (20 to 50 us on a virtual machine) than to serve a small
request. So the event loop keeps looking for a while after a request, as Go's scheduler does, but only if a run of
requests has shown that the next one comes soon. This costs at most ``limit_us`` of one core after each run of ``RUN``
requests; a client with fewer requests than one every ``limit_us`` costs nothing, nor does an idle broker. Each look
lets other programs have the core first, and other threads the interpreter.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Final

RUN: Final = 8
"""Busy polling begins after this many requests in a row, each soon after the one before."""


class BusyPoll:
    """One for the loop; endpoints call ``record_response`` after a response whose client may send again at once."""

    def __init__(
        self,
        limit_us: int,
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        call_soon: Callable[[Callable[[], None]], object] | None = None,
        give_way: Callable[[], None] = os.sched_yield,
    ) -> None:
        """``limit_us`` 0 never looks again. ``call_soon`` defaults to the running loop's."""
        self._limit_ns = 1_000 * limit_us
        self._clock_ns = clock_ns
        self._call_soon = call_soon
        self._give_way = give_way
        self._served_ns = -self._limit_ns
        self._run = 0
        self._looking = False

    def record_response(self) -> None:
        """Record that a response was sent."""
        now_ns = self._clock_ns()
        if now_ns - self._served_ns >= self._limit_ns:
            self._run = 0
        self._served_ns = now_ns
        if self._looking or not self._limit_ns:
            return
        self._run += 1
        if self._run > RUN:
            self._looking = True
            if self._call_soon is None:
                self._call_soon = asyncio.get_running_loop().call_soon
            self._call_soon(self._look)

    def _look(self) -> None:
        """Give the loop a turn that does not sleep, and come back for the next until the time is up."""
        assert self._call_soon is not None
        if self._clock_ns() - self._served_ns < self._limit_ns:
            self._give_way()
            self._call_soon(self._look)
        else:
            self._looking = False
            self._run = 0

"""Turns of connections that have more to do: a bounded part of each pass of the event loop, in order.

A connection takes a bounded number of requests, commands or frames when something arrives. If more is whole it waits
here. Were each to go on in the next pass of the loop, a pass would take as long as all of them together, and a client
with one small request would wait for it: 200 connections with a millisecond each are a fifth of a second.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

PASS_S: Final = 0.004
"""Work of waiting connections in one pass of the loop."""


class TurnQueue:
    """Connections that wait for their turn. Threads: event loop only."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._waiting: deque[tuple[Callable[[], None], float]] = deque()
        self._is_due = False

    def add(self, go_on: Callable[[], None], later_s: float = 0.0) -> None:
        """Call ``go_on`` when all that wait have had their turn; it begins work of ``later_s`` for the next pass."""
        self._waiting.append((go_on, later_s))
        self._call_soon()

    def _call_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._take_turns)

    def _take_turns(self) -> None:
        self._is_due = False
        end_s = self._clock() + PASS_S
        try:
            while self._waiting:
                go_on, later_s = self._waiting.popleft()
                end_s -= later_s
                go_on()
                if self._clock() >= end_s:
                    break
        finally:
            # also after a fault of one connection
            if self._waiting:
                self._call_soon()

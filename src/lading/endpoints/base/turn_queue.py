"""Turns of connections: a bounded part of each pass of the event loop, in order, those with little to do first.

A connection takes a bounded number of requests, commands or frames when something arrives. If more is whole it waits
here. If each continued in the next pass of the loop, a pass would take as long as all of them together, and a client
with one small request would wait for it: 200 connections with a millisecond each are a fifth of a second.

The same holds for what arrives: 200 connections may all become readable in one pass. As long as something is left of
the allowance, a connection takes its turn at once, which is what nearly all do that have few neighbours. The others
wait here too. The allowance is counted in bytes, which cost nothing to count: a clock that is read for each request
would cost more than it is worth. The queue, which has a clock, begins the next allowance in each of its passes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

PASS_S: Final = 0.004
"""Work of waiting connections in one pass of the loop."""
ALLOWANCE_BYTES: Final = 16 << 10
"""How much is taken at once between two passes of the queue. The smallest requests, of 20 bytes, cost a tenth of a
millisecond, and a connection takes eight of them in a turn: the queue is asked before it is much more than a pass."""
ALONE_BYTES_MAX: Final = 256 << 10
"""The limit after passes in which at most one connection waited: a single busy connection would wait in vain after each
16 KiB, and cost half as much again. It doubles from pass to pass, and is the smaller one again as soon as two wait.
"""
SMALL_BYTES: Final = 512
"""A connection with so little unread has little to do, unless its last turns were long."""
LONG_TURN_S: Final = 0.00025
LONG_TURNS: Final = 3
"""After this many long turns in a row, a connection waits after those with little to do, however little it sends. One
may also be long because garbage was collected, or because the system gave the core to another process."""


class Allowance:
    """The amount that may still be taken at once."""

    __slots__ = ("left_bytes",)

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes


NO_ALLOWANCE: Final = Allowance(0)
"""The allowance of a connection whose last turns were long: it always waits."""


class TurnQueue:
    """Connections that wait for their turn. Threads: event loop only."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.allowance = Allowance(ALLOWANCE_BYTES)
        self._allowance_bytes = ALLOWANCE_BYTES
        self._with_little: deque[tuple[Callable[[], None], float]] = deque()
        self._waiting: deque[tuple[Callable[[], None], float]] = deque()
        self._is_due = False

    def add(self, proceed: Callable[[], None], later_s: float = 0.0) -> None:
        """Call ``proceed`` when all that wait have had their turn; it begins work of ``later_s`` for the next pass."""
        self._waiting.append((proceed, later_s))
        self._call_soon()

    def add_with_little(self, proceed: Callable[[], None], later_s: float = 0.0) -> None:
        """Call ``proceed``, which has little to do, before those that were given to ``add``."""
        self._with_little.append((proceed, later_s))
        self._call_soon()

    def _call_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._take_turns)

    def _take_turns(self) -> None:
        self._is_due = False
        is_alone = len(self._with_little) + len(self._waiting) <= 1
        self._allowance_bytes = min(2 * self._allowance_bytes, ALONE_BYTES_MAX) if is_alone else ALLOWANCE_BYTES
        self.allowance.left_bytes = self._allowance_bytes
        end_s = self.clock() + PASS_S
        try:
            end_s = self._take_some(self._with_little, end_s)
            # one of these in each pass, however many there are of the others
            self._take_some(self._waiting, end_s)
        finally:
            # also after a fault of one connection
            if self._with_little or self._waiting:
                self._call_soon()

    def _take_some(self, waiting: deque[tuple[Callable[[], None], float]], end_s: float) -> float:
        """Let waiting connections have their turns, at least one, until ``end_s``. Returns ``end_s`` less the work that
        begins later.
        """
        while waiting:
            proceed, later_s = waiting.popleft()
            end_s -= later_s
            proceed()
            if self.clock() >= end_s:
                break
        return end_s

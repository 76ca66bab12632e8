"""Long work on the event loop, done in turns: others are served between two of them.

Work in turns is a generator that yields after each ``ROWS_AT_ONCE`` rows or less, and returns its result. It continues
after a yield until its turn of ``TURN_S`` is over: a turn is measured in time because rows take longer on a slower
machine. The data it reads may change at each yield: it iterates over copies.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar, cast

R = TypeVar("R")
T = TypeVar("T")

LOG: Final = logging.getLogger("lading")

TURN_S: Final = 0.001
"""Length of a turn, for which others wait; beginning the next turn takes a twentieth of it."""

ROWS_AT_ONCE: Final = 20
"""Rows between two looks at the clock: 0.2 ms if each row takes ten microseconds."""

CALLBACKS_AT_ONCE: Final = 20
"""Callbacks in one pass of the loop: what they lead to takes a few milliseconds."""

SORTED_AT_ONCE: Final = 2_000
"""Rows that are sorted, or merged, in one turn."""

Turns = Generator[None, None, R]


class Turn:
    """The time for which work may continue before others have their turn."""

    def __init__(self, turn_s: float | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        """``turn_s`` is ``TURN_S`` by default."""
        self._turn_s, self._clock = TURN_S if turn_s is None else turn_s, clock
        self._end_s = clock() + self._turn_s

    def is_over(self) -> bool:
        """Whether this turn is over, and others should run."""
        return self._clock() >= self._end_s

    async def give_way(self) -> None:
        """If this turn is over, let others run, and begin the next turn."""
        if self.is_over():
            await asyncio.sleep(0)
            self._end_s = self._clock() + self._turn_s


async def map_in_turns(function: Callable[[T], R], rows: Iterable[T]) -> list[R]:
    """Return the results of ``function`` for all rows. Other tasks run in between, and may change the data it reads."""
    turn, made = Turn(), []
    for row in list(rows):
        made.append(function(row))
        await turn.give_way()
    return made


def take_turn(work: Turns[object], clock: Callable[[], float] = time.perf_counter) -> None:
    """Continue work for one turn, until a yield. Raises StopIteration, with the result, if the work ends."""
    turn = Turn(clock=clock)
    next(work)
    while not turn.is_over():
        next(work)


def finish(work: Turns[R]) -> R:
    """Run all of ``work`` without giving way, and return its result: for a thread of its own, or short work."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: R = end.value
            return result


def take_turns(work: Turns[R | Awaitable[R]], clock: Callable[[], float] = time.perf_counter) -> R | Awaitable[R]:
    """Return the result of work that is done in its first turn, else what to await for it."""
    try:
        take_turn(work, clock)
    except StopIteration as end:
        result: R | Awaitable[R] = end.value
        return result
    return finish_in_turns(work, clock)


async def finish_in_turns(work: Turns[R | Awaitable[R]], clock: Callable[[], float] = time.perf_counter) -> R:
    """Return the result of work; others have their turn before each of its own."""
    try:
        while True:
            await asyncio.sleep(0)
            take_turn(work, clock)
    except StopIteration as end:
        result: R | Awaitable[R] = end.value
        return await result if isinstance(result, Awaitable) else result


def collect_in_turns(rows: Iterable[T]) -> Turns[set[T]]:
    """Return the rows as a set."""
    found, turn = set(), TurnCounter()
    for row in rows:
        found.add(row)
        if turn.is_over():
            yield
    return found


def sort_in_turns(rows: Iterable[T], key: Callable[[T], Any] | None = None) -> Turns[list[T]]:
    """Return the rows in order: as ``sorted``, which a hundred thousand keep the loop for a tenth of a second."""
    left, order = iter(rows), cast("Callable[[T], Any]", key)
    pieces: list[list[T]] = []
    while piece := sorted(islice(left, SORTED_AT_ONCE), key=order):
        pieces.append(piece)
        yield
    if len(pieces) <= 1:
        return pieces[0] if pieces else []
    merged: list[T] = []
    ordered = heapq.merge(*pieces, key=order)
    while piece := list(islice(ordered, SORTED_AT_ONCE)):
        merged += piece
        yield
    return merged


class CallbackQueue:
    """Callbacks that are due at once, of which a few are called in each pass of the event loop.

    Each may lead to a tenth of a millisecond of work, in this pass or in the next one.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object] | None = None) -> None:
        self.call_soon = call_soon
        """Has a callback run in the next pass of the loop; None: all are called at once."""
        self._room = CALLBACKS_AT_ONCE
        """How many callbacks may still be called in this pass."""
        self.waiting: deque[Iterator[Callable[[], object]]] = deque()
        """Callbacks that are due and not called yet; empty unless some wait for a later pass."""

    def call(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Call the callbacks after those that are due already; if one raises, the error is logged."""
        self.waiting.append(iter(callbacks))
        # else they are being called, or will be in the next pass
        if len(self.waiting) == 1:
            self._call_some()

    def call_rest(self) -> None:
        """Call all waiting callbacks, and later ones at once: the loop is ending."""
        self.call_soon = None
        self._call_some()

    def _call_some(self) -> None:
        left = self.waiting
        while left:
            for callback in left[0]:
                try:
                    callback()
                except Exception:
                    LOG.exception("a callback failed")
                self._room -= 1
                if self._room == 0 and self.call_soon is not None:
                    self.call_soon(self._begin_pass)
                    return
            left.popleft()

    def _begin_pass(self) -> None:
        self._room = CALLBACKS_AT_ONCE
        self._call_some()


class WorkerTurn:
    """Long computing in a worker, which sleeps as long as it computes: else the event loop would hardly get the GIL.

    With two workers that never sleep, the loop has a third of the time, and each of its turns takes three times as
    long.
    """

    def __init__(
        self, clock: Callable[[], float] = time.thread_time, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """``clock`` returns the CPU seconds of the worker's thread."""
        self._clock, self._sleep = clock, sleep
        self._rested_s = clock()

    def rest(self) -> None:
        """Sleep for as long as the worker has computed since it slept last, or since the beginning."""
        self._sleep(self._clock() - self._rested_s)
        self._rested_s = self._clock()


class TurnCounter:
    """Counts rows: ``if counter.is_over(): yield``."""

    def __init__(self, rows_at_once: int = ROWS_AT_ONCE) -> None:
        self._rows_at_once = rows_at_once
        self._rows = 0

    def is_over(self, rows: int = 1) -> bool:
        """Return whether the turn is over after this many more rows."""
        self._rows += rows
        if self._rows < self._rows_at_once:
            return False
        self._rows = 0
        return True

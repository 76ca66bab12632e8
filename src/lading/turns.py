"""Long work on the event loop, done in turns: others are served between two of them.

Work in turns is a generator that yields after each ``ROWS_AT_ONCE`` rows or less, and returns its result. What it looks
at may change at each yield: it iterates over copies.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Collection, Generator
from itertools import islice
from typing import Final, TypeVar

R = TypeVar("R")

ROWS_AT_ONCE: Final = 200
"""Rows between two turns of others: a few milliseconds where each takes ten microseconds."""

SORTED_AT_ONCE: Final = 2_000
"""Rows that are sorted, or merged, in one turn."""

Turns = Generator[None, None, R]


def take_turns(work: Turns[R | Awaitable[R]]) -> R | Awaitable[R]:
    """Return the result of work that is done in its first turn, else what to await for it."""
    try:
        next(work)
    except StopIteration as end:
        result: R | Awaitable[R] = end.value
        return result
    return finish_in_turns(work)


async def finish_in_turns(work: Turns[R | Awaitable[R]]) -> R:
    """Return the result of work; others have their turn at each yield."""
    try:
        while True:
            await asyncio.sleep(0)
            next(work)
    except StopIteration as end:
        result: R | Awaitable[R] = end.value
        return await result if isinstance(result, Awaitable) else result


def sort_in_turns(rows: Collection[str]) -> Turns[list[str]]:
    """Return the rows in order: as ``sorted``, which a hundred thousand keep the loop for a tenth of a second."""
    left = iter(rows)
    pieces: list[list[str]] = []
    while piece := sorted(islice(left, SORTED_AT_ONCE)):
        pieces.append(piece)
        yield
    if len(pieces) <= 1:
        return pieces[0] if pieces else []
    merged: list[str] = []
    ordered = heapq.merge(*pieces)
    while piece := list(islice(ordered, SORTED_AT_ONCE)):
        merged += piece
        yield
    return merged


class TurnCounter:
    """Counts rows: ``if counter.is_over(): yield``."""

    def __init__(self, rows_at_once: int = ROWS_AT_ONCE) -> None:
        self._rows_at_once = rows_at_once
        self._rows = 0

    def is_over(self, rows: int = 1) -> bool:
        """Whether the turn is over after so many more rows."""
        self._rows += rows
        if self._rows < self._rows_at_once:
            return False
        self._rows = 0
        return True

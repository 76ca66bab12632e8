"""Changes in steps: the effects of a change are visible at once, and no other client waits for the disk meanwhile.

A change is a generator. It runs on the event loop, so that everybody sees its effects, and yields calls that wait for
the disk, which any thread may make meanwhile. The caller makes each yielded call, in a worker or at once
(``complete``), and then resumes the change.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

R = TypeVar("R")

Change = Generator[Callable[[], object] | None, None, R]
"""Steps for any thread, one at a time; what a step raises is thrown into it. None: others may have their turn."""


def run_step(step: Callable[[], object] | None) -> None:
    """Run what a change has yielded, in this thread."""
    if step is not None:
        step()


def complete(change: Change[R]) -> R:
    """Make a change at once, in this thread, and return or raise what it does."""
    try:
        step = next(change)
        while True:
            try:
                run_step(step)
            except Exception as error:
                step = change.throw(error)
            else:
                step = next(change)
    except StopIteration as end:
        result: R = end.value
        return result

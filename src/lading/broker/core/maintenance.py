"""Periodic maintenance of the broker: every part does what is due.

A tick comes every 50 ms while there is something to watch, and seldom while there is not: an idle process that wakes up
pays for cold caches, and so does what is asked of it meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from .attempts import Attempts
from .callbacks import ignore
from .component import Component

TICK_US: Final = 50_000
QUIET_US: Final = 250_000
"""Between two ticks while there is nothing to watch."""


class Maintenance:
    """When the parts of a broker are asked what is due. What the disk refuses is tried again."""

    def __init__(self, components: Sequence[Component], attempts: Attempts) -> None:
        self.on_due: Callable[[], None] = ignore
        """Called when the next tick should come in 50 ms, and not when the last one said."""
        self._components = components
        self._attempts = attempts
        self._quiet = False
        """The last tick said that the next one can wait."""
        for component in components:
            component.on_due = self.request_tick

    def request_tick(self) -> None:
        """Request an early tick."""
        if self._quiet:
            self._quiet = False
            self.on_due()

    def tick(self, now_us: int) -> int:
        """Do what is due; gives when to call again, in 50 ms at the soonest."""
        self._quiet = False
        for component in self._components:
            self._attempts.attempt(component.tick, now_us)
        soon_us = now_us + TICK_US
        due_us = max(min(now_us + QUIET_US, *(component.due_us for component in self._components)), soon_us)
        self._quiet = due_us > soon_us
        return due_us

    def close(self, now_us: int) -> None:
        """Write down what may otherwise wait, before the logs are closed."""
        for component in reversed(self._components):
            self._attempts.attempt(component.close, now_us)

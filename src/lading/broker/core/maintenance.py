"""Periodic maintenance of the broker: every part does its due work, and the others continue if the disk refuses some.

A tick comes every 50 ms while there is something to watch, and seldom while there is not: an idle process that wakes up
pays for cold caches, and so does what is asked of it meanwhile. A refusal is counted, logged and tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ...model.errors import Refusal
from .callbacks import ignore
from .component import Component
from .counters import Counters

LOG: Final = logging.getLogger("lading.broker")


class Attempts:
    """The only place that catches errors of the broker's own work."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._last_failure = ""

    def attempt(self, action: Callable[..., object], *arguments: object) -> None:
        """Do one duty; an error of the disk or of our own code is reported, and does not stop other duties."""
        try:
            action(*arguments)
        except Exception as error:
            self._counters.failed_maintenance += 1
            if str(error) != self._last_failure:
                self._last_failure = str(error)
                # a refusal of the disk is logged without its stack, which says nothing useful
                fault = None if isinstance(error, (Refusal, OSError)) else error
                LOG.warning("%s; trying again", error, exc_info=fault)


TICK_US: Final = 50_000
QUIET_US: Final = 250_000
"""The interval of ticks while there is nothing to watch."""


class Maintenance:
    """The schedule by which the parts of a broker do their due work. Work that the disk refuses is tried again."""

    def __init__(self, components: Sequence[Component], attempts: Attempts) -> None:
        self.on_due: Callable[[], None] = ignore
        """Called when the next tick should be in 50 ms, instead of at the time that the last one returned."""
        self._components = components
        self._attempts = attempts
        self._quiet = False
        """Whether the last tick returned that the next one can wait."""
        for component in components:
            component.on_due = self.request_tick

    def request_tick(self) -> None:
        """Request an early tick."""
        if self._quiet:
            self._quiet = False
            self.on_due()

    def tick(self, now_us: int) -> int:
        """Do the due work; return when to call again, in 50 ms at the soonest."""
        self._quiet = False
        for component in self._components:
            self._attempts.attempt(component.tick, now_us)
        soon_us = now_us + TICK_US
        due_us = max(min(now_us + QUIET_US, *(component.due_us for component in self._components)), soon_us)
        self._quiet = due_us > soon_us
        return due_us

    def close(self, now_us: int) -> None:
        """Store pending changes, before the logs are closed."""
        for component in reversed(self._components):
            self._attempts.attempt(component.close, now_us)

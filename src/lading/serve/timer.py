"""The timer of the broker's duties: it calls the tick when it is due, even if the last one failed.

The due time is kept here instead of read from the loop's handle: if it has passed already, uvloop's ``call_at`` returns
a handle without a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Final

log = logging.getLogger("lading")

AFTER_MIN_S: Final = 0.01
AFTER_MAX_S: Final = 1.0
LATE_S: Final = 5.0
"""Duties that are overdue by this much are reported by ``/health``."""


class DutyTimer:
    """Calls ``tick`` on the event loop; ``tick`` gives in how many seconds it wants to be called again."""

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
        """For how long the tick has been due."""
        return max(self._loop.time() - self._due_s, 0.0) if self._is_running else 0.0

    def health_problem(self) -> str | None:
        """Say that duties do not run, or None."""
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
            # duties are not the service: log it and try again
            log.exception("a maintenance task of the broker failed; it will be tried again")
        finally:
            self.call_after(after_s)

"""Deadlines of connections: for the first request, each whole request, silence, and responses that are not read.

A watch looks at all connections of an endpoint a few times per deadline and compares what it sees with what it saw
before, so that a request costs nothing more: no timer and no look at a clock. A deadline may therefore pass by up to a
quarter of the shortest one. Time in which the loop stood still counts for no client: what it sent meanwhile is not read
yet. Threads: event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from ...settings.settings import ConnectionSettings

LOOKS_PER_DEADLINE: Final = 4
PERIOD_S_MIN: Final = 0.02
PERIOD_S_MAX: Final = 5.0
CONNECTIONS_AT_ONCE: Final = 256
"""Connections that are looked at before others have their turn: one takes 4 us."""


_OVER: Final = object()


class Stage(Enum):
    """Stage of a connection; the value is what metrics call its deadline."""

    FIRST = "first_request_timeout"
    """The peer has not sent a whole request yet."""
    HEAD = "head_timeout"
    """The peer has begun the head of an HTTP request."""
    PARTIAL = "request_timeout"
    """The peer has begun a request that is not whole."""
    IDLE = "idle_timeout"
    """The peer may send its next request."""
    BLOCKED = "unread_timeout"
    """The peer does not read its responses."""
    BUSY = "busy"
    """The broker works for the peer: no deadline."""


class WatchedConnection(Protocol):
    """A connection as a watch sees it."""

    def stage(self) -> Stage:
        """Return what the connection waits for."""

    def progress(self) -> int:
        """Return a number that changes with every whole request, and with every byte that a blocked peer reads."""

    def expire(self, stage: Stage) -> None:
        """Close the connection: it was at ``stage`` for longer than it may be."""


class DeadlineWatch:
    """The deadlines of the connections of one endpoint; the timer runs only while it has connections."""

    def __init__(
        self,
        timeouts_s: dict[Stage, float],
        *,
        clock_s: Callable[[], float] | None = None,
        call_later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        """``timeouts_s``: a stage that is missing has no deadline. The clock is the running loop's by default."""
        self.set_timeouts(timeouts_s)
        self._clock_s = clock_s
        self._call_later = call_later
        self._seen: dict[WatchedConnection, tuple[Stage, int, float]] = {}
        self._interrupted: dict[WatchedConnection, tuple[Stage, int, float]] = {}
        """The stage of a connection before the broker was busy with it, and for how long it had been there."""
        self._due_s: float | None = None
        self._longest_busy_s = 0.0

    def set_timeouts(self, timeouts_s: dict[Stage, float]) -> None:
        """Use other deadlines, for open connections too, from the second next check on."""
        self._timeouts_s = timeouts_s
        shortest_s = min(timeouts_s.values(), default=PERIOD_S_MAX)
        self._period_s = min(max(shortest_s / LOOKS_PER_DEADLINE, PERIOD_S_MIN), PERIOD_S_MAX)

    def add(self, connection: WatchedConnection) -> None:
        """Watch a connection that was just accepted."""
        self._seen[connection] = (connection.stage(), connection.progress(), self._now_s())
        self._start_timer()

    def remove(self, connection: WatchedConnection) -> None:
        """Forget a connection that is closed."""
        self._seen.pop(connection, None)
        self._interrupted.pop(connection, None)

    def measure_unchanged_s(self, connection: WatchedConnection) -> float:
        """Return for how long a connection has not changed its stage, as far as the checks have seen."""
        stage, progress, since_s = self._seen.get(connection, (None, 0, 0.0))
        if connection.stage() is not stage or connection.progress() != progress:
            return 0.0
        return self._now_s() - since_s

    def _look(self) -> Iterator[None]:
        """Expire each connection that has been in its stage for too long; a step for ``CONNECTIONS_AT_ONCE`` of them.

        4,000 connections at once kept the event loop for 15 ms.
        """
        # deadlines are those of the beginning: what came since then may be unread yet
        begun_s = now_s = self._now_s()
        busy_since_s = begun_s
        for number, connection in enumerate(list(self._seen), 1):
            seen = self._seen.get(connection)
            if seen is not None:
                stage, progress, since_s = seen
                stage_now, progress_now = connection.stage(), connection.progress()
                if stage_now is not stage or progress_now != progress:
                    since_s = now_s - self._interrupt(connection, stage_now, progress_now, now_s)
                    self._seen[connection] = (stage_now, progress_now, since_s)
                elif stage is Stage.BUSY:
                    busy_since_s = min(busy_since_s, since_s)
                if stage_now is not Stage.BUSY and begun_s - since_s >= self._timeouts_s.get(stage_now, float("inf")):
                    self.remove(connection)
                    connection.expire(stage_now)
            if not number % CONNECTIONS_AT_ONCE:
                yield
                now_s = self._now_s()
        self._longest_busy_s = begun_s - busy_since_s

    def _interrupt(self, connection: WatchedConnection, stage: Stage, progress: int, now_s: float) -> float:
        """Return for how long a connection was at a stage before the broker was busy with it, and nothing was whole.

        A byte now and then is work for the broker too, which waits for its turn if many connections send some: each
        look that saw that began the deadline of the request anew.
        """
        stage_before, progress_before, since_s = self._seen[connection]
        if stage is Stage.BUSY:
            self._interrupted[connection] = (stage_before, progress_before, now_s - since_s)
            return 0.0
        known = self._interrupted.pop(connection, None)
        return known[2] if known is not None and known[:2] == (stage, progress) else 0.0

    @property
    def longest_busy_s(self) -> float:
        """The longest time, at the last check, for which the broker has worked for a connection without sending it
        anything.
        """
        return self._longest_busy_s if self._seen else 0.0

    def _now_s(self) -> float:
        if self._clock_s is None:
            self._clock_s = asyncio.get_running_loop().time
        return self._clock_s()

    def _start_timer(self) -> None:
        if self._due_s is not None:
            return
        self._due_s = self._now_s() + self._period_s
        self._call_at(self._period_s, self._on_period)

    def _call_at(self, delay_s: float, callback: Callable[[], None]) -> None:
        if self._call_later is None:
            self._call_later = asyncio.get_running_loop().call_later
        self._call_later(delay_s, callback)

    def _on_period(self) -> None:
        if self._due_s is not None:
            self._put_off_deadlines(self._now_s() - self._due_s)
        self._continue_look(self._look())

    def _continue_look(self, look: Iterator[None]) -> None:
        """Take a step of a look; the next one when others had their turn, or after a period when it is over."""
        is_over = True
        try:
            is_over = next(look, _OVER) is _OVER
        finally:
            if not is_over:
                self._call_at(0, partial(self._continue_look, look))
            else:
                self._due_s = None
                if self._seen:
                    self._start_timer()

    def _put_off_deadlines(self, late_s: float) -> None:
        """Put off all deadlines by the time that this look is late: timers run before sockets are read."""
        if late_s <= 0:
            return
        for connection, (stage, progress, since_s) in self._seen.items():
            # how long the broker has worked is its own time
            if stage is not Stage.BUSY:
                self._seen[connection] = (stage, progress, since_s + late_s)


def timeouts_of(settings: ConnectionSettings) -> dict[Stage, float]:
    """Return the deadlines of a TCP protocol, in seconds; HTTP has its own idle time-out."""
    return {
        Stage.FIRST: settings.first_request_timeout_ms / 1_000,
        Stage.HEAD: settings.head_timeout_ms / 1_000,
        Stage.PARTIAL: settings.request_timeout_ms / 1_000,
        Stage.IDLE: settings.idle_timeout_ms / 1_000,
        Stage.BLOCKED: settings.unread_timeout_ms / 1_000,
    }

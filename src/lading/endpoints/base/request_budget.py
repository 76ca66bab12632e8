"""Memory for the objects of long requests, shared by all connections and reserved before they are created.

A request that is read becomes objects that take many times its bytes. It reserves memory for them first; if none is
left it waits its turn, in the buffer in which it arrived, which ``ReceiveBudget`` bounds. Short requests that list what
the broker has reserve memory for their rows after their first turn. Requests that wait for messages hold memory too,
and return it when others need it: they get an early response. Threads: event loop only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from ...broker.core.callbacks import ignore

BYTES_MAX: Final = 256 << 20
"""For all requests."""
ROWS_MAX: Final = 120_000
"""Rows of one request, in all its lists; one that has more is refused."""
ROW_BYTES: Final = 1024
"""A row and its response take about this much at a time."""
OBJECT_RATIO: Final = 64
"""A byte of a request becomes at most this many bytes of objects, as a short row has few bytes."""


def weigh_request(size_bytes: int) -> int:
    """Return the most memory that a request of this size becomes, however it is filled."""
    return 2 * size_bytes + min(OBJECT_RATIO * size_bytes, ROWS_MAX * ROW_BYTES)


class MemoryReservation:
    """The memory that one request holds, or waits for."""

    __slots__ = ("_budget", "is_granted", "on_granted", "on_needed", "size_bytes")

    def __init__(self, budget: RequestBudget, size_bytes: int) -> None:
        self._budget = budget
        self.size_bytes = size_bytes
        self.on_granted: Callable[[], None] = ignore
        self.is_granted = False
        self.on_needed: Callable[[], None] | None = None
        """Has the request end early; None: it ends by itself, soon."""

    def release(self) -> None:
        """Return the memory, or stop waiting for it; may be called again."""
        self._budget.take_back(self)

    def shrink(self, size_bytes: int) -> None:
        """Keep only ``size_bytes``."""
        self._budget.shrink(self, size_bytes)

    def set_revocable(self, on_needed: Callable[[], None]) -> None:
        """Have the request end early, by a call of ``on_needed``, when others need the memory."""
        self._budget.set_revocable(self, on_needed)


class RequestBudget:
    """The memory itself."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], bytes_max: int = BYTES_MAX) -> None:
        """``call_soon`` has a callback run in the next pass of the loop."""
        self._call_soon = call_soon
        self.bytes_max = self.left_bytes = bytes_max
        self._waiting: deque[MemoryReservation] = deque()
        self._revocable: dict[MemoryReservation, None] = {}
        self._revoked_bytes = 0
        """The bytes still held by requests that were asked to end."""

    def reserve(self, size_bytes: int, on_granted: Callable[[], None]) -> MemoryReservation:
        """Return a reservation that is granted at once, or later: then ``on_granted`` is called."""
        reservation = MemoryReservation(self, min(size_bytes, self.bytes_max))
        self._waiting.append(reservation)
        self._grant()
        if not reservation.is_granted:
            reservation.on_granted = on_granted
            self._revoke(self._waiting[0].size_bytes)
        return reservation

    async def wait_for(self, size_bytes: int) -> MemoryReservation:
        """Return a reservation once it is granted."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_granted() -> None:
            if not granted.done():
                granted.set_result(None)

        reservation = self.reserve(size_bytes, on_granted)
        try:
            if not reservation.is_granted:
                await granted
        except BaseException:
            reservation.release()
            raise
        return reservation

    def hold(self, size_bytes: int, on_needed: Callable[[], None]) -> MemoryReservation:
        """Return a reservation that is granted, and revocable; the oldest of those end early if it is too much."""
        reservation = MemoryReservation(self, size_bytes)
        reservation.is_granted = True
        self.left_bytes -= size_bytes
        self.set_revocable(reservation, on_needed)
        if self.left_bytes < 0:
            self._revoke(0)
        return reservation

    def take_back(self, reservation: MemoryReservation) -> None:
        """See ``MemoryReservation.release``."""
        if reservation.on_needed is not None:
            if self._revocable.pop(reservation, self) is self:
                self._revoked_bytes -= reservation.size_bytes
            reservation.on_needed = None
        if reservation.is_granted:
            self.left_bytes += reservation.size_bytes
        reservation.size_bytes = 0
        reservation.on_granted = ignore
        self._grant()

    def shrink(self, reservation: MemoryReservation, size_bytes: int) -> None:
        """See ``MemoryReservation.shrink``."""
        if reservation.is_granted and size_bytes < reservation.size_bytes:
            self.left_bytes += reservation.size_bytes - size_bytes
            reservation.size_bytes = size_bytes
            self._grant()

    def set_revocable(self, reservation: MemoryReservation, on_needed: Callable[[], None]) -> None:
        """See ``MemoryReservation.set_revocable``."""
        if reservation.is_granted and reservation.size_bytes:
            reservation.on_needed = on_needed
            self._revocable[reservation] = None
            if self._waiting:
                self._revoke(self._waiting[0].size_bytes)

    def _grant(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0].size_bytes <= self.left_bytes:
            reservation = waiting.popleft()
            self.left_bytes -= reservation.size_bytes
            reservation.is_granted = True
            if reservation.on_granted is not ignore:
                self._call_soon(reservation.on_granted)

    def _revoke(self, needed_bytes: int) -> None:
        """Have the oldest requests that wait for messages end, until enough will be left."""
        while self._revocable and self.left_bytes + self._revoked_bytes < needed_bytes:
            reservation = next(iter(self._revocable))
            del self._revocable[reservation]
            self._revoked_bytes += reservation.size_bytes
            assert reservation.on_needed is not None
            self._call_soon(reservation.on_needed)

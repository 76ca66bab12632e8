"""Deliveries to a user who has used up a quota: they rest, while what the client finishes is read."""

from __future__ import annotations

from collections.abc import Callable

from ...broker.core.callbacks import ignore
from ..base.services import now_us
from ..base.session import ConnectionHandle


class DeliveryHold:
    """Whether messages may be delivered to one connection; ``on_changed`` is called when that changes."""

    def __init__(self, connection: ConnectionHandle, on_changed: Callable[[], None]) -> None:
        self._connection = connection
        self._on_changed = on_changed
        self._until_us = 0
        """No message is delivered before; 0: none is held."""

    @property
    def is_held(self) -> bool:
        """Whether deliveries rest."""
        return self._until_us > 0

    def hold(self, delay_us: int) -> None:
        """Deliver no more for so long; a hold that is longer already stays."""
        is_timed = self.is_held
        self._until_us = max(self._until_us, now_us() + delay_us)
        if not is_timed:
            self._on_changed()
            self._connection.call_later(delay_us, self._release)

    def close(self) -> None:
        """Call nobody any more: the session, which this refers to, has lost its connection."""
        self._on_changed = ignore

    def _release(self) -> None:
        left_us = self._until_us - now_us()
        if left_us > 0:
            # more was delivered before the hold, or the timer's clock is a little ahead
            self._connection.call_later(left_us, self._release)
            return
        self._until_us = 0
        self._on_changed()

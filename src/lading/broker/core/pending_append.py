"""An append on its way to the disk: its callbacks run when it is durable, or has failed as a whole."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ...model.errors import Refusal

LOG: Final = logging.getLogger("lading.broker")


class Append:
    """One append: the place of its messages, and whether they are durable.

    ``done`` is set when they are synced, or when that failed: then ``error`` says why, and none of them counts as
    acknowledged. ``duplicate``: the messages were stored before, at ``base_offset``.
    """

    __slots__ = ("_callbacks", "base_offset", "count", "done", "duplicate", "end_offset", "error", "size_bytes")

    def __init__(self, base_offset: int, end_offset: int, count: int, size_bytes: int, duplicate: bool = False) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.count = count
        self.size_bytes = size_bytes
        self.duplicate = duplicate
        self.done = False
        self.error: Refusal | None = None
        self._callbacks: list[Callable[[Append], None]] | None = None

    def add_done_callback(self, callback: Callable[[Append], None]) -> None:
        """Call back once with this append when it is done, which may be at once."""
        if self.done:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def finish(self, error: Refusal | None) -> None:
        """Complete the append: durable, or failed with ``error``. Called once, by the broker."""
        self.error = error
        self.done = True
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            try:
                callback(self)
            except Exception:
                # continue: the other callbacks, and other appends of the same sync, still have to be called
                LOG.exception("a callback of an append failed")

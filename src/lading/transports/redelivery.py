"""Which messages of a queue were taken before: a queue delivers again what was not finished in time."""

from __future__ import annotations

from typing import Final

from .interface import QueuedMessage

KNOWN_MAX: Final = 200_000
"""At most this many messages are recognized when they are delivered again."""


class KnownMessages:
    """The identities of the messages taken last, for as long as this process lives."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], None] = {}

    def is_repeated(self, message: QueuedMessage) -> bool:
        """Return whether a message was taken before, and remember it; only a repeated delivery can have been."""
        identity = message.identity
        if message.attempts > 1 and identity in self._known:
            return True
        self._known[identity] = None
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
        return False

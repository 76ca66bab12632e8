"""What produce and fetch see of the connection whose request they answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..base.inbox import Inbox

Bytes = bytes | bytearray | memoryview
Parts = Sequence[Bytes]
"""A whole answer, in pieces; empty where nobody is answered."""


class RequestContext(Protocol):
    """The connection of a request, as far as answering it goes."""

    inbox: Inbox
    lost: bool
    """The connection is gone."""
    produce_head_bytes: int
    """Bytes of the head of its last Produce, 0 before the first: the next one most often has the same."""
    cancels: set[Any]
    """Long polls that wait, each with ``cancel()``."""

    def slot(self) -> ResponseSlot:
        """Return a place for the next answer."""

    def count(self, name: str, error: int) -> None:
        """Count an answer in the metrics."""

    def checking(self, busy: bool) -> None:
        """Have the requests behind this one wait while it is being checked in a worker, or go on."""

    def wait_for_disk(self) -> None:
        """After an append: read no more while the disk is far behind."""

    def tell_old_format(self, sentence: str) -> None:
        """Log once that the client is older than message format 2."""

    def close_on_error(self, why: str) -> None:
        """Close the connection when all that was asked before is answered."""

    def send_ready_responses(self) -> None:
        """Send the answers that are at the front."""

    def origin(self) -> dict[str, str]:
        """Return what a logger takes as ``extra`` for a line about this connection."""


class ResponseSlot:
    """The place of an answer among those of its connection."""

    __slots__ = ("_connection", "parts")

    def __init__(self, connection: RequestContext) -> None:
        self._connection = connection
        self.parts: Parts | None = None

    def fill(self, parts: Parts) -> None:
        """The answer is here; it goes out when all before it have."""
        self.parts = parts
        self._connection.send_ready_responses()

    def refuse(self, why: str) -> None:
        """There is no answer: the connection is closed when all before it are sent."""
        self._connection.close_on_error(why)
        self.fill(())

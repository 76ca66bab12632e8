"""Outbox: what a producer holds for one partition until it is sent."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from .interceptors import Outgoing
from .outgoing import BatchBuilder

if TYPE_CHECKING:
    import pyarrow as pa


class Outbox:
    """Closed batches in order, each with its messages if interceptors need them, and the batch still being filled.

    ``is_under_way``: the first waiting batch was given to the transport before, so that the server may have it.
    """

    __slots__ = ("gathering", "is_under_way", "messages", "waiting")

    def __init__(self) -> None:
        self.gathering = BatchBuilder()
        self.messages: list[Outgoing] = []
        self.waiting: deque[tuple[pa.RecordBatch, list[Outgoing]]] = deque()
        self.is_under_way = False

    def close_batch(self) -> None:
        """Close the batch that is being filled, if it has messages."""
        if self.is_closing:
            self._begin_batch()
        if self.gathering.count:
            # an interrupt before this left a message that was not accepted
            del self.messages[self.gathering.count :]
            self.waiting.append((self.gathering.batch(), self.messages))
            self._begin_batch()

    @property
    def is_closing(self) -> bool:
        """Whether an interrupt, which may come between any two instructions, left the closed batch to be filled."""
        return bool(self.waiting) and self.waiting[-1][1] is self.messages

    def _begin_batch(self) -> None:
        # in this order: the messages tell that the batch is closed
        self.gathering = BatchBuilder()
        self.messages = []

    @property
    def count(self) -> int:
        """The number of messages that wait."""
        gathered_count = 0 if self.is_closing else self.gathering.count
        return gathered_count + sum(batch.num_rows for batch, _ in self.waiting)

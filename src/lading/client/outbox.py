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
    ``taken``: the messages of the batch that was removed last. One thread fills and closes batches while another one
    sends and removes them.
    """

    __slots__ = ("gathering", "is_under_way", "messages", "taken", "waiting")

    def __init__(self) -> None:
        self.gathering = BatchBuilder()
        self.messages: list[Outgoing] = []
        self.waiting: deque[tuple[pa.RecordBatch, list[Outgoing]]] = deque()
        self.is_under_way = False
        self.taken: list[Outgoing] | None = None

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
        if self.taken is self.messages:
            return True
        if not self.waiting:
            return False
        try:
            return self.waiting[-1][1] is self.messages
        except IndexError:
            # the thread that sends has removed the last batch meanwhile
            return self.taken is self.messages

    def remove_first(self) -> None:
        """Remove the first waiting batch: it was sent, or is given up."""
        # before it is gone from ``waiting``: a closed batch is found in one of the two at any time
        self.taken = self.waiting[0][1]
        self.waiting.popleft()
        self.is_under_way = False

    def _begin_batch(self) -> None:
        # in this order: other threads see from the messages that the batch is closed
        self.gathering = BatchBuilder()
        self.messages = []

    @property
    def count(self) -> int:
        """The number of messages that wait."""
        gathered_count = 0 if self.is_closing else self.gathering.count
        return gathered_count + sum(batch.num_rows for batch, _ in self.waiting)

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
        if self.gathering.count:
            self.waiting.append((self.gathering.batch(), self.messages))
            self.gathering, self.messages = BatchBuilder(), []

    @property
    def count(self) -> int:
        """The number of messages that wait."""
        return self.gathering.count + sum(batch.num_rows for batch, _ in self.waiting)

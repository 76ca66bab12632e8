"""Outbox: what a producer holds for one partition until it is sent."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from .interceptors import Outgoing
from .outgoing import BatchBuilder

if TYPE_CHECKING:
    import pyarrow as pa


class Outbox:
    """Closed batches in order, each with its messages if interceptors need them, and the batch still being filled."""

    __slots__ = ("gathering", "messages", "waiting")

    def __init__(self) -> None:
        self.gathering = BatchBuilder()
        self.messages: list[Outgoing] = []
        self.waiting: deque[tuple[pa.RecordBatch, list[Outgoing]]] = deque()

    def close_batch(self) -> None:
        """Close the batch that is being filled, if it has messages."""
        if self.gathering.count:
            self.waiting.append((self.gathering.batch(), self.messages))
            self.gathering, self.messages = BatchBuilder(), []

    @property
    def count(self) -> int:
        """The number of messages that wait."""
        return self.gathering.count + sum(batch.num_rows for batch, _ in self.waiting)

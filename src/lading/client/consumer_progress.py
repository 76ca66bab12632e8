"""How far a consumer is in what it has read of one partition."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..transports.interface import Position
from .read_bounds import TopicPartition
from .reading import Selection

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(slots=True)
class MessageProgress:
    """The messages of one read of a partition, and how far the caller is with them.

    ``after`` is the position after all of them, ``handed`` after the last one returned, ``finished`` after the
    last one that the caller has processed.
    """

    place: TopicPartition
    after: Position
    handed: int | None = None
    finished: int | None = None


@dataclass(slots=True)
class BatchProgress:
    """The batches of one partition that are being yielded: an iteration may be left before the last of them."""

    selection: Selection
    place: TopicPartition
    start: int
    """The offset from which they were read."""
    left: deque[pa.RecordBatch]

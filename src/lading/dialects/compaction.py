"""Chunks of which compaction has removed some messages, as each dialect stores them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from lading.model.run import Run

Bytes = bytes | bytearray | memoryview
Ranges = Sequence[tuple[int, int]]
"""Offset ranges (first, end), ascending and disjoint."""


class KeptPart(NamedTuple):
    """Messages that are kept: a chunk's body for offsets ``base_offset`` to ``end_offset``, and the chunk's flags."""

    base_offset: int
    end_offset: int
    flags: int
    body: Bytes


@runtime_checkable
class CompactableDialect(Protocol):
    """A dialect whose chunks can be compacted."""

    has_offsets_in_body: bool
    """Whether a body has the offset of each message; else offsets are consecutive from the chunk's base offset on."""

    def keep(self, run: Run, ranges: Ranges) -> Iterator[KeptPart]:
        """Yield what is left of a Run of one chunk if it keeps only the messages in these offset ranges.

        Messages keep their offsets, times, ids, headers and checksums. Raises MalformedMessage for invalid bytes.
        """


def keep_each(
    run: Run, ranges: Ranges, flags: int, cut: Callable[[Run, int, int], Sequence[Bytes]]
) -> Iterator[KeptPart]:
    """Yield a part for each range, of a dialect whose messages have consecutive offsets from that of their chunk on.

    ``cut`` returns the stored bytes of the messages with first <= offset < end, in pieces.
    """
    for first, end in ranges:
        yield KeptPart(first, end, flags, b"".join(cut(run, first, end)))

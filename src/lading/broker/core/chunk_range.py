"""Chunks of a partition that were read last, kept so that small reads need not ask the log."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from ...model.run import Run


class IndexedRun(NamedTuple):
    """A Run with the columns that polls need as lists, so that a small poll makes no call into NumPy.

    The lists hold of each chunk the first offset, the last one, and the start and end of its body. ``dense``: every
    offset between is a message.
    """

    run: Run
    bases: list[int]
    lasts: list[int]
    starts: list[int]
    ends: list[int]
    dense: bool

    def between(self, first: int, end: int) -> tuple[Run, int, int]:
        """Return the Run without chunks that lie wholly outside ``first`` to ``end``, and which chunks those are."""
        low, high = bisect_left(self.lasts, first), bisect_left(self.bases, end)
        run = self.run
        if high - low == len(self.bases):
            return run, low, high
        return Run(run.dialect, run.region, run.chunks[low:high]), low, high


class ChunkRange(NamedTuple):
    """Whole chunks of the log; of a ``damaged`` one only the messages that are intact."""

    base_offset: int
    end_offset: int
    size_bytes: int
    parts: list[IndexedRun]
    damaged: bool

    def serves(self, offset: int, max_bytes: int) -> bool:
        """Return whether a read from ``offset`` may use these chunks: it gets what the log would return, or less."""
        if not self.base_offset <= offset < self.end_offset:
            return False
        return self.size_bytes <= max_bytes or (len(self.parts) == 1 and len(self.parts[0].bases) == 1)

"""The response to one fetch, still in the dialect's bytes, decoded on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..model.chunk_table import BASE_OFFSET, LAST_OFFSET
from ..model.ranges import subtract_ranges, write_marks
from ..model.run import Decoded, Run
from ..model.scan_request import ScanRequest
from ..model.state import State
from .losses import select_messages

States = Literal["available", "all"]
"""The messages that a reader requests: only available ones, or all, with their state in the column."""


@dataclass(slots=True)
class FetchResult:
    """Whole chunks of one partition, with what a reader needs to decide what to show.

    ``end_offset`` is the position to continue from, ``last_stable_offset`` the present end of readable messages;
    ``hidden`` is (first, end, state) of messages that are not available, ``aborted`` (first, end) of those that never
    become visible, and ``damaged`` (first, end) of those that can no longer be read.
    """

    topic: str
    partition: int
    runs: list[Run]
    end_offset: int
    first_offset: int = 0
    last_stable_offset: int = 0
    topic_id: bytes | None = None
    epoch: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    hidden: Sequence[tuple[int, int, int]] = field(default_factory=tuple)
    aborted: Sequence[tuple[int, int]] = field(default_factory=tuple)
    damaged: Sequence[tuple[int, int]] = field(default_factory=tuple)

    def decode(self, request: ScanRequest = ScanRequest(), *, states: States = "available") -> Iterator[Decoded]:
        """Return the requested columns and header keys of the requested messages, as far as this reader may see them.

        States that were set after the write are in the ``state`` column; ``offset`` and ``state`` come in addition to
        the requested fields. Raises MalformedMessage for bytes that are not of the dialect.
        """
        from ..dialects.registry import decode

        end = min(request.end, self.end_offset)
        asked = request._replace(fields=request.fields | {"offset", "state"})
        for run in self.runs:
            for low, high in subtract_ranges(sorted(self.damaged), request.first, end):
                for part in decode(run, asked._replace(first=low, end=high)):
                    yield from self._select_visible(part, states)

    def _select_visible(self, part: Decoded, states: States) -> Iterator[Decoded]:
        import pyarrow as pa

        offsets = part.columns["offset"].to_numpy(zero_copy_only=False)
        state = part.columns["state"].to_numpy(zero_copy_only=False)
        if self.hidden:
            state = write_marks(state, offsets, self.hidden)
            part = Decoded(part.count, {**part.columns, "state": pa.array(state, pa.int8())}, part.located)
        keep = state == State.AVAILABLE if states == "available" else np.ones(part.count, np.bool_)
        for first, end in self.aborted:
            keep[slice(*np.searchsorted(offsets, (first, end)))] = False
        if keep.all():
            yield part
        elif keep.any():
            yield select_messages(part, pa.array(keep))


def missing(runs: Sequence[Run], first: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges between ``first`` and ``end`` that are in no chunk of ``runs``: those that a
    damaged log lost.
    """
    # the same as subtract_ranges, for the thousands of chunks that small batches make
    chunks = np.concatenate([np.empty((0, 2), np.int64), *(run.chunks[:, (BASE_OFFSET, LAST_OFFSET)] for run in runs)])
    bases = np.minimum(np.append(chunks[:, 0], end), end)
    reached = np.maximum.accumulate(np.concatenate(([first], chunks[:, 1] + 1)))
    gaps = reached < bases
    return list(zip(reached[gaps].tolist(), bases[gaps].tolist(), strict=True))

"""Raw chunks, for readers that decode for themselves, cut according to the visibility table (design.md Log).

Chunks are sent as they are stored. A damaged chunk is never sent: new chunks with the messages that its dialect finds
intact replace it, and its other messages are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...chunk.envelope import ENVELOPE_BYTES, seal
from ...chunk.runs import runs
from ...dialects import registry
from ...log.interface import ReadableLog, Span
from ...model.chunk_table import (
    BASE_OFFSET,
    BODY_END,
    BODY_START,
    COUNT,
    FLAGS,
    LAST_OFFSET,
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
)
from ...model.errors import LocalError
from ...model.lazy_dataclass import lazy_dataclass
from ...model.run import Run
from .counters import Counters
from .topology import Partition

Bytes = bytes | memoryview


@lazy_dataclass(frozen=True, slots=True)
class Chunks:
    """Whole chunks with the offsets ``base_offset`` to ``end_offset``, the next one to read; ``data`` may be empty."""

    data: Bytes
    base_offset: int
    end_offset: int
    count: int
    hidden: Sequence[tuple[int, int, int]] = ()
    aborted: Sequence[tuple[int, int]] = ()


def read_chunks(partition: Partition, offset: int, *, max_bytes: int, counters: Counters) -> Chunks:
    """Read whole chunks below the last stable offset, from the one that holds ``offset``.

    Reads about ``max_bytes``, but at least one chunk.

    The first one may begin before ``offset``. Aborted and control ranges are returned too; the reader leaves them out.
    """
    log = partition.log
    at = max(offset, log.first_offset)
    while at < log.last_stable_offset:
        span = log.read(at, max_bytes)
        if span is None or span.base_offset >= log.last_stable_offset:
            # nothing readable remains below it: a reader that waited here would wait for ever
            at = log.last_stable_offset
            break
        base_offset, end_offset, data, count = (
            _salvage_chunk(span) if span.damaged else _find_stable_chunks(span, log.last_stable_offset)
        )
        if end_offset <= at:
            break
        if data:
            counters.reads += 1
            counters.messages_out += count
            counters.bytes_out += len(data)
            return Chunks(
                data,
                base_offset,
                end_offset,
                count,
                log.unavailable_ranges(base_offset, end_offset),
                _list_excluded_ranges(log, base_offset, end_offset),
            )
        at = end_offset
    return Chunks(b"", at, at, 0)


def _list_excluded_ranges(log: ReadableLog, first: int, end: int) -> list[tuple[int, int]]:
    return sorted([*log.aborted_ranges(first, end), *log.control_ranges(first, end)])


def _find_stable_chunks(span: Span, last_stable_offset: int) -> tuple[int, int, Bytes, int]:
    """(base, end, bytes, messages) of the span's chunks that lie below the stable end whole."""
    base_offset, end_offset, stop, count = span.base_offset, span.base_offset, span.start, 0
    for run in runs(span.region, span.start, span.end, verify=False):
        below = run.chunks[run.chunks[:, LAST_OFFSET] < last_stable_offset]
        if len(below):
            end_offset = int(below[-1, LAST_OFFSET]) + 1
            stop = int(below[-1, BODY_END])
            count += int(below[:, COUNT].sum())
        if len(below) < len(run.chunks):
            break
    return base_offset, end_offset, span.region.data[span.start : stop], count


def _salvage_chunk(span: Span) -> tuple[int, int, Bytes, int]:
    """(base, end, bytes, messages) of what the dialect finds intact in one damaged chunk, in chunks of its own."""
    found = salvage(span)
    rows = found.chunks
    together = (np.diff(rows[:, BASE_OFFSET]) == 1) & (rows[1:, BODY_START] == rows[:-1, BODY_END])
    borders = [0, *(np.flatnonzero(~together) + 1).tolist(), len(rows)]
    chunks = [_build_chunk(found, first, last) for first, last in pairwise(borders) if first < last]
    data = np.concatenate(chunks) if chunks else np.empty(0, np.uint8)
    return span.base_offset, span.end_offset, data.data, len(rows)


def _build_chunk(found: Run, first: int, last: int) -> NDArray[np.uint8]:
    """Return one chunk with the messages of the rows from ``first`` to ``last``, which are consecutive."""
    rows = found.chunks[first:last]
    body = found.region[int(rows[0, BODY_START]) : int(rows[-1, BODY_END])]
    array = np.empty(ENVELOPE_BYTES + body.size, np.uint8)
    array[ENVELOPE_BYTES:] = body
    seal(
        array,
        0,
        array.size,
        dialect=found.dialect,
        flags=int(rows[0, FLAGS]),
        base_offset=int(rows[0, BASE_OFFSET]),
        count=len(rows),
        last_offset_delta=len(rows) - 1,
        min_timestamp_us=int(rows[0, MIN_TIMESTAMP_US]),
        max_timestamp_us=int(rows[0, MAX_TIMESTAMP_US]),
    )
    return array


def salvage(span: Span) -> Run:
    """Return the intact messages of the one chunk in a damaged span, each as a chunk of its own.

    None if the damage hit the chunk's dialect code.
    """
    damaged = runs(span.region, span.start, span.end, verify=False)[0]
    try:
        dialect = registry.dialect(damaged.dialect)
    except LocalError:
        return Run(damaged.dialect, damaged.region, damaged.chunks[:0])
    return dialect.salvage(damaged)

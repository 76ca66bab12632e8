"""Scan of a segment from its bytes alone: which chunks are intact and consecutive, and what is damaged.

Recovery, the rebuilding of an index and the search for damage use the same scan. It accepts a chunk if its CRC matches
and its base offset is the next one. After a bad region it searches for the place at which the log continues
(``_resume``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..chunk import fallback, layout
from ..chunk.envelope import KERNEL_MODULE
from ..kernels import engine
from ..model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, LAST_OFFSET, MAX_TIMESTAMP_US
from .formats import GATE
from .index import INDEX_EVERY_SHIFT, Index, IndexEntry
from .interface import Damage

Region = NDArray[np.uint8]
_ROWS: Final = 1024
_FEW: Final = 16
_SIGN: Final = layout.MAGIC.to_bytes(2, "little") + bytes([layout.VERSION])
_WINDOW: Final = 1 << 20
_SEARCH_BYTES_MAX: Final = 1 << 30
"""The maximum of bytes checked while searching after one bad region, as hostile payloads may be full of envelopes."""


@dataclass(slots=True)
class Scan:
    """Result of scanning bytes: intact up to ``end_position``, at which ``end_offset`` is the next offset."""

    start_position: int
    end_position: int
    end_offset: int
    max_timestamp_us: int
    last_start: int = -1
    """Position of the previous chunk; -1 if it is missing or unreadable: the next one gets an index entry."""
    index: Index = field(default_factory=Index)
    damage: list[Damage] = field(default_factory=list)
    told_end: IndexEntry | None = None
    """The end of the segment according to its index, before the scan."""
    bad_bytes: int = 0
    """Bytes after ``end_position`` up to the last one that is not zero: a torn tail, or damage."""


def walk(
    region: Region, start: int, end: int, *, verify: bool, rows: int = _ROWS
) -> tuple[NDArray[np.int64], int, int]:
    """Return up to ``rows`` chunks from ``start``: (rows as in Run.chunks, their end, the fault there or 0)."""
    rows = min(rows, max(end - start, 0) // layout.ENVELOPE_BYTES + 1)
    table = np.empty((rows, 8), np.int64)
    kernels: Any = engine.select(KERNEL_MODULE, fallback, end - start if verify else 0)
    filled, at, reason = kernels.walk(region, start, end, verify, table, np.empty(rows, np.uint8))
    return table[:filled], at, reason


def follows(rows: NDArray[np.int64], offset: int) -> int:
    """Return how many of these chunks are consecutive without a gap, the first one at ``offset``."""
    if len(rows) <= _FEW:
        # a read has a handful of large chunks, and then each call of NumPy costs more than the comparison
        places = rows[:, BASE_OFFSET : LAST_OFFSET + 1].tolist()
        for number, (base, _, last) in enumerate(places):
            if base != offset:
                return number
            offset = last + 1
        return len(rows)
    expected = np.empty(len(rows), np.int64)
    expected[:1] = offset
    expected[1:] = rows[:-1, LAST_OFFSET] + 1
    wrong = np.flatnonzero(rows[:, BASE_OFFSET] != expected)
    return int(wrong[0]) if len(wrong) else len(rows)


def scan(
    region: Region,
    start: IndexEntry,
    end: int,
    *,
    path: Path,
    hints: Sequence[IndexEntry] = (),
    stop_offset: int | None = None,
) -> Scan:
    """Check the chunks from ``start`` to byte ``end``, or to ``stop_offset`` if given.

    ``hints`` are index entries that were intact: they are used if the bytes agree. ``path`` is for reports.
    """
    found = Scan(start.position, start.position, start.offset, start.max_timestamp_us)
    while found.end_position < end and (stop_offset is None or found.end_offset < stop_offset):
        rows, _, _ = walk(region, found.end_position, end, verify=True)
        good = rows[: follows(rows, found.end_offset)]
        if stop_offset is not None:
            good = good[: int(np.searchsorted(good[:, BASE_OFFSET], stop_offset))]
        if len(good):
            _take(found, good)
        elif not _resume(found, region, end, path, hints):
            break
    return found


def _take(found: Scan, rows: NDArray[np.int64]) -> None:
    starts = rows[:, BODY_START] - layout.ENVELOPE_BYTES
    buckets = starts >> INDEX_EVERY_SHIFT
    before = np.concatenate(([found.last_start >> INDEX_EVERY_SHIFT], buckets[:-1]))
    latest = np.maximum.accumulate(rows[:, MAX_TIMESTAMP_US])
    latest = np.maximum(latest, found.max_timestamp_us)
    for i in np.flatnonzero(buckets != before).tolist():
        reached = int(latest[i - 1]) if i else found.max_timestamp_us
        found.index.add(int(rows[i, BASE_OFFSET]), int(starts[i]), reached)
    found.last_start = int(starts[-1])
    found.max_timestamp_us = int(latest[-1])
    found.end_position = int(rows[-1, BODY_END])
    found.end_offset = int(rows[-1, LAST_OFFSET]) + 1


def _resume(found: Scan, region: Region, end: int, path: Path, hints: Sequence[IndexEntry]) -> bool:
    """Record the damage at the end of ``found``, if it is one, to continue; return False if nothing intact follows."""
    at, offset = found.end_position, found.end_offset
    last = _last_byte(region, at, end)
    if last <= at:
        return False
    GATE.require_known_chunk(region.data[at:end], path)
    bad_chunks = _find_bad_chunks(region, at, offset, end, path)
    if not bad_chunks:
        next_chunk = _search(region, at, last, end, offset, hints)
        if next_chunk is None:
            found.bad_bytes = last - at
            return False
        bad_chunks = [Damage(offset, next_chunk[1], path, at, next_chunk[0])]
    if _base_offset(region, at, end) == offset:
        # a backup reads while the broker writes: this chunk was half written when it was read, and the broker has
        # completed it since
        return True
    found.damage += bad_chunks
    found.end_position, found.end_offset = bad_chunks[-1].stop, bad_chunks[-1].end
    found.last_start = -1
    return True


def find_lost_end(region: Region, found: Scan, end: int, end_offset: int, path: Path) -> list[Damage]:
    """Return the damage between the end of a scan and the known end of the segment, as bad chunks if they connect."""
    chain = _follow_damage(region, found.end_position, found.end_offset, end, path)
    if chain and chain[-1].end == end_offset:
        return chain
    return [Damage(found.end_offset, end_offset, path, found.end_position, end)]


def _find_bad_chunks(region: Region, at: int, offset: int, end: int, path: Path) -> list[Damage]:
    """Return the bad chunks from ``at`` whose lengths and offsets lead to an intact chunk that agrees with them."""
    chain = _follow_damage(region, at, offset, end, path)
    if not chain or _base_offset(region, chain[-1].stop, end) != chain[-1].end:
        return []
    return chain


def _follow_damage(region: Region, at: int, offset: int, end: int, path: Path) -> list[Damage]:
    """Return adjacent bad chunks with plausible envelopes, starting at ``at``."""
    chain: list[Damage] = []
    while True:
        rows, position, _ = walk(region, at, end, verify=False, rows=1)
        if not len(rows) or rows[0, BASE_OFFSET] != offset:
            return chain
        if chain and _base_offset(region, at, end) == offset:
            return chain
        next_offset = int(rows[0, LAST_OFFSET]) + 1
        chain.append(Damage(offset, next_offset, path, at, position, one_chunk=True))
        at, offset = position, next_offset


def _search(
    region: Region, at: int, last: int, end: int, offset: int, hints: Sequence[IndexEntry]
) -> tuple[int, int] | None:
    """Return the first intact chunk after ``at`` at which the log seems to continue, else the next index entry."""
    budget = _SEARCH_BYTES_MAX
    hint = next((h for h in hints if h.position > at and _base_offset(region, h.position, end) == h.offset), None)
    bound = last if hint is None else hint.position
    for position in _find_signs(region, at, bound):
        base = _base_offset(region, position, end, verify=False)
        if base is None or base <= offset or (hint is not None and base >= hint.offset):
            continue
        budget -= int.from_bytes(region[position : position + 4].tobytes(), "little")
        if budget < 0:
            break
        # a payload may hold the image of a chunk: with an index it must lead exactly to the next entry
        if _base_offset(region, position, end) == base and (hint is None or _leads_to(region, position, base, hint)):
            return position, base
    return None if hint is None or hint.offset <= offset else (hint.position, hint.offset)


def _find_signs(region: Region, start: int, end: int) -> Iterator[int]:
    """Yield positions at which an envelope might start, by its magic and version."""
    for window in range(start + layout.MAGIC_AT, end, _WINDOW):
        data = region[window : min(window + _WINDOW + len(_SIGN) - 1, end)].tobytes()
        at = data.find(_SIGN)
        while at >= 0:
            yield window + at - layout.MAGIC_AT
            at = data.find(_SIGN, at + 1)


def _base_offset(region: Region, at: int, end: int, *, verify: bool = True) -> int | None:
    """Return the base offset of the chunk at ``at``, or None if no intact chunk is there."""
    rows, _, _ = walk(region, at, end, verify=verify, rows=1)
    return int(rows[0, BASE_OFFSET]) if len(rows) else None


def _leads_to(region: Region, position: int, offset: int, goal: IndexEntry) -> bool:
    while position < goal.position:
        rows, position, _ = walk(region, position, goal.position, verify=True)
        if not len(rows) or follows(rows, offset) < len(rows):
            return False
        offset = int(rows[-1, LAST_OFFSET]) + 1
    return (offset, position) == (goal.offset, goal.position)


def _last_byte(region: Region, start: int, end: int) -> int:
    """Return the end of the last byte in [start, end) that is not zero, or ``start`` if all are."""
    while end > start:
        low = max(start, end - _WINDOW)
        # a copy: a backup scans the end of a log that its broker is writing to
        used = region[low:end] != 0
        if used.any():
            return end - int(np.argmax(used[::-1]))
        end = low
    return start

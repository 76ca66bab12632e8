"""Segments that servers of 0.0.30 and 0.0.40 wrote: pieces that can be read alone, in the stored form (iggy.md A9).

0.0.40 stores what is polled. 0.0.30 stores the same without the state; nothing in a segment says which it is, but only
one of both readings makes payloads match their CRC-32.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.kernels import engine
from lading.kernels.arrays import Bytes
from lading.model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, COLUMNS, COUNT, LAST_OFFSET
from lading.model.run import Run
from lading.model.scan_request import MAX_OFFSET
from lading.model.state import State

from . import layout, messages
from .messages import FORM

PIECE_BYTES: Final = 1 << 20
"""A piece ends with the message that begins before this many bytes."""
_PROBED_MESSAGES: Final = 100
"""Messages that are read in both ways to find out which one is right."""
_STATE_BYTES: Final = 1
_LENGTHS: Final = struct.Struct("<II")
_U32: Final = struct.Struct("<I")
_PLACE: Final = struct.Struct("<QQ")


class SegmentPieces(NamedTuple):
    """The pieces of a segment, as rows of a table of chunks, and the position at which reading stopped (its end if
    sound)."""

    has_states: bool
    chunks: NDArray[np.int64]
    stopped_at: int


def list_pieces(region: Bytes) -> SegmentPieces:
    """Find the pieces of a segment; the bytes from ``stopped_at`` on are not a message, or one that is cut short."""
    has_states = _has_states(region)
    rows, at = [], 0
    end = region.size
    while at < end:
        row = _measure_piece(region, at, end) if has_states else _measure_stateless_piece(region, at, end)
        if row is None:
            break
        rows.append(row)
        at = row[BODY_END]
    return SegmentPieces(has_states, np.array(rows, np.int64).reshape(-1, COLUMNS), at)


def salvage_rest(region: Bytes, at: int, first: int, end: int) -> NDArray[np.int64]:
    """Find the whole messages after damage at ``at`` with first <= offset < end, each a piece of its own."""
    if at >= region.size or first >= end:
        return np.empty((0, COLUMNS), np.int64)
    chunk = np.array([[at, region.size, first, end - first, end - 1, 0, MAX_OFFSET, 0]], np.int64)
    return messages.salvage(Run(messages.CODE, region, chunk)).chunks


def read_piece(region: Bytes, piece: NDArray[np.int64], *, has_states: bool) -> Run:
    """Return the messages of a piece as a Run: in place, or copied with the states that 0.0.30 did not store."""
    if has_states:
        return Run(messages.CODE, region, piece[np.newaxis])
    start, end = int(piece[BODY_START]), int(piece[BODY_END])
    out = bytearray()
    for at, message_end in _walk_stateless(region.data, start, end):
        out += region[at : at + layout.STATE].tobytes() + bytes([State.AVAILABLE])
        out += region[at + layout.STATE : message_end].tobytes()
    row = piece.copy()
    row[BODY_START], row[BODY_END] = 0, len(out)
    return Run(messages.CODE, np.frombuffer(out, np.uint8), row[np.newaxis])


def find_damaged(run: Run) -> list[int]:
    """Return the offsets of messages in a piece whose CRC-32 does not match, or whose fields are impossible."""
    row = run.chunks[0]
    body = run.region[int(row[BODY_START]) : int(row[BODY_END])]
    base_offset, last_offset = int(row[BASE_OFFSET]), int(row[LAST_OFFSET])
    found = np.empty((int(row[COUNT]), 3), np.int64)
    kernels: Any = engine.select(FORM.cut_home, FORM.cut_fallback, body.size)
    count = kernels.intact(body, base_offset, last_offset - base_offset + 1, found.reshape(-1), 16 * body.size)
    if count == row[COUNT]:
        return []
    return sorted(set(range(base_offset, last_offset + 1)) - set(found[:count, 0].tolist()))


def _has_states(region: Bytes) -> bool:
    data = region.data
    right = []
    for state_bytes in (_STATE_BYTES, 0):
        at = matching = 0
        for _ in range(_PROBED_MESSAGES):
            payload = _find_payload(data, at, region.size, state_bytes)
            if payload is None:
                break
            start, at, checksum = payload
            matching += zlib.crc32(data[start:at]) == checksum
        right.append(matching)
    return right[0] >= right[1]


def _find_payload(data: memoryview, at: int, end: int, state_bytes: int) -> tuple[int, int, int] | None:
    """Return start and end of the payload of the message at ``at``, and its checksum; None if the message is cut.

    The message ends at the end of its payload.
    """
    head_end = at + layout.HEADERS - _STATE_BYTES + state_bytes
    if head_end + layout.LENGTH_BYTES > end:
        return None
    checksum, headers_size = _LENGTHS.unpack_from(data, head_end - _LENGTHS.size)
    length_at = head_end + headers_size
    if length_at + layout.LENGTH_BYTES > end:
        return None
    start = length_at + layout.LENGTH_BYTES
    message_end = start + _U32.unpack_from(data, length_at)[0]
    return None if message_end > end else (start, message_end, checksum)


def _measure_piece(region: Bytes, at: int, end: int) -> list[int] | None:
    kernels: Any = engine.select(FORM.cut_home, FORM.cut_fallback, region.size)
    parts = np.zeros((1, 2), np.int64)
    chunk = np.array([[at, end, 0, 0, MAX_OFFSET, 0, 0, 0]], np.int64)
    _, _, _, reason, where = kernels.cut(region, chunk, 0, MAX_OFFSET, 1 << 62, PIECE_BYTES, parts)
    piece_end = where if reason else int(parts[0, 1])
    if piece_end <= at:
        return None
    count, first, last, low, high, reason = kernels.survey(region, at, piece_end)
    if reason:
        # offsets or times cannot be from here on
        count, first, last, low, high, reason = kernels.survey(region, at, first)
        piece_end = first if reason else piece_end
    return [at, piece_end, first, count, last, low, high, 0] if count > 0 else None


def _measure_stateless_piece(region: Bytes, at: int, end: int) -> list[int] | None:
    data, start = region.data, at
    first = last = -1
    count = low = high = 0
    for message_at, message_end in _walk_stateless(data, at, end):
        offset, time_us = _PLACE.unpack_from(data, message_at)
        if not last < offset < MAX_OFFSET or time_us > MAX_OFFSET or message_at - start >= PIECE_BYTES:
            break
        first, low, high = (offset, time_us, time_us) if not count else (first, min(low, time_us), max(high, time_us))
        last, count, at = offset, count + 1, message_end
    return [start, at, first, count, last, low, high, 0] if count else None


def _walk_stateless(data: memoryview, at: int, end: int) -> list[tuple[int, int]]:
    found = []
    start = at
    while at < end and at - start < 2 * PIECE_BYTES:
        payload = _find_payload(data, at, end, 0)
        if payload is None:
            break
        found.append((at, payload[1]))
        at = payload[1]
    return found

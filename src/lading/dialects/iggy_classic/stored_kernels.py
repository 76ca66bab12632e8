"""Kernels that find, mark and rescue stored messages; ``stored_fallback.py`` says what each does."""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Longs, Table
from lading.kernels.crc32 import crc32
from lading.kernels.memory import base, load8, load32, loadi64, store8
from lading.kernels.signature import (
    BYTES,
    CHUNKS,
    LONG,
    LONGS,
    OUT_BYTES,
    OUT_LONGS,
    OUT_TABLE,
    Data,
    inline,
    int64,
    kernel,
    several,
)
from lading.model import chunk_table
from lading.model.state import State

from .layout import (
    BAD_POSITION,
    CHECKSUM,
    CUT,
    FINE,
    HEADER_BYTES_MIN,
    HEADERS,
    HEADERS_LENGTH,
    STATE,
    STORED_BYTES_MIN,
    TIMESTAMP,
)

_KNOWN_STATES = sum(1 << code for code in State)
"""A bit for each; the highest is 30."""


@inline
def payload_at(data: Data, at: int, end: int) -> int:
    """Position of the payload length of the message at ``at``, or -1 where the message does not lie before ``end``."""
    # in bounds: each length is read only if it lies before ``end``, which callers keep inside their array
    if end - at < STORED_BYTES_MIN:
        return -1
    length_at = at + HEADERS + int64(load32(data, at + HEADERS_LENGTH))
    if length_at + 4 > end or length_at + 4 + int64(load32(data, length_at)) > end:
        return -1
    return length_at


@inline
def known_state(state: int) -> bool:
    """Whether a state byte means one."""
    code = int64(state)
    return code < 64 and (_KNOWN_STATES >> code) & 1 == 1


@kernel(several(5)(BYTES, CHUNKS, *[LONG] * 4, OUT_TABLE))
def cut(
    region: Bytes, chunks: Table, first: int, end: int, max_messages: int, max_bytes: int, parts: Table
) -> tuple[int, int, int, int, int]:
    data = base(region)
    part = 0
    count = 0
    size = 0
    last = -1
    for chunk in range(chunks.shape[0]):
        if part == parts.shape[0] or count >= max_messages:
            break
        low, high = chunks[chunk, chunk_table.BASE_OFFSET], chunks[chunk, chunk_table.LAST_OFFSET]
        held = chunks[chunk, chunk_table.COUNT]
        if high < first or low >= end:
            continue
        at = chunks[chunk, chunk_table.BODY_START]
        body_end = chunks[chunk, chunk_table.BODY_END]
        if at < 0 or body_end > region.size or body_end < at:
            return part, count, last, CUT, at
        start = at
        full = False
        whole = low >= first and high < end and count + held <= max_messages
        if whole and held > 0 and size + body_end - at <= max_bytes:
            size += body_end - at
            count += held
            last = high
            at = body_end
        while at < body_end:
            length_at = payload_at(data, at, body_end)
            if length_at < 0:
                return part, count, last, CUT, at
            # in bounds: ``payload_at`` found the whole message
            message_end = length_at + 4 + int64(load32(data, length_at))
            offset = loadi64(data, at)
            if 0 <= offset < first:
                at = message_end
                start = at
                continue
            if offset < 0 or offset >= end or count >= max_messages:
                full = True
                break
            if count > 0 and size + message_end - at > max_bytes:
                full = True
                break
            size += message_end - at
            count += 1
            last = offset
            at = message_end
        if at > start:
            parts[part, 0] = start
            parts[part, 1] = at
            part += 1
        if full:
            break
    return part, count, last, FINE, 0


@kernel(several(6)(BYTES, LONG, LONG))
def survey(region: Bytes, start: int, end: int) -> tuple[int, int, int, int, int, int]:
    data = base(region)
    count = 0
    first = 0
    last = -1
    low = 0
    high = 0
    at = start
    while at < end:
        length_at = payload_at(data, at, end)
        if length_at < 0:
            return -1, at, last, low, high, CUT
        # in bounds: ``payload_at`` found the whole message
        offset = loadi64(data, at)
        timestamp = loadi64(data, at + TIMESTAMP)
        if offset <= last or timestamp < 0:
            return -1, at, last, low, high, BAD_POSITION
        if count == 0:
            first = offset
            low = timestamp
            high = timestamp
        low = min(low, timestamp)
        high = max(high, timestamp)
        last = offset
        count += 1
        at = length_at + 4 + int64(load32(data, length_at))
    return count, first, last, low, high, FINE


@kernel(LONG(OUT_BYTES, LONG, LONGS, LONGS, BYTES))
def set_states(array: Bytes, start: int, firsts: Longs, ends: Longs, states: Bytes) -> int:
    data, size = base(array), array.size
    changed = 0
    span = 0
    at = start
    while at < size:
        length_at = payload_at(data, at, size)
        if length_at < 0:
            return -1 - at
        # in bounds: ``payload_at`` found the whole message
        offset = loadi64(data, at)
        while span < ends.size and ends[span] <= offset:
            span += 1
        if span < ends.size and firsts[span] <= offset:
            store8(data, at + STATE, states[span])
            changed += 1
        at = length_at + 4 + int64(load32(data, length_at))
    return changed


@inline
def _headers_add_up(data: Data, at: int, end: int) -> bool:
    while at < end:
        # in bounds: each length is read only if it lies before ``end``
        if end - at < HEADER_BYTES_MIN:
            return False
        at += 4 + int64(load32(data, at))
        if end - at < 5:
            return False
        at += 5 + int64(load32(data, at + 1))
    return at == end


@kernel(LONG(BYTES, LONG, LONG, OUT_LONGS, LONG))
def intact(body: Bytes, base_offset: int, count: int, found: Longs, budget: int) -> int:
    data, body_size = base(body), body.size
    at = 0
    kept = 0
    expected = base_offset
    aligned = True
    while at + STORED_BYTES_MIN <= body_size and expected < base_offset + count and 3 * kept < found.size:
        # in bounds: the loop sees to STORED_BYTES_MIN, ``payload_at`` to the whole message
        offset = loadi64(data, at)
        length_at = -1
        if aligned or expected <= offset < base_offset + count:
            length_at = payload_at(data, at, body_size)
        sound = length_at >= 0 and known_state(load8(data, at + STATE)) and loadi64(data, at + TIMESTAMP) >= 0
        if sound and _headers_add_up(data, at + HEADERS, length_at):
            end = length_at + 4 + int64(load32(data, length_at))
            budget -= end - at
            if budget < 0:
                return kept
            if crc32(data, length_at + 4, end - length_at - 4) == load32(data, at + CHECKSUM):
                if offset == expected or not aligned:
                    found[3 * kept] = offset
                    found[3 * kept + 1] = at
                    found[3 * kept + 2] = end
                    kept += 1
                    expected = offset
                expected += 1
                at = end
                aligned = True
                continue
        aligned = False
        at += 1
    return kept

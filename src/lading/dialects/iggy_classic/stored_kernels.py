"""Kernels that find, mark and rescue stored messages; ``stored_fallback.py`` says what each does."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lading.kernels.crc32 import crc32
from lading.kernels.memory import base, load8, load32, loadi64, store8

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

njit: Any = numba.njit
types: Any = numba.types
_int: Any = np.int64

_source = types.Array(types.uint8, 1, "C", readonly=True)
_longs = types.Array(types.int64, 1, "C", readonly=True)
_chunks = types.Array(types.int64, 2, "A", readonly=True)
_bytes = types.uint8[::1]
_i64 = types.int64[::1]
_long = types.int64


@njit(inline="always")
def payload_at(data: Any, at: Any, end: Any) -> Any:
    """Position of the payload length of the message at ``at``, or -1 where the message does not lie before ``end``."""
    if end - at < STORED_BYTES_MIN:
        return -1
    length_at = at + HEADERS + _int(load32(data, at + HEADERS_LENGTH))
    if length_at + 4 > end or length_at + 4 + _int(load32(data, length_at)) > end:
        return -1
    return length_at


@njit(inline="always")
def known_state(state: Any) -> Any:
    """Whether a state byte means one."""
    return state == 1 or state == 10 or state == 20 or state == 30


@njit(
    types.UniTuple(_long, 5)(_source, _chunks, _long, _long, _long, _long, types.int64[:, ::1]), nogil=True, cache=True
)
def cut(region: Any, chunks: Any, first: Any, end: Any, max_messages: Any, max_bytes: Any, parts: Any) -> Any:
    data = base(region)
    part = 0
    count = 0
    size = 0
    last = -1
    for chunk in range(chunks.shape[0]):
        if part == parts.shape[0] or count >= max_messages:
            break
        if chunks[chunk, 4] < first or chunks[chunk, 2] >= end:
            continue
        at = chunks[chunk, 0]
        body_end = chunks[chunk, 1]
        if at < 0 or body_end > region.size or body_end < at:
            return part, count, last, CUT, at
        start = at
        full = False
        whole = chunks[chunk, 2] >= first and chunks[chunk, 4] < end and count + chunks[chunk, 3] <= max_messages
        if whole and chunks[chunk, 3] > 0 and size + body_end - at <= max_bytes:
            size += body_end - at
            count += chunks[chunk, 3]
            last = chunks[chunk, 4]
            at = body_end
        while at < body_end:
            length_at = payload_at(data, at, body_end)
            if length_at < 0:
                return part, count, last, CUT, at
            message_end = length_at + 4 + _int(load32(data, length_at))
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


@njit(types.UniTuple(_long, 6)(_source, _long, _long), nogil=True, cache=True)
def survey(region: Any, start: Any, end: Any) -> Any:
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
        at = length_at + 4 + _int(load32(data, length_at))
    return count, first, last, low, high, FINE


@njit(_long(_bytes, _long, _longs, _longs, _source), nogil=True, cache=True)
def set_states(array: Any, start: Any, firsts: Any, ends: Any, states: Any) -> Any:
    data, size = base(array), array.size
    changed = 0
    span = 0
    at = start
    while at < size:
        length_at = payload_at(data, at, size)
        if length_at < 0:
            return -1 - at
        offset = loadi64(data, at)
        while span < ends.size and ends[span] <= offset:
            span += 1
        if span < ends.size and firsts[span] <= offset:
            store8(data, at + STATE, states[span])
            changed += 1
        at = length_at + 4 + _int(load32(data, length_at))
    return changed


@njit(inline="always")
def _headers_add_up(data: Any, at: Any, end: Any) -> Any:
    while at < end:
        if end - at < HEADER_BYTES_MIN:
            return False
        at += 4 + _int(load32(data, at))
        if end - at < 5:
            return False
        at += 5 + _int(load32(data, at + 1))
    return at == end


@njit(_long(_source, _long, _long, _i64, _long), nogil=True, cache=True)
def intact(body: Any, base_offset: Any, count: Any, found: Any, budget: Any) -> Any:
    data, body_size = base(body), body.size
    at = 0
    kept = 0
    expected = base_offset
    aligned = True
    while at + STORED_BYTES_MIN <= body_size and expected < base_offset + count and 3 * kept < found.size:
        offset = loadi64(data, at)
        length_at = -1
        if aligned or expected <= offset < base_offset + count:
            length_at = payload_at(data, at, body_size)
        sound = length_at >= 0 and known_state(load8(data, at + STATE)) and loadi64(data, at + TIMESTAMP) >= 0
        if sound and _headers_add_up(data, at + HEADERS, length_at):
            end = length_at + 4 + _int(load32(data, length_at))
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

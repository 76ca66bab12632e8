"""Kernels that read stored messages; ``twin.py`` says what each does, name by name, and gives the same bytes."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lading.kernels.crc32 import crc32
from lading.kernels.memory import load8, load32, load64, loadi64, memcpy, store8, store64
from lading.kernels.text import UTF8_BAD, ascii_only, store_hex, utf8_check

from .layout import (
    ARROW_BYTES_MAX,
    BAD_HEADERS,
    BAD_KIND,
    BAD_POSITION,
    BAD_STATE,
    COUNT,
    CUT,
    FINE,
    HEADER_BYTES_MIN,
    HEADER_COUNT,
    HEADERS,
    HEADERS_LENGTH,
    KEY_BYTES,
    ODD_KEYS,
    PAYLOAD_BYTES,
    STATE,
    STORED_BYTES_MIN,
    TIMESTAMP,
    TOO_LARGE,
    VALUE_BYTES,
    WANT_HEADERS,
    WANT_PAYLOAD,
    WHERE,
)

njit: Any = numba.njit
types: Any = numba.types
_int: Any = np.int64

_source = types.Array(types.uint8, 1, "C", readonly=True)
_longs = types.Array(types.int64, 1, "C", readonly=True)
_chunks = types.Array(types.int64, 2, "A", readonly=True)
_bytes, _i8, _i32, _i64 = types.uint8[::1], types.int8[::1], types.int32[::1], types.int64[::1]
_long = types.int64

_BACKSLASH = 0x5C
_LOWER_X = 0x78
_ZERO = np.uint64(0)


@njit(inline="always")
def _payload_at(region: Any, at: Any, end: Any) -> Any:
    """Position of the payload length of the message at ``at``, or -1 where the message does not lie before ``end``."""
    if end - at < STORED_BYTES_MIN:
        return -1
    length_at = at + HEADERS + _int(load32(region, at + HEADERS_LENGTH))
    if length_at + 4 > end or length_at + 4 + _int(load32(region, length_at)) > end:
        return -1
    return length_at


@njit(inline="always")
def _known_state(state: Any) -> Any:
    return state == 1 or state == 10 or state == 20 or state == 30


@njit(inline="always")
def _same(region: Any, at: Any, keys: Any, key: Any, size: Any) -> Any:
    """Whether ``size`` bytes are equal; ``keys`` has 8 spare bytes and so has every header key in a message."""
    step = 0
    while step + 8 <= size:
        if load64(region, at + step) != load64(keys, key + step):
            return False
        step += 8
    rest = size - step
    if rest == 0:
        return True
    return ((load64(region, at + step) ^ load64(keys, key + step)) << np.uint64(64 - 8 * rest)) == _ZERO


@njit(inline="always")
def _text_size(region: Any, at: Any, size: Any) -> Any:
    """Bytes of a header key as text (names.key_text): itself, one more, or two for each and two."""
    slash = size > 0 and load8(region, at) == _BACKSLASH
    if not ascii_only(region, at, size) and utf8_check(region, at, size) == UTF8_BAD:
        return 2 * size + 2
    return size + 1 if slash else size


@njit(
    _long(
        _source,
        _chunks,
        _i64,
        *[_long] * 5,
        _source,
        _longs,
        _i64,
        types.int64[:, ::1],
        types.int64[:, ::1],
        types.int8[:, ::1],
        _i64,
    ),
    nogil=True,
    cache=True,
)
def scan(
    region: Any,
    chunks: Any,
    cursor: Any,
    first: Any,
    end: Any,
    max_rows: Any,
    max_bytes: Any,
    wants: Any,
    keys: Any,
    key_ends: Any,
    rows: Any,
    starts: Any,
    lengths: Any,
    kinds: Any,
    totals: Any,
) -> Any:
    count = 0
    header_count = 0
    key_bytes = 0
    value_bytes = 0
    payload_bytes = 0
    odd = 0
    reason = FINE
    asked = key_ends.size
    want_headers = wants & WANT_HEADERS != 0
    walk = want_headers or asked > 0
    chunk = cursor[0]
    at = cursor[1]
    full = False
    while chunk < chunks.shape[0] and not full:
        body_end = chunks[chunk, 1]
        if at < 0:
            at = chunks[chunk, 0]
            if chunks[chunk, 4] < first or chunks[chunk, 2] >= end:
                at = body_end
        if at < 0 or body_end > region.size or body_end < at:
            reason = CUT
            break
        while at < body_end:
            if count == max_rows:
                full = True
                break
            length_at = _payload_at(region, at, body_end)
            if length_at < 0:
                reason = CUT
                break
            payload_size = _int(load32(region, length_at))
            offset = loadi64(region, at)
            if offset >= 0 and (offset < first or offset >= end):
                at = length_at + 4 + payload_size
                continue
            if offset < 0 or loadi64(region, at + TIMESTAMP) < 0:
                reason = BAD_POSITION
                break
            if not _known_state(load8(region, at + STATE)):
                reason = BAD_STATE
                break
            cost = payload_size if wants & WANT_PAYLOAD else 0
            these_headers = 0
            these_keys = 0
            these_values = 0
            these_odd = 0
            if walk:
                for index in range(asked):
                    starts[index, count] = 0
                    lengths[index, count] = -1
                    kinds[index, count] = 0
                here = at + HEADERS
                while here < length_at:
                    if length_at - here < HEADER_BYTES_MIN:
                        reason = BAD_HEADERS
                        break
                    key_size = _int(load32(region, here))
                    key_at = here + 4
                    if length_at - key_at < key_size + 5:
                        reason = BAD_HEADERS
                        break
                    kind = load8(region, key_at + key_size)
                    value_size = _int(load32(region, key_at + key_size + 1))
                    value_at = key_at + key_size + 5
                    here = value_at + value_size
                    if here > length_at:
                        reason = BAD_HEADERS
                        break
                    if kind > 127:
                        reason = BAD_KIND
                        break
                    if want_headers:
                        these_headers += 1
                        these_values += value_size
                        text_size = _text_size(region, key_at, key_size)
                        these_keys += text_size
                        if text_size != key_size or not ascii_only(region, key_at, key_size):
                            these_odd = 1
                    key = 0
                    for index in range(asked):
                        key_end = key_ends[index]
                        if key_end - key == key_size and _same(region, key_at, keys, key, key_size):
                            starts[index, count] = value_at
                            lengths[index, count] = value_size
                            kinds[index, count] = kind
                        key = key_end
                if reason != FINE:
                    break
                cost += these_keys + these_values + HEADER_BYTES_MIN * these_headers
            if cost > ARROW_BYTES_MAX:
                reason = TOO_LARGE
                break
            used = key_bytes + value_bytes + payload_bytes + HEADER_BYTES_MIN * header_count
            if count > 0 and used + cost > max_bytes:
                full = True
                break
            rows[count] = at
            count += 1
            odd |= these_odd
            header_count += these_headers
            key_bytes += these_keys
            value_bytes += these_values
            if wants & WANT_PAYLOAD:
                payload_bytes += payload_size
            at = length_at + 4 + payload_size
        if reason != FINE:
            break
        if not full:
            chunk += 1
            at = -1
    cursor[0] = chunk
    cursor[1] = at
    totals[COUNT] = count
    totals[HEADER_COUNT] = header_count
    totals[KEY_BYTES] = key_bytes
    totals[VALUE_BYTES] = value_bytes
    totals[PAYLOAD_BYTES] = payload_bytes
    totals[ODD_KEYS] = odd
    totals[WHERE] = at
    return reason


@njit(inline="always")
def _copy_words(target: Any, to: Any, source: Any, at: Any, size: Any) -> Any:
    """Copy in words of 8 bytes: both sides have 8 bytes to spare. Short copies are not worth a call."""
    step = 0
    while step < size:
        store64(target, to + step, load64(source, at + step))
        step += 8


@njit(inline="always")
def _copy_odd_key(target: Any, to: Any, source: Any, at: Any, size: Any) -> Any:
    """Copy a header key as its text: escaped where it is no UTF-8 or begins with a backslash; the size of the text."""
    if utf8_check(source, at, size) == UTF8_BAD:
        store8(target, to, _BACKSLASH)
        store8(target, to + 1, _LOWER_X)
        store_hex(target, to + 2, source, at, size)
        return 2 * size + 2
    if size and load8(source, at) == _BACKSLASH:
        store8(target, to, _BACKSLASH)
        memcpy(target, to + 1, source, at, size)
        return size + 1
    memcpy(target, to, source, at, size)
    return size


@njit(
    types.void(
        _source,
        _longs,
        _long,
        _i64,
        _i8,
        _i64,
        _bytes,
        types.uint32[::1],
        _i32,
        _i32,
        _bytes,
        _i8,
        _i32,
        _bytes,
        _i32,
        _bytes,
    ),
    nogil=True,
    cache=True,
)
def fill(
    region: Any,
    rows: Any,
    odd: Any,
    offsets: Any,
    states: Any,
    timestamps: Any,
    ids: Any,
    checksums: Any,
    list_ends: Any,
    key_ends: Any,
    keys: Any,
    kinds: Any,
    value_ends: Any,
    values: Any,
    payload_ends: Any,
    payloads: Any,
) -> Any:
    want_headers = list_ends.size > 0
    want_payloads = payload_ends.size > 0
    header = 0
    key = 0
    value = 0
    payload = 0
    if want_headers:
        list_ends[0] = 0
        key_ends[0] = 0
        value_ends[0] = 0
    if want_payloads:
        payload_ends[0] = 0
    for row in range(rows.size):
        at = rows[row]
        if offsets.size:
            offsets[row] = loadi64(region, at)
        if states.size:
            states[row] = load8(region, at + 8)
        if timestamps.size:
            timestamps[row] = loadi64(region, at + 9)
        if ids.size:
            memcpy(ids, 16 * row, region, at + 17, 16)
        if checksums.size:
            checksums[row] = load32(region, at + 33)
        if not want_headers and not want_payloads:
            continue
        length_at = at + HEADERS + _int(load32(region, at + HEADERS_LENGTH))
        if want_headers:
            here = at + HEADERS
            spare = length_at + 8 <= region.size
            while here < length_at:
                key_size = _int(load32(region, here))
                here += 4
                if odd:
                    key += _copy_odd_key(keys, key, region, here, key_size)
                else:
                    _copy_words(keys, key, region, here, key_size)
                    key += key_size
                here += key_size
                kinds[header] = load8(region, here)
                value_size = _int(load32(region, here + 1))
                here += 5
                if spare and value_size <= 64:
                    _copy_words(values, value, region, here, value_size)
                else:
                    memcpy(values, value, region, here, value_size)
                here += value_size
                value += value_size
                header += 1
                key_ends[header] = key
                value_ends[header] = value
            list_ends[row + 1] = header
        if want_payloads:
            payload_size = _int(load32(region, length_at))
            memcpy(payloads, payload, region, length_at + 4, payload_size)
            payload += payload_size
            payload_ends[row + 1] = payload


@njit(
    types.UniTuple(_long, 5)(_source, _chunks, _long, _long, _long, _long, types.int64[:, ::1]), nogil=True, cache=True
)
def cut(region: Any, chunks: Any, first: Any, end: Any, max_messages: Any, max_bytes: Any, parts: Any) -> Any:
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
            length_at = _payload_at(region, at, body_end)
            if length_at < 0:
                return part, count, last, CUT, at
            message_end = length_at + 4 + _int(load32(region, length_at))
            offset = loadi64(region, at)
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
    count = 0
    first = 0
    last = -1
    low = 0
    high = 0
    at = start
    while at < end:
        length_at = _payload_at(region, at, end)
        if length_at < 0:
            return -1, at, last, low, high, CUT
        offset = loadi64(region, at)
        timestamp = loadi64(region, at + TIMESTAMP)
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
        at = length_at + 4 + _int(load32(region, length_at))
    return count, first, last, low, high, FINE


@njit(_long(_bytes, _long, _longs, _longs, _source), nogil=True, cache=True)
def set_states(data: Any, start: Any, firsts: Any, ends: Any, states: Any) -> Any:
    changed = 0
    span = 0
    at = start
    while at < data.size:
        length_at = _payload_at(data, at, data.size)
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
def _headers_add_up(region: Any, at: Any, end: Any) -> Any:
    while at < end:
        if end - at < HEADER_BYTES_MIN:
            return False
        at += 4 + _int(load32(region, at))
        if end - at < 5:
            return False
        at += 5 + _int(load32(region, at + 1))
    return at == end


@njit(_long(_source, _long, _long, _i64, _long), nogil=True, cache=True)
def intact(body: Any, base_offset: Any, count: Any, found: Any, budget: Any) -> Any:
    at = 0
    kept = 0
    expected = base_offset
    while at + STORED_BYTES_MIN <= body.size and expected < base_offset + count and kept < found.size:
        offset = loadi64(body, at)
        if expected <= offset < base_offset + count and _known_state(load8(body, at + STATE)):
            length_at = _payload_at(body, at, body.size)
            if length_at >= 0 and _headers_add_up(body, at + HEADERS, length_at):
                size = _int(load32(body, length_at))
                budget -= length_at + 4 + size - at
                if budget < 0:
                    return kept
                if crc32(body, length_at + 4, size) == load32(body, at + 33):
                    found[kept] = offset
                    kept += 1
                    expected = offset + 1
                    at = length_at + 4 + size
                    continue
        at += 1
    return kept

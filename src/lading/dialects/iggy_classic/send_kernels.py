"""Kernels that take sent messages in and write messages; ``send_fallback.py`` says what each does, name by name."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lading.kernels.crc32 import crc32
from lading.kernels.memory import base, load8, load32, load64, loadi64, memcpy, store8, store32, store64
from lading.kernels.text import UTF8_BAD, ascii_only, utf8_check

from . import limits
from .layout import (
    FITS,
    HEADER_BYTES_MIN,
    KEY_SIZE,
    NO_PAYLOAD,
    SENT_BYTES_MIN,
    SENT_HEADERS,
    SENT_HEADERS_LENGTH,
    STORED_EXTRA_BYTES,
    UNKNOWN_KIND,
    VALUE_SIZE,
)

njit: Any = numba.njit
types: Any = numba.types
_int: Any = np.int64

_source = types.Array(types.uint8, 1, "C", readonly=True)
_ints = types.Array(types.int32, 1, "C", readonly=True)
_kinds = types.Array(types.int8, 1, "C", readonly=True)
_longs = types.Array(types.int64, 1, "C", readonly=True)
_bytes, _words = types.uint8[::1], types.uint64[::1]
_long = types.int64

_OK, _NO_ROOM, _MALFORMED, _NO_MESSAGES = limits.OK, limits.NO_ROOM, limits.MALFORMED, limits.NO_MESSAGES
_BAD_KEY, _BAD_VALUE, _EMPTY = limits.INVALID_HEADER_KEY, limits.INVALID_HEADER_VALUE, limits.EMPTY_PAYLOAD
_HEADERS_TOO_LARGE, _PAYLOAD_TOO_LARGE = limits.HEADERS_TOO_LARGE, limits.PAYLOAD_TOO_LARGE
_KEY_MAX, _VALUE_MAX, _KIND_MAX = limits.KEY_BYTES_MAX, limits.VALUE_BYTES_MAX, limits.KIND_MAX
_VALUES_MAX, _PAYLOADS_MAX = limits.REQUEST_HEADER_VALUES_BYTES_MAX, limits.REQUEST_PAYLOADS_BYTES_MAX

_FEW_HEADERS = 16
_ZERO = np.uint64(0)
_UUID_KEEP_LOW, _UUID_VERSION = np.uint64(0xFF0FFFFFFFFFFFFF), np.uint64(0x0040000000000000)
_UUID_KEEP_HIGH, _UUID_VARIANT = np.uint64(0xFFFFFFFFFFFFFF3F), np.uint64(0x80)
_MIX = np.uint64(0x9E3779B97F4A7C15)


@njit(inline="always")
def _rotate(word: Any, bits: Any) -> Any:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@njit(inline="always")
def _next(state: Any) -> Any:
    """xoshiro256**: the next 64 bits, from four words at an address."""
    s0, s1, s2, s3 = load64(state, 0), load64(state, 8), load64(state, 16), load64(state, 24)
    result = _rotate(s1 * np.uint64(5), 7) * np.uint64(9)
    shifted = s1 << np.uint64(17)
    s2 ^= s0
    s3 ^= s1
    store64(state, 0, s0 ^ s3)
    store64(state, 8, s1 ^ s2)
    store64(state, 16, s2 ^ shifted)
    store64(state, 24, _rotate(s3, 45))
    return result


@njit(inline="always")
def _same_key(source: Any, one: Any, other: Any) -> Any:
    """Whether the headers at two positions have the same key; 8 bytes behind each key are readable."""
    size = load32(source, one)
    if size != load32(source, other):
        return False
    step = 4
    rest = _int(size)
    while rest >= 8:
        if load64(source, one + step) != load64(source, other + step):
            return False
        step += 8
        rest -= 8
    if rest == 0:
        return True
    return (load64(source, one + step) ^ load64(source, other + step)) << np.uint64(64 - 8 * rest) == _ZERO


@njit(nogil=True)
def _repeats(source: Any, at: Any, end: Any, count: Any, seed: Any) -> Any:
    """Whether a checked block of ``count`` headers has a key twice: by a hash table that nobody outside can aim at."""
    slots = 4
    while slots < 2 * count:
        slots *= 2
    table = np.full(slots, -1, np.int64)
    mask = np.uint64(slots - 1)
    while at < end:
        size = _int(load32(source, at))
        mixed = seed
        for byte in range(at, at + 4 + size):
            mixed = (mixed ^ np.uint64(load8(source, byte))) * _MIX
            mixed ^= mixed >> np.uint64(29)
        slot = mixed & mask
        while table[slot] >= 0:
            if _same_key(source, table[slot], at):
                return True
            slot = (slot + np.uint64(1)) & mask
        table[slot] = at
        at += HEADER_BYTES_MIN + size + _int(load32(source, at + 5 + size))
    return False


@njit(types.UniTuple(_long, 3)(_source, _long, _long, _bytes, _long, _long, _long, _words), nogil=True, cache=True)
def restamp(source: Any, start: Any, end: Any, target: Any, to: Any, base_offset: Any, now_us: Any, random: Any) -> Any:
    size = end - start
    if start < 0 or size < 0 or end > source.size or to < 0 or random.size < 6:
        return _NO_ROOM, 0, 0
    if to + size + STORED_EXTRA_BYTES * (size // SENT_BYTES_MIN) > target.size:
        return _NO_ROOM, 0, 0
    seen_array = np.empty(_FEW_HEADERS, np.int64)
    seen = base(seen_array)
    data, out, draw = base(source), base(target), base(random)
    at = start
    write = to
    count = 0
    values = 0
    payloads = 0
    while at < end:
        if end - at < SENT_BYTES_MIN:
            return _MALFORMED, count, 0
        here = at + SENT_HEADERS
        length_at = here + _int(load32(data, at + SENT_HEADERS_LENGTH))
        if length_at + 4 > end:
            return _MALFORMED, count, 0
        headers = 0
        while here < length_at:
            if length_at - here < HEADER_BYTES_MIN:
                return _MALFORMED, count, 0
            key_size = _int(load32(data, here))
            if key_size < 1 or key_size > _KEY_MAX:
                return _BAD_KEY, count, 0
            kind_at = here + 4 + key_size
            if length_at - kind_at < 5:
                return _MALFORMED, count, 0
            if not ascii_only(data, here + 4, key_size) and utf8_check(data, here + 4, key_size) == UTF8_BAD:
                return _BAD_KEY, count, 0
            kind = load8(data, kind_at)
            if kind < 1 or kind > _KIND_MAX:
                return _MALFORMED, count, 0
            value_size = _int(load32(data, kind_at + 1))
            if value_size < 1 or value_size > _VALUE_MAX:
                return _BAD_VALUE, count, 0
            if length_at - kind_at - 5 < value_size:
                return _MALFORMED, count, 0
            values += value_size
            if values > _VALUES_MAX:
                return _HEADERS_TOO_LARGE, count, 0
            if headers < _FEW_HEADERS:
                for other in range(headers):
                    if _same_key(data, loadi64(seen, 8 * other), here):
                        return _BAD_KEY, count, 0
                store64(seen, 8 * headers, here)
            headers += 1
            here = kind_at + 5 + value_size
        if headers > _FEW_HEADERS and _repeats(data, at + SENT_HEADERS, length_at, headers, random[5]):
            return _BAD_KEY, count, 0
        payload_size = _int(load32(data, length_at))
        if payload_size == 0:
            return _EMPTY, count, 0
        if end - length_at - 4 < payload_size:
            return _MALFORMED, count, 0
        payloads += payload_size
        if payloads > _PAYLOADS_MAX:
            return _PAYLOAD_TOO_LARGE, count, 0
        low = load64(data, at)
        high = load64(data, at + 8)
        if low == _ZERO and high == _ZERO:
            low = (_next(draw) & _UUID_KEEP_LOW) | _UUID_VERSION
            high = (_next(draw) & _UUID_KEEP_HIGH) | _UUID_VARIANT
            store64(draw, 32, load64(draw, 32) + np.uint64(1))
        store64(out, write, base_offset + count)
        store8(out, write + 8, 1)
        store64(out, write + 9, now_us + count)
        store64(out, write + 17, low)
        store64(out, write + 25, high)
        store32(out, write + 33, crc32(data, length_at + 4, payload_size))
        rest = length_at + 4 + payload_size - at - SENT_HEADERS_LENGTH
        memcpy(out, write + 37, data, at + SENT_HEADERS_LENGTH, rest)
        write += 37 + rest
        at += SENT_HEADERS_LENGTH + rest
        count += 1
    # the array behind the address stays alive up to here
    seen_array[0] = 0
    return (_OK if count else _NO_MESSAGES), count, write - to


@njit(
    _long(
        types.boolean, _longs, _kinds, _longs, _source, _longs, _ints, _ints, _source, _kinds, _ints, _source, _ints,
        _source, _bytes, types.int64[::1],
    ),
    nogil=True,
    cache=True,
)  # fmt: skip
def write(
    sent: Any,
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
    target: Any,
    where: Any,
) -> Any:
    out, key_data, value_data = base(target), base(keys), base(values)
    payload_data, id_data = base(payloads), base(ids)
    at = 0
    for row in range(offsets.size):
        where[0] = row
        payload_at = _int(payload_ends[row])
        payload_size = _int(payload_ends[row + 1]) - payload_at
        if payload_size < 1:
            return NO_PAYLOAD
        if not sent:
            store64(out, at, offsets[row])
            store8(out, at + 8, states[row])
            store64(out, at + 9, timestamps[row])
            checksum = checksums[row]
            store32(out, at + 33, checksum if checksum >= 0 else _int(crc32(payload_data, payload_at, payload_size)))
        memcpy(out, at if sent else at + 17, id_data, 16 * row, 16)
        length_at = at + (SENT_HEADERS_LENGTH if sent else SENT_HEADERS_LENGTH + STORED_EXTRA_BYTES)
        at = length_at + 4
        for header in range(list_ends[row], list_ends[row + 1]):
            where[1] = header
            key_at = _int(key_ends[header])
            key_size = _int(key_ends[header + 1]) - key_at
            value_at = _int(value_ends[header])
            value_size = _int(value_ends[header + 1]) - value_at
            kind = kinds[header]
            if key_size < 1 or key_size > _KEY_MAX:
                return KEY_SIZE
            if kind < 1 or kind > _KIND_MAX:
                return UNKNOWN_KIND
            if value_size < 1 or value_size > _VALUE_MAX:
                return VALUE_SIZE
            store32(out, at, key_size)
            memcpy(out, at + 4, key_data, key_at, key_size)
            at += 4 + key_size
            store8(out, at, kind)
            store32(out, at + 1, value_size)
            memcpy(out, at + 5, value_data, value_at, value_size)
            at += 5 + value_size
        store32(out, length_at, at - length_at - 4)
        store32(out, at, payload_size)
        memcpy(out, at + 4, payload_data, payload_at, payload_size)
        at += 4 + payload_size
    return FITS

"""Kernels that take sent messages in and write messages; ``send_fallback.py`` says what each does, name by name."""

from __future__ import annotations

import numpy as np

from lading.kernels.arrays import Bytes, Ints, Kinds, Longs, Words
from lading.kernels.crc32 import crc32
from lading.kernels.memory import base, load8, load32, load64, loadi64, memcpy, store8, store32, store64
from lading.kernels.signature import (
    BOOLEAN,
    BYTES,
    INTS,
    KINDS,
    LONG,
    LONGS,
    OUT_BYTES,
    OUT_LONGS,
    OUT_WORDS,
    Data,
    inline,
    int64,
    kernel,
    routine,
    several,
    step,
    uint64,
)
from lading.model.state import State

from ..messages.drawing import read_id
from ..messages.header_block import check_header, write_headers
from ..messages.layout import FITS, HEADER_BYTES_MIN, NO_PAYLOAD, UNTYPED
from . import limits
from .layout import (
    CHECKSUM,
    HEADERS_LENGTH,
    ID,
    OFFSET,
    SENT_BYTES_MIN,
    SENT_HEADERS,
    SENT_HEADERS_LENGTH,
    SENT_ID,
    STATE,
    STORED_EXTRA_BYTES,
    TIMESTAMP,
)

_OK, _NO_ROOM, _MALFORMED, _NO_MESSAGES = limits.OK, limits.NO_ROOM, limits.MALFORMED, limits.NO_MESSAGES
_BAD_KEY, _BAD_VALUE, _EMPTY = limits.INVALID_HEADER_KEY, limits.INVALID_HEADER_VALUE, limits.EMPTY_PAYLOAD
_HEADERS_TOO_LARGE, _PAYLOAD_TOO_LARGE = limits.HEADERS_TOO_LARGE, limits.PAYLOAD_TOO_LARGE
_KEY_MAX, _VALUE_MAX, _KIND_MAX = limits.KEY_BYTES_MAX, limits.VALUE_BYTES_MAX, limits.KIND_MAX
_VALUES_MAX, _PAYLOADS_MAX = limits.REQUEST_HEADER_VALUES_BYTES_MAX, limits.REQUEST_PAYLOADS_BYTES_MAX

_AVAILABLE = int(State.AVAILABLE)
_FEW_HEADERS = 16
"""Up to this many keys are compared with each other; more go through a hash table."""
_ZERO = uint64(0)
_MIX = uint64(0x9E3779B97F4A7C15)


@inline
def _same_key(source: Data, one: int, other: int) -> bool:
    """Whether the headers at two positions have the same key; 8 bytes after each key are readable."""
    # in bounds: both headers were found whole, and a key is followed by kind and length of its value and a payload's
    # length
    size = load32(source, one)
    if size != load32(source, other):
        return False
    step = 4
    rest = int64(size)
    while rest >= 8:
        if load64(source, one + step) != load64(source, other + step):
            return False
        step += 8
        rest -= 8
    if rest == 0:
        return True
    equal: bool = (load64(source, one + step) ^ load64(source, other + step)) << uint64(64 - 8 * rest) == _ZERO
    return equal


@routine
def _repeats(source: Data, at: int, end: int, count: int, seed: int) -> bool:
    """Return whether a checked block of ``count`` headers has a key twice.

    The hash table has a seed that clients do not know.
    """
    slots = 4
    while slots < 2 * count:
        slots *= 2
    table = np.full(slots, -1, np.int64)
    mask = uint64(slots - 1)
    while at < end:
        # in bounds: ``_check_headers`` found each header of the block whole
        size = int64(load32(source, at))
        mixed = seed
        for byte in range(at, at + 4 + size):
            mixed = (mixed ^ uint64(load8(source, byte))) * _MIX
            mixed ^= mixed >> uint64(29)
        slot = mixed & mask
        while table[slot] >= 0:
            if _same_key(source, table[slot], at):
                return True
            slot = (slot + uint64(1)) & mask
        table[slot] = at
        at += HEADER_BYTES_MIN + size + int64(load32(source, at + 5 + size))
    return False


@step
def _check_headers(data: Data, at: int, end: int, values_bytes: int, seen: Data) -> tuple[int, int, int]:
    """Check a block of headers: a status of limits, how many, and what their values add up to with ``values_bytes``.

    That a key is there once is checked for the first of them only, which are noted in ``seen``.
    """
    headers = 0
    while at < end:
        # in bounds: each length is read only if it is before ``end``; a key is followed by 8 bytes at least, of its
        # kind and value and the length of the payload, and ``seen`` has room for _FEW_HEADERS positions
        status, value_size, next_at = check_header(data, at, end, UNTYPED)
        if status != _OK:
            return status, headers, values_bytes
        values_bytes += value_size
        if values_bytes > _VALUES_MAX:
            return _HEADERS_TOO_LARGE, headers, values_bytes
        if headers < _FEW_HEADERS:
            for other in range(headers):
                if _same_key(data, loadi64(seen, 8 * other), at):
                    return _BAD_KEY, headers, values_bytes
            store64(seen, 8 * headers, at)
        headers += 1
        at = next_at
    return _OK, headers, values_bytes


@step
def _stamp(
    out: Data, to: int, data: Data, at: int, length_at: int, payload_size: int, offset: int, now_us: int, draw: Data
) -> int:
    """Write a message that was found valid as it is stored; the bytes after its id. A message without id gets one."""
    # in bounds: the caller has seen to room for STORED_EXTRA_BYTES more than each message has
    low, high = read_id(data, at, draw)
    store64(out, to + OFFSET, offset)
    store8(out, to + STATE, _AVAILABLE)
    store64(out, to + TIMESTAMP, now_us)
    store64(out, to + ID, low)
    store64(out, to + ID + 8, high)
    store32(out, to + CHECKSUM, crc32(data, length_at + 4, payload_size))
    rest = length_at + 4 + payload_size - at - SENT_HEADERS_LENGTH
    memcpy(out, to + HEADERS_LENGTH, data, at + SENT_HEADERS_LENGTH, rest)
    return rest


@kernel(several(3)(BYTES, LONG, LONG, OUT_BYTES, LONG, LONG, LONG, OUT_WORDS))
def restamp(
    source: Bytes, start: int, end: int, target: Bytes, to: int, base_offset: int, now_us: int, random: Words
) -> tuple[int, int, int]:
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
    values_bytes = 0
    payloads_bytes = 0
    while at < end:
        # in bounds: each length is read only if it lies before ``end``
        if end - at < SENT_BYTES_MIN:
            return _MALFORMED, count, 0
        length_at = at + SENT_HEADERS + int64(load32(data, at + SENT_HEADERS_LENGTH))
        if length_at + 4 > end:
            return _MALFORMED, count, 0
        status, headers, values_bytes = _check_headers(data, at + SENT_HEADERS, length_at, values_bytes, seen)
        if status != _OK:
            return status, count, 0
        if headers > _FEW_HEADERS and _repeats(data, at + SENT_HEADERS, length_at, headers, random[5]):
            return _BAD_KEY, count, 0
        payload_size = int64(load32(data, length_at))
        if payload_size == 0:
            return _EMPTY, count, 0
        if end - length_at - 4 < payload_size:
            return _MALFORMED, count, 0
        payloads_bytes += payload_size
        if payloads_bytes > _PAYLOADS_MAX:
            return _PAYLOAD_TOO_LARGE, count, 0
        rest = _stamp(out, write, data, at, length_at, payload_size, base_offset + count, now_us + count, draw)
        write += HEADERS_LENGTH + rest
        at += SENT_HEADERS_LENGTH + rest
        count += 1
    # Numba frees an array after its last use: this one was used by its address
    seen_array[0] = 0
    return (_OK if count else _NO_MESSAGES), count, write - to


@kernel(
    LONG(
        BOOLEAN,
        LONGS,
        KINDS,
        LONGS,
        BYTES,
        LONGS,
        INTS,
        INTS,
        BYTES,
        KINDS,
        KINDS,
        INTS,
        BYTES,
        INTS,
        BYTES,
        OUT_BYTES,
        OUT_LONGS,
    )
)
def write(
    sent: bool,
    offsets: Longs,
    states: Kinds,
    timestamps: Longs,
    ids: Bytes,
    checksums: Longs,
    list_ends: Ints,
    key_ends: Ints,
    keys: Bytes,
    key_kinds: Kinds,
    kinds: Kinds,
    value_ends: Ints,
    values: Bytes,
    payload_ends: Ints,
    payloads: Bytes,
    target: Bytes,
    where: Longs,
) -> int:
    out, payload_data, id_data = base(target), base(payloads), base(ids)
    # in bounds: Arrow's ends lie inside their data, and the caller made ``target`` as large as all parts add up to
    at = 0
    for row in range(offsets.size):
        where[0] = row
        payload_at = int64(payload_ends[row])
        payload_size = int64(payload_ends[row + 1]) - payload_at
        if payload_size < 1:
            return NO_PAYLOAD
        if not sent:
            store64(out, at + OFFSET, offsets[row])
            store8(out, at + STATE, states[row])
            store64(out, at + TIMESTAMP, timestamps[row])
            checksum = checksums[row]
            if checksum < 0:
                checksum = int64(crc32(payload_data, payload_at, payload_size))
            store32(out, at + CHECKSUM, checksum)
        memcpy(out, at + SENT_ID if sent else at + ID, id_data, 16 * row, 16)
        length_at = at + (SENT_HEADERS_LENGTH if sent else HEADERS_LENGTH)
        at = length_at + 4
        headers = (list_ends[row], list_ends[row + 1])
        columns = (key_ends, keys, key_kinds, kinds, value_ends, values)
        reason, at = write_headers(out, at, headers[0], headers[1], UNTYPED, *columns, where)
        if reason != FITS:
            return reason
        store32(out, length_at, at - length_at - 4)
        store32(out, at, payload_size)
        memcpy(out, at + 4, payload_data, payload_at, payload_size)
        at += 4 + payload_size
    return FITS

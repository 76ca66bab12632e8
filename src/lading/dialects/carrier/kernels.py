"""Kernels for carriers that hold kinds, id and time of messages whose headers are all shown; see ``fallback.py``."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lading.kernels.crc32 import crc32
from lading.kernels.memory import base, load8, load32, loadi64, memcpy, store8, store32, store64

from .layout import (
    CRC_BYTES,
    ENTRIES_FLAG,
    ENTRY_BYTES,
    HEAD_BYTES,
    HEADERS_MAX,
    ID_BYTES,
    ID_FLAG,
    PLAIN_BYTES_MAX,
    RAW,
    SHOWN_TAG,
    TEXT_BYTES_MAX,
    TEXT_PREFIX,
    TEXT_PREFIX_BYTES,
    TIME_BYTES,
    TIME_FLAG,
    TYPED_TAG,
    VERSION_BYTE,
)

njit: Any = numba.njit
types: Any = numba.types
_int: Any = np.int64
_PREFIX_0, _PREFIX_1, _PREFIX_2 = TEXT_PREFIX

_octets = types.Array(types.uint8, 1, "C", readonly=True)
_kinds = types.Array(types.int8, 1, "C", readonly=True)
_ends = types.Array(types.int32, 1, "C", readonly=True)
_longs = types.Array(types.int64, 1, "C", readonly=True)
_bytes, _i8, _i32, _i64 = types.uint8[::1], types.int8[::1], types.int32[::1], types.int64[::1]
_HEADERS = (_ends, _ends, _octets, _kinds, _ends, _octets, _octets)


@njit(inline="always")
def put_varint(out: Any, at: Any, value: Any) -> Any:
    """Write an unsigned varint; where it ends."""
    while value > 0x7F:
        store8(out, at, (value & 0x7F) | 0x80)
        value >>= 7
        at += 1
    store8(out, at, value)
    return at + 1


@njit(inline="always")
def _end(ends: Any, entry: Any) -> Any:
    """Where the bytes of the entry before ``entry`` end; ``ends`` is an address."""
    return _int(load32(ends, 4 * entry))


@njit(nogil=True)
def _mark(
    first: Any,
    header: Any,
    name_ends: Any,
    names: Any,
    value_ends: Any,
    values: Any,
    value_valid: Any,
    out: Any,
) -> Any:
    """The fingerprint of a header as Kafka shows it, among those of its message from ``first`` on; all by address."""
    name_at = _end(name_ends, header)
    name_size = _end(name_ends, header + 1) - name_at
    occurrence = 0
    for other in range(first, header):
        other_at = _end(name_ends, other)
        if _end(name_ends, other + 1) - other_at != name_size:
            continue
        step = 0
        while step < name_size and load8(names, name_at + step) == load8(names, other_at + step):
            step += 1
        if step == name_size:
            occurrence += 1
    at = put_varint(out, 0, name_size)
    memcpy(out, at, names, name_at, name_size)
    at += name_size
    store8(out, at, RAW)
    at += 1
    if load8(value_valid, header) == 0:
        at = put_varint(out, at, 0)
    else:
        value_at = _end(value_ends, header)
        size = _end(value_ends, header + 1) - value_at
        at = put_varint(out, at, size + 1)
        memcpy(out, at, values, value_at, size)
        at += size
    at = put_varint(out, at, occurrence)
    return _int(crc32(out, 0, at))


@njit(inline="always")
def _digit(six: Any) -> Any:
    """The digit of base64url for six bits."""
    if six < 26:
        return six + 65
    if six < 52:
        return six + 71
    if six < 62:
        return six - 4
    return 45 if six == 62 else 95


@njit(inline="always")
def _six(digit: Any) -> Any:
    """The six bits of a digit; -1 for what is none."""
    if 97 <= digit <= 122:
        return digit - 71
    if 65 <= digit <= 90:
        return digit - 65
    if 48 <= digit <= 57:
        return digit + 4
    if digit == 45:
        return 62
    return 63 if digit == 95 else -1


@njit(nogil=True)
def _put_text(out: Any, to: Any, at: Any, end: Any) -> Any:
    """Write ``out[at:end]`` in its printable form at ``to``, which ends where the bytes end: each is read in time."""
    store8(out, to, _PREFIX_0)
    store8(out, to + 1, _PREFIX_1)
    store8(out, to + 2, _PREFIX_2)
    to += TEXT_PREFIX_BYTES
    while end - at >= 3:
        bits = (_int(load8(out, at)) << 16) | (_int(load8(out, at + 1)) << 8) | _int(load8(out, at + 2))
        store8(out, to, _digit(bits >> 18))
        store8(out, to + 1, _digit((bits >> 12) & 63))
        store8(out, to + 2, _digit((bits >> 6) & 63))
        store8(out, to + 3, _digit(bits & 63))
        at += 3
        to += 4
    if end - at == 2:
        bits = (_int(load8(out, at)) << 16) | (_int(load8(out, at + 1)) << 8)
        store8(out, to, _digit(bits >> 18))
        store8(out, to + 1, _digit((bits >> 12) & 63))
        store8(out, to + 2, _digit((bits >> 6) & 63))
    elif end - at == 1:
        bits = _int(load8(out, at)) << 16
        store8(out, to, _digit(bits >> 18))
        store8(out, to + 1, _digit((bits >> 12) & 63))


@njit(inline="always")
def is_text(data: Any, start: Any, size: Any) -> Any:
    """Whether ``size`` bytes of ``data`` begin as the printable form."""
    if size < TEXT_PREFIX_BYTES:
        return False
    first, second, third = load8(data, start), load8(data, start + 1), load8(data, start + 2)
    return first == _PREFIX_0 and second == _PREFIX_1 and third == _PREFIX_2


@njit(nogil=True)
def read_text(data: Any, start: Any, end: Any, out: Any) -> Any:
    """Undo the printable form ``data[start:end]`` into ``out`` (PLAIN_BYTES_MAX, by address); the size, -1 if none."""
    digits = end - start - TEXT_PREFIX_BYTES
    if end - start > TEXT_BYTES_MAX or digits % 4 == 1:
        return -1
    at = start + TEXT_PREFIX_BYTES
    bits, held, to = 0, 0, 0
    while at < end:
        six = _six(_int(load8(data, at)))
        if six < 0:
            return -1
        bits = (bits << 6) | six
        held += 6
        at += 1
        if held >= 8:
            held -= 8
            store8(out, to, (bits >> held) & 255)
            bits &= (1 << held) - 1
            to += 1
    # bits behind the last byte would let one carrier be written in several ways
    return to if bits == 0 else -1


@njit(inline="always")
def carrier_size(flags: Any, first: Any, last: Any, kinds: Any) -> Any:
    """Bytes of the carrier that ``put_carrier`` writes."""
    return TEXT_PREFIX_BYTES + (4 * _plain_size(flags, first, last, kinds) + 2) // 3


@njit(inline="always")
def _plain_size(flags: Any, first: Any, last: Any, kinds: Any) -> Any:
    """Bytes of a carrier before it is printable."""
    size = HEAD_BYTES + CRC_BYTES
    if flags & TIME_FLAG:
        size += TIME_BYTES
    if flags & ID_FLAG:
        size += ID_BYTES
    if flags & ENTRIES_FLAG:
        # at most HEADERS_MAX entries: their count is one byte
        size += 1 + ENTRY_BYTES * (last - first)
        for header in range(first, last):
            if load8(kinds, header) != RAW:
                size += 1
    return size


@njit(nogil=True)
def put_carrier(
    out: Any,
    start: Any,
    flags: Any,
    time_us: Any,
    ids: Any,
    row: Any,
    first: Any,
    last: Any,
    name_ends: Any,
    names: Any,
    kinds: Any,
    value_ends: Any,
    values: Any,
    value_valid: Any,
    scratch: Any,
) -> Any:
    """Write the printable carrier of a message at ``start`` of ``out``; where it ends. All columns are addresses.

    Its headers, all shown and HEADERS_MAX at most, are those from ``first`` up to, not including, ``last``.
    """
    size = _plain_size(flags, first, last, kinds)
    end = start + TEXT_PREFIX_BYTES + (4 * size + 2) // 3
    begin = end - size
    store8(out, begin, VERSION_BYTE)
    store8(out, begin + 1, flags)
    at = begin + HEAD_BYTES
    if flags & TIME_FLAG:
        store64(out, at, time_us)
        at += TIME_BYTES
    if flags & ID_FLAG:
        memcpy(out, at, ids, ID_BYTES * row, ID_BYTES)
        at += ID_BYTES
    if flags & ENTRIES_FLAG:
        at = put_varint(out, at, last - first)
        for header in range(first, last):
            kind = load8(kinds, header)
            mark = _mark(first, header, name_ends, names, value_ends, values, value_valid, scratch)
            store8(out, at, SHOWN_TAG if kind == RAW else TYPED_TAG)
            store32(out, at + 1, mark)
            at += ENTRY_BYTES
            if kind != RAW:
                store8(out, at, kind)
                at += 1
    store32(out, at, crc32(out, begin, at - begin))
    _put_text(out, start, begin, end)
    return end


@njit(types.void(_longs, *_HEADERS, _octets, _octets, _longs, _octets, _bytes, _bytes, _i32), nogil=True, cache=True)
def make(
    rows: Any,
    list_ends: Any,
    name_ends: Any,
    names: Any,
    kinds: Any,
    value_ends: Any,
    values: Any,
    value_valid: Any,
    ids: Any,
    id_valid: Any,
    times_us: Any,
    time_lost: Any,
    scratch: Any,
    target: Any,
    ends: Any,
) -> Any:
    headers = (base(name_ends), base(names), base(kinds), base(value_ends), base(values), base(value_valid))
    out, all_ids, room = base(target), base(ids), base(scratch)
    at = 0
    ends[0] = 0
    for index in range(rows.size):
        row = rows[index]
        flags = ENTRIES_FLAG
        if time_lost[row]:
            flags |= TIME_FLAG
        if id_valid[row]:
            flags |= ID_FLAG
        first, last = _int(list_ends[row]), _int(list_ends[row + 1])
        at = put_carrier(out, at, flags, times_us[row], all_ids, row, first, last, *headers, room)
        ends[index + 1] = at


@njit(inline="always")
def opened(data: Any, start: Any, end: Any) -> Any:
    """Of the carrier ``data[start:end]``, by address: (flags, time, id, count of entries, end of its body).

    All but the flags are positions. The flags are 0 where it is none of those that ``make`` writes.
    """
    body_end = end - CRC_BYTES
    at = start + HEAD_BYTES
    flags = 0
    if body_end - at >= 1 and load8(data, start) == VERSION_BYTE:
        flags = _int(load8(data, start + 1))
        plain = flags & ~(ENTRIES_FLAG | TIME_FLAG | ID_FLAG) == 0 and flags & ENTRIES_FLAG != 0
        if not plain or _int(crc32(data, start, body_end - start)) != _int(load32(data, body_end)):
            flags = 0
    id_at = at + (TIME_BYTES if flags & TIME_FLAG else 0)
    count_at = id_at + (ID_BYTES if flags & ID_FLAG else 0)
    return flags if count_at < body_end else 0, at, id_at, count_at, body_end


@njit(nogil=True)
def _undone(
    first: Any,
    last: Any,
    start: Any,
    end: Any,
    name_ends: Any,
    names: Any,
    value_ends: Any,
    values: Any,
    value_valid: Any,
    scratch: Any,
    found_kinds: Any,
    ids: Any,
    times_us: Any,
    row: Any,
    changed: Any,
    plain: Any,
) -> Any:
    """Whether the carrier ``values[start:end]`` is one of those that ``make`` writes, for just these headers."""
    data = base(values)
    shown = (base(name_ends), base(names), base(value_ends), data, base(value_valid), base(scratch))
    carrier = data
    if is_text(data, start, end - start):
        end = read_text(data, start, end, plain)
        if end < 0:
            return False
        carrier, start = plain, 0
    flags, time_at, id_at, at, body_end = opened(carrier, start, end)
    if flags == 0 or _int(load8(carrier, at)) != last - first:
        return False
    at += 1
    for header in range(first, last):
        if body_end - at < ENTRY_BYTES:
            return False
        tag = _int(load8(carrier, at))
        mark = _mark(first, header, *shown)
        if mark != _int(load32(carrier, at + 1)):
            return False
        at += ENTRY_BYTES
        if tag == TYPED_TAG:
            if at >= body_end:
                return False
            found_kinds[header] = load8(carrier, at)
            at += 1
        elif tag != SHOWN_TAG:
            return False
    if at != body_end:
        return False
    if flags & TIME_FLAG:
        times_us[row] = loadi64(carrier, time_at)
        changed[row] |= TIME_FLAG
    if flags & ID_FLAG:
        memcpy(base(ids), ID_BYTES * row, carrier, id_at, ID_BYTES)
        changed[row] |= ID_FLAG
    return True


@njit(types.void(_longs, *_HEADERS, _bytes, _i8, _bytes, _i64, _bytes, _bytes), nogil=True, cache=True)
def undo(
    rows: Any,
    list_ends: Any,
    name_ends: Any,
    names: Any,
    kinds: Any,
    value_ends: Any,
    values: Any,
    value_valid: Any,
    scratch: Any,
    found_kinds: Any,
    ids: Any,
    times_us: Any,
    changed: Any,
    done: Any,
) -> Any:
    room = np.empty(PLAIN_BYTES_MAX, np.uint8)
    plain = base(room)
    for index in range(rows.size):
        # Numba frees an array behind its last use: this one holds it for the whole loop
        room[0] = 0
        row = rows[index]
        first, carrier = _int(list_ends[row]), _int(list_ends[row + 1]) - 1
        if carrier - first > HEADERS_MAX or value_valid[carrier] == 0 or kinds[carrier] != RAW:
            continue
        start, end = _int(value_ends[carrier]), _int(value_ends[carrier + 1])
        parts = (name_ends, names, value_ends, values, value_valid, scratch, found_kinds, ids, times_us, row, changed)
        if _undone(first, carrier, start, end, *parts, plain):
            done[index] = 1
        else:
            changed[row] = 0
            for header in range(first, carrier):
                found_kinds[header] = kinds[header]

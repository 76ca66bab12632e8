"""Kernels that write records; ``send_fallback.py`` says what each does, name by name, and gives the same bytes."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lading.dialects.carrier.kernels import carrier_size, put_carrier
from lading.dialects.carrier.layout import ENTRIES_FLAG, HEADERS_MAX, ID_FLAG, RAW, TIME_FLAG
from lading.kernels.crc32c import crc32c
from lading.kernels.memory import base, load8, loadi64, memcpy, store8, store64
from lading.kernels.varint import store_varint, varint_size

from .send_layout import CARRIER_BYTES, CARRIER_HEAD, CARRIER_TAIL, ESCAPE, RECORD_HEAD_BYTES_MAX

njit: Any = numba.njit
types: Any = numba.types
_int: Any = np.int64

_octets = types.Array(types.uint8, 1, "C", readonly=True)
_kinds = types.Array(types.int8, 1, "C", readonly=True)
_ends = types.Array(types.int32, 1, "C", readonly=True)
_longs = types.Array(types.int64, 1, "C", readonly=True)
_column = (_ends, _octets, _octets)
_long = types.int64
_COLUMNS = (*_column, *_column, _ends, _ends, _octets, *_column)


@njit(inline="always")
def _sized(ends: Any, valid: Any, row: Any) -> Any:
    """Bytes of a value with its size in front."""
    if valid[row] == 0:
        return 1
    size = _int(ends[row + 1]) - _int(ends[row])
    return size + varint_size(size)


@njit(_long(_ends, _ends, _octets, _kinds, _octets, _longs, types.uint8[::1]), nogil=True, cache=True)
def classify_messages(
    list_ends: Any,
    name_ends: Any,
    names: Any,
    kinds: Any,
    id_valid: Any,
    times_us: Any,
    flags: Any,
) -> Any:
    name_data = base(names)
    for row in range(flags.size):
        found = 0
        if id_valid[row]:
            found |= ID_FLAG
        if times_us[row] % 1000:
            found |= TIME_FLAG
        first, last = _int(list_ends[row]), _int(list_ends[row + 1])
        if last - first > HEADERS_MAX:
            return row
        for header in range(first, last):
            if kinds[header] != RAW:
                found |= ENTRIES_FLAG
            at = _int(name_ends[header])
            size = _int(name_ends[header + 1]) - at
            if size == 0:
                continue
            if load8(name_data, at) == ESCAPE:
                return row
            if size < CARRIER_BYTES or loadi64(name_data, at) != CARRIER_HEAD:
                continue
            if loadi64(name_data, at + CARRIER_BYTES - 8) == CARRIER_TAIL:
                return row
        # a time alone is cut, see targets.losses
        flags[row] = 0 if found == TIME_FLAG else found
    return -1


@njit(types.void(*_COLUMNS, _kinds, _octets, types.int64[::1]), nogil=True, cache=True)
def weigh(
    key_ends: Any,
    keys: Any,
    key_valid: Any,
    payload_ends: Any,
    payloads: Any,
    payload_valid: Any,
    list_ends: Any,
    name_ends: Any,
    names: Any,
    value_ends: Any,
    values: Any,
    value_valid: Any,
    kinds: Any,
    flags: Any,
    sizes: Any,
) -> Any:
    kind_data = base(kinds)
    for row in range(sizes.size):
        size = _sized(key_ends, key_valid, row) + _sized(payload_ends, payload_valid, row)
        first, last = _int(list_ends[row]), _int(list_ends[row + 1])
        count = last - first
        for header in range(first, last):
            name_size = _int(name_ends[header + 1]) - _int(name_ends[header])
            size += name_size + varint_size(name_size) + _sized(value_ends, value_valid, header)
        if flags[row]:
            carried = carrier_size(_int(flags[row]), first, last, kind_data)
            size += 1 + CARRIER_BYTES + varint_size(carried) + carried
            count += 1
        sizes[row] = size + varint_size(count) + RECORD_HEAD_BYTES_MAX


@njit(inline="always")
def _put(out: Any, at: Any, data: Any, start: Any, size: Any) -> Any:
    at = store_varint(out, at, size)
    memcpy(out, at, data, start, size)
    return at + size


@njit(inline="always")
def _put_value(out: Any, at: Any, ends: Any, data: Any, valid: Any, row: Any) -> Any:
    if valid[row] == 0:
        return store_varint(out, at, -1)
    return _put(out, at, data, _int(ends[row]), _int(ends[row + 1]) - _int(ends[row]))


@njit(
    _long(
        *(*_COLUMNS, _kinds, _octets, _octets, _longs),
        *(_longs, _longs, _long, _long, types.uint8[::1], types.uint8[::1], _long),
    ),
    nogil=True,
    cache=True,
)
def write(
    key_ends: Any,
    keys: Any,
    key_valid: Any,
    payload_ends: Any,
    payloads: Any,
    payload_valid: Any,
    list_ends: Any,
    name_ends: Any,
    names: Any,
    value_ends: Any,
    values: Any,
    value_valid: Any,
    kinds: Any,
    flags: Any,
    ids: Any,
    times_us: Any,
    sizes: Any,
    offsets: Any,
    low: Any,
    high: Any,
    scratch: Any,
    target: Any,
    to: Any,
) -> Any:
    out = base(target)
    key_data, payload_data, name_data, value_data = base(keys), base(payloads), base(names), base(values)
    all_ids, room = base(ids), base(scratch)
    headers = (base(name_ends), name_data, base(kinds), base(value_ends), value_data, base(value_valid))
    first_ms = times_us[low] // 1000
    for row in range(low, high):
        delta = offsets[row] - offsets[low]
        late_ms = times_us[row] // 1000 - first_ms
        # ``sizes`` counts the head at its largest
        body = sizes[row] - RECORD_HEAD_BYTES_MAX + 1 + varint_size(late_ms) + varint_size(delta)
        to = store_varint(out, to, body)
        store8(out, to, 0)
        to = store_varint(out, to + 1, late_ms)
        to = store_varint(out, to, delta)
        to = _put_value(out, to, key_ends, key_data, key_valid, row)
        to = _put_value(out, to, payload_ends, payload_data, payload_valid, row)
        first, last = _int(list_ends[row]), _int(list_ends[row + 1])
        facts = _int(flags[row])
        to = store_varint(out, to, last - first + (1 if facts else 0))
        for header in range(first, last):
            start = _int(name_ends[header])
            to = _put(out, to, name_data, start, _int(name_ends[header + 1]) - start)
            to = _put_value(out, to, value_ends, value_data, value_valid, header)
        if facts:
            to = store_varint(out, to, CARRIER_BYTES)
            store64(out, to, CARRIER_HEAD)
            store64(out, to + CARRIER_BYTES - 8, CARRIER_TAIL)
            to = store_varint(out, to + CARRIER_BYTES, carrier_size(facts, first, last, headers[2]))
            to = put_carrier(out, to, facts, times_us[row], all_ids, row, first, last, *headers, room)
    return to


@njit(_long(_octets, _long, _long), nogil=True, cache=True)
def checksum(data: Any, start: Any, end: Any) -> Any:
    return _int(crc32c(base(data), start, end))

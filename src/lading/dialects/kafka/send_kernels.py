"""Kernels that write records; ``send_twin.py`` says what each does, name by name, and gives the same bytes."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lading.kernels.memory import base, memcpy, store8
from lading.kernels.varint import store_varint, varint_size

from .send_layout import RECORD_HEAD_BYTES_MAX

njit: Any = numba.njit
types: Any = numba.types
_int: Any = np.int64

_octets = types.Array(types.uint8, 1, "C", readonly=True)
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


@njit(types.void(*_COLUMNS, types.int64[::1]), nogil=True, cache=True)
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
    sizes: Any,
) -> Any:
    for row in range(sizes.size):
        size = _sized(key_ends, key_valid, row) + _sized(payload_ends, payload_valid, row)
        first, last = _int(list_ends[row]), _int(list_ends[row + 1])
        size += varint_size(last - first)
        for header in range(first, last):
            name_size = _int(name_ends[header + 1]) - _int(name_ends[header])
            size += name_size + varint_size(name_size) + _sized(value_ends, value_valid, header)
        sizes[row] = size + RECORD_HEAD_BYTES_MAX


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
    _long(*_COLUMNS, _longs, _longs, _longs, _long, _long, types.uint8[::1], _long),
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
    sizes: Any,
    offsets: Any,
    times_ms: Any,
    low: Any,
    high: Any,
    target: Any,
    to: Any,
) -> Any:
    out = base(target)
    key_data, payload_data, name_data, value_data = base(keys), base(payloads), base(names), base(values)
    for row in range(low, high):
        delta = offsets[row] - offsets[low]
        late_ms = times_ms[row] - times_ms[low]
        # ``sizes`` counts the head at its largest
        body = sizes[row] - RECORD_HEAD_BYTES_MAX + 1 + varint_size(late_ms) + varint_size(delta)
        to = store_varint(out, to, body)
        store8(out, to, 0)
        to = store_varint(out, to + 1, late_ms)
        to = store_varint(out, to, delta)
        to = _put_value(out, to, key_ends, key_data, key_valid, row)
        to = _put_value(out, to, payload_ends, payload_data, payload_valid, row)
        first, last = _int(list_ends[row]), _int(list_ends[row + 1])
        to = store_varint(out, to, last - first)
        for header in range(first, last):
            start = _int(name_ends[header])
            to = _put(out, to, name_data, start, _int(name_ends[header + 1]) - start)
            to = _put_value(out, to, value_ends, value_data, value_valid, header)
    return to

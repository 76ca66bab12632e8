"""Carriers undone on records as they lie; ``carrier_fallback.py`` says what it does, and gives the same bytes."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lading.kernels.crc32 import crc32
from lading.kernels.key_text import copy_bytes, is_plain, same
from lading.kernels.memory import base, load8, load32, loadi64, memcpy, store8
from lading.kernels.varint import varint32

from ..carrier.kernels import is_text, opened, put_varint, read_text
from ..carrier.layout import (
    ENTRY_BYTES,
    HEADERS_MAX,
    ID_BYTES,
    ID_FLAG,
    PLAIN_BYTES_MAX,
    RAW,
    SHOWN_TAG,
    TIME_FLAG,
    TYPED_TAG,
)
from .layout import CARRIER_HEADER_BYTES_MAX, HEADERS_AT, HEADERS_COUNT, POSITION_MAX, SPARE_BYTES

njit: Any = numba.njit
types: Any = numba.types
_int: Any = np.int64

_source = types.Array(types.uint8, 1, "C", readonly=True)
_longs = types.Array(types.int64, 1, "C", readonly=True)
_rows = types.Array(types.int64, 2, "C", readonly=True)
_bytes, _i64, _kinds = types.uint8[::1], types.int64[::1], types.int8[:, ::1]


@njit(inline="always")
def _mark(out: Any, data: Any, name_at: Any, name_size: Any, value_at: Any, size: Any, occurrence: Any) -> Any:
    """The fingerprint of a raw header (see ``form.fingerprints``)."""
    at = put_varint(out, 0, name_size)
    copy_bytes(out, at, data, name_at, name_size)
    at += name_size
    store8(out, at, RAW)
    at = put_varint(out, at + 1, size + 1)
    if size > 0:
        copy_bytes(out, at, data, value_at, size)
        at += size
    at = put_varint(out, at, occurrence)
    return _int(crc32(out, 0, at))


@njit(types.int64(_source, _rows, _longs, _longs, _rows, _source, _kinds, _i64, _bytes, _bytes), nogil=True, cache=True)
def undo(
    region: Any,
    rows: Any,
    carrier_starts: Any,
    carrier_lengths: Any,
    value_starts: Any,
    reserved: Any,
    kinds: Any,
    times_us: Any,
    ids: Any,
    changed: Any,
) -> Any:
    data, name_of_carrier, id_data = base(region), base(reserved), base(ids)
    reserved_size = reserved.size - SPARE_BYTES
    scratch = np.empty(CARRIER_HEADER_BYTES_MAX + 32, np.uint8)
    room = base(scratch)
    plain = np.empty(PLAIN_BYTES_MAX, np.uint8)
    plain_data = base(plain)
    names_at, names_size = np.empty(HEADERS_MAX, np.int64), np.empty(HEADERS_MAX, np.int64)
    asked = value_starts.shape[0]
    for row in range(rows.shape[0]):
        size = carrier_lengths[row]
        if size == -1:
            continue
        # Numba frees an array behind its last use: these two hold theirs for the whole loop
        scratch[0] = 0
        plain[0] = 0
        start = carrier_starts[row]
        carrier, begin, end = data, start, start + size
        if is_text(data, start, size):
            end = read_text(data, start, end, plain_data)
            if end < 0:
                return row
            carrier, begin = plain_data, 0
        flags, time_at, id_at, at, body_end = opened(carrier, begin, end)
        headers = rows[row, HEADERS_COUNT] - 1
        if flags == 0 or headers > HEADERS_MAX or _int(load8(carrier, at)) != headers:
            return row
        at += 1
        here = rows[row, HEADERS_AT]
        for header in range(headers):
            if body_end - at < ENTRY_BYTES:
                return row
            name_size, here = varint32(data, here, POSITION_MAX)
            name_at = here
            value_size, here = varint32(data, here + name_size, POSITION_MAX)
            if name_size + value_size > CARRIER_HEADER_BYTES_MAX or not is_plain(data, name_at, name_size):
                return row
            if name_size >= reserved_size and same(data, name_at, name_of_carrier, 0, reserved_size):
                return row
            occurrence = 0
            for other in range(header):
                if names_size[other] == name_size and same(data, name_at, data, names_at[other], name_size):
                    occurrence += 1
            names_at[header] = name_at
            names_size[header] = name_size
            mark = _mark(room, data, name_at, name_size, here, value_size, occurrence)
            if mark != _int(load32(carrier, at + 1)):
                return row
            tag = _int(load8(carrier, at))
            at += ENTRY_BYTES
            if tag == TYPED_TAG:
                if at >= body_end:
                    return row
                for key in range(asked):
                    if value_starts[key, row] == here:
                        kinds[key, row] = load8(carrier, at)
                at += 1
            elif tag != SHOWN_TAG:
                return row
            here += max(value_size, 0)
        name_size, here = varint32(data, here, POSITION_MAX)
        value_size, here = varint32(data, here + name_size, POSITION_MAX)
        if here != start or at != body_end:
            return row
        if flags & TIME_FLAG:
            times_us[row] = loadi64(carrier, time_at)
        if flags & ID_FLAG:
            memcpy(id_data, ID_BYTES * row, carrier, id_at, ID_BYTES)
        changed[row] = flags
    return -1

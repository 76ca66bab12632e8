"""Carriers undone on records as they lie; ``carrier_fallback.py`` says what it does, and gives the same bytes."""

from __future__ import annotations

import numpy as np

from lading.kernels.arrays import Bytes, KindTable, Longs, Table
from lading.kernels.crc32 import crc32
from lading.kernels.key_text import copy_bytes, is_plain, same
from lading.kernels.memory import base, load8, load32, loadi64, memcpy, store8
from lading.kernels.signature import (
    BYTES,
    LONG,
    LONGS,
    OUT_BYTES,
    OUT_KIND_TABLE,
    OUT_LONGS,
    TABLE,
    Data,
    inline,
    int64,
    kernel,
    step,
)
from lading.kernels.varint import varint32

from ..carrier.kernel_text import is_text, read_text
from ..carrier.kernels import clear_names, count_name, open_carrier, put_varint, read_count
from ..carrier.layout import (
    ENTRY_BYTES,
    HEADERS_MAX,
    ID_BYTES,
    ID_FLAG,
    NAME_SLOTS_BYTES,
    PLAIN_BYTES_MAX,
    RAW,
    SHOWN_TAG,
    TIME_FLAG,
    TYPED_TAG,
)
from .layout import CARRIER_HEADER_BYTES_MAX, HEADERS_AT, HEADERS_COUNT, POSITION_MAX, SPARE_BYTES


@inline
def _mark(out: Data, data: Data, name_at: int, name_size: int, value_at: int, size: int, occurrence: int) -> int:
    """The fingerprint of a raw header (see ``form.fingerprints``)."""
    # in bounds: the caller has seen to CARRIER_HEADER_BYTES_MAX, and ``out`` has room for that and three varints
    at = put_varint(out, 0, name_size)
    copy_bytes(out, at, data, name_at, name_size)
    at += name_size
    store8(out, at, RAW)
    at = put_varint(out, at + 1, size + 1)
    if size > 0:
        copy_bytes(out, at, data, value_at, size)
        at += size
    at = put_varint(out, at, occurrence)
    return int64(crc32(out, 0, at))


@step
def _find_place(places: Data, count: int, place: int) -> int:
    """Return which of the first ``count`` of ``places``, which rise, is ``place``, or -1."""
    low, high = int64(0), int64(count)
    # in bounds: the table has a place for each of HEADERS_MAX headers
    while low < high:
        middle = (low + high) >> 1
        if loadi64(places, 8 * middle) < place:
            low = middle + 1
        else:
            high = middle
    return low if low < count and loadi64(places, 8 * low) == place else int64(-1)


@inline
def _read_header(data: Data, at: int) -> tuple[int, int, int, int]:
    """Read a header that ``scan`` has checked: position and size of its name, and of its value."""
    name_size, name_at = varint32(data, at, POSITION_MAX)
    value_size, value_at = varint32(data, name_at + name_size, POSITION_MAX)
    return name_at, name_size, value_at, value_size


@inline
def _can_be_undone(
    data: Data, name_at: int, name_size: int, value_size: int, reserved: Data, reserved_size: int
) -> bool:
    """Whether a header is as small and plain as those done here, and none of a carrier."""
    if name_size + value_size > CARRIER_HEADER_BYTES_MAX or not is_plain(data, name_at, name_size):
        return False
    return name_size < reserved_size or not same(data, name_at, reserved, 0, reserved_size)


@kernel(LONG(BYTES, TABLE, LONGS, LONGS, TABLE, BYTES, OUT_KIND_TABLE, OUT_LONGS, OUT_BYTES, OUT_BYTES))
def undo(
    region: Bytes,
    rows: Table,
    carrier_starts: Longs,
    carrier_lengths: Longs,
    value_starts: Table,
    reserved: Bytes,
    kinds: KindTable,
    times_us: Longs,
    ids: Bytes,
    changed: Bytes,
) -> int:
    data, name_of_carrier, id_data = base(region), base(reserved), base(ids)
    reserved_size = reserved.size - SPARE_BYTES
    scratch = np.empty(CARRIER_HEADER_BYTES_MAX + 32, np.uint8)
    room = base(scratch)
    plain = np.empty(PLAIN_BYTES_MAX, np.uint8)
    plain_data = base(plain)
    table = np.empty(NAME_SLOTS_BYTES, np.uint8)
    slots = base(table)
    values_at, kinds_here = np.empty(HEADERS_MAX, np.int64), np.empty(HEADERS_MAX, np.int8)
    asked = value_starts.shape[0]
    # in bounds: ``scan`` found these records whole, headers and carrier, with SPARE_BYTES after the last one; each part
    # of the carrier is read only if it is before its end
    for row in range(rows.shape[0]):
        size = carrier_lengths[row]
        if size == -1:
            continue
        # Numba frees an array after its last use: these hold theirs for the whole loop
        scratch[0] = 0
        table[0] = 0
        plain[0] = 0
        # open the carrier, as bytes or as text
        start = carrier_starts[row]
        carrier, begin, end = data, start, start + size
        if is_text(data, start, size):
            end = read_text(data, start, end, plain_data)
            if end < 0:
                return row
            carrier, begin = plain_data, 0
        flags, time_at, id_at, at, body_end = open_carrier(carrier, begin, end)
        headers = rows[row, HEADERS_COUNT] - 1
        if flags == 0 or headers > HEADERS_MAX:
            return row
        count, at = read_count(carrier, at, body_end)
        if count != headers:
            return row
        # compare each header with its entry
        here = rows[row, HEADERS_AT]
        mask = clear_names(slots, headers)
        for header in range(headers):
            if body_end - at < ENTRY_BYTES:
                return row
            name_at, name_size, value_at, value_size = _read_header(data, here)
            if not _can_be_undone(data, name_at, name_size, value_size, name_of_carrier, reserved_size):
                return row
            occurrence = count_name(slots, mask, data, name_at, name_size)
            mark = _mark(room, data, name_at, name_size, value_at, value_size, occurrence)
            if mark != int64(load32(carrier, at + 1)):
                return row
            tag = int64(load8(carrier, at))
            at += ENTRY_BYTES
            if tag == TYPED_TAG:
                if at >= body_end:
                    return row
                kinds_here[header] = load8(carrier, at)
                at += 1
            elif tag == SHOWN_TAG:
                kinds_here[header] = RAW
            else:
                return row
            values_at[header] = value_at
            here = value_at + max(value_size, 0)
        # the carrier is the last header, and has no other entries
        _, _, value_at, _ = _read_header(data, here)
        if value_at != start or at != body_end:
            return row
        # the kinds of the headers that are asked for; the places of their values rise
        for key in range(asked):
            header = _find_place(base(values_at), headers, value_starts[key, row])
            if header >= 0 and kinds_here[header] != RAW:
                kinds[key, row] = kinds_here[header]
        # what the target has no field for
        if flags & TIME_FLAG:
            times_us[row] = loadi64(carrier, time_at)
        if flags & ID_FLAG:
            memcpy(id_data, ID_BYTES * row, carrier, id_at, ID_BYTES)
        changed[row] = flags
    return -1

"""Kernels that write records; ``send_fallback.py`` says what each does, name by name, and gives the same bytes."""

from __future__ import annotations

import numpy as np

from lading.dialects.carrier.kernels import carrier_size, put_carrier
from lading.dialects.carrier.layout import ENTRIES_FLAG, HEADERS_MAX, ID_FLAG, NAME_SLOTS_BYTES, RAW, TIME_FLAG
from lading.kernels.arrays import Bytes, Ints, Kinds, Longs
from lading.kernels.crc32c import crc32c
from lading.kernels.memory import base, load8, loadi64, memcpy, store8, store64
from lading.kernels.signature import (
    BYTES,
    INTS,
    KINDS,
    LONG,
    LONGS,
    NOTHING,
    OUT_BYTES,
    OUT_LONGS,
    Data,
    inline,
    int64,
    kernel,
)
from lading.kernels.varint import store_varint, varint_size

from .send_layout import CARRIER_BYTES, CARRIER_HEAD, CARRIER_TAIL, ESCAPE, RECORD_HEAD_BYTES_MAX


@inline
def _measure_sized(ends: Ints, valid: Bytes, row: int) -> int:
    """Bytes of a value with its size in front."""
    if valid[row] == 0:
        return 1
    size = int64(ends[row + 1]) - int64(ends[row])
    return size + varint_size(size)


@kernel(LONG(INTS, INTS, BYTES, KINDS, BYTES, LONGS, OUT_BYTES))
def classify_messages(
    list_ends: Ints, name_ends: Ints, names: Bytes, kinds: Kinds, id_valid: Bytes, times_us: Longs, flags: Bytes
) -> int:
    name_data = base(names)
    for row in range(flags.size):
        found = 0
        if id_valid[row]:
            found |= ID_FLAG
        if times_us[row] % 1000:
            found |= TIME_FLAG
        first, last = int64(list_ends[row]), int64(list_ends[row + 1])
        if last - first > HEADERS_MAX:
            return row
        for header in range(first, last):
            if kinds[header] != RAW:
                found |= ENTRIES_FLAG
            at = int64(name_ends[header])
            size = int64(name_ends[header + 1]) - at
            if size == 0:
                continue
            # in bounds: Arrow's ends lie inside the names; words are read only if the name has CARRIER_BYTES
            if load8(name_data, at) == ESCAPE:
                return row
            if size < CARRIER_BYTES or loadi64(name_data, at) != CARRIER_HEAD:
                continue
            if loadi64(name_data, at + CARRIER_BYTES - 8) == CARRIER_TAIL:
                return row
        # a time alone is cut, see targets.losses
        flags[row] = 0 if found == TIME_FLAG else found
    return -1


@kernel(NOTHING(INTS, BYTES, BYTES, INTS, BYTES, BYTES, INTS, INTS, BYTES, INTS, BYTES, BYTES, KINDS, BYTES, OUT_LONGS))
def weigh(
    key_ends: Ints,
    keys: Bytes,
    key_valid: Bytes,
    payload_ends: Ints,
    payloads: Bytes,
    payload_valid: Bytes,
    list_ends: Ints,
    name_ends: Ints,
    names: Bytes,
    value_ends: Ints,
    values: Bytes,
    value_valid: Bytes,
    kinds: Kinds,
    flags: Bytes,
    sizes: Longs,
) -> None:
    # in bounds: there is a kind for each header
    kind_data = base(kinds)
    for row in range(sizes.size):
        size = _measure_sized(key_ends, key_valid, row) + _measure_sized(payload_ends, payload_valid, row)
        first, last = int64(list_ends[row]), int64(list_ends[row + 1])
        count = last - first
        for header in range(first, last):
            name_size = int64(name_ends[header + 1]) - int64(name_ends[header])
            size += name_size + varint_size(name_size) + _measure_sized(value_ends, value_valid, header)
        if flags[row]:
            carried = carrier_size(int64(flags[row]), first, last, kind_data)
            size += 1 + CARRIER_BYTES + varint_size(carried) + carried
            count += 1
        sizes[row] = size + varint_size(count) + RECORD_HEAD_BYTES_MAX


@inline
def _put(out: Data, at: int, data: Data, start: int, size: int) -> int:
    # in bounds: the bytes lie between two of Arrow's ends, and ``weigh`` counted them with their varint
    at = store_varint(out, at, size)
    memcpy(out, at, data, start, size)
    return at + size


@inline
def _put_value(out: Data, at: int, ends: Ints, data: Data, valid: Bytes, row: int) -> int:
    if valid[row] == 0:
        return store_varint(out, at, -1)
    return _put(out, at, data, int64(ends[row]), int64(ends[row + 1]) - int64(ends[row]))


@kernel(
    LONG(
        INTS,
        BYTES,
        BYTES,
        INTS,
        BYTES,
        BYTES,
        INTS,
        INTS,
        BYTES,
        INTS,
        BYTES,
        BYTES,
        KINDS,
        BYTES,
        BYTES,
        LONGS,
        LONGS,
        LONGS,
        LONG,
        LONG,
        OUT_BYTES,
        OUT_BYTES,
        LONG,
    )
)
def write(
    key_ends: Ints,
    keys: Bytes,
    key_valid: Bytes,
    payload_ends: Ints,
    payloads: Bytes,
    payload_valid: Bytes,
    list_ends: Ints,
    name_ends: Ints,
    names: Bytes,
    value_ends: Ints,
    values: Bytes,
    value_valid: Bytes,
    kinds: Kinds,
    flags: Bytes,
    ids: Bytes,
    times_us: Longs,
    sizes: Longs,
    offsets: Longs,
    low: int,
    high: int,
    scratch: Bytes,
    target: Bytes,
    to: int,
) -> int:
    # in bounds: ``weigh`` returned the size of each record, for which the caller made room
    out = base(target)
    key_data, payload_data, name_data, value_data = base(keys), base(payloads), base(names), base(values)
    all_ids = base(ids)
    table = np.empty(NAME_SLOTS_BYTES, np.uint8)
    room = (base(scratch), base(table))
    headers = (base(name_ends), name_data, base(kinds), base(value_ends), value_data, base(value_valid), *room)
    first_ms = times_us[low] // 1000
    for row in range(low, high):
        # Numba frees an array after its last use: this one holds it for the whole loop
        table[0] = 0
        # head: length, attributes, time and offset
        delta = offsets[row] - offsets[low]
        late_ms = times_us[row] // 1000 - first_ms
        # ``sizes`` counts the head at its largest
        body = sizes[row] - RECORD_HEAD_BYTES_MAX + 1 + varint_size(late_ms) + varint_size(delta)
        to = store_varint(out, to, body)
        store8(out, to, 0)
        to = store_varint(out, to + 1, late_ms)
        to = store_varint(out, to, delta)
        # key and value
        to = _put_value(out, to, key_ends, key_data, key_valid, row)
        to = _put_value(out, to, payload_ends, payload_data, payload_valid, row)
        # headers
        first, last = int64(list_ends[row]), int64(list_ends[row + 1])
        facts = int64(flags[row])
        to = store_varint(out, to, last - first + (1 if facts else 0))
        for header in range(first, last):
            start = int64(name_ends[header])
            to = _put(out, to, name_data, start, int64(name_ends[header + 1]) - start)
            to = _put_value(out, to, value_ends, value_data, value_valid, header)
        # the header of the carrier, if the message needs one
        if facts:
            to = store_varint(out, to, CARRIER_BYTES)
            store64(out, to, CARRIER_HEAD)
            store64(out, to + CARRIER_BYTES - 8, CARRIER_TAIL)
            to = store_varint(out, to + CARRIER_BYTES, carrier_size(facts, first, last, headers[2]))
            to = put_carrier(out, to, facts, times_us[row], times_us[row], all_ids, row, first, last, *headers)
    return to


@kernel(LONG(BYTES, LONG, LONG))
def checksum(data: Bytes, start: int, end: int) -> int:
    # in bounds: ``data[start:end]`` is what the caller has just written
    return int64(crc32c(base(data), start, end))

"""Kernels for carriers that hold kinds, id and times of messages whose headers are all shown; see ``fallback.py``."""

from __future__ import annotations

import numpy as np

from lading.kernels.arrays import Bytes, Ints, Kinds, Longs
from lading.kernels.crc32 import crc32
from lading.kernels.memory import base, load8, load32, loadi64, memcpy, store8, store32, store64
from lading.kernels.signature import (
    BYTES,
    INTS,
    KINDS,
    LONGS,
    NOTHING,
    OUT_BYTES,
    OUT_INTS,
    OUT_KINDS,
    OUT_LONGS,
    Address,
    Data,
    inline,
    int64,
    kernel,
    routine,
)

from .kernel_text import is_text, put_text, read_text
from .layout import (
    CRC_BYTES,
    ENTRIES_FLAG,
    ENTRY_BYTES,
    HEAD_BYTES,
    HEADERS_MAX,
    ID_BYTES,
    ID_FLAG,
    NAME_SLOT_BYTES,
    NAME_SLOTS_BYTES,
    ORIGIN_FLAG,
    PLAIN_BYTES_MAX,
    RAW,
    SHOWN_TAG,
    TEXT_PREFIX_BYTES,
    TIME_BYTES,
    TIME_FLAG,
    TYPED_TAG,
    VERSION_BYTE,
)


@inline
def put_varint(out: Data, at: int, value: int) -> int:
    """Write an unsigned varint; return its end."""
    # in bounds: callers counted the varint among what they made room for
    while value > 0x7F:
        store8(out, at, (value & 0x7F) | 0x80)
        value >>= 7
        at += 1
    store8(out, at, value)
    return at + 1


@inline
def _end(ends: Data, entry: int) -> int:
    """Return the end of the bytes of the entry before ``entry``; ``ends`` is an address."""
    # in bounds: Arrow has one end more than entries
    return int64(load32(ends, 4 * entry))


@routine
def clear_names(slots: Data, headers: int) -> int:
    """Empty the table of names for a message with this many headers; return the mask of its slots."""
    count = 2
    while count < 2 * headers:
        count *= 2
    # in bounds: the table has NAME_SLOTS_BYTES, and there are HEADERS_MAX headers at most
    for slot in range(count):
        store64(slots, NAME_SLOT_BYTES * slot, 0)
    return count - 1


@routine
def count_name(slots: Data, mask: int, names: Data, at: int, size: int) -> int:
    """Return how often the name ``names[at : at + size]`` was counted before, and count it once more.

    Comparing it with each earlier name would take time quadratic in the number of headers.
    """
    slot = int64(crc32(names, at, size)) & mask
    # in bounds: see ``clear_names``; half of the slots are free, so that the search ends
    while True:
        entry = NAME_SLOT_BYTES * slot
        count = loadi64(slots, entry)
        if count == 0:
            store64(slots, entry, 1)
            store64(slots, entry + 8, at)
            store64(slots, entry + 16, size)
            return int64(0)
        if loadi64(slots, entry + 16) == size:
            other = loadi64(slots, entry + 8)
            step = int64(0)
            while step < size and load8(names, at + step) == load8(names, other + step):
                step += 1
            if step == size:
                store64(slots, entry, count + 1)
                return int64(count)
        slot = (slot + 1) & mask


@routine
def _mark(
    header: int,
    mask: int,
    slots: Data,
    name_ends: Data,
    names: Data,
    value_ends: Data,
    values: Data,
    value_valid: Data,
    out: Data,
) -> int:
    """The fingerprint of a header as Kafka shows it, whose names before it are in ``slots``; all by address."""
    name_at = _end(name_ends, header)
    name_size = _end(name_ends, header + 1) - name_at
    occurrence = count_name(slots, mask, names, name_at, name_size)
    # in bounds: ``out`` is scratch for the largest header and its three varints
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
    return int64(crc32(out, 0, at))


@inline
def carrier_size(flags: int, first: int, last: int, kinds: Data) -> int:
    """Bytes of the carrier that ``put_carrier`` writes."""
    return TEXT_PREFIX_BYTES + (4 * _plain_size(flags, first, last, kinds) + 2) // 3


@inline
def _plain_size(flags: int, first: int, last: int, kinds: Data) -> int:
    """Bytes of a carrier before it is printable."""
    size = HEAD_BYTES + CRC_BYTES
    if flags & TIME_FLAG:
        size += TIME_BYTES
    if flags & ID_FLAG:
        size += ID_BYTES
    if flags & ORIGIN_FLAG:
        size += TIME_BYTES
    if flags & ENTRIES_FLAG:
        # at most HEADERS_MAX entries: their count has one byte or two
        size += (1 if last - first < 0x80 else 2) + ENTRY_BYTES * (last - first)
        # in bounds: each header of the Batch has a kind
        for header in range(first, last):
            if load8(kinds, header) != RAW:
                size += 1
    return size


@routine
def put_carrier(
    out: Data,
    start: int,
    flags: int,
    time_us: int,
    origin_us: int,
    ids: Data,
    row: int,
    first: int,
    last: int,
    name_ends: Data,
    names: Data,
    kinds: Data,
    value_ends: Data,
    values: Data,
    value_valid: Data,
    scratch: Data,
    slots: Data,
) -> int:
    """Write the printable carrier of a message at ``start`` of ``out``; return its end. All columns are addresses.

    Its headers, all shown and HEADERS_MAX at most, are those from ``first`` up to, not including, ``last``.
    """
    size = _plain_size(flags, first, last, kinds)
    # in bounds: the caller has made room for ``carrier_size``, at whose end the bytes lie before they are printable
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
    if flags & ORIGIN_FLAG:
        store64(out, at, origin_us)
        at += TIME_BYTES
    if flags & ENTRIES_FLAG:
        at = put_varint(out, at, last - first)
        mask = clear_names(slots, last - first)
        for header in range(first, last):
            kind = load8(kinds, header)
            mark = _mark(header, mask, slots, name_ends, names, value_ends, values, value_valid, scratch)
            store8(out, at, SHOWN_TAG if kind == RAW else TYPED_TAG)
            store32(out, at + 1, mark)
            at += ENTRY_BYTES
            if kind != RAW:
                store8(out, at, kind)
                at += 1
    store32(out, at, crc32(out, begin, at - begin))
    put_text(out, start, begin, end)
    return end


@kernel(
    NOTHING(LONGS, INTS, INTS, BYTES, KINDS, INTS, *[BYTES] * 4, *[LONGS, BYTES] * 2, OUT_BYTES, OUT_BYTES, OUT_INTS)
)
def make(
    rows: Longs,
    list_ends: Ints,
    name_ends: Ints,
    names: Bytes,
    kinds: Kinds,
    value_ends: Ints,
    values: Bytes,
    value_valid: Bytes,
    ids: Bytes,
    id_valid: Bytes,
    times_us: Longs,
    time_lost: Bytes,
    origins_us: Longs,
    origin_lost: Bytes,
    scratch: Bytes,
    target: Bytes,
    ends: Ints,
) -> None:
    table = np.empty(NAME_SLOTS_BYTES, np.uint8)
    # in bounds: the caller made ``target`` for the largest carriers of these rows, ``scratch`` for the largest header
    room = (base(scratch), base(table))
    headers = (base(name_ends), base(names), base(kinds), base(value_ends), base(values), base(value_valid), *room)
    out, all_ids = base(target), base(ids)
    at = 0
    ends[0] = 0
    for index in range(rows.size):
        # Numba frees an array after its last use: this one holds it for the whole loop
        table[0] = 0
        row = rows[index]
        flags = ENTRIES_FLAG
        if time_lost[row]:
            flags |= TIME_FLAG
        if id_valid[row]:
            flags |= ID_FLAG
        if origin_lost[row]:
            flags |= ORIGIN_FLAG
        first, last = int64(list_ends[row]), int64(list_ends[row + 1])
        at = put_carrier(out, at, flags, times_us[row], origins_us[row], all_ids, row, first, last, *headers)
        ends[index + 1] = at


@inline
def open_carrier(data: Data, start: int, end: int) -> tuple[int, int, int, int, int]:
    """Return the parts of the carrier ``data[start:end]``: (flags, time, id, count of entries, end of body).

    All but the flags are positions. The flags are 0 if it is not one that ``make`` writes.
    """
    # in bounds: a carrier without head, body and CRC is not looked at, and its parts only if they lie in the body
    body_end = end - CRC_BYTES
    at = start + HEAD_BYTES
    flags = 0
    if body_end - at >= 1 and load8(data, start) == VERSION_BYTE:
        flags = int64(load8(data, start + 1))
        plain = flags & ~(ENTRIES_FLAG | TIME_FLAG | ID_FLAG | ORIGIN_FLAG) == 0 and flags & ENTRIES_FLAG != 0
        if not plain or int64(crc32(data, start, body_end - start)) != int64(load32(data, body_end)):
            flags = 0
    id_at = at + (TIME_BYTES if flags & TIME_FLAG else 0)
    origin_at = id_at + (ID_BYTES if flags & ID_FLAG else 0)
    count_at = origin_at + (TIME_BYTES if flags & ORIGIN_FLAG else 0)
    return flags if count_at < body_end else 0, at, id_at, count_at, body_end


@inline
def read_count(data: Data, at: int, end: int) -> tuple[int, int]:
    """Read a count of entries, of one byte or two: the number, and the position after it; -1 for any other."""
    # in bounds: ``open_carrier`` found a byte at ``at``, and a second one is read only if it is before ``end``
    count = int64(load8(data, at))
    if count < 0x80:
        return count, at + 1
    high = int64(load8(data, at + 1)) if at + 1 < end else int64(0)
    return (count & 0x7F | high << 7 if 0 < high < 0x80 else int64(-1)), at + 2


@routine
def _undo_carrier(
    first: int,
    last: int,
    start: int,
    end: int,
    shown: tuple[Address, ...],
    found_kinds: Kinds,
    ids: Address,
    times_us: Longs,
    origins_us: Longs,
    row: int,
    changed: Bytes,
    plain: Address,
) -> bool:
    """Undo the carrier ``values[start:end]``; return False if ``make`` would not write it for just these headers.

    ``shown`` is the table of names, ends and bytes of names, ends and bytes of values, whether each is there, and
    scratch: all by address.
    """
    carrier = shown[4]
    # in bounds: Arrow's ends lie inside the values; of the carrier each part is read only if it lies before its end
    # open the carrier, as bytes or as text
    if is_text(carrier, start, end - start):
        end = read_text(carrier, start, end, plain)
        if end < 0:
            return False
        carrier, start = plain, 0
    flags, time_at, id_at, at, body_end = open_carrier(carrier, start, end)
    if flags == 0:
        return False
    origin_at = at - TIME_BYTES
    count, at = read_count(carrier, at, body_end)
    if count != last - first:
        return False
    # compare each header with its entry
    # in bounds: an entry is read only if all of it is before body_end
    mask = clear_names(shown[0], last - first)
    for header in range(first, last):
        if body_end - at < ENTRY_BYTES:
            return False
        tag = int64(load8(carrier, at))
        mark = _mark(header, mask, *shown)
        if mark != int64(load32(carrier, at + 1)):
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
    # what the target has no field for
    # in bounds: ``open_carrier`` found these fields before ``at``, and the columns have a place for each row
    if flags & TIME_FLAG:
        times_us[row] = loadi64(carrier, time_at)
        changed[row] |= TIME_FLAG
    if flags & ID_FLAG:
        memcpy(ids, ID_BYTES * row, carrier, id_at, ID_BYTES)
        changed[row] |= ID_FLAG
    if flags & ORIGIN_FLAG:
        origins_us[row] = loadi64(carrier, origin_at)
        changed[row] |= ORIGIN_FLAG
    return True


@kernel(
    NOTHING(
        LONGS,
        INTS,
        INTS,
        BYTES,
        KINDS,
        INTS,
        BYTES,
        BYTES,
        OUT_BYTES,
        OUT_KINDS,
        OUT_BYTES,
        OUT_LONGS,
        OUT_LONGS,
        OUT_BYTES,
        OUT_BYTES,
    )
)
def undo(
    rows: Longs,
    list_ends: Ints,
    name_ends: Ints,
    names: Bytes,
    kinds: Kinds,
    value_ends: Ints,
    values: Bytes,
    value_valid: Bytes,
    scratch: Bytes,
    found_kinds: Kinds,
    ids: Bytes,
    times_us: Longs,
    origins_us: Longs,
    changed: Bytes,
    done: Bytes,
) -> None:
    room = np.empty(PLAIN_BYTES_MAX, np.uint8)
    table = np.empty(NAME_SLOTS_BYTES, np.uint8)
    # in bounds: ``_undo_carrier`` looks at each part only if it lies in the carrier; ``ids`` has a place for each row
    plain, all_ids = base(room), base(ids)
    columns = (base(name_ends), base(names), base(value_ends), base(values), base(value_valid), base(scratch))
    shown = (base(table), *columns)
    for index in range(rows.size):
        # Numba frees an array after its last use: these two hold theirs for the whole loop
        room[0] = 0
        table[0] = 0
        row = rows[index]
        first, carrier = int64(list_ends[row]), int64(list_ends[row + 1]) - 1
        if carrier - first > HEADERS_MAX or value_valid[carrier] == 0 or kinds[carrier] != RAW:
            continue
        start, end = int64(value_ends[carrier]), int64(value_ends[carrier + 1])
        if _undo_carrier(
            first, carrier, start, end, shown, found_kinds, all_ids, times_us, origins_us, row, changed, plain
        ):
            done[index] = 1
        else:
            changed[row] = 0
            for header in range(first, carrier):
                found_kinds[header] = kinds[header]

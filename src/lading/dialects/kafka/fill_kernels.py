"""Kernel that writes columns of records; ``fallback.py`` says what it does, and gives the same bytes."""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Longs, Table
from lading.kernels.key_text import copy_bytes, copy_odd_text, copy_words
from lading.kernels.memory import base, load8, load64, loadi64, store8, store32, store64
from lading.kernels.signature import BYTES, LONGS, NOTHING, OUT_BYTES, OUT_TABLE, Data, inline, int64, kernel
from lading.kernels.varint import varint32

from .layout import (
    HEADER_COUNT,
    HEADERS_AT,
    HEADERS_COUNT,
    KEY_AT,
    KEY_ENDS,
    KEY_SIZE,
    KEY_VALID,
    KEYS,
    LIST_ENDS,
    NAME_ENDS,
    NAMES,
    ODD_NAMES,
    OFFSET,
    OFFSETS,
    PAYLOAD_ENDS,
    PAYLOAD_VALID,
    PAYLOADS,
    POSITION_MAX,
    ROW_WORDS,
    TIME_US,
    TIMESTAMPS,
    VALUE_AT,
    VALUE_ENDS,
    VALUE_SIZE,
    VALUE_VALID,
    VALUES,
)

_ROW_BYTES = 8 * ROW_WORDS


@inline
def _all_valid(out: Data, place: int, count: int) -> None:
    # in bounds: the buffer at ``place`` has a bit for each of ``count``, rounded up to whole bytes
    for byte in range((count + 7) // 8):
        store8(out, place + byte, 0xFF)


@inline
def _invalid(out: Data, place: int, index: int) -> None:
    # in bounds: ``index`` is one of the count that ``_all_valid`` had
    byte = place + (index >> 3)
    store8(out, byte, int64(load8(out, byte)) & ~(1 << (index & 7)))


@inline
def _read_checked_varint(data: Data, at: int) -> tuple[int, int]:
    """A varint that ``scan`` has checked."""
    return varint32(data, at, POSITION_MAX)


@kernel(NOTHING(BYTES, OUT_TABLE, LONGS, OUT_BYTES, LONGS))
def fill(region: Bytes, rows: Table, totals: Longs, memory: Bytes, places: Longs) -> None:
    # in bounds: ``scan`` found these records whole, and the caller made each buffer as large as its totals say, with
    # SPARE_BYTES after those that are copied in words
    data, out, row_data = base(region), base(memory), base(rows)
    offsets, timestamps = places[OFFSETS], places[TIMESTAMPS]
    key_valid, key_ends, keys = places[KEY_VALID], places[KEY_ENDS], places[KEYS]
    list_ends, name_ends, names = places[LIST_ENDS], places[NAME_ENDS], places[NAMES]
    value_valid, value_ends, values = places[VALUE_VALID], places[VALUE_ENDS], places[VALUES]
    payload_valid, payload_ends, payloads = places[PAYLOAD_VALID], places[PAYLOAD_ENDS], places[PAYLOADS]
    odd = totals[ODD_NAMES] != 0
    want_headers, want_keys, want_payloads = list_ends >= 0, key_ends >= 0, payload_ends >= 0
    count = rows.shape[0]
    header = 0
    name = 0
    value = 0
    key = 0
    payload = 0
    # what stands before the first row: ends of 0, and bitmaps in which all is valid
    if want_headers:
        store32(out, list_ends, 0)
        store32(out, name_ends, 0)
        store32(out, value_ends, 0)
    if want_keys:
        store32(out, key_ends, 0)
    if want_payloads:
        store32(out, payload_ends, 0)
    if key_valid >= 0:
        _all_valid(out, key_valid, count)
    if value_valid >= 0:
        _all_valid(out, value_valid, totals[HEADER_COUNT])
    if payload_valid >= 0:
        _all_valid(out, payload_valid, count)
    for row in range(count):
        at = _ROW_BYTES * row
        # offset and time
        if offsets >= 0:
            store64(out, offsets + 8 * row, load64(row_data, at + 8 * OFFSET))
        if timestamps >= 0:
            store64(out, timestamps + 8 * row, load64(row_data, at + 8 * TIME_US))
        # key; null if its size is negative
        if want_keys:
            size = loadi64(row_data, at + 8 * KEY_SIZE)
            if size >= 0:
                copy_bytes(out, keys + key, data, loadi64(row_data, at + 8 * KEY_AT), size)
                key += size
            else:
                _invalid(out, key_valid, row)
            store32(out, key_ends + 4 * row + 4, key)
        # headers
        if want_headers:
            here = loadi64(row_data, at + 8 * HEADERS_AT)
            for _ in range(loadi64(row_data, at + 8 * HEADERS_COUNT)):
                size, here = _read_checked_varint(data, here)
                if odd:
                    name += copy_odd_text(out, names + name, data, here, size)
                else:
                    copy_words(out, names + name, data, here, size)
                    name += size
                size, here = _read_checked_varint(data, here + size)
                if size >= 0:
                    copy_bytes(out, values + value, data, here, size)
                    here += size
                    value += size
                else:
                    _invalid(out, value_valid, header)
                header += 1
                store32(out, name_ends + 4 * header, name)
                store32(out, value_ends + 4 * header, value)
            store32(out, list_ends + 4 * row + 4, header)
        # payload; null if its size is negative
        if want_payloads:
            size = loadi64(row_data, at + 8 * VALUE_SIZE)
            if size >= 0:
                copy_bytes(out, payloads + payload, data, loadi64(row_data, at + 8 * VALUE_AT), size)
                payload += size
            else:
                _invalid(out, payload_valid, row)
            store32(out, payload_ends + 4 * row + 4, payload)

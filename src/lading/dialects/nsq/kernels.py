"""Kernels that read stored messages; ``fallback.py`` says what each does, name by name, and leaves exts to
``ext.py``.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lading.kernels.big_endian import big16, big32, big64, byte
from lading.kernels.crc32c import crc32c
from lading.kernels.json_text import (
    COLON,
    COMMA,
    ESCAPED,
    FALSE,
    NULL,
    OBJECT,
    OBJECT_END,
    PLAIN,
    QUOTE,
    SCALAR,
    TRUE,
    WIDE,
    decimal,
    integer,
    passed_space,
    string_end,
    unescape,
    value_end,
)
from lading.kernels.memory import base, load8, load64, memcpy, store8, store32, store64
from lading.kernels.text import UTF8_BAD, utf8_check

from .layout import (
    ARROW_BYTES_MAX,
    ASIDE,
    BAD_COUNT,
    BAD_EXT,
    BAD_LENGTH,
    BAD_OFFSET,
    COPIED,
    COUNT,
    CRC,
    CUT,
    EXT,
    EXT_VERSION,
    FINE,
    FORM,
    HEAD_BYTES,
    HEADER_COUNT,
    HEADER_WORDS,
    ID,
    IDS,
    JSON_EXT,
    KIND,
    KINDS,
    LIST_ENDS,
    NAME_AT,
    NAME_BYTES,
    NAME_ENDS,
    NAMES,
    NO_EXT,
    NUMBER,
    ODD_ROWS,
    OFFSETS,
    PAYLOAD_BYTES,
    PAYLOAD_ENDS,
    PAYLOADS,
    POSITION_MAX,
    RECORD_BYTES_MIN,
    ROW_BODY,
    ROW_BODY_BYTES,
    ROW_EXT,
    ROW_EXT_BYTES,
    ROW_HEADERS,
    ROW_ID,
    ROW_OFFSET,
    ROW_TIME_US,
    ROW_WORDS,
    TIMESTAMP,
    TIMESTAMPS,
    TOO_LARGE,
    UNESCAPED,
    VALUE,
    VALUE_BYTES,
    VALUE_END,
    VALUE_ENDS,
    VALUE_VALID,
    VALUES,
    WHERE,
)

njit: Any = numba.njit
types: Any = numba.types
_int: Any = np.int64

_source = types.Array(types.uint8, 1, "C", readonly=True)
_longs = types.Array(types.int64, 1, "C", readonly=True)
_chunks = types.Array(types.int64, 2, "A", readonly=True)
_table = types.Array(types.int64, 2, "C", readonly=True)
_bytes, _i64 = types.uint8[::1], types.int64[::1]
_i64_table = types.int64[:, ::1]
_long = types.int64

_RAW, _STRING, _BOOL, _INT64, _FLOAT64 = 1, 2, 3, 7, 15
_CARRIER = np.frombuffer(b"##lading-carrier", np.uint8).view(np.uint64)
_CARRIER_LOW, _CARRIER_HIGH = _CARRIER[0], _CARRIER[1]
_HEADER_COST = 9


@njit(inline="always")
def _record(data: Any, at: Any, end: Any) -> Any:
    """Of the record here: reason, its end, where its ext is and its size, where its body is."""
    if end - at < RECORD_BYTES_MIN:
        return CUT, at, at, 0, at
    stop = at + HEAD_BYTES + big32(data, at)
    if stop - at < RECORD_BYTES_MIN:
        return BAD_LENGTH, at, at, 0, at
    if stop > end:
        return CUT, at, at, 0, at
    if byte(data, at + EXT_VERSION) == NO_EXT:
        return FINE, stop, at + RECORD_BYTES_MIN, 0, at + RECORD_BYTES_MIN
    if stop - at < EXT:
        return BAD_EXT, at, at, 0, at
    size = big16(data, at + RECORD_BYTES_MIN)
    if at + EXT + size > stop:
        return BAD_EXT, at, at, 0, at
    return FINE, stop, at + EXT, size, at + EXT + size


@njit(inline="always")
def _time_us(data: Any, at: Any) -> Any:
    """Microseconds since 1970; a time before that is 0."""
    return max(big64(data, at + TIMESTAMP), 0) // 1000


@njit(nogil=True)
def _note(headers: Any, at: Any, name: Any, name_bytes: Any, kind: Any, form: Any, value: Any, size: Any) -> Any:
    """One header into the table, whose row begins at byte ``at``; VALUE_END is the caller's."""
    store64(headers, at + 8 * NAME_AT, name)
    store64(headers, at + 8 * NAME_BYTES, name_bytes)
    store64(headers, at + 8 * KIND, kind)
    store64(headers, at + 8 * FORM, form)
    store64(headers, at + 8 * VALUE, value)
    store64(headers, at + 8 * VALUE_BYTES, size)


@njit(inline="always")
def _is_name(data: Any, at: Any, size: Any, found: Any) -> Any:
    """Whether a name is its own text in a Batch: UTF-8 without escapes, and not that of a carrier."""
    if size == 16 and load64(data, at) == _CARRIER_LOW and load64(data, at + 8) == _CARRIER_HIGH:
        return False
    return found == PLAIN or (found == WIDE and utf8_check(data, at, size) != UTF8_BAD)


@njit(nogil=True)
def _take_ext(data: Any, at: Any, end: Any, headers: Any, first: Any) -> Any:
    """Note the headers of a flat JSON object from row ``first`` on: how many, or -1 for what is left to Python."""
    row = first * (8 * HEADER_WORDS)
    count = 0
    at = passed_space(data, at, end)
    if at >= end or byte(data, at) != OBJECT:
        return -1
    at = passed_space(data, at + 1, end)
    if at < end and byte(data, at) == OBJECT_END:
        return 0 if passed_space(data, at + 1, end) == end else -1
    while True:
        if at >= end or byte(data, at) != QUOTE:
            return -1
        name = at + 1
        name_end, found = string_end(data, name, end)
        if name_end < 0 or not _is_name(data, name, name_end - name, found):
            return -1
        at = passed_space(data, name_end + 1, end)
        if at >= end or byte(data, at) != COLON:
            return -1
        at = passed_space(data, at + 1, end)
        stop, found = value_end(data, at, end)
        if stop < 0:
            return -1
        size = name_end - name
        if found in (PLAIN, WIDE):
            if found == WIDE and utf8_check(data, at + 1, stop - at - 2) == UTF8_BAD:
                return -1
            _note(headers, row, name, size, _STRING, COPIED, at + 1, stop - at - 2)
        elif found == SCALAR:
            value, whole = integer(data, at, stop)
            if whole:
                _note(headers, row, name, size, _INT64, NUMBER, value, 8)
            else:
                number, exact = decimal(data, at, stop)
                if not exact:
                    return -1
                _note(headers, row, name, size, _FLOAT64, NUMBER, np.float64(number).view(np.int64), 8)
        elif found in (TRUE, FALSE):
            _note(headers, row, name, size, _BOOL, NUMBER, 1 if found == TRUE else 0, 1)
        elif found == NULL:
            _note(headers, row, name, size, _RAW, NUMBER, 0, -1)
        elif found == ESCAPED:
            value_bytes = unescape(0, 0, data, at + 1, stop - 1)
            if value_bytes < 0 or utf8_check(data, at + 1, stop - at - 2) == UTF8_BAD:
                return -1
            _note(headers, row, name, size, _STRING, UNESCAPED, at + 1, value_bytes)
            store64(headers, row + 8 * VALUE_END, stop - 1)
        else:
            return -1
        row += 8 * HEADER_WORDS
        count += 1
        at = passed_space(data, stop, end)
        if at >= end:
            return -1
        here = byte(data, at)
        at = passed_space(data, at + 1, end)
        if here == OBJECT_END:
            return count if at == end else -1
        if here != COMMA:
            return -1


@njit(_long(_source, _chunks, _i64, *[_long] * 7, _i64_table, _i64_table, _i64), nogil=True, cache=True)
def scan(
    region: Any,
    chunks: Any,
    cursor: Any,
    first: Any,
    end: Any,
    max_rows: Any,
    max_bytes: Any,
    want_headers: Any,
    want_payload: Any,
    headers_room: Any,
    rows: Any,
    headers: Any,
    totals: Any,
) -> Any:
    data, row_data, header_data = base(region), base(rows), base(headers)
    chunk, at, index = cursor[0], cursor[1], cursor[2]
    count = 0
    noted = 0
    odd = 0
    payload_bytes = 0
    used = 0
    reason = FINE
    full = False
    while chunk < chunks.shape[0] and not full:
        start, stop = chunks[chunk, 0], chunks[chunk, 1]
        low, records, high = chunks[chunk, 2], chunks[chunk, 3], chunks[chunk, 4]
        if high < first or low >= end:
            chunk += 1
            at = -1
            continue
        if at < 0:
            at = start
            index = 0
        if at < 0 or stop > region.size or stop < at:
            reason = CUT
            break
        if low < 0 or records < 0 or low > POSITION_MAX - 1 - records:
            reason = BAD_OFFSET
            break
        while at < stop:
            if index >= records:
                reason = BAD_COUNT
                break
            reason, record_end, ext, ext_bytes, body = _record(data, at, stop)
            if reason != FINE:
                break
            offset = low + index
            if offset >= end:
                at = stop
                index = records
                break
            if offset >= first:
                body_bytes = record_end - body
                # a header has 5 bytes or more: {"":0}
                most = ext_bytes // 4 + 1
                cost = (body_bytes if want_payload else 0) + (ext_bytes if want_headers else 0)
                if cost > ARROW_BYTES_MAX:
                    reason = TOO_LARGE
                    break
                if count == max_rows or (count > 0 and (used + cost > max_bytes or noted + most > headers_room)):
                    full = True
                    break
                made = 0
                version = byte(data, at + EXT_VERSION)
                if want_headers and version != NO_EXT:
                    made = _take_ext(data, ext, ext + ext_bytes, header_data, noted) if version == JSON_EXT else -1
                    if made < 0:
                        made = -1 - version
                        odd += 1
                row = 8 * ROW_WORDS * count
                store64(row_data, row + 8 * ROW_OFFSET, offset)
                store64(row_data, row + 8 * ROW_TIME_US, _time_us(data, at))
                store64(row_data, row + 8 * ROW_ID, at + ID)
                store64(row_data, row + 8 * ROW_BODY, body)
                store64(row_data, row + 8 * ROW_BODY_BYTES, body_bytes)
                store64(row_data, row + 8 * ROW_EXT, ext)
                store64(row_data, row + 8 * ROW_EXT_BYTES, ext_bytes)
                store64(row_data, row + 8 * ROW_HEADERS, made)
                count += 1
                if made > 0:
                    noted += made
                    used += _HEADER_COST * made
                used += cost
                if want_payload:
                    payload_bytes += body_bytes
            at = record_end
            index += 1
        if reason != FINE:
            break
        if not full:
            if index != records:
                reason = BAD_COUNT
                break
            chunk += 1
            at = -1
    cursor[0] = chunk
    cursor[1] = at
    cursor[2] = index
    totals[COUNT] = count
    totals[HEADER_COUNT] = noted
    totals[ODD_ROWS] = odd
    totals[PAYLOAD_BYTES] = payload_bytes
    totals[WHERE] = at
    return reason


@njit(inline="always")
def _copy_value(out: Any, to: Any, data: Any, side: Any, header_data: Any, row: Any) -> Any:
    """The bytes of a value that is there; its size."""
    form, value, size = (
        _int(load64(header_data, row + 8 * FORM)),
        _int(load64(header_data, row + 8 * VALUE)),
        _int(load64(header_data, row + 8 * VALUE_BYTES)),
    )
    if form == COPIED:
        memcpy(out, to, data, value, size)
    elif form == ASIDE:
        memcpy(out, to, side, value, size)
    elif form == UNESCAPED:
        unescape(out, to, data, value, _int(load64(header_data, row + 8 * VALUE_END)))
    elif size == 8:
        store64(out, to, value)
    else:
        store8(out, to, value)
    return size


@njit(types.void(_source, _source, _table, _table, _bytes, _longs), nogil=True, cache=True)
def fill(region: Any, side: Any, rows: Any, headers: Any, memory: Any, places: Any) -> Any:
    data, aside, out, row_data, header_data = base(region), base(side), base(memory), base(rows), base(headers)
    offsets, timestamps, ids = places[OFFSETS], places[TIMESTAMPS], places[IDS]
    list_ends, name_ends, names, kinds = places[LIST_ENDS], places[NAME_ENDS], places[NAMES], places[KINDS]
    value_valid, value_ends, values = places[VALUE_VALID], places[VALUE_ENDS], places[VALUES]
    payload_ends, payloads = places[PAYLOAD_ENDS], places[PAYLOADS]
    header = 0
    name = 0
    value = 0
    payload = 0
    if list_ends >= 0:
        store32(out, list_ends, 0)
        store32(out, name_ends, 0)
        store32(out, value_ends, 0)
        for octet in range((headers.shape[0] + 7) // 8):
            store8(out, value_valid + octet, 0xFF)
    if payload_ends >= 0:
        store32(out, payload_ends, 0)
    for row in range(rows.shape[0]):
        at = 8 * ROW_WORDS * row
        if offsets >= 0:
            store64(out, offsets + 8 * row, load64(row_data, at + 8 * ROW_OFFSET))
        if timestamps >= 0:
            store64(out, timestamps + 8 * row, load64(row_data, at + 8 * ROW_TIME_US))
        if ids >= 0:
            place = _int(load64(row_data, at + 8 * ROW_ID))
            store64(out, ids + 16 * row, load64(data, place))
            store64(out, ids + 16 * row + 8, load64(data, place + 8))
        if list_ends >= 0:
            for _ in range(_int(load64(row_data, at + 8 * ROW_HEADERS))):
                entry = 8 * HEADER_WORDS * header
                size = _int(load64(header_data, entry + 8 * NAME_BYTES))
                origin = aside if _int(load64(header_data, entry + 8 * FORM)) == ASIDE else data
                memcpy(out, names + name, origin, _int(load64(header_data, entry + 8 * NAME_AT)), size)
                name += size
                store8(out, kinds + header, load64(header_data, entry + 8 * KIND))
                if _int(load64(header_data, entry + 8 * VALUE_BYTES)) >= 0:
                    value += _copy_value(out, values + value, data, aside, header_data, entry)
                else:
                    octet = value_valid + (header >> 3)
                    store8(out, octet, byte(out, octet) & ~(1 << (header & 7)))
                header += 1
                store32(out, name_ends + 4 * header, name)
                store32(out, value_ends + 4 * header, value)
            store32(out, list_ends + 4 * row + 4, header)
        if payload_ends >= 0:
            size = _int(load64(row_data, at + 8 * ROW_BODY_BYTES))
            memcpy(out, payloads + payload, data, _int(load64(row_data, at + 8 * ROW_BODY)), size)
            payload += size
            store32(out, payload_ends + 4 * row + 4, payload)


@njit(inline="always")
def _equal(data: Any, at: Any, keys: Any, key: Any, size: Any) -> Any:
    step = 0
    while step < size and load8(data, at + step) == load8(keys, key + step):
        step += 1
    return step == size


@njit(
    types.void(_source, _source, _table, _table, _source, _longs, _i64_table, _i64_table, types.int8[:, ::1], _bytes),
    nogil=True,
    cache=True,
)
def locate(
    region: Any,
    side: Any,
    rows: Any,
    headers: Any,
    keys: Any,
    key_ends: Any,
    starts: Any,
    lengths: Any,
    kinds: Any,
    memory: Any,
) -> Any:
    data, aside, key_data, out, header_data = base(region), base(side), base(keys), base(memory), base(headers)
    header = 0
    used = 0
    for row in range(rows.shape[0]):
        for asked in range(key_ends.size):
            starts[asked, row] = 0
            lengths[asked, row] = -1
            kinds[asked, row] = 0
        for _ in range(rows[row, ROW_HEADERS]):
            size = headers[header, NAME_BYTES]
            key = 0
            for asked in range(key_ends.size):
                key_end = key_ends[asked]
                if key_end - key == size:
                    origin = aside if headers[header, FORM] == ASIDE else data
                    if _equal(origin, headers[header, NAME_AT], key_data, key, size):
                        starts[asked, row] = used
                        kinds[asked, row] = headers[header, KIND]
                        if headers[header, VALUE_BYTES] < 0:
                            lengths[asked, row] = -2
                        else:
                            entry = 8 * HEADER_WORDS * header
                            copied = _copy_value(out, used, data, aside, header_data, entry)
                            lengths[asked, row] = copied
                            used += copied
                        break
                key = key_end
            header += 1


@njit(types.UniTuple(_long, 3)(_source, _chunks, _i64, _long, _long, _i64, _i64, _i64), nogil=True, cache=True)
def survey(region: Any, chunks: Any, cursor: Any, first: Any, end: Any, offsets: Any, starts: Any, sizes: Any) -> Any:
    data = base(region)
    chunk, at, index = cursor[0], cursor[1], cursor[2]
    count = 0
    reason = FINE
    while chunk < chunks.shape[0] and count < offsets.size:
        start, stop = chunks[chunk, 0], chunks[chunk, 1]
        low, records, high = chunks[chunk, 2], chunks[chunk, 3], chunks[chunk, 4]
        if high < first or low >= end:
            chunk += 1
            at = -1
            continue
        if at < 0:
            at = start
            index = 0
        if at < 0 or stop > region.size or stop < at:
            reason = CUT
            break
        while index < records and count < offsets.size and low + index < end:
            reason, record_end, _, _, _ = _record(data, at, stop)
            if reason != FINE:
                break
            if low + index >= first:
                offsets[count] = low + index
                starts[count] = at
                sizes[count] = record_end - at
                count += 1
            at = record_end
            index += 1
        if reason != FINE or (count == offsets.size and index < records and low + index < end):
            break
        chunk += 1
        at = -1
    cursor[0] = chunk
    cursor[1] = at
    cursor[2] = index
    return count, reason, at


@njit(_long(_source, *[_long] * 4, _i64_table, _long), nogil=True, cache=True)
def intact(region: Any, start: Any, stop: Any, low: Any, records: Any, found: Any, budget: Any) -> Any:
    data = base(region)
    at = start
    index = 0
    count = 0
    damaged = False
    while stop - at >= RECORD_BYTES_MIN and index < records and budget > 0 and count < found.shape[0]:
        reason, record_end, _, _, _ = _record(data, at, stop)
        budget -= 1
        if reason == FINE:
            budget -= record_end - at
            if _int(crc32c(region, at + TIMESTAMP, record_end)) == big32(data, at + CRC):
                if damaged:
                    # how many messages were passed over is not known: the id has to tell
                    told = (big64(data, at + ID) & ((1 << 50) - 1)) - 1 - low
                    if told < index or told >= records:
                        at = record_end
                        continue
                    index = told
                found[count, 0] = low + index
                found[count, 1] = at
                found[count, 2] = record_end
                count += 1
                index += 1
                at = record_end
                continue
        damaged = True
        at += 1
    return count

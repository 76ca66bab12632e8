"""Kernels that read record batches; ``twin.py`` says what each does, name by name, and gives the same bytes."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lading.kernels.crc32c import crc32c
from lading.kernels.key_text import copy_odd_text, copy_words, is_plain, odd_text_size, same
from lading.kernels.memory import base, load8, load32, load64, loadi64, memcpy, store8, store32, store64
from lading.kernels.varint import varint32, varint64

from .layout import (
    ARROW_BYTES_MAX,
    ATTRIBUTES,
    ATTRIBUTES_AT,
    BAD_COUNT,
    BAD_CRC,
    BAD_HEADERS,
    BAD_MAGIC,
    BAD_POSITION,
    BAD_RECORD,
    BASE,
    BASE_TIME_AT,
    BASE_TIME_MS,
    BATCH_HEADER_BYTES,
    CHUNK,
    COUNT,
    COUNT_AT,
    CRC_AT,
    CUT,
    END,
    FINE,
    FRAME_BYTES,
    HEADER_COUNT,
    HEADERS_AT,
    HEADERS_COUNT,
    KEY_AT,
    KEY_BYTES,
    KEY_ENDS,
    KEY_SIZE,
    KEY_VALID,
    KEYS,
    LAST,
    LAST_DELTA_AT,
    LENGTH_AT,
    LIST_ENDS,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    MAX_TIME_AT,
    MAX_TIME_MS,
    NAME_BYTES,
    NAME_ENDS,
    NAMES,
    NULL_KEYS,
    NULL_PAYLOADS,
    NULL_VALUES,
    ODD_NAMES,
    OFFSET,
    OFFSETS,
    PAYLOAD_BYTES,
    PAYLOAD_ENDS,
    PAYLOAD_VALID,
    PAYLOADS,
    POSITION_MAX,
    PRODUCER,
    PRODUCER_AT,
    RECORD_BYTES_MIN,
    ROW_WORDS,
    START,
    TIME_MS_MAX,
    TIME_US,
    TIMESTAMPS,
    TOO_LARGE,
    TOTAL_COUNT,
    VALUE_AT,
    VALUE_BYTES,
    VALUE_ENDS,
    VALUE_SIZE,
    VALUE_VALID,
    VALUES,
    WANT_HEADERS,
    WANT_KEY,
    WANT_PAYLOAD,
    WHERE,
)

njit: Any = numba.njit
types: Any = numba.types
_int: Any = np.int64

_source = types.Array(types.uint8, 1, "C", readonly=True)
_longs = types.Array(types.int64, 1, "C", readonly=True)
_chunks = types.Array(types.int64, 2, "A", readonly=True)
_bytes, _i64 = types.uint8[::1], types.int64[::1]
_table = types.int64[:, ::1]
_long = types.int64

_SHORT_BYTES = 64
_ROW_BYTES = 8 * ROW_WORDS


@njit(inline="always")
def _big16(data: Any, at: Any) -> Any:
    return (_int(load8(data, at)) << 8) | _int(load8(data, at + 1))


@njit(inline="always")
def _big32(data: Any, at: Any) -> Any:
    word = np.uint32(load32(data, at))
    swapped = (
        ((word >> np.uint32(24)) & np.uint32(0xFF))
        | ((word >> np.uint32(8)) & np.uint32(0xFF00))
        | ((word << np.uint32(8)) & np.uint32(0xFF0000))
        | (word << np.uint32(24))
    )
    return _int(np.uint32(swapped))


@njit(inline="always")
def _signed32(data: Any, at: Any) -> Any:
    value = _big32(data, at)
    return value - (value >> 31 << 32)


@njit(inline="always")
def _big64(data: Any, at: Any) -> Any:
    return (_signed32(data, at) << 32) | _big32(data, at + 4)


@njit(types.UniTuple(_long, 3)(_source, _chunks, _long, _long, _long, _i64, _table), nogil=True, cache=True)
def survey(region: Any, chunks: Any, first: Any, end: Any, verify: Any, cursor: Any, table: Any) -> Any:
    data = base(region)
    found = 0
    chunk = cursor[0]
    at = cursor[1]
    reason = FINE
    while chunk < chunks.shape[0] and found < table.shape[0]:
        body_end = chunks[chunk, 1]
        if at < 0:
            at = chunks[chunk, 0]
            if chunks[chunk, 4] < first or chunks[chunk, 2] >= end:
                at = body_end
        if at < 0 or body_end > region.size or body_end < at:
            reason = CUT
            break
        while at < body_end and found < table.shape[0]:
            if body_end - at < BATCH_HEADER_BYTES:
                reason = CUT
                break
            length = _signed32(data, at + LENGTH_AT)
            stop = at + FRAME_BYTES + length
            if _int(load8(data, at + MAGIC_AT)) != MAGIC:
                reason = BAD_MAGIC
                break
            if length < BATCH_HEADER_BYTES - FRAME_BYTES or stop > body_end:
                reason = CUT
                break
            if verify and _int(crc32c(region, at + ATTRIBUTES_AT, stop)) != _big32(data, at + CRC_AT):
                reason = BAD_CRC
                break
            base_offset = _big64(data, at)
            delta = _signed32(data, at + LAST_DELTA_AT)
            count = _signed32(data, at + COUNT_AT)
            if base_offset < 0 or delta < 0 or base_offset > POSITION_MAX - 1 - delta:
                reason = BAD_POSITION
                break
            if count < 0 or count > delta + 1:
                reason = BAD_COUNT
                break
            if base_offset + delta >= first and base_offset < end:
                table[found, START] = at
                table[found, END] = stop
                table[found, BASE] = base_offset
                table[found, COUNT] = count
                table[found, LAST] = base_offset + delta
                table[found, BASE_TIME_MS] = _big64(data, at + BASE_TIME_AT)
                table[found, MAX_TIME_MS] = _big64(data, at + MAX_TIME_AT)
                table[found, ATTRIBUTES] = _big16(data, at + ATTRIBUTES_AT)
                table[found, PRODUCER] = _big64(data, at + PRODUCER_AT)
                table[found, CHUNK] = chunk
                found += 1
            at = stop
        if reason != FINE:
            break
        if at >= body_end:
            chunk += 1
            if chunk < chunks.shape[0]:
                at = -1
    cursor[0] = chunk
    cursor[1] = at
    return found, at, reason


@njit(inline="always")
def _micros(ms: Any) -> Any:
    return min(max(ms, 0), TIME_MS_MAX) * 1000


@njit(
    _long(
        _source,
        _table,
        _i64,
        *[_long] * 5,
        _source,
        _longs,
        _i64,
        _table,
        _table,
        _i64,
    ),
    nogil=True,
    cache=True,
)
def scan(
    region: Any,
    batches: Any,
    cursor: Any,
    first: Any,
    end: Any,
    max_rows: Any,
    max_bytes: Any,
    wants: Any,
    keys: Any,
    key_ends: Any,
    rows: Any,
    starts: Any,
    lengths: Any,
    totals: Any,
) -> Any:
    want_headers = wants & WANT_HEADERS != 0
    want_payload = wants & WANT_PAYLOAD != 0
    want_key = wants & WANT_KEY != 0
    asked = key_ends.size
    room = starts.shape[1]
    data = base(region)
    key_data = base(keys)
    key_end_data = base(key_ends)
    start_data = base(starts)
    length_data = base(lengths)
    row_data = base(rows)
    count = 0
    header_count = 0
    name_bytes = 0
    value_bytes = 0
    key_bytes = 0
    payload_bytes = 0
    odd = 0
    null_keys = 0
    null_values = 0
    null_payloads = 0
    batch = cursor[0]
    at = cursor[1]
    done = cursor[2]
    before = cursor[3]
    reason = FINE
    full = False
    while batch < batches.shape[0] and not full:
        stop = batches[batch, END]
        base_offset = batches[batch, BASE]
        last_offset = batches[batch, LAST]
        base_ms = batches[batch, BASE_TIME_MS]
        records = batches[batch, COUNT]
        append_time = batches[batch, ATTRIBUTES] & LOG_APPEND_TIME != 0
        append_us = _micros(batches[batch, MAX_TIME_MS])
        if at < 0:
            at = batches[batch, START]
            done = 0
            before = base_offset - 1
            if records > (stop - at) // RECORD_BYTES_MIN:
                reason = BAD_COUNT
                break
        while done < records:
            if count == max_rows:
                full = True
                break
            length, here = varint32(data, at, stop)
            if here < 0 or length < 0 or length > stop - here:
                reason = CUT
                break
            record_end = here + length
            if length < RECORD_BYTES_MIN - 1:
                reason = BAD_RECORD
                break
            ms_delta, here = varint64(data, here + 1, record_end)
            if here < 0:
                reason = BAD_RECORD
                break
            delta, here = varint32(data, here, record_end)
            if here < 0:
                reason = BAD_RECORD
                break
            offset = base_offset + delta
            if offset <= before or offset > last_offset:
                reason = BAD_POSITION
                break
            if offset < first:
                at = record_end
                done += 1
                before = offset
                continue
            if offset >= end:
                done = records
                at = stop
                break
            key_size, here = varint32(data, here, record_end)
            if here < 0 or key_size < -1 or key_size > record_end - here:
                reason = BAD_RECORD
                break
            key_at = here
            here += max(key_size, 0)
            value_size, here = varint32(data, here, record_end)
            if here < 0 or value_size < -1 or value_size > record_end - here:
                reason = BAD_RECORD
                break
            value_at = here
            here += max(value_size, 0)
            headers, here = varint32(data, here, record_end)
            if here < 0 or headers < 0 or headers > (record_end - here) // 2:
                reason = BAD_HEADERS
                break
            headers_at = here
            these_names = 0
            these_values = 0
            these_nulls = 0
            these_odd = 0
            if want_headers or asked > 0:
                for index in range(asked):
                    store64(start_data, 8 * (index * room + count), 0)
                    store64(length_data, 8 * (index * room + count), -1)
                for _ in range(headers):
                    name_size, here = varint32(data, here, record_end)
                    if here < 0 or name_size < 0 or name_size > record_end - here:
                        reason = BAD_HEADERS
                        break
                    name_at = here
                    size, here = varint32(data, here + name_size, record_end)
                    if here < 0 or size < -1 or size > record_end - here:
                        reason = BAD_HEADERS
                        break
                    if want_headers:
                        if is_plain(data, name_at, name_size):
                            these_names += name_size
                        else:
                            these_names += odd_text_size(data, name_at, name_size)
                            these_odd = 1
                        if size < 0:
                            these_nulls += 1
                        else:
                            these_values += size
                    key = 0
                    for index in range(asked):
                        key_end = loadi64(key_end_data, 8 * index)
                        if key_end - key == name_size and same(data, name_at, key_data, key, name_size):
                            store64(start_data, 8 * (index * room + count), here)
                            store64(length_data, 8 * (index * room + count), size if size >= 0 else -2)
                            break
                        key = key_end
                    here += max(size, 0)
                if reason != FINE:
                    break
                if here != record_end:
                    reason = BAD_HEADERS
                    break
            cost = max(value_size, 0) if want_payload else 0
            if want_key:
                cost += max(key_size, 0)
            if want_headers:
                cost += these_names + these_values + 9 * headers
            if cost > ARROW_BYTES_MAX:
                reason = TOO_LARGE
                break
            used = name_bytes + value_bytes + key_bytes + payload_bytes + 9 * header_count
            if count > 0 and used + cost > max_bytes:
                full = True
                break
            row = _ROW_BYTES * count
            store64(row_data, row + 8 * OFFSET, offset)
            if append_time:
                store64(row_data, row + 8 * TIME_US, append_us)
            else:
                # both are bounded first, so that their sum is none of another sign
                ms = min(max(base_ms, -TIME_MS_MAX), TIME_MS_MAX) + min(max(ms_delta, -TIME_MS_MAX), TIME_MS_MAX)
                store64(row_data, row + 8 * TIME_US, _micros(ms))
            store64(row_data, row + 8 * KEY_AT, key_at)
            store64(row_data, row + 8 * KEY_SIZE, key_size)
            store64(row_data, row + 8 * VALUE_AT, value_at)
            store64(row_data, row + 8 * VALUE_SIZE, value_size)
            store64(row_data, row + 8 * HEADERS_AT, headers_at)
            store64(row_data, row + 8 * HEADERS_COUNT, headers)
            count += 1
            if want_key:
                key_bytes += max(key_size, 0)
                null_keys += 1 if key_size < 0 else 0
            if want_payload:
                payload_bytes += max(value_size, 0)
                null_payloads += 1 if value_size < 0 else 0
            if want_headers:
                header_count += headers
                name_bytes += these_names
                value_bytes += these_values
                null_values += these_nulls
                odd |= these_odd
            at = record_end
            before = offset
            done += 1
        if reason != FINE:
            break
        if not full:
            if at != stop:
                reason = BAD_COUNT
                break
            batch += 1
            at = -1
    cursor[0] = batch
    cursor[1] = at
    cursor[2] = done
    cursor[3] = before
    totals[TOTAL_COUNT] = count
    totals[HEADER_COUNT] = header_count
    totals[NAME_BYTES] = name_bytes
    totals[VALUE_BYTES] = value_bytes
    totals[KEY_BYTES] = key_bytes
    totals[PAYLOAD_BYTES] = payload_bytes
    totals[ODD_NAMES] = odd
    totals[WHERE] = at
    totals[NULL_KEYS] = null_keys
    totals[NULL_VALUES] = null_values
    totals[NULL_PAYLOADS] = null_payloads
    return reason


@njit(inline="always")
def _all_valid(out: Any, place: Any, count: Any) -> Any:
    for byte in range((count + 7) // 8):
        store8(out, place + byte, 0xFF)


@njit(inline="always")
def _invalid(out: Any, place: Any, index: Any) -> Any:
    byte = place + (index >> 3)
    store8(out, byte, _int(load8(out, byte)) & ~(1 << (index & 7)))


@njit(inline="always")
def _copy(out: Any, to: Any, data: Any, at: Any, size: Any) -> Any:
    if size <= _SHORT_BYTES:
        copy_words(out, to, data, at, size)
    else:
        memcpy(out, to, data, at, size)


@njit(inline="always")
def _known(data: Any, at: Any) -> Any:
    """A varint that ``scan`` has checked."""
    return varint32(data, at, POSITION_MAX)


@njit(types.void(_source, _table, _longs, _bytes, _longs), nogil=True, cache=True)
def fill(region: Any, rows: Any, totals: Any, memory: Any, places: Any) -> Any:
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
        if offsets >= 0:
            store64(out, offsets + 8 * row, load64(row_data, at + 8 * OFFSET))
        if timestamps >= 0:
            store64(out, timestamps + 8 * row, load64(row_data, at + 8 * TIME_US))
        if want_keys:
            size = loadi64(row_data, at + 8 * KEY_SIZE)
            if size >= 0:
                _copy(out, keys + key, data, loadi64(row_data, at + 8 * KEY_AT), size)
                key += size
            else:
                _invalid(out, key_valid, row)
            store32(out, key_ends + 4 * row + 4, key)
        if want_headers:
            here = loadi64(row_data, at + 8 * HEADERS_AT)
            for _ in range(loadi64(row_data, at + 8 * HEADERS_COUNT)):
                size, here = _known(data, here)
                if odd:
                    name += copy_odd_text(out, names + name, data, here, size)
                else:
                    copy_words(out, names + name, data, here, size)
                    name += size
                size, here = _known(data, here + size)
                if size >= 0:
                    _copy(out, values + value, data, here, size)
                    here += size
                    value += size
                else:
                    _invalid(out, value_valid, header)
                header += 1
                store32(out, name_ends + 4 * header, name)
                store32(out, value_ends + 4 * header, value)
            store32(out, list_ends + 4 * row + 4, header)
        if want_payloads:
            size = loadi64(row_data, at + 8 * VALUE_SIZE)
            if size >= 0:
                _copy(out, payloads + payload, data, loadi64(row_data, at + 8 * VALUE_AT), size)
                payload += size
            else:
                _invalid(out, payload_valid, row)
            store32(out, payload_ends + 4 * row + 4, payload)

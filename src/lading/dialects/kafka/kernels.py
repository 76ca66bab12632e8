"""Kernel that walks over records; ``fallback.py`` says what it does, and gives the same result."""

from __future__ import annotations

from typing import Any

import numba

from lading.kernels.key_text import is_plain, odd_text_size, same
from lading.kernels.memory import base, loadi64, store64
from lading.kernels.varint import varint32, varint64

from .layout import (
    ARROW_BYTES_MAX,
    ATTRIBUTES,
    BAD_COUNT,
    BAD_HEADERS,
    BAD_POSITION,
    BAD_RECORD,
    BASE,
    BASE_TIME_MS,
    COUNT,
    CUT,
    END,
    FINE,
    HEADER_COUNT,
    HEADERS_AT,
    HEADERS_COUNT,
    KEY_AT,
    KEY_BYTES,
    KEY_SIZE,
    LAST,
    LOG_APPEND_TIME,
    MAX_TIME_MS,
    NAME_BYTES,
    NULL_KEYS,
    NULL_PAYLOADS,
    NULL_VALUES,
    ODD_NAMES,
    OFFSET,
    PAYLOAD_BYTES,
    RECORD_BYTES_MIN,
    ROW_WORDS,
    START,
    TIME_MS_MAX,
    TIME_US,
    TOO_LARGE,
    TOTAL_COUNT,
    VALUE_AT,
    VALUE_BYTES,
    VALUE_SIZE,
    WANT_HEADERS,
    WANT_KEY,
    WANT_PAYLOAD,
    WHERE,
)

njit: Any = numba.njit
types: Any = numba.types

_source = types.Array(types.uint8, 1, "C", readonly=True)
_longs = types.Array(types.int64, 1, "C", readonly=True)
_i64, _table, _long = types.int64[::1], types.int64[:, ::1], types.int64

_ROW_BYTES = 8 * ROW_WORDS


@njit(inline="always")
def _micros(ms: Any) -> Any:
    return min(max(ms, -TIME_MS_MAX), TIME_MS_MAX) * 1000


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

"""Kernel that walks over records; ``fallback.py`` says what it does, and gives the same result."""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Longs, Table
from lading.kernels.key_text import is_plain, odd_text_size, same
from lading.kernels.memory import base, loadi64, store64
from lading.kernels.signature import BYTES, LONG, LONGS, OUT_LONGS, OUT_TABLE, Data, inline, int64, kernel, step
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

_ROW_BYTES = 8 * ROW_WORDS
_HEADER_COST_BYTES = 9
"""Bytes that a header takes of a portion besides its own: two ends of Arrow's and a bit."""


@inline
def _clamp_ms(ms: int) -> int:
    return min(max(ms, -TIME_MS_MAX), TIME_MS_MAX)


@step
def _read_head(data: Data, at: int, stop: int) -> tuple[int, int, int, int, int]:
    """Read a record up to its key: a reason, its end, time delta, offset delta, and the position of its key."""
    # in bounds: a varint reads nothing at or after its bound, and ``record_end`` is at most ``stop``
    length, here = varint32(data, at, stop)
    if here < 0 or length < 0 or length > stop - here:
        return CUT, at, 0, 0, at
    record_end = here + length
    if length < RECORD_BYTES_MIN - 1:
        return BAD_RECORD, at, 0, 0, at
    ms_delta, here = varint64(data, here + 1, record_end)
    if here < 0:
        return BAD_RECORD, at, 0, 0, at
    delta, here = varint32(data, here, record_end)
    if here < 0:
        return BAD_RECORD, at, 0, 0, at
    return FINE, record_end, ms_delta, delta, here


@step
def _read_sized(data: Data, at: int, end: int, least: int) -> tuple[int, int, int]:
    """Read bytes with their size in front: the size, their start, and their end (-1: not before ``end``).

    ``least`` is 0, or -1 if they may be null.
    """
    size, here = varint32(data, at, end)
    if here < 0 or size < least or size > end - here:
        return 0, at, -1
    return size, here, here + max(size, 0)


@step
def _locate(
    data: Data, name: int, name_size: int, value: int, size: int, keys: Data, key_ends: Data, asked: int,
    starts: Data, lengths: Data, room: int, likely: int,
) -> int:  # fmt: skip
    """Note the position of a header's value, if its name is one of ``asked`` keys; returns the likely next key.

    ``starts`` and ``lengths`` are addresses for this record and the first key; the next key's are ``room`` further on.
    The search begins at the key ``likely``: headers mostly come in the order of the keys, so that it ends there.
    """
    index = likely if likely < asked else int64(0)
    for _ in range(asked):
        # in bounds: ``key_ends`` and both tables have a place for each of ``asked`` keys
        key_end = loadi64(key_ends, 8 * index)
        key = loadi64(key_ends, 8 * (index - 1)) if index > 0 else int64(0)
        # SPARE_BYTES follow keys and region, so that whole words may be compared
        if key_end - key == name_size and same(data, name, keys, key, name_size):
            store64(starts, 8 * index * room, value)
            store64(lengths, 8 * index * room, size if size >= 0 else -2)
            return index + 1
        index = index + 1 if index + 1 < asked else int64(0)
    return likely


@step
def _walk_headers(
    data: Data, at: int, end: int, headers: int, measured: bool, keys: Data, key_ends: Data, asked: int,
    starts: Data, lengths: Data, room: int,
) -> tuple[int, int, int, int, int]:  # fmt: skip
    """Measure the headers of a record and locate those asked for, of equal names the last one.

    A reason, and if ``measured`` bytes of names as text, bytes of values, how many are null, and 1 if a name is odd.
    """
    name_bytes = 0
    value_bytes = 0
    nulls = 0
    odd = 0
    likely = int64(0)
    for index in range(asked):
        store64(starts, 8 * index * room, 0)
        store64(lengths, 8 * index * room, -1)
    for _ in range(headers):
        name_size, name, here = _read_sized(data, at, end, 0)
        if here < 0:
            return BAD_HEADERS, 0, 0, 0, 0
        size, value, at = _read_sized(data, here, end, -1)
        if at < 0:
            return BAD_HEADERS, 0, 0, 0, 0
        if measured:
            # in bounds: the name is before ``end``, and SPARE_BYTES follow the last record
            if is_plain(data, name, name_size):
                name_bytes += name_size
            else:
                name_bytes += odd_text_size(data, name, name_size)
                odd = 1
            if size < 0:
                nulls += 1
            else:
                value_bytes += size
        likely = _locate(data, name, name_size, value, size, keys, key_ends, asked, starts, lengths, room, likely)
    return FINE if at == end else BAD_HEADERS, name_bytes, value_bytes, nulls, odd


@inline
def _note(
    rows: Data, row: int, offset: int, time_us: int, key_at: int, key_size: int, value_at: int, value_size: int,
    headers_at: int, headers: int,
) -> None:  # fmt: skip
    """Note the positions of the parts of a record."""
    at = _ROW_BYTES * row
    # in bounds: ``rows`` has ROW_WORDS for each of max_rows records, and ``row`` is below that
    store64(rows, at + 8 * OFFSET, offset)
    store64(rows, at + 8 * TIME_US, time_us)
    store64(rows, at + 8 * KEY_AT, key_at)
    store64(rows, at + 8 * KEY_SIZE, key_size)
    store64(rows, at + 8 * VALUE_AT, value_at)
    store64(rows, at + 8 * VALUE_SIZE, value_size)
    store64(rows, at + 8 * HEADERS_AT, headers_at)
    store64(rows, at + 8 * HEADERS_COUNT, headers)


@kernel(LONG(BYTES, OUT_TABLE, OUT_LONGS, *[LONG] * 5, BYTES, LONGS, OUT_LONGS, OUT_TABLE, OUT_TABLE, OUT_LONGS))
def scan(
    region: Bytes,
    batches: Table,
    cursor: Longs,
    first: int,
    end: int,
    max_rows: int,
    max_bytes: int,
    wants: int,
    keys: Bytes,
    key_ends: Longs,
    rows: Longs,
    starts: Table,
    lengths: Table,
    totals: Longs,
) -> int:
    want_headers = wants & WANT_HEADERS != 0
    want_payload = wants & WANT_PAYLOAD != 0
    want_key = wants & WANT_KEY != 0
    asked = key_ends.size
    room = starts.shape[1]
    data, row_data = base(region), base(rows)
    key_data, key_end_data = base(keys), base(key_ends)
    start_data, length_data = base(starts), base(lengths)
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
    batch, at, done, before = cursor[0], cursor[1], cursor[2], cursor[3]
    reason = FINE
    full = False
    while batch < batches.shape[0] and not full:
        # in bounds: ``survey`` found START <= END <= region.size
        # the next batch, or the one in which the last call stopped
        stop = batches[batch, END]
        base_offset, last_offset = batches[batch, BASE], batches[batch, LAST]
        base_ms = batches[batch, BASE_TIME_MS]
        records = batches[batch, COUNT]
        append_time = batches[batch, ATTRIBUTES] & LOG_APPEND_TIME != 0
        append_us = _clamp_ms(batches[batch, MAX_TIME_MS]) * 1000
        # a batch that was not begun yet: can it hold this many records?
        if at < 0:
            at = batches[batch, START]
            done = 0
            before = base_offset - 1
            if records > (stop - at) // RECORD_BYTES_MIN:
                reason = BAD_COUNT
                break
        while done < records:
            # head of the next record: is it asked for?
            if count == max_rows:
                full = True
                break
            reason, record_end, ms_delta, delta, here = _read_head(data, at, stop)
            if reason != FINE:
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
            # key, value and number of headers
            # in bounds: the readers read only before record_end, which ``_read_head`` found before ``stop``
            key_size, key_at, here = _read_sized(data, here, record_end, -1)
            if here < 0:
                reason = BAD_RECORD
                break
            value_size, value_at, here = _read_sized(data, here, record_end, -1)
            if here < 0:
                reason = BAD_RECORD
                break
            headers, here = varint32(data, here, record_end)
            # a header has two bytes or more
            if here < 0 or headers < 0 or headers > (record_end - here) // 2:
                reason = BAD_HEADERS
                break
            # measure the columns of its headers, and locate the values of the keys asked for. In bounds: the tables
            # have a row of ``room`` places for each key, and ``count`` is below that
            these_names = 0
            these_values = 0
            these_nulls = 0
            these_odd = 0
            if want_headers or asked > 0:
                places = (asked, start_data + 8 * count, length_data + 8 * count, room)
                reason, these_names, these_values, these_nulls, these_odd = _walk_headers(
                    data, here, record_end, headers, want_headers, key_data, key_end_data, *places
                )
                if reason != FINE:
                    break
            # does it fit into this portion?
            cost = max(value_size, 0) if want_payload else 0
            if want_key:
                cost += max(key_size, 0)
            if want_headers:
                cost += these_names + these_values + _HEADER_COST_BYTES * headers
            if cost > ARROW_BYTES_MAX:
                reason = TOO_LARGE
                break
            used = name_bytes + value_bytes + key_bytes + payload_bytes + _HEADER_COST_BYTES * header_count
            if count > 0 and used + cost > max_bytes:
                full = True
                break
            # the sum wraps, as it does in Kafka's brokers and clients: the delta from a far base to now is as far
            time_us = append_us if append_time else _clamp_ms(base_ms + ms_delta) * 1000
            _note(row_data, count, offset, time_us, key_at, key_size, value_at, value_size, here, headers)
            # add it up
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

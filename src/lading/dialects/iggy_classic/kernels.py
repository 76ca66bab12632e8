"""Kernels that make columns of stored messages; ``fallback.py`` says what each does, and gives the same bytes."""

from __future__ import annotations

from lading.kernels.arrays import Bytes, KindTable, Longs, Table
from lading.kernels.key_text import SHORT_BYTES, copy_odd_text, copy_words, is_plain, odd_text_size, same
from lading.kernels.memory import base, load8, load32, load64, loadi64, memcpy, store8, store32, store64
from lading.kernels.signature import (
    BYTES,
    CHUNKS,
    LONG,
    LONGS,
    NOTHING,
    OUT_BYTES,
    OUT_KIND_TABLE,
    OUT_LONGS,
    OUT_TABLE,
    Data,
    inline,
    int64,
    kernel,
    routine,
)
from lading.model import chunk_table

from .layout import (
    ARROW_BYTES_MAX,
    BAD_HEADERS,
    BAD_KIND,
    BAD_POSITION,
    BAD_STATE,
    CHECKSUM,
    CHECKSUMS,
    COUNT,
    CUT,
    FINE,
    HEADER_BYTES_MIN,
    HEADER_COUNT,
    HEADERS,
    HEADERS_LENGTH,
    ID,
    IDS,
    KEY_BYTES,
    KEY_ENDS,
    KEYS,
    KINDS,
    LIST_ENDS,
    ODD_KEYS,
    OFFSETS,
    PAYLOAD_BYTES,
    PAYLOAD_ENDS,
    PAYLOADS,
    STATE,
    STATES,
    STORED_KIND_MAX,
    TIMESTAMP,
    TIMESTAMPS,
    TOO_LARGE,
    VALUE_BYTES,
    VALUE_ENDS,
    VALUES,
    WANT_HEADERS,
    WANT_PAYLOAD,
    WHERE,
)
from .stored_kernels import known_state, payload_at


@inline
def _measure(data: Data, at: int, end: int) -> tuple[int, int, int, int]:
    """Of a header block: (headers, key bytes as text, value bytes, whether some key is odd); -reason for headers."""
    count = 0
    keys = 0
    values = 0
    odd = 0
    while at < end:
        # in bounds: each length is read only if it lies before ``end``, and behind a key lie 8 bytes at least: kind and
        # length of its value, and the length of the payload
        if end - at < HEADER_BYTES_MIN:
            return -BAD_HEADERS, keys, values, odd
        key_size = int64(load32(data, at))
        at += 4
        if end - at < key_size + 5:
            return -BAD_HEADERS, keys, values, odd
        if is_plain(data, at, key_size):
            keys += key_size
        else:
            keys += odd_text_size(data, at, key_size)
            odd = 1
        at += key_size
        kind = load8(data, at)
        value_size = int64(load32(data, at + 1))
        at += 5 + value_size
        if at > end:
            return -BAD_HEADERS, keys, values, odd
        if kind > STORED_KIND_MAX:
            return -BAD_KIND, keys, values, odd
        values += value_size
        count += 1
    return count, keys, values, odd


@routine
def _locate(
    data: Data,
    at: int,
    end: int,
    keys: Data,
    key_ends: Data,
    asked: int,
    starts: Data,
    lengths: Data,
    kinds: Data,
    room: int,
) -> int:
    """Write where the last value of each asked key lies; a reason or 0.

    ``starts``, ``lengths`` and ``kinds`` are addresses of one row; the next key's row is ``room`` further on.
    """
    for index in range(asked):
        store64(starts, 8 * index * room, 0)
        store64(lengths, 8 * index * room, -1)
        store8(kinds, index * room, 0)
    while at < end:
        # in bounds: as in ``_measure``; the tables have a place for each of ``asked`` keys
        if end - at < HEADER_BYTES_MIN:
            return BAD_HEADERS
        key_at = at + 4
        key_size = int64(load32(data, at))
        if end - key_at < key_size + 5:
            return BAD_HEADERS
        kind = load8(data, key_at + key_size)
        value_size = int64(load32(data, key_at + key_size + 1))
        value_at = key_at + key_size + 5
        at = value_at + value_size
        if at > end:
            return BAD_HEADERS
        if kind > STORED_KIND_MAX:
            return BAD_KIND
        key = 0
        for index in range(asked):
            key_end = loadi64(key_ends, 8 * index)
            if key_end - key == key_size and same(data, key_at, keys, key, key_size):
                store64(starts, 8 * index * room, value_at)
                store64(lengths, 8 * index * room, value_size)
                store8(kinds, index * room, kind)
                break
            key = key_end
    return FINE


@kernel(
    LONG(
        BYTES, CHUNKS, OUT_LONGS, *[LONG] * 5, BYTES, LONGS, OUT_LONGS, OUT_TABLE, OUT_TABLE, OUT_KIND_TABLE, OUT_LONGS
    )
)
def scan(
    region: Bytes,
    chunks: Table,
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
    kinds: KindTable,
    totals: Longs,
) -> int:
    count = 0
    header_count = 0
    key_bytes = 0
    value_bytes = 0
    payload_bytes = 0
    odd = 0
    reason = FINE
    want_headers = wants & WANT_HEADERS != 0
    want_payload = wants & WANT_PAYLOAD != 0
    asked = key_ends.size
    room = starts.shape[1]
    data = base(region)
    key_data = base(keys)
    key_end_data = base(key_ends)
    start_data = base(starts)
    length_data = base(lengths)
    kind_data = base(kinds)
    row_data = base(rows)
    chunk = cursor[0]
    at = cursor[1]
    full = False
    while chunk < chunks.shape[0] and not full:
        body_end = chunks[chunk, chunk_table.BODY_END]
        if at < 0:
            at = chunks[chunk, chunk_table.BODY_START]
            if chunks[chunk, chunk_table.LAST_OFFSET] < first or chunks[chunk, chunk_table.BASE_OFFSET] >= end:
                at = body_end
        if at < 0 or body_end > region.size or body_end < at:
            reason = CUT
            break
        while at < body_end:
            if count == max_rows:
                full = True
                break
            # in bounds: ``payload_at`` finds the whole message before body_end, which is not behind the region
            length_at = payload_at(data, at, body_end)
            if length_at < 0:
                reason = CUT
                break
            payload_size = int64(load32(data, length_at))
            offset = loadi64(data, at)
            if offset >= 0 and (offset < first or offset >= end):
                at = length_at + 4 + payload_size
                continue
            if offset < 0 or loadi64(data, at + TIMESTAMP) < 0:
                reason = BAD_POSITION
                break
            if not known_state(load8(data, at + STATE)):
                reason = BAD_STATE
                break
            cost = payload_size if want_payload else 0
            these_headers = 0
            these_keys = 0
            these_values = 0
            these_odd = 0
            if want_headers:
                these_headers, these_keys, these_values, these_odd = _measure(data, at + HEADERS, length_at)
                if these_headers < 0:
                    reason = -these_headers
                    break
                cost += these_keys + these_values + HEADER_BYTES_MIN * these_headers
            if asked > 0:
                places = (start_data + 8 * count, length_data + 8 * count, kind_data + count, room)
                reason = _locate(data, at + HEADERS, length_at, key_data, key_end_data, asked, *places)
                if reason != FINE:
                    break
            if cost > ARROW_BYTES_MAX:
                reason = TOO_LARGE
                break
            used = key_bytes + value_bytes + payload_bytes + HEADER_BYTES_MIN * header_count
            if count > 0 and used + cost > max_bytes:
                full = True
                break
            # in bounds: ``rows`` has room for max_rows, and ``count`` is below that
            store64(row_data, 8 * count, at)
            count += 1
            odd |= these_odd
            header_count += these_headers
            key_bytes += these_keys
            value_bytes += these_values
            if want_payload:
                payload_bytes += payload_size
            at = length_at + 4 + payload_size
        if reason != FINE:
            break
        if not full:
            chunk += 1
            at = -1
    cursor[0] = chunk
    cursor[1] = at
    totals[COUNT] = count
    totals[HEADER_COUNT] = header_count
    totals[KEY_BYTES] = key_bytes
    totals[VALUE_BYTES] = value_bytes
    totals[PAYLOAD_BYTES] = payload_bytes
    totals[ODD_KEYS] = odd
    totals[WHERE] = at
    return reason


@kernel(NOTHING(BYTES, LONGS, LONG, OUT_BYTES, LONGS))
def fill(region: Bytes, rows: Longs, odd: int, memory: Bytes, places: Longs) -> None:
    # in bounds: ``scan`` found these messages whole, and the caller made each buffer as large as its totals say
    data, size, out = base(region), region.size, base(memory)
    offsets, states, timestamps = places[OFFSETS], places[STATES], places[TIMESTAMPS]
    ids, checksums, kinds = places[IDS], places[CHECKSUMS], places[KINDS]
    list_ends, key_ends, keys = places[LIST_ENDS], places[KEY_ENDS], places[KEYS]
    value_ends, values = places[VALUE_ENDS], places[VALUES]
    payload_ends, payloads = places[PAYLOAD_ENDS], places[PAYLOADS]
    want_headers, want_payloads = list_ends >= 0, payload_ends >= 0
    header = 0
    key = 0
    value = 0
    payload = 0
    if want_headers:
        store32(out, list_ends, 0)
        store32(out, key_ends, 0)
        store32(out, value_ends, 0)
    if want_payloads:
        store32(out, payload_ends, 0)
    for row in range(rows.size):
        at = rows[row]
        if offsets >= 0:
            store64(out, offsets + 8 * row, load64(data, at))
        if states >= 0:
            store8(out, states + row, load8(data, at + STATE))
        if timestamps >= 0:
            store64(out, timestamps + 8 * row, load64(data, at + TIMESTAMP))
        if ids >= 0:
            memcpy(out, ids + 16 * row, data, at + ID, 16)
        if checksums >= 0:
            store32(out, checksums + 4 * row, load32(data, at + CHECKSUM))
        length_at = at + HEADERS + int64(load32(data, at + HEADERS_LENGTH))
        if want_headers:
            here = at + HEADERS
            # whole words may be loaded behind a value only if the region has so many bytes behind the headers
            spare = length_at + 8 <= size
            while here < length_at:
                key_size = int64(load32(data, here))
                here += 4
                if odd:
                    key += copy_odd_text(out, keys + key, data, here, key_size)
                else:
                    copy_words(out, keys + key, data, here, key_size)
                    key += key_size
                here += key_size
                store8(out, kinds + header, load8(data, here))
                value_size = int64(load32(data, here + 1))
                here += 5
                if spare and value_size <= SHORT_BYTES:
                    copy_words(out, values + value, data, here, value_size)
                else:
                    memcpy(out, values + value, data, here, value_size)
                here += value_size
                value += value_size
                header += 1
                store32(out, key_ends + 4 * header, key)
                store32(out, value_ends + 4 * header, value)
            store32(out, list_ends + 4 * row + 4, header)
        if want_payloads:
            payload_size = int64(load32(data, length_at))
            memcpy(out, payloads + payload, data, length_at + 4, payload_size)
            payload += payload_size
            store32(out, payload_ends + 4 * row + 4, payload)

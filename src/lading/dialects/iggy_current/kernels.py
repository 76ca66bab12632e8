"""Kernels that make columns of stored batches; ``fallback.py`` says what each does, and gives the same bytes."""

from __future__ import annotations

from lading.kernels.arrays import Bytes, KindTable, Longs, Table
from lading.kernels.key_text import (
    SHORT_BYTES,
    copy_odd_text,
    copy_typed_text,
    copy_words,
    is_plain,
    measure_typed_text,
    odd_text_size,
    same,
)
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
    TABLE,
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
    BASE_OFFSET,
    BASE_TIME,
    BATCH_HEAD_BYTES,
    COUNT,
    CUT,
    FINE,
    FRAME_HEAD_BYTES,
    HEADER_BYTES_MIN,
    HEADER_COUNT,
    HEADERS_LENGTH,
    ID,
    IDS,
    KEY_BYTES,
    KEY_ENDS,
    KEYS,
    KINDS,
    LIST_ENDS,
    ODD_KEYS,
    OFFSET_DELTA,
    OFFSETS,
    PAYLOAD_BYTES,
    PAYLOAD_ENDS,
    PAYLOAD_LENGTH,
    PAYLOADS,
    STORED_KIND_MAX,
    STRING_KEY,
    TIMESTAMPS,
    TOO_LARGE,
    VALUE_BYTES,
    VALUE_ENDS,
    VALUES,
    WANT_HEADERS,
    WANT_PAYLOAD,
    WHERE,
)
from .stored_kernels import batch_end, frame_end


@inline
def _measure(data: Data, at: int, end: int, size: int) -> tuple[int, int, int, int]:
    """Of a header block: (headers, key bytes as text, value bytes, whether some key is odd); -reason for headers."""
    count = 0
    keys = 0
    values = 0
    odd = 0
    while at < end:
        # in bounds: each length is read only if it lies before ``end``; of a key eight bytes more are read only where
        # so many lie in the region, whose size is ``size``
        if end - at < HEADER_BYTES_MIN:
            return -BAD_HEADERS, keys, values, odd
        key_kind = int64(load8(data, at))
        key_size = int64(load32(data, at + 1))
        at += 5
        if end - at < key_size + 5:
            return -BAD_HEADERS, keys, values, odd
        kind_at = at + key_size
        kind = load8(data, kind_at)
        value_size = int64(load32(data, kind_at + 1))
        next_at = kind_at + 5 + value_size
        if next_at > end:
            return -BAD_HEADERS, keys, values, odd
        if kind < 1 or kind > STORED_KIND_MAX or key_kind == 0:
            return -BAD_KIND, keys, values, odd
        if key_kind != STRING_KEY:
            keys += measure_typed_text(key_kind, key_size)
            odd = 1
        elif kind_at + 8 <= size and is_plain(data, at, key_size):
            keys += key_size
        else:
            # a key at the very end of the region is looked at as an odd one, which reads no byte behind it
            keys += odd_text_size(data, at, key_size)
            odd = 1
        at = next_at
        values += value_size
        count += 1
    return count, keys, values, odd


@routine
def _locate(
    data: Data,
    at: int,
    end: int,
    size: int,
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
        key_kind = load8(data, at)
        key_at = at + 5
        key_size = int64(load32(data, at + 1))
        if end - key_at < key_size + 5:
            return BAD_HEADERS
        kind = load8(data, key_at + key_size)
        value_size = int64(load32(data, key_at + key_size + 1))
        value_at = key_at + key_size + 5
        at = value_at + value_size
        if at > end:
            return BAD_HEADERS
        if kind < 1 or kind > STORED_KIND_MAX or key_kind == 0:
            return BAD_KIND
        key = 0
        for index in range(asked):
            key_end = loadi64(key_ends, 8 * index)
            # an asked key is its kind and its bytes
            if (
                key_end - key == key_size + 1
                and load8(keys, key) == key_kind
                and _is_same(data, key_at, size, keys, key + 1, key_size)
            ):
                store64(starts, 8 * index * room, value_at)
                store64(lengths, 8 * index * room, value_size)
                store8(kinds, index * room, kind)
                break
            key = key_end
    return FINE


@inline
def _is_same(data: Data, at: int, size: int, keys: Data, key: int, key_size: int) -> bool:
    """Whether a key in a region of ``size`` bytes is an asked one."""
    # in bounds: by words only if eight bytes behind the key are in the region
    if at + key_size + 8 <= size:
        fast: bool = same(data, at, keys, key, key_size)
        return fast
    slow = True
    for step in range(key_size):
        slow = slow and load8(data, at + step) == load8(keys, key + step)
    return slow


@kernel(
    LONG(
        BYTES, CHUNKS, OUT_LONGS, *[LONG] * 5, BYTES, LONGS, OUT_TABLE, OUT_TABLE, OUT_TABLE, OUT_KIND_TABLE, OUT_LONGS
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
    rows: Table,
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
    size = region.size
    data = base(region)
    key_data = base(keys)
    key_end_data = base(key_ends)
    start_data = base(starts)
    length_data = base(lengths)
    kind_data = base(kinds)
    chunk = cursor[0]
    batch_at = cursor[1]
    at = cursor[2]
    full = False
    while chunk < chunks.shape[0] and not full and reason == FINE:
        body_end = chunks[chunk, chunk_table.BODY_END]
        if batch_at < 0:
            batch_at = chunks[chunk, chunk_table.BODY_START]
            if chunks[chunk, chunk_table.LAST_OFFSET] < first or chunks[chunk, chunk_table.BASE_OFFSET] >= end:
                batch_at = body_end
        if batch_at < 0 or body_end > size or body_end < batch_at:
            reason = CUT
            break
        while batch_at < body_end:
            # in bounds: ``batch_end`` finds the head before body_end, ``frame_end`` each frame before the batch's end,
            # and body_end is not behind the region
            stop_at = batch_end(data, batch_at, body_end)
            if stop_at < 0:
                reason = CUT
                at = batch_at
                break
            if at < 0:
                at = batch_at + BATCH_HEAD_BYTES
            base_offset = loadi64(data, batch_at + BASE_OFFSET)
            time_us = loadi64(data, batch_at + BASE_TIME)
            while at < stop_at:
                if count == max_rows:
                    full = True
                    break
                next_at = frame_end(data, at, stop_at)
                if next_at < 0:
                    reason = CUT
                    break
                offset = base_offset + int64(load32(data, at + OFFSET_DELTA))
                is_placed = base_offset >= 0 and offset >= 0
                if is_placed and (offset < first or offset >= end):
                    at = next_at
                    continue
                if not is_placed or time_us < 0:
                    reason = BAD_POSITION
                    break
                payload_size = int64(load32(data, at + PAYLOAD_LENGTH))
                headers_at = at + FRAME_HEAD_BYTES + payload_size
                cost = payload_size if want_payload else 0
                these_headers = 0
                these_keys = 0
                these_values = 0
                these_odd = 0
                if want_headers:
                    these_headers, these_keys, these_values, these_odd = _measure(data, headers_at, next_at, size)
                    if these_headers < 0:
                        reason = -these_headers
                        break
                    cost += these_keys + these_values + HEADER_BYTES_MIN * these_headers
                if asked > 0:
                    places = (start_data + 8 * count, length_data + 8 * count, kind_data + count, room)
                    reason = _locate(data, headers_at, next_at, size, key_data, key_end_data, asked, *places)
                    if reason != FINE:
                        break
                if cost > ARROW_BYTES_MAX:
                    reason = TOO_LARGE
                    break
                used = key_bytes + value_bytes + payload_bytes + HEADER_BYTES_MIN * header_count
                if count > 0 and used + cost > max_bytes:
                    full = True
                    break
                rows[count, 0] = at
                rows[count, 1] = batch_at
                count += 1
                odd |= these_odd
                header_count += these_headers
                key_bytes += these_keys
                value_bytes += these_values
                if want_payload:
                    payload_bytes += payload_size
                at = next_at
            if reason != FINE or full:
                break
            batch_at = stop_at
            at = -1
        if reason == FINE and not full:
            chunk += 1
            batch_at = -1
            at = -1
    cursor[0] = chunk
    cursor[1] = batch_at
    cursor[2] = at
    totals[COUNT] = count
    totals[HEADER_COUNT] = header_count
    totals[KEY_BYTES] = key_bytes
    totals[VALUE_BYTES] = value_bytes
    totals[PAYLOAD_BYTES] = payload_bytes
    totals[ODD_KEYS] = odd
    totals[WHERE] = max(at, batch_at)
    return reason


@kernel(NOTHING(BYTES, TABLE, LONG, OUT_BYTES, LONGS))
def fill(region: Bytes, rows: Table, odd: int, memory: Bytes, places: Longs) -> None:
    # in bounds: ``scan`` found these messages whole, and the caller made each buffer as large as its totals say
    data, size, out = base(region), region.size, base(memory)
    offsets, timestamps, ids, kinds = places[OFFSETS], places[TIMESTAMPS], places[IDS], places[KINDS]
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
    for row in range(rows.shape[0]):
        at = rows[row, 0]
        batch_at = rows[row, 1]
        if offsets >= 0:
            own = loadi64(data, batch_at + BASE_OFFSET) + int64(load32(data, at + OFFSET_DELTA))
            store64(out, offsets + 8 * row, own)
        if timestamps >= 0:
            store64(out, timestamps + 8 * row, load64(data, batch_at + BASE_TIME))
        if ids >= 0:
            memcpy(out, ids + 16 * row, data, at + ID, 16)
        payload_size = int64(load32(data, at + PAYLOAD_LENGTH))
        here = at + FRAME_HEAD_BYTES + payload_size
        end = here + int64(load32(data, at + HEADERS_LENGTH))
        if want_payloads:
            memcpy(out, payloads + payload, data, at + FRAME_HEAD_BYTES, payload_size)
            payload += payload_size
            store32(out, payload_ends + 4 * row + 4, payload)
        if want_headers:
            # whole words may be loaded behind a key or value only if the region has so many bytes behind the headers
            spare = end + 8 <= size
            while here < end:
                key_kind = int64(load8(data, here))
                key_size = int64(load32(data, here + 1))
                here += 5
                if key_kind != STRING_KEY:
                    key += copy_typed_text(out, keys + key, data, here, key_size, key_kind)
                elif odd:
                    key += copy_odd_text(out, keys + key, data, here, key_size)
                else:
                    if spare:
                        copy_words(out, keys + key, data, here, key_size)
                    else:
                        memcpy(out, keys + key, data, here, key_size)
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

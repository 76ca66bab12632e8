"""Kernels that make columns of stored batches; ``fallback.py`` says what each does, and gives the same bytes."""

from __future__ import annotations

from lading.kernels.arrays import Bytes, KindTable, Longs, Table
from lading.kernels.memory import base, load32, load64, loadi64, memcpy, store32, store64
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
    int64,
    kernel,
)
from lading.model import chunk_table

from ..iggy_messages.header_block import (
    copy_headers,
    copy_headers_at_edge,
    locate_headers,
    locate_headers_at_edge,
    measure_headers,
    measure_headers_at_edge,
)
from ..iggy_messages.layout import (
    ARROW_BYTES_MAX,
    BAD_POSITION,
    COUNT,
    CUT,
    FINE,
    HEADER_BYTES_MIN,
    HEADER_COUNT,
    KEY_BYTES,
    ODD_KEYS,
    PAYLOAD_BYTES,
    SPARE_BYTES,
    TOO_LARGE,
    TYPED,
    VALUE_BYTES,
    WANT_HEADERS,
    WANT_PAYLOAD,
    WHERE,
)
from .layout import (
    BASE_OFFSET,
    BASE_TIME,
    BATCH_HEAD_BYTES,
    FRAME_HEAD_BYTES,
    HEADERS_LENGTH,
    ID,
    IDS,
    KEY_ENDS,
    KEYS,
    KINDS,
    LIST_ENDS,
    OFFSET_DELTA,
    OFFSETS,
    PAYLOAD_ENDS,
    PAYLOAD_LENGTH,
    PAYLOADS,
    TIMESTAMPS,
    VALUE_ENDS,
    VALUES,
)
from .stored_kernels import batch_end, frame_end


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
                # behind a block in the middle of the region lie enough bytes to load whole words
                spare = next_at + SPARE_BYTES <= size
                if want_headers:
                    if spare:
                        measured = measure_headers(data, headers_at, next_at, TYPED)
                    else:
                        measured = measure_headers_at_edge(data, headers_at, next_at, TYPED)
                    these_headers, these_keys, these_values, these_odd = measured
                    if these_headers < 0:
                        reason = -these_headers
                        break
                    cost += these_keys + these_values + HEADER_BYTES_MIN * these_headers
                if asked > 0:
                    sought = (key_data, key_end_data, asked)
                    places = (start_data + 8 * count, length_data + 8 * count, kind_data + count, room)
                    if spare:
                        reason = locate_headers(data, headers_at, next_at, TYPED, *sought, *places)
                    else:
                        reason = locate_headers_at_edge(data, headers_at, next_at, TYPED, *sought, *places)
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
            into = (out, key_ends, keys, kinds, value_ends, values, header, key, value)
            if end + SPARE_BYTES <= size:
                header, key, value = copy_headers(*into, data, here, end, TYPED, odd, True)
            else:
                header, key, value = copy_headers_at_edge(*into, data, here, end, TYPED, odd)
            store32(out, list_ends + 4 * row + 4, header)

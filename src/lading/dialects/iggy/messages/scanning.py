"""Stored messages to columns inside kernels, whatever their generation: a dialect finds the parts of one.

``scan_messages`` and ``fill_messages`` are compiled for the functions they are given. A chunk's body is a series of
batches; a generation without any takes the body for one (``find_body``).

* ``find_batch(data, at, end)`` returns start and end of its messages (end -1 if that is not before ``end``) and the
  base offset of its messages;
* ``find(data, at, end)`` (end of the message or -1 if it does not end before ``end``, its offset, start and end of its
  headers, start of its payload, size of the payload);
* ``judge(data, batch_at, at)`` a reason to refuse a message that was found, or FINE;
* ``place(data, at)`` the places of headers and payload of a message that was found;
* ``copy_fixed(out, places, row, data, batch_at, at)`` writes the fields that have a place and a size of their own.

A row is the position of a message, or with ``row_words`` = 2 that and the position of its batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lading.kernels.arrays import Bytes, KindTable, Longs, Table
from lading.kernels.memory import base, loadi64, memcpy, store32, store64
from lading.kernels.signature import Data, step
from lading.model import chunk_table

from .header_block import (
    copy_headers,
    copy_headers_at_edge,
    locate_headers,
    locate_headers_at_edge,
    measure_headers,
    measure_headers_at_edge,
)
from .layout import (
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
    UNTYPED,
    VALUE_BYTES,
    WANT_HEADERS,
    WANT_PAYLOAD,
    WHERE,
)

MessageParts = tuple[int, int, int, int, int, int]
FindBatch = Callable[[Data, int, int], tuple[int, int, int]]
FindMessage = Callable[[Data, int, int], MessageParts]
PlaceParts = Callable[[Data, int], tuple[int, int, int, int]]
JudgeMessage = Callable[[Data, int, int], int]
CopyFixed = Callable[[Data, Any, int, Data, int, int], None]


@step
def find_body(data: Data, at: int, end: int) -> tuple[int, int, int]:
    """Take the body from ``at`` to ``end`` for one batch, whose messages have their own offsets."""
    return at, end, 0


@step
def scan_messages(
    find_batch: FindBatch,
    find: FindMessage,
    judge: JudgeMessage,
    typed: int,
    row_words: int,
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
    rows: Longs | Table,
    starts: Table,
    lengths: Table,
    kinds: KindTable,
    totals: Longs,
) -> int:
    """Do what ``scan`` of a dialect does, see ``scanning_fallback.scan_messages``."""
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
    batch_at = cursor[1]
    at = cursor[2]
    full = False
    while chunk < chunks.shape[0] and not full and reason == FINE:
        # the next chunk, or the one in which the last call stopped
        body_end = chunks[chunk, chunk_table.BODY_END]
        if batch_at < 0:
            batch_at = chunks[chunk, chunk_table.BODY_START]
            if chunks[chunk, chunk_table.LAST_OFFSET] < first or chunks[chunk, chunk_table.BASE_OFFSET] >= end:
                batch_at = body_end
        if batch_at < 0 or body_end > region.size or body_end < batch_at:
            reason = CUT
            break
        while batch_at < body_end:
            # the next batch in bounds: ``find_batch`` finds it whole before body_end, which is inside the region
            first_at, stop_at, base_offset = find_batch(data, batch_at, body_end)
            if stop_at < 0:
                reason = CUT
                at = batch_at
                break
            if at < 0:
                at = first_at
            while at < stop_at:
                # is the next message asked for, and whole?
                if count == max_rows:
                    full = True
                    break
                # in bounds: ``find`` finds the whole message before stop_at, the end of a batch that was found
                message_end, own_offset, headers_at, headers_end, _, payload_size = find(data, at, stop_at)
                if message_end < 0:
                    reason = CUT
                    break
                offset = base_offset + own_offset
                is_placed = base_offset >= 0 and offset >= 0
                if is_placed and (offset < first or offset >= end):
                    at = message_end
                    continue
                reason = judge(data, batch_at, at) if is_placed else BAD_POSITION
                if reason != FINE:
                    break
                # measure the columns of its headers. If keys have no kinds, SPARE_BYTES of values and payload follow
                # each key anyway
                spare = typed == UNTYPED or headers_end + SPARE_BYTES <= region.size
                cost = payload_size if want_payload else 0
                these_headers = 0
                these_keys = 0
                these_values = 0
                these_odd = 0
                if want_headers:
                    if spare:
                        measured = measure_headers(data, headers_at, headers_end, typed)
                    else:
                        measured = measure_headers_at_edge(data, headers_at, headers_end, typed)
                    these_headers, these_keys, these_values, these_odd = measured
                    if these_headers < 0:
                        reason = -these_headers
                        break
                    cost += these_keys + these_values + HEADER_BYTES_MIN * these_headers
                # locate the values of the keys asked for
                if asked > 0:
                    # in bounds: the tables have a row of ``room`` places for each key, and ``count`` is below that
                    sought = (key_data, key_end_data, asked)
                    places = (start_data + 8 * count, length_data + 8 * count, kind_data + count, room)
                    if spare:
                        reason = locate_headers(data, headers_at, headers_end, typed, *sought, *places)
                    else:
                        reason = locate_headers_at_edge(data, headers_at, headers_end, typed, *sought, *places)
                    if reason != FINE:
                        break
                # does it fit into this portion?
                if cost > ARROW_BYTES_MAX:
                    reason = TOO_LARGE
                    break
                used = key_bytes + value_bytes + payload_bytes + HEADER_BYTES_MIN * header_count
                if count > 0 and used + cost > max_bytes:
                    full = True
                    break
                # in bounds: ``rows`` has room for max_rows, and ``count`` is below that
                store64(row_data, 8 * row_words * count, at)
                if row_words > 1:
                    store64(row_data, 8 * row_words * count + 8, batch_at)
                count += 1
                odd |= these_odd
                header_count += these_headers
                key_bytes += these_keys
                value_bytes += these_values
                if want_payload:
                    payload_bytes += payload_size
                at = message_end
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


@step
def fill_messages(
    place: PlaceParts,
    copy_fixed: CopyFixed,
    typed: int,
    row_words: int,
    region: Bytes,
    rows: Longs | Table,
    odd: int,
    memory: Bytes,
    fixed: Any,
    headers: tuple[int, int, int, int, int, int],
    payload_ends: int,
    payloads: int,
) -> None:
    """Do what ``fill`` of a dialect does, see its fallback.

    ``fixed`` are the places that ``copy_fixed`` takes; ``headers`` those of the ends of lists, keys, kinds and values.
    """
    # in bounds: ``scan`` found these messages whole, and the caller made each buffer as large as its totals say
    data, size, out = base(region), region.size, base(memory)
    list_ends, key_ends, keys, kinds, value_ends, values = headers
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
    row_data = base(rows)
    for row in range(rows.size // row_words):
        at = loadi64(row_data, 8 * row_words * row)
        batch_at = at if row_words == 1 else loadi64(row_data, 8 * row_words * row + 8)
        headers_at, headers_end, payload_at, payload_size = place(data, at)
        copy_fixed(out, fixed, row, data, batch_at, at)
        if want_headers:
            into = (out, key_ends, keys, kinds, value_ends, values, header, key, value)
            spare = headers_end + SPARE_BYTES <= size
            if typed == UNTYPED or spare:
                header, key, value = copy_headers(*into, data, headers_at, headers_end, typed, odd, spare)
            else:
                header, key, value = copy_headers_at_edge(*into, data, headers_at, headers_end, typed, odd)
            store32(out, list_ends + 4 * row + 4, header)
        if want_payloads:
            memcpy(out, payloads + payload, data, payload_at, payload_size)
            payload += payload_size
            store32(out, payload_ends + 4 * row + 4, payload)

"""Kernels that read stored messages; ``fallback.py`` says what each does, name by name, and leaves exts to
``ext.py``.
"""

from __future__ import annotations

from lading.kernels.arrays import Bytes, KindTable, Longs, Table
from lading.kernels.big_endian import big64, byte
from lading.kernels.json_text import (
    unescape,
)
from lading.kernels.memory import base, load8, load64, memcpy, store8, store32, store64
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
    step,
)
from lading.model import chunk_table

from .kernel_ext import take_ext
from .layout import (
    ARROW_BYTES_MAX,
    ASIDE,
    BAD_COUNT,
    BAD_OFFSET,
    COPIED,
    COUNT,
    CUT,
    EXT_VERSION,
    FINE,
    FORM,
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
    ODD_ROWS,
    OFFSETS,
    PAYLOAD_BYTES,
    PAYLOAD_ENDS,
    PAYLOADS,
    POSITION_MAX,
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
from .survey_kernels import read_record

_HEADER_COST_BYTES = 9
"""Bytes that a header takes of a portion besides its own: two ends of Arrow's and a bit."""


@inline
def _time_us(data: Data, at: int) -> int:
    """Microseconds since 1970; a time before that is 0."""
    return max(big64(data, at + TIMESTAMP), 0) // 1000


@step
def _note(
    rows: Data, row: int, data: Data, at: int, record_end: int, ext: int, ext_bytes: int, body: int, offset: int,
    headers: int,
) -> None:  # fmt: skip
    """Note the positions of the parts of a message."""
    to = 8 * ROW_WORDS * row
    # in bounds: ``rows`` has ROW_WORDS for each of max_rows messages, and ``row`` is below that
    store64(rows, to + 8 * ROW_OFFSET, offset)
    store64(rows, to + 8 * ROW_TIME_US, _time_us(data, at))
    store64(rows, to + 8 * ROW_ID, at + ID)
    store64(rows, to + 8 * ROW_BODY, body)
    store64(rows, to + 8 * ROW_BODY_BYTES, record_end - body)
    store64(rows, to + 8 * ROW_EXT, ext)
    store64(rows, to + 8 * ROW_EXT_BYTES, ext_bytes)
    store64(rows, to + 8 * ROW_HEADERS, headers)


@kernel(LONG(BYTES, CHUNKS, OUT_LONGS, *[LONG] * 7, OUT_TABLE, OUT_TABLE, OUT_LONGS))
def scan(
    region: Bytes,
    chunks: Table,
    cursor: Longs,
    first: int,
    end: int,
    max_rows: int,
    max_bytes: int,
    want_headers: int,
    want_payload: int,
    headers_room: int,
    rows: Table,
    headers: Table,
    totals: Longs,
) -> int:
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
        # the next chunk, or the one in which the last call stopped
        start, stop = chunks[chunk, chunk_table.BODY_START], chunks[chunk, chunk_table.BODY_END]
        low, high = chunks[chunk, chunk_table.BASE_OFFSET], chunks[chunk, chunk_table.LAST_OFFSET]
        records = chunks[chunk, chunk_table.COUNT]
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
            # the next record: is it whole, and asked for?
            if index >= records:
                reason = BAD_COUNT
                break
            # in bounds: it finds the record whole before ``stop``, which is inside the region
            reason, record_end, ext, ext_bytes, body = read_record(data, at, stop)
            if reason != FINE:
                break
            offset = low + index
            if offset >= end:
                at = stop
                index = records
                break
            if offset >= first:
                # does it fit into this portion?
                body_bytes = record_end - body
                # a header has 5 bytes or more, {"":0}: the table of headers must have room for this many
                most = ext_bytes // 4 + 1
                cost = (body_bytes if want_payload else 0) + (ext_bytes if want_headers else 0)
                if cost > ARROW_BYTES_MAX:
                    reason = TOO_LARGE
                    break
                if count == max_rows or (count > 0 and (used + cost > max_bytes or noted + most > headers_room)):
                    full = True
                    break
                # its headers, if they are flat JSON; Python takes the others apart
                # in bounds: the table of headers has room for ``most`` more
                made = 0
                version = byte(data, at + EXT_VERSION)
                if want_headers and version != NO_EXT:
                    made = take_ext(data, ext, ext + ext_bytes, header_data, noted) if version == JSON_EXT else -1
                    if made < 0:
                        made = -1 - version
                        odd += 1
                _note(row_data, count, data, at, record_end, ext, ext_bytes, body, offset, made)
                # add it up
                count += 1
                if made > 0:
                    noted += made
                    used += _HEADER_COST_BYTES * made
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


@inline
def _copy_value(out: Data, to: int, data: Data, side: Data, header_data: Data, row: int) -> int:
    """Copy the bytes of a value that is not null; return its size."""
    # in bounds: ``scan`` wrote ``row`` and found the value whole, and the caller's buffer has room for its size
    form, value, size = (
        int64(load64(header_data, row + 8 * FORM)),
        int64(load64(header_data, row + 8 * VALUE)),
        int64(load64(header_data, row + 8 * VALUE_BYTES)),
    )
    if form == COPIED:
        memcpy(out, to, data, value, size)
    elif form == ASIDE:
        memcpy(out, to, side, value, size)
    elif form == UNESCAPED:
        unescape(out, to, data, value, int64(load64(header_data, row + 8 * VALUE_END)))
    elif size == 8:
        store64(out, to, value)
    else:
        store8(out, to, value)
    return size


@kernel(NOTHING(BYTES, BYTES, TABLE, TABLE, OUT_BYTES, LONGS))
def fill(region: Bytes, side: Bytes, rows: Table, headers: Table, memory: Bytes, places: Longs) -> None:
    # in bounds: ``scan`` found these parts whole, and the caller made each buffer as large as they add up to
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
            place = int64(load64(row_data, at + 8 * ROW_ID))
            store64(out, ids + 16 * row, load64(data, place))
            store64(out, ids + 16 * row + 8, load64(data, place + 8))
        if list_ends >= 0:
            for _ in range(int64(load64(row_data, at + 8 * ROW_HEADERS))):
                entry = 8 * HEADER_WORDS * header
                size = int64(load64(header_data, entry + 8 * NAME_BYTES))
                origin = aside if int64(load64(header_data, entry + 8 * FORM)) == ASIDE else data
                memcpy(out, names + name, origin, int64(load64(header_data, entry + 8 * NAME_AT)), size)
                name += size
                store8(out, kinds + header, load64(header_data, entry + 8 * KIND))
                if int64(load64(header_data, entry + 8 * VALUE_BYTES)) >= 0:
                    value += _copy_value(out, values + value, data, aside, header_data, entry)
                else:
                    octet = value_valid + (header >> 3)
                    store8(out, octet, byte(out, octet) & ~(1 << (header & 7)))
                header += 1
                store32(out, name_ends + 4 * header, name)
                store32(out, value_ends + 4 * header, value)
            store32(out, list_ends + 4 * row + 4, header)
        if payload_ends >= 0:
            size = int64(load64(row_data, at + 8 * ROW_BODY_BYTES))
            memcpy(out, payloads + payload, data, int64(load64(row_data, at + 8 * ROW_BODY)), size)
            payload += size
            store32(out, payload_ends + 4 * row + 4, payload)


@inline
def _equal(data: Data, at: int, keys: Data, key: int, size: int) -> bool:
    # in bounds: both have ``size`` bytes, as the caller compared
    step = 0
    while step < size and load8(data, at + step) == load8(keys, key + step):
        step += 1
    return step == size


@kernel(NOTHING(BYTES, BYTES, TABLE, TABLE, BYTES, LONGS, OUT_TABLE, OUT_TABLE, OUT_KIND_TABLE, OUT_BYTES))
def locate(
    region: Bytes,
    side: Bytes,
    rows: Table,
    headers: Table,
    keys: Bytes,
    key_ends: Longs,
    starts: Table,
    lengths: Table,
    kinds: KindTable,
    memory: Bytes,
) -> None:
    # in bounds: as in ``fill``, and ``memory`` is as large as all values together
    data, aside, key_data, out, header_data = base(region), base(side), base(keys), base(memory), base(headers)
    header = 0
    used = 0
    for row in range(rows.shape[0]):
        for asked in range(key_ends.size):
            starts[asked, row] = 0
            lengths[asked, row] = -1
            kinds[asked, row] = 0
        # headers mostly come in the order of the keys: each search begins after the last key found
        likely = int64(0)
        for _ in range(rows[row, ROW_HEADERS]):
            size = headers[header, NAME_BYTES]
            for _ in range(key_ends.size):
                asked = likely if likely < key_ends.size else int64(0)
                likely = asked + 1
                key = int64(key_ends[asked - 1]) if asked > 0 else int64(0)
                if key_ends[asked] - key == size:
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
            header += 1

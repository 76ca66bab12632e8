"""Kernels that take sent messages in, write messages and bring them into other forms; see ``send_fallback.py``."""

from __future__ import annotations

import numpy as np

from lading.kernels.arrays import Bytes, Ints, Kinds, Longs, Words
from lading.kernels.crc32 import crc32
from lading.kernels.memory import base, load8, load32, load64, memcpy, store8, store32, store64
from lading.kernels.signature import (
    BYTES,
    INTS,
    KINDS,
    LONG,
    LONGS,
    OUT_BYTES,
    OUT_LONGS,
    OUT_WORDS,
    Data,
    int64,
    kernel,
    routine,
    several,
    step,
    uint64,
)
from lading.kernels.xxh3 import xxh3_64

from ..messages import limits as header_limits
from ..messages.drawing import read_id
from ..messages.header_block import check_header, headers_add_up, write_headers
from ..messages.layout import (
    BAD_HEADERS,
    CUT,
    FINE,
    FITS,
    NO_PAYLOAD,
    SPARE_BYTES,
    STRING_KEY,
    TYPED,
    UNTYPED,
    VALUE_HEAD_BYTES,
)
from . import limits
from .layout import (
    CHECKSUM,
    CRC_32,
    HEAD_BYTES,
    HEADERS_LENGTH,
    ID,
    INDEX_BYTES,
    INDEX_END,
    INDEX_OFFSET,
    INDEX_TIMESTAMP,
    NO_CHECKSUM,
    OFFSET,
    ORIGIN_TIMESTAMP,
    PAYLOAD_LENGTH,
    RESERVED,
    SHORT_HEAD_BYTES,
    TIMESTAMP,
    UNHASHED_BYTES,
    XXH3_64,
)

_OK, _NO_ROOM, _MALFORMED = header_limits.OK, header_limits.NO_ROOM, header_limits.MALFORMED
_NO_MESSAGES, _PAYLOAD_TOO_LARGE = header_limits.NO_MESSAGES, header_limits.PAYLOAD_TOO_LARGE
_HEADERS_TOO_LARGE = header_limits.HEADERS_TOO_LARGE
_PAYLOAD_MAX, _HEADERS_MAX = limits.PAYLOAD_BYTES_MAX, limits.HEADERS_BYTES_MAX
_ZERO = uint64(0)


@step
def _hash(data: Data, at: int, end: int, checksum: int) -> int:
    """Return the checksum of the message ``data[at:end]``."""
    # in bounds: callers hold the whole message
    if checksum == XXH3_64:
        return xxh3_64(data, at + UNHASHED_BYTES, end - at - UNHASHED_BYTES)
    if checksum == CRC_32:
        return uint64(crc32(data, at + UNHASHED_BYTES, end - at - UNHASHED_BYTES))
    return _ZERO


@routine
def _check_block(data: Data, at: int, end: int, typed: int) -> int:
    """A status of limits for a block of headers."""
    while at < end:
        status, _, at = check_header(data, at, end, typed)
        if status != _OK:
            return status
    return _OK


@routine
def _check_block_at_edge(data: Data, at: int, end: int, typed: int) -> int:
    """``_check_block`` of a block that SPARE_BYTES may not follow."""
    # in bounds: the block ends at ``end``, and SPARE_BYTES follow it in the copy
    copy = np.empty(end - at + SPARE_BYTES, np.uint8)
    memcpy(base(copy), 0, data, at, end - at)
    status = _check_block(base(copy), 0, end - at, typed)
    # Numba frees an array after its last use: this one was used by its address
    copy[0] = 0
    return status


@step
def _copy_typed(out: Data, to: int, data: Data, at: int, end: int) -> int:
    """Copy a valid block of headers whose keys have no kinds, and give each key the kind of text.

    Return the end of the copy.
    """
    # in bounds: the caller's target has a byte more for each header
    while at < end:
        size = 4 + int64(load32(data, at))
        size += VALUE_HEAD_BYTES + int64(load32(data, at + size + 1))
        store8(out, to, STRING_KEY)
        memcpy(out, to + 1, data, at, size)
        to += 1 + size
        at += size
    return to


@step
def _copy_untyped(out: Data, to: int, data: Data, at: int, end: int) -> int:
    """Copy a block that adds up without the kinds of its keys; the position after it, -1 if one is not text."""
    # in bounds: what is written is shorter
    while at < end:
        if load8(data, at) != STRING_KEY:
            return -1
        size = 4 + int64(load32(data, at + 1))
        size += VALUE_HEAD_BYTES + int64(load32(data, at + 1 + size + 1))
        memcpy(out, to, data, at + 1, size)
        to += size
        at += 1 + size
    return to


@step
def _copy_rest(
    out: Data, to: int, data: Data, at: int, head_bytes: int, typed: int, headers_size: int, payload_size: int
) -> int:
    """Write the lengths, payload and headers of a message that was checked as they are stored; return its end."""
    # in bounds: callers have seen to the room, and found the message whole
    payload_at = at + head_bytes
    memcpy(out, to + HEAD_BYTES, data, payload_at, payload_size)
    here = to + HEAD_BYTES + payload_size
    headers_at = payload_at + payload_size
    if typed == TYPED:
        memcpy(out, here, data, headers_at, headers_size)
        written = here + headers_size
    else:
        written = _copy_typed(out, here, data, headers_at, headers_at + headers_size)
    store32(out, to + HEADERS_LENGTH, written - here)
    store32(out, to + PAYLOAD_LENGTH, payload_size)
    store64(out, to + RESERVED, 0)
    return written


@kernel(several(3)(BYTES, LONG, LONG, LONG, LONG, LONG, OUT_BYTES, LONG, LONG, LONG, OUT_WORDS))
def restamp(
    source: Bytes,
    index_at: int,
    start: int,
    end: int,
    head_bytes: int,
    typed: int,
    target: Bytes,
    to: int,
    base_offset: int,
    now_us: int,
    random: Words,
) -> tuple[int, int, int]:
    messages = (start - index_at) // INDEX_BYTES
    size = end - start
    if index_at < 0 or start < index_at or size < 0 or end > source.size or to < 0 or random.size < 6:
        return _NO_ROOM, 0, 0
    # a header takes 11 bytes at least without the kind of its key
    if to + size + (HEAD_BYTES - head_bytes) * messages + (TYPED - typed) * (size // 11) > target.size:
        return _NO_ROOM, 0, 0
    data, out, draw = base(source), base(target), base(random)
    at = start
    write = to
    for count in range(messages):
        # in bounds: each length is read only if it lies before ``end``, the entries of the index lie before ``start``
        entry = index_at + INDEX_BYTES * count
        # lengths
        if end - at < head_bytes:
            return _MALFORMED, count, 0
        headers_size = int64(load32(data, at + HEADERS_LENGTH))
        payload_size = int64(load32(data, at + PAYLOAD_LENGTH))
        if payload_size > _PAYLOAD_MAX:
            return _PAYLOAD_TOO_LARGE, count, 0
        if headers_size > _HEADERS_MAX:
            return _HEADERS_TOO_LARGE, count, 0
        headers_at = at + head_bytes + payload_size
        message_end = headers_at + headers_size
        # the entry of the index has to agree
        indexed = load32(data, entry + INDEX_OFFSET) == 0 and load64(data, entry + INDEX_TIMESTAMP) == _ZERO
        if message_end > end or not indexed or int64(load32(data, entry + INDEX_END)) != message_end - start:
            return _MALFORMED, count, 0
        if head_bytes == HEAD_BYTES and load64(data, at + RESERVED) != _ZERO:
            return _MALFORMED, count, 0
        # headers
        if message_end + SPARE_BYTES <= source.size:
            status = _check_block(data, headers_at, message_end, typed)
        else:
            status = _check_block_at_edge(data, headers_at, message_end, typed)
        if status != _OK:
            return status, count, 0
        # write the message with what the server gives it
        # in bounds: the message ends before ``end``, and ``target`` has room for the stored form of all messages
        low, high = read_id(data, at + ID, draw)
        store64(out, write + ID, low)
        store64(out, write + ID + 8, high)
        store64(out, write + OFFSET, base_offset + count)
        store64(out, write + TIMESTAMP, now_us + count)
        store64(out, write + ORIGIN_TIMESTAMP, load64(data, at + ORIGIN_TIMESTAMP))
        written = _copy_rest(out, write, data, at, head_bytes, typed, headers_size, payload_size)
        store64(out, write + CHECKSUM, _hash(out, write, written, XXH3_64))
        write = written
        at = message_end
    if at != end:
        return _MALFORMED, messages, 0
    return (_OK if messages else _NO_MESSAGES), messages, write - to


@kernel(several(4)(BYTES, LONG, LONG, LONG, LONG, LONG, OUT_BYTES))
def lengthen(
    source: Bytes, start: int, end: int, head_bytes: int, typed: int, checksum: int, target: Bytes
) -> tuple[int, int, int, int]:
    data, out = base(source), base(target)
    at = start
    write = 0
    wrong = -1
    while at < end:
        # in bounds: each length is read only if it lies before ``end``; the target is checked before each message
        if end - at < head_bytes:
            return CUT, at, write, wrong
        headers_size = int64(load32(data, at + HEADERS_LENGTH))
        payload_size = int64(load32(data, at + PAYLOAD_LENGTH))
        headers_at = at + head_bytes + payload_size
        message_end = headers_at + headers_size
        if message_end > end:
            return CUT, at, write, wrong
        if not headers_add_up(data, headers_at, message_end, typed):
            return BAD_HEADERS, at, write, wrong
        if write + HEAD_BYTES + payload_size + headers_size + (TYPED - typed) * (headers_size // 9) > target.size:
            return CUT, at, write, wrong
        if wrong < 0 and load64(data, at + CHECKSUM) != _hash(data, at, message_end, checksum):
            wrong = at
        memcpy(out, write + ID, data, at + ID, HEADERS_LENGTH - ID)
        written = _copy_rest(out, write, data, at, head_bytes, typed, headers_size, payload_size)
        store64(out, write + CHECKSUM, _hash(out, write, written, XXH3_64))
        write = written
        at = message_end
    return FINE, at, write, wrong


@kernel(LONG(BYTES, LONG, LONG, LONG, OUT_BYTES))
def shorten(source: Bytes, start: int, end: int, checksum: int, target: Bytes) -> int:
    data, out = base(source), base(target)
    if target.size < end - start:
        return -1
    at = start
    write = 0
    while at < end:
        # in bounds: callers have found whole messages, whose headers add up; what is written is shorter
        payload_size = int64(load32(data, at + PAYLOAD_LENGTH))
        headers_at = at + HEAD_BYTES + payload_size
        message_end = headers_at + int64(load32(data, at + HEADERS_LENGTH))
        memcpy(out, write + ID, data, at + ID, HEADERS_LENGTH - ID)
        memcpy(out, write + SHORT_HEAD_BYTES, data, at + HEAD_BYTES, payload_size)
        here = write + SHORT_HEAD_BYTES + payload_size
        written = _copy_untyped(out, here, data, headers_at, message_end)
        if written < 0:
            return -1
        store32(out, write + HEADERS_LENGTH, written - here)
        store32(out, write + PAYLOAD_LENGTH, payload_size)
        store64(out, write + CHECKSUM, _hash(out, write, written, checksum))
        write = written
        at = message_end
    return write


@kernel(LONG(BYTES, LONG, LONG))
def find_changed(source: Bytes, start: int, end: int) -> int:
    data = base(source)
    at = start
    while at < end:
        # in bounds: callers have found whole messages
        headers_at = at + HEAD_BYTES + int64(load32(data, at + PAYLOAD_LENGTH))
        message_end = headers_at + int64(load32(data, at + HEADERS_LENGTH))
        if load64(data, at + CHECKSUM) != _hash(data, at, message_end, XXH3_64):
            return at
        at = message_end
    return -1


@kernel(
    LONG(
        *[LONG] * 3,
        *[LONGS] * 3,
        BYTES,
        INTS,
        INTS,
        BYTES,
        KINDS,
        KINDS,
        INTS,
        BYTES,
        INTS,
        BYTES,
        OUT_BYTES,
        OUT_LONGS,
    )
)
def write(
    head_bytes: int,
    typed: int,
    checksum: int,
    offsets: Longs,
    timestamps: Longs,
    origins: Longs,
    ids: Bytes,
    list_ends: Ints,
    key_ends: Ints,
    keys: Bytes,
    key_kinds: Kinds,
    kinds: Kinds,
    value_ends: Ints,
    values: Bytes,
    payload_ends: Ints,
    payloads: Bytes,
    target: Bytes,
    where: Longs,
) -> int:
    out, payload_data, id_data = base(target), base(payloads), base(ids)
    # in bounds: Arrow's ends lie inside their data, and the caller made ``target`` as large as all parts add up to
    at = 0
    for row in range(offsets.size):
        where[0] = row
        payload_at = int64(payload_ends[row])
        payload_size = int64(payload_ends[row + 1]) - payload_at
        if payload_size < 1:
            return NO_PAYLOAD
        memcpy(out, at + ID, id_data, 16 * row, 16)
        store64(out, at + OFFSET, offsets[row])
        store64(out, at + TIMESTAMP, timestamps[row])
        store64(out, at + ORIGIN_TIMESTAMP, origins[row])
        store32(out, at + PAYLOAD_LENGTH, payload_size)
        if head_bytes == HEAD_BYTES:
            store64(out, at + RESERVED, 0)
        memcpy(out, at + head_bytes, payload_data, payload_at, payload_size)
        here = at + head_bytes + payload_size
        columns = (key_ends, keys, key_kinds, kinds, value_ends, values)
        if typed == TYPED:
            reason, end = write_headers(out, here, list_ends[row], list_ends[row + 1], TYPED, *columns, where)
        else:
            reason, end = write_headers(out, here, list_ends[row], list_ends[row + 1], UNTYPED, *columns, where)
        if reason != FITS:
            return reason
        store32(out, at + HEADERS_LENGTH, end - here)
        store64(out, at + CHECKSUM, _hash(out, at, end, checksum) if checksum != NO_CHECKSUM else _ZERO)
        at = end
    return FITS

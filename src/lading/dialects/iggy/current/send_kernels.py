"""Kernels that take a sent batch in and write batches; ``send_fallback.py`` says what each does, name by name."""

from __future__ import annotations

import numpy as np

from lading.kernels.arrays import Bytes, Ints, Kinds, Longs
from lading.kernels.memory import base, load8, load32, load64, memcpy, store32, store64
from lading.kernels.signature import (
    BOOLEAN,
    BYTES,
    INTS,
    KINDS,
    LONG,
    LONGS,
    OUT_BYTES,
    OUT_LONGS,
    Data,
    int64,
    kernel,
    several,
    step,
    uint64,
)
from lading.kernels.xxh3 import xxh3_64

from ..messages.header_block import write_headers
from ..messages.layout import FITS, HEADER_BYTES_MIN, NO_PAYLOAD, TYPED
from . import limits
from .layout import (
    BASE_OFFSET,
    BASE_TIME,
    BATCH_CHECKSUM,
    BATCH_HEAD_BYTES,
    BATCH_LENGTH,
    CHECKSUM_BYTES,
    FRAME_HEAD_BYTES,
    FRAMES_AT,
    HEADERS_LENGTH,
    HEADERS_SIZE,
    ID,
    MESSAGE_COUNT,
    OFFSET_DELTA,
    ORIGIN_TIME,
    PARTITION,
    PAYLOAD_LENGTH,
    PAYLOAD_SIZE,
    RESERVED,
    SCRATCH_BYTES,
    TIME_DELTA,
)
from .stored_kernels import batch_checksum, batch_end, frame_end, is_producer_sound

_OK, _NO_ROOM, _NO_MESSAGES, _INVALID = limits.OK, limits.NO_ROOM, limits.NO_MESSAGES, limits.INVALID_FORMAT
_BAD_KEY, _BAD_VALUE, _BAD_KIND = limits.INVALID_HEADER_KEY, limits.INVALID_HEADER_VALUE, limits.INVALID_HEADER_KIND
_BAD_MESSAGE, _BAD_BATCH = limits.INVALID_MESSAGE_CHECKSUM, limits.INVALID_BATCH_CHECKSUM
_EMPTY, _PAYLOAD_TOO_LARGE, _HEADERS_TOO_LARGE = (
    limits.EMPTY_PAYLOAD,
    limits.PAYLOAD_TOO_LARGE,
    limits.HEADERS_TOO_LARGE,
)
_BAD_RESERVED = limits.INVALID_RESERVED_FIELD
_KEY_MAX, _VALUE_MAX, _HIGHEST_KIND = limits.KEY_BYTES_MAX, limits.VALUE_BYTES_MAX, limits.KIND_MAX
_HEADERS_MAX, _PAYLOAD_MAX = limits.HEADERS_BYTES_MAX, limits.PAYLOAD_BYTES_MAX
_ZERO = uint64(0)


@step
def _check_headers(data: Data, at: int, end: int) -> int:
    """Check a block of headers: a status of limits."""
    while at < end:
        # in bounds: each length is read only if it lies before ``end``
        if end - at < HEADER_BYTES_MIN:
            return _INVALID
        key_kind = load8(data, at)
        key_size = int64(load32(data, at + 1))
        kind_at = at + 5 + key_size
        if end - kind_at < 5:
            return _INVALID
        kind = load8(data, kind_at)
        value_size = int64(load32(data, kind_at + 1))
        at = kind_at + 5 + value_size
        if at > end:
            return _INVALID
        if key_size < 1 or key_size > _KEY_MAX:
            return _BAD_KEY
        if key_kind == 0 or kind < 1 or kind > _HIGHEST_KIND:
            return _BAD_KIND
        if value_size < 1 or value_size > _VALUE_MAX:
            return _BAD_VALUE
    return _OK


@step
def _check_frame(data: Data, at: int, end: int, number: int) -> int:
    """Check the frame from ``at`` to ``end``, the ``number``-th of its batch: a status of limits."""
    # in bounds: the caller has found the frame whole
    payload_size = int64(load32(data, at + PAYLOAD_LENGTH))
    headers_size = int64(load32(data, at + HEADERS_LENGTH))
    if int64(load32(data, at + OFFSET_DELTA)) != number:
        return _INVALID
    if payload_size == 0:
        return _EMPTY
    if payload_size > _PAYLOAD_MAX:
        return _PAYLOAD_TOO_LARGE
    if headers_size > _HEADERS_MAX:
        return _HEADERS_TOO_LARGE
    if load64(data, at + RESERVED) != _ZERO:
        return _BAD_RESERVED
    status = _check_headers(data, at + FRAME_HEAD_BYTES + payload_size, end)
    if status == _OK and xxh3_64(data, at + CHECKSUM_BYTES, end - at - CHECKSUM_BYTES) != load64(data, at):
        status = _BAD_MESSAGE
    return status


@kernel(several(3)(BYTES, LONG, LONG, OUT_BYTES, LONG, LONG, LONG, LONG))
def stamp(
    source: Bytes, start: int, end: int, target: Bytes, to: int, partition: int, base_offset: int, now_us: int
) -> tuple[int, int, int]:
    size = end - start
    if start < 0 or size < 0 or end > source.size or to < 0 or to + size > target.size:
        return _NO_ROOM, 0, 0
    data, out = base(source), base(target)
    # in bounds: the head is read if ``batch_end`` found it, frames if ``frame_end`` did; no more frames than these
    # have a checksum in ``scratch``
    if batch_end(data, start, end) != end or not is_producer_sound(data, start):
        return _INVALID, 0, 0
    scratch_array = np.empty(SCRATCH_BYTES + CHECKSUM_BYTES * (size // FRAME_HEAD_BYTES), np.uint8)
    scratch = base(scratch_array)
    count = 0
    at = start + BATCH_HEAD_BYTES
    while at < end:
        next_at = frame_end(data, at, end)
        if next_at < 0:
            return _INVALID, 0, 0
        status = _check_frame(data, at, next_at, count)
        if status != _OK:
            return status, 0, 0
        store64(scratch, FRAMES_AT + CHECKSUM_BYTES * count, load64(data, at))
        count += 1
        at = next_at
    if count != int64(load32(data, start + MESSAGE_COUNT)):
        return _INVALID, 0, 0
    if count == 0:
        return _NO_MESSAGES, 0, 0
    if batch_checksum(data, start, scratch, count) != load64(data, start + BATCH_CHECKSUM):
        return _BAD_BATCH, 0, 0
    memcpy(out, to, data, start, size)
    store64(out, to + PARTITION, partition)
    store64(out, to + BASE_OFFSET, base_offset)
    store64(out, to + BASE_TIME, now_us)
    store64(out, to + BATCH_CHECKSUM, batch_checksum(out, to, scratch, count))
    # Numba frees an array after its last use: this one was used by its address
    scratch_array[0] = 0
    return _OK, count, size


@kernel(
    LONG(
        BOOLEAN,
        LONG,
        LONGS,
        LONGS,
        LONGS,
        LONGS,
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
    sent: bool,
    partition: int,
    firsts: Longs,
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
    scratch_array = np.empty(SCRATCH_BYTES + CHECKSUM_BYTES * offsets.size, np.uint8)
    scratch = base(scratch_array)
    # in bounds: Arrow's ends lie inside their data, and the caller made ``target`` as large as all parts add up to
    at = 0
    for number in range(firsts.size - 1):
        low, high = firsts[number], firsts[number + 1]
        # the head, filled in at the end
        # in bounds: the caller made ``target`` as large as heads, frames, headers and payloads add up to
        head = at
        for word in range(0, BATCH_HEAD_BYTES, 8):
            store64(out, head + word, 0)
        at += BATCH_HEAD_BYTES
        for row in range(low, high):
            where[0] = row
            payload_at = int64(payload_ends[row])
            payload_size = int64(payload_ends[row + 1]) - payload_at
            if payload_size < 1:
                return NO_PAYLOAD
            if payload_size > _PAYLOAD_MAX:
                return PAYLOAD_SIZE
            # head and payload of a frame
            frame = at
            memcpy(out, frame + ID, id_data, 16 * row, 16)
            store32(out, frame + OFFSET_DELTA, row - low)
            store32(out, frame + TIME_DELTA, origins[row] - origins[low])
            store32(out, frame + PAYLOAD_LENGTH, payload_size)
            store64(out, frame + RESERVED, 0)
            at += FRAME_HEAD_BYTES
            memcpy(out, at, payload_data, payload_at, payload_size)
            at += payload_size
            # its headers
            block = at
            first, end = list_ends[row], list_ends[row + 1]
            columns = (key_ends, keys, key_kinds, kinds, value_ends, values, where)
            reason, at = write_headers(out, at, first, end, TYPED, *columns)
            if reason != FITS:
                return reason
            if sent and at - block > _HEADERS_MAX:
                return HEADERS_SIZE
            store32(out, frame + HEADERS_LENGTH, at - block)
            # its checksum, here and for the batch
            # in bounds: the frame was just written, and ``scratch`` has a word for every message
            checksum = xxh3_64(out, frame + CHECKSUM_BYTES, at - frame - CHECKSUM_BYTES)
            store64(out, frame, checksum)
            store64(scratch, FRAMES_AT + CHECKSUM_BYTES * (row - low), checksum)
        # what the server gives a stored batch
        if not sent:
            store64(out, head + PARTITION, partition)
            store64(out, head + BASE_OFFSET, offsets[low])
            store64(out, head + BASE_TIME, timestamps[low])
        # what both have
        store64(out, head + ORIGIN_TIME, origins[low])
        store64(out, head + BATCH_LENGTH, at - head)
        store32(out, head + MESSAGE_COUNT, high - low)
        store64(out, head + BATCH_CHECKSUM, batch_checksum(out, head, scratch, high - low))
    # Numba frees an array after its last use: this one was used by its address
    scratch_array[0] = 0
    return FITS

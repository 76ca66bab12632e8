"""Readable fallbacks of the kernels that take a sent batch in and write batches: same names, arguments and bytes."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from lading.kernels.arrays import Bytes, Ints, Kinds, Longs

from ..messages.header_block_fallback import list_headers, write_headers
from ..messages.layout import FITS, NO_PAYLOAD, TYPED
from . import layout, limits
from .checksums import hash_batch, hash_bytes
from .layout import BATCH_HEAD_BYTES, PARTITION
from .producers import is_producer_sound
from .stored_fallback import read_batch, read_frame

_U64 = struct.Struct("<Q")
_FRAME_HEAD = struct.Struct("<16sIIIIQ")
_BATCH_HEAD = struct.Struct("<QQQQQQI204x")
_PLACE = struct.Struct("<QQQ")
_HIGHEST_KIND: Final = limits.KIND_MAX


class _Refused(Exception):
    """The request breaks a rule; the argument is Iggy's code."""


def stamp(
    source: Bytes, start: int, end: int, target: Bytes, to: int, partition: int, base_offset: int, now_us: int
) -> tuple[int, int, int]:
    """Store the sent batch ``source[start:end]`` at ``target[to:]``. Returns (code or 0, messages, bytes written).

    Checks lengths, limits and every checksum, then copies and writes partition, base offset, base time and the checksum
    of the batch with these. The code is that of the first fault, going through the bytes once; nothing is written then.
    """
    size = end - start
    if start < 0 or size < 0 or end > source.size or to < 0 or to + size > target.size:
        return limits.NO_ROOM, 0, 0
    data = source.data
    checksums = bytearray()
    try:
        batch = read_batch(data, start, end)
        if batch is None or batch.end != end or not is_producer_sound(data[start : start + BATCH_HEAD_BYTES]):
            raise _Refused(limits.INVALID_FORMAT)
        at = start + BATCH_HEAD_BYTES
        while at < end:
            at = _check_frame(data, at, end, len(checksums) // _U64.size, checksums)
        count = len(checksums) // _U64.size
        if count != batch.messages_count:
            raise _Refused(limits.INVALID_FORMAT)
        if not count:
            raise _Refused(limits.NO_MESSAGES)
        if hash_batch(data[start : start + BATCH_HEAD_BYTES], checksums) != batch.checksum:
            raise _Refused(limits.INVALID_BATCH_CHECKSUM)
    except _Refused as refused:
        return refused.args[0], 0, 0
    made = bytearray(data[start:end])
    _PLACE.pack_into(made, PARTITION, partition, base_offset, now_us)
    _U64.pack_into(made, layout.BATCH_CHECKSUM, hash_batch(made[:BATCH_HEAD_BYTES], checksums))
    target[to : to + size] = np.frombuffer(made, np.uint8)
    return limits.OK, count, size


def _check_frame(data: memoryview, at: int, end: int, number: int, checksums: bytearray) -> int:
    """Check the frame at ``at``, the ``number``-th, and add its checksum; return its end."""
    frame = read_frame(data, at, end)
    if frame is None or frame.offset_delta != number:
        raise _Refused(limits.INVALID_FORMAT)
    if frame.headers_at == frame.payload_at:
        raise _Refused(limits.EMPTY_PAYLOAD)
    if frame.headers_at - frame.payload_at > limits.PAYLOAD_BYTES_MAX:
        raise _Refused(limits.PAYLOAD_TOO_LARGE)
    if frame.end - frame.headers_at > limits.HEADERS_BYTES_MAX:
        raise _Refused(limits.HEADERS_TOO_LARGE)
    if frame.reserved:
        raise _Refused(limits.INVALID_RESERVED_FIELD)
    for place in list_headers(data, frame.headers_at, frame.end, TYPED):
        if place is None:
            raise _Refused(limits.INVALID_FORMAT)
        if not 1 <= place.key_size <= limits.KEY_BYTES_MAX:
            raise _Refused(limits.INVALID_HEADER_KEY)
        if not place.key_kind or not 1 <= place.kind <= _HIGHEST_KIND:
            raise _Refused(limits.INVALID_HEADER_KIND)
        if not 1 <= place.value_size <= limits.VALUE_BYTES_MAX:
            raise _Refused(limits.INVALID_HEADER_VALUE)
    if hash_bytes(data[at + _U64.size : frame.end]) != frame.checksum:
        raise _Refused(limits.INVALID_MESSAGE_CHECKSUM)
    checksums += _U64.pack(frame.checksum)
    return frame.end


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
    """Write columns as Arrow buffers as sent or stored batches at ``target``: a reason (shared.KEY_SIZE, …) or 0.

    ``firsts`` holds the row with which each batch begins, and the number of rows after the last. ``target`` has just
    the size of them all. At a fault ``where`` holds row and header.
    """
    out = bytearray()
    for number in range(len(firsts) - 1):
        low, high = int(firsts[number]), int(firsts[number + 1])
        frames, checksums = bytearray(), bytearray()
        origin_us = int(origins[low])
        for row in range(low, high):
            where[0] = row
            payload = payloads[payload_ends[row] : payload_ends[row + 1]].tobytes()
            if not payload:
                return NO_PAYLOAD
            if len(payload) > limits.PAYLOAD_BYTES_MAX:
                return layout.PAYLOAD_SIZE
            block = bytearray()
            first, end = int(list_ends[row]), int(list_ends[row + 1])
            columns = (key_ends, keys, key_kinds, kinds, value_ends, values, where)
            reason = write_headers(block, first, end, TYPED, *columns)
            if reason:
                return reason
            if sent and len(block) > limits.HEADERS_BYTES_MAX:
                return layout.HEADERS_SIZE
            delta_us = int(origins[row]) - origin_us
            id_ = ids[16 * row : 16 * row + 16].tobytes()
            rest = _FRAME_HEAD.pack(id_, row - low, delta_us, len(block), len(payload), 0) + payload + block
            checksums += _U64.pack(hash_bytes(rest))
            frames += checksums[-_U64.size :] + rest
        place = (0, 0, 0) if sent else (partition, int(offsets[low]), int(timestamps[low]))
        head = bytearray(_BATCH_HEAD.pack(*place, origin_us, BATCH_HEAD_BYTES + len(frames), 0, high - low))
        _U64.pack_into(head, layout.BATCH_CHECKSUM, hash_batch(head, checksums))
        out += head + frames
    target[: len(out)] = np.frombuffer(out, np.uint8)
    return FITS

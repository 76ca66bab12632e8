"""Readable fallbacks of the kernels that take sent messages in and write messages: same names, arguments and bytes."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from lading.kernels.arrays import Bytes, Ints, Kinds, Longs
from lading.model.state import State

from ..messages.header_block_fallback import RefusedMessage, check_header, write_headers
from ..messages.ids import draw_uuid4
from ..messages.layout import FITS, NO_PAYLOAD, UNTYPED
from . import layout, limits
from .layout import SENT_BYTES_MIN, SENT_HEADERS, STORED_EXTRA_BYTES

_U32 = struct.Struct("<I")
_STORED_HEAD = struct.Struct("<QBQ16sI")
_NO_ID = bytes(16)


def restamp(
    source: Bytes,
    start: int,
    end: int,
    target: Bytes,
    to: int,
    base_offset: int,
    now_us: int,
    random: NDArray[np.uint64],
) -> tuple[int, int, int]:
    """Store the sent messages ``source[start:end]`` at ``target[to:]``. Returns (code or 0, messages, bytes written).

    Offsets count from ``base_offset``, timestamps from ``now_us``, one each; an id of 0 becomes a random UUID; state is
    available; the checksum is the payload's CRC-32. ``random`` holds six words: see messages.random_state. The code is
    that of the first fault, going through the bytes once; what was written then is not valid.
    """
    size = end - start
    if start < 0 or size < 0 or end > source.size or to < 0 or random.size < 6:
        return limits.NO_ROOM, 0, 0
    if to + size + STORED_EXTRA_BYTES * (size // SENT_BYTES_MIN) > target.size:
        return limits.NO_ROOM, 0, 0
    data = source.data
    at, write, count = start, to, 0
    values = payloads = 0
    try:
        while at < end:
            length_at, value_bytes = _check_headers(data, at, end, values)
            values += value_bytes
            payload_size = _U32.unpack_from(data, length_at)[0]
            payload_at = length_at + layout.LENGTH_BYTES
            if payload_size == 0:
                raise RefusedMessage(limits.EMPTY_PAYLOAD)
            if end - payload_at < payload_size:
                raise RefusedMessage(limits.MALFORMED)
            payloads += payload_size
            if payloads > limits.REQUEST_PAYLOADS_BYTES_MAX:
                raise RefusedMessage(limits.PAYLOAD_TOO_LARGE)
            message_end = payload_at + payload_size
            id_ = bytes(data[at : at + len(_NO_ID)])
            crc = zlib.crc32(data[payload_at:message_end])
            times = base_offset + count, State.AVAILABLE, now_us + count
            head = _STORED_HEAD.pack(*times, draw_uuid4(random) if id_ == _NO_ID else id_, crc)
            message = head + data[at + layout.SENT_HEADERS_LENGTH : message_end]
            target[write : write + len(message)] = np.frombuffer(message, np.uint8)
            write += len(message)
            at = message_end
            count += 1
    except RefusedMessage as refused:
        return refused.code, count, 0
    return (limits.OK if count else limits.NO_MESSAGES), count, write - to


def _check_headers(data: memoryview, at: int, end: int, values: int) -> tuple[int, int]:
    """Check the headers of the sent message at ``at``: (position of its payload length, bytes of header values)."""
    if end - at < SENT_BYTES_MIN:
        raise RefusedMessage(limits.MALFORMED)
    here = at + SENT_HEADERS
    length_at = here + _U32.unpack_from(data, at + layout.SENT_HEADERS_LENGTH)[0]
    if length_at + layout.LENGTH_BYTES > end:
        raise RefusedMessage(limits.MALFORMED)
    keys: list[bytes] = []
    value_bytes = 0
    while here < length_at:
        key, value_size, here = check_header(data, here, length_at, UNTYPED)
        value_bytes += value_size
        if values + value_bytes > limits.REQUEST_HEADER_VALUES_BYTES_MAX:
            raise RefusedMessage(limits.HEADERS_TOO_LARGE)
        if len(keys) < _FEW_HEADERS and key in keys:
            raise RefusedMessage(limits.INVALID_HEADER_KEY)
        keys.append(key)
    if len(set(keys)) < len(keys):
        raise RefusedMessage(limits.INVALID_HEADER_KEY)
    return length_at, value_bytes


_FEW_HEADERS = 16
"""Up to here a repeated key is found at once, beyond at the end of its message."""


def write(
    sent: bool,
    offsets: Longs,
    states: Kinds,
    timestamps: Longs,
    ids: Bytes,
    checksums: Longs,
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
    """Write columns as Arrow buffers as sent or stored messages at ``target``: a reason (layout.KEY_SIZE, …) or 0.

    ``target`` has just the size of them all; a checksum of -1 is to be computed. At a fault ``where`` holds row and
    header.
    """
    out = bytearray()
    for row in range(len(offsets)):
        where[0] = row
        payload = payloads[payload_ends[row] : payload_ends[row + 1]].tobytes()
        if not payload:
            return NO_PAYLOAD
        block = bytearray()
        headers = (key_ends, keys, key_kinds, kinds, value_ends, values)
        reason = write_headers(block, int(list_ends[row]), int(list_ends[row + 1]), UNTYPED, *headers, where)
        if reason:
            return reason
        id_ = ids[16 * row : 16 * row + 16].tobytes()
        if sent:
            out += id_
        else:
            checksum = int(checksums[row]) if checksums[row] >= 0 else zlib.crc32(payload)
            out += _STORED_HEAD.pack(offsets[row], states[row], timestamps[row], id_, checksum)
        out += _U32.pack(len(block)) + block + _U32.pack(len(payload)) + payload
    target[: len(out)] = np.frombuffer(out, np.uint8)
    return FITS

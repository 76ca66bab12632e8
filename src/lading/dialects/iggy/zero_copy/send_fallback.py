"""Readable fallbacks of the kernels that take messages in, write and convert them: same names, arguments and bytes."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import xxhash
from numpy.typing import NDArray

from lading.kernels.arrays import Bytes, Ints, Kinds, Longs

from ..messages import limits as header_limits
from ..messages.header_block_fallback import RefusedMessage, check_header, list_headers, write_headers
from ..messages.ids import WORDS, draw_uuid4
from ..messages.layout import BAD_HEADERS, CUT, FINE, FITS, NO_PAYLOAD, STRING_KEY, TYPED, UNTYPED
from . import limits
from .layout import CRC_32, HEAD_BYTES, INDEX_BYTES, RESERVED, SHORT_HEAD_BYTES, UNHASHED_BYTES, XXH3_64
from .stored_fallback import ZeroCopyMessage, read_message

_INDEX = struct.Struct("<IIQ")
_U64 = struct.Struct("<Q")
_HASHED_HEAD = struct.Struct("<16sQQQII")
_LENGTHS = struct.Struct("<II")
_NO_ID = bytes(16)


def _hash(hashed: bytes | bytearray | memoryview, checksum: int) -> int:
    """Return what the checksum field of a message should hold; ``hashed`` is all that follows the field."""
    if checksum == XXH3_64:
        digest: int = xxhash.xxh3_64_intdigest(hashed)
        return digest
    return zlib.crc32(hashed) if checksum == CRC_32 else 0


def _pack(
    message: ZeroCopyMessage, id_: bytes, offset: int, time_us: int, payload: bytes, block: bytes, head: int, sum_: int
) -> bytes:
    times = offset, time_us, message.origin_timestamp_us
    hashed = _HASHED_HEAD.pack(id_, *times, len(block), len(payload)) + bytes(head - SHORT_HEAD_BYTES)
    hashed += payload + block
    return _U64.pack(_hash(hashed, sum_)) + hashed


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
    random: NDArray[np.uint64],
) -> tuple[int, int, int]:
    """Store the sent messages ``source[start:end]`` at ``target[to:]``. Returns (code or 0, messages, bytes written).

    Their index begins at ``index_at``. Offsets count from ``base_offset``, timestamps from ``now_us``, one each; an id
    of 0 becomes a random UUID; the checksum is XXH3-64. ``random`` holds six words: see ids.random_state. The code is
    that of the first fault, going through the bytes once; what was written then is not valid.
    """
    messages = (start - index_at) // INDEX_BYTES
    size = end - start
    if index_at < 0 or start < index_at or size < 0 or end > source.size or to < 0 or random.size < WORDS:
        return header_limits.NO_ROOM, 0, 0
    if to + size + (HEAD_BYTES - head_bytes) * messages + (TYPED - typed) * (size // 11) > target.size:
        return header_limits.NO_ROOM, 0, 0
    data = source.data
    at, write, count = start, to, 0
    try:
        for count in range(messages):
            message, message_end = _check_sent(data, at, end, head_bytes, typed, index_at + INDEX_BYTES * count, start)
            id_ = draw_uuid4(random) if message.id == _NO_ID else message.id
            payload = bytes(data[message.payload_at : message.headers_at])
            block = _add_key_kinds(data, message, typed)
            packed = _pack(message, id_, base_offset + count, now_us + count, payload, block, HEAD_BYTES, XXH3_64)
            target[write : write + len(packed)] = np.frombuffer(packed, np.uint8)
            write += len(packed)
            at = message_end
    except RefusedMessage as refused:
        return refused.code, count, 0
    if at != end:
        return header_limits.MALFORMED, messages, 0
    return (header_limits.OK if messages else header_limits.NO_MESSAGES), messages, write - to


def _check_sent(
    data: memoryview, at: int, end: int, head_bytes: int, typed: int, entry: int, start: int
) -> tuple[ZeroCopyMessage, int]:
    """Return the sent message at ``at`` and its end. Raises RefusedMessage if it breaks a rule."""
    if end - at < head_bytes:
        raise RefusedMessage(header_limits.MALFORMED)
    headers_size, payload_size = _LENGTHS.unpack_from(data, at + SHORT_HEAD_BYTES - _LENGTHS.size)
    if payload_size > limits.PAYLOAD_BYTES_MAX:
        raise RefusedMessage(header_limits.PAYLOAD_TOO_LARGE)
    if headers_size > limits.HEADERS_BYTES_MAX:
        raise RefusedMessage(header_limits.HEADERS_TOO_LARGE)
    message = read_message(data, at, end, head_bytes)
    if message is None or _INDEX.unpack_from(data, entry) != (0, message.end - start, 0):
        raise RefusedMessage(header_limits.MALFORMED)
    if head_bytes == HEAD_BYTES and any(data[at + RESERVED : at + HEAD_BYTES]):
        raise RefusedMessage(header_limits.MALFORMED)
    here = message.headers_at
    while here < message.end:
        _, _, here = check_header(data, here, message.end, typed)
    return message, message.end


def _add_key_kinds(data: memoryview, message: ZeroCopyMessage, typed: int) -> bytes:
    """Return the header block as it is stored: with the kinds of keys."""
    if typed:
        return bytes(data[message.headers_at : message.end])
    block = bytearray()
    at = message.headers_at
    for place in list_headers(data, message.headers_at, message.end, UNTYPED):
        assert place is not None, "callers have checked the block"
        end = place.value_at + place.value_size
        block += bytes([STRING_KEY]) + data[at:end]
        at = end
    return bytes(block)


def lengthen(
    source: Bytes, start: int, end: int, head_bytes: int, typed: int, checksum: int, target: Bytes
) -> tuple[int, int, int, int]:
    """Convert polled messages of an earlier form to stored ones.

    Returns (reason, position, bytes written, first with a wrong checksum). With a reason, ``position`` is that of the
    bytes that are not a message; -1 means that all checksums match. A message with a wrong checksum is stored with the
    right one of its bytes.
    """
    data = source.data
    at, write, wrong = start, 0, -1
    while at < end:
        message = read_message(data, at, end, head_bytes)
        if message is None:
            return CUT, at, write, wrong
        headers_size = message.end - message.headers_at
        if None in list_headers(data, message.headers_at, message.end, typed):
            return BAD_HEADERS, at, write, wrong
        payload = bytes(data[message.payload_at : message.headers_at])
        if write + HEAD_BYTES + len(payload) + headers_size + (TYPED - typed) * (headers_size // 9) > target.size:
            return CUT, at, write, wrong
        if wrong < 0 and message.checksum != _hash(data[at + UNHASHED_BYTES : message.end], checksum):
            wrong = at
        block = _add_key_kinds(data, message, typed)
        times = message.offset, message.timestamp_us
        packed = _pack(message, message.id, *times, payload, block, HEAD_BYTES, XXH3_64)
        target[write : write + len(packed)] = np.frombuffer(packed, np.uint8)
        write += len(packed)
        at = message.end
    return FINE, at, write, wrong


def shorten(source: Bytes, start: int, end: int, checksum: int, target: Bytes) -> int:
    """Convert stored messages ``source[start:end]`` to polled ones with heads of 56 bytes. Returns the bytes written.

    Returns -1 if a header key is not text, for which these releases have no form, or the target is smaller than the
    source.
    """
    data = source.data
    if target.size < end - start:
        return -1
    at = start
    out = bytearray()
    while at < end:
        message = read_message(data, at, end)
        assert message is not None, "callers have found whole messages"
        block = bytearray()
        here = message.headers_at
        for place in list_headers(data, message.headers_at, message.end, TYPED):
            assert place is not None, "callers have found whole messages"
            if place.key_kind != STRING_KEY:
                return -1
            block += data[here + 1 : place.value_at + place.value_size]
            here = place.value_at + place.value_size
        payload = bytes(data[message.payload_at : message.headers_at])
        times = message.offset, message.timestamp_us
        out += _pack(message, message.id, *times, payload, bytes(block), SHORT_HEAD_BYTES, checksum)
        at = message.end
    target[: len(out)] = np.frombuffer(out, np.uint8)
    return len(out)


def find_changed(source: Bytes, start: int, end: int) -> int:
    """Find the first stored message whose checksum does not match. Returns its position, or -1."""
    data = source.data
    at = start
    while at < end:
        message = read_message(data, at, end)
        assert message is not None, "callers have found whole messages"
        if message.checksum != _hash(data[at + UNHASHED_BYTES : message.end], XXH3_64):
            return at
        at = message.end
    return -1


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
    """Write columns as Arrow buffers as messages of a form at ``target``: a reason (layout.KEY_SIZE, …) or 0.

    ``target`` has just the size of them all. At a fault ``where`` holds row and header.
    """
    out = bytearray()
    for row in range(len(offsets)):
        where[0] = row
        payload = payloads[payload_ends[row] : payload_ends[row + 1]].tobytes()
        if not payload:
            return NO_PAYLOAD
        block = bytearray()
        headers = (key_ends, keys, key_kinds, kinds, value_ends, values)
        reason = write_headers(block, int(list_ends[row]), int(list_ends[row + 1]), typed, *headers, where)
        if reason:
            return reason
        id_ = ids[16 * row : 16 * row + 16].tobytes()
        times = offsets[row], timestamps[row], origins[row]
        hashed = _HASHED_HEAD.pack(id_, *times, len(block), len(payload)) + bytes(head_bytes - SHORT_HEAD_BYTES)
        hashed += payload + block
        out += _U64.pack(_hash(hashed, checksum)) + hashed
    target[: len(out)] = np.frombuffer(out, np.uint8)
    return FITS

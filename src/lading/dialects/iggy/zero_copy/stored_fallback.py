"""Readable fallbacks of ``stored_kernels.py``: same names, same arguments, same bytes; and the parts of a message."""

from __future__ import annotations

import struct
from typing import NamedTuple

import xxhash

from lading.kernels.arrays import Bytes, Longs

from ..messages.cutting_fallback import cut_messages, find_intact_messages, survey_messages
from ..messages.header_block_fallback import list_headers
from ..messages.layout import POSITION_MAX, TYPED
from .layout import HEAD_BYTES, OFFSET, STORED_BYTES_MIN, UNHASHED_BYTES

_HEAD = struct.Struct("<Q16sQQQII")


class ZeroCopyMessage(NamedTuple):
    """One message as stored: the fields of its head, and the positions of payload, headers and end."""

    start: int
    checksum: int
    id: bytes
    offset: int
    timestamp_us: int
    origin_timestamp_us: int
    payload_at: int
    headers_at: int
    end: int

    @property
    def payload_end(self) -> int:
        """Return the position of the first header."""
        return self.headers_at

    @property
    def headers_end(self) -> int:
        """Return the position of the message's end."""
        return self.end


def read_message(data: memoryview, at: int, end: int, head_bytes: int = HEAD_BYTES) -> ZeroCopyMessage | None:
    """Return the message at ``at``, or None if it does not end by ``end``."""
    if end - at < head_bytes:
        return None
    checksum, id_, offset, timestamp_us, origin_us, headers_size, payload_size = _HEAD.unpack_from(data, at)
    headers_at = at + head_bytes + payload_size
    if headers_at + headers_size > end:
        return None
    times = offset, timestamp_us, origin_us
    return ZeroCopyMessage(at, checksum, id_, *times, at + head_bytes, headers_at, headers_at + headers_size)


def cut(
    region: Bytes, chunks: Longs, first: int, end: int, max_messages: int, max_bytes: int, parts: Longs
) -> tuple[int, int, int, int, int]:
    """See ``cutting_fallback.cut_messages``."""
    return cut_messages(read_message, region, chunks, first, end, max_messages, max_bytes, parts)


def survey(region: Bytes, start: int, end: int) -> tuple[int, int, int, int, int, int]:
    """See ``cutting_fallback.survey_messages``."""
    return survey_messages(read_message, region, start, end)


def intact(body: Bytes, base_offset: int, count: int, found: Longs, budget: int) -> int:
    """See ``cutting_fallback.find_intact_messages``."""
    span = (base_offset, count, found, budget)
    return find_intact_messages(read_message, _is_sound, _is_unchanged, OFFSET, STORED_BYTES_MIN, body, *span)


def _is_sound(data: memoryview, message: ZeroCopyMessage) -> bool:
    headers = list_headers(data, message.headers_at, message.end, TYPED)
    return message.timestamp_us <= POSITION_MAX and None not in headers


def _is_unchanged(data: memoryview, message: ZeroCopyMessage) -> bool:
    hashed: int = xxhash.xxh3_64_intdigest(data[message.start + UNHASHED_BYTES : message.end])
    return hashed == message.checksum

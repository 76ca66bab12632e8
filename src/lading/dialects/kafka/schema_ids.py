"""Schema ids of records, as Confluent's serialisers write them: before the payload, or in a header with a GUID."""

from __future__ import annotations

from typing import Any, Final

from lading.kernels.varint_fallback import varint32, varint64

from . import compression
from .compression import NONE, decompressing
from .layout import BATCH_HEADER_BYTES
from .validation import BatchHeader

VALUE_HEADER: Final = b"__value_schema_id"
ID_FRAME_BYTES: Final = 5
"""Size of an id frame: ``00`` and the id, big-endian."""
GUID_FRAME_BYTES: Final = 17
"""Size of a GUID frame: ``01`` and the GUID."""
NO_FRAME: Final = b""
"""The frame of a record without id or GUID."""


def find_schema_frames(source: Any, start: int, facts: BatchHeader) -> dict[bytes, int]:
    """Return the frames of the values in a validated batch, each with the number of its first record.

    An id in a header counts before one in the payload; a null value has no schema. Called from any thread.
    """
    data: Any = source.data[start + BATCH_HEADER_BYTES : start + facts.size_bytes]
    if facts.codec == NONE:
        return _find_frames(data, facts.records)
    with decompressing(facts.codec, data, bytes_max=compression.plain_bytes_max(len(data))) as (plain, plain_bytes):
        found = _find_frames(plain.data[:plain_bytes], facts.records)
    del plain
    return found


def _find_frames(data: Any, records: int) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    at, end = 0, len(data)
    for number in range(records):
        length, here = varint32(data, at, end)
        at = here + length
        here = varint64(data, here + 1, end)[1]
        here = varint32(data, here, end)[1]
        size, here = varint32(data, here, end)
        size, here = varint32(data, here + max(size, 0), end)
        if size < 0:
            continue
        payload, payload_bytes = here, size
        frame = _find_header(data, here + size, end)
        if frame is None:
            is_guid = payload_bytes > 0 and data[payload] == 1
            frame = bytes(data[payload : payload + min(payload_bytes, GUID_FRAME_BYTES if is_guid else ID_FRAME_BYTES)])
        found.setdefault(_cut_frame(frame), number)
    return found


def _find_header(data: Any, at: int, end: int) -> bytes | None:
    """Return the value of the first header with a schema id that is not null."""
    count, at = varint32(data, at, end)
    for _ in range(count):
        size, at = varint32(data, at, end)
        is_named = size == len(VALUE_HEADER) and data[at : at + size] == VALUE_HEADER
        size, at = varint32(data, at + size, end)
        if is_named and size >= 0:
            return bytes(data[at : at + size])
        at += max(size, 0)
    return None


def _cut_frame(value: bytes) -> bytes:
    for first, size in ((0, ID_FRAME_BYTES), (1, GUID_FRAME_BYTES)):
        if len(value) >= size and value[0] == first:
            return value[:size]
    return NO_FRAME

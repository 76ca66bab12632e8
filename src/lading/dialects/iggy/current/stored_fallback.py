"""Readable fallbacks of ``stored_kernels.py``: same names, same arguments, same bytes; and the parts of a frame."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from lading.kernels.arrays import Bytes, Longs

from ..messages.layout import BAD_POSITION, CUT, FINE, POSITION_MAX
from .checksums import hash_batch, hash_bytes
from .layout import (
    BATCH_CHECKSUM,
    BATCH_HEAD_BYTES,
    BATCH_LENGTH,
    FRAME_HEAD_BYTES,
    MESSAGE_COUNT,
    PRODUCER,
    PRODUCER_END,
)

_BATCH_HEAD = struct.Struct("<QQQQQQI")
_FRAME_HEAD = struct.Struct("<Q16sIIIIQ")
_U64 = struct.Struct("<Q")


class StoredBatch(NamedTuple):
    """The head of one batch, and its end."""

    partition: int
    base_offset: int
    base_time_us: int
    origin_time_us: int
    length: int
    checksum: int
    messages_count: int
    end: int


class StoredFrame(NamedTuple):
    """One frame: the fields of its head, and the positions of payload, headers and end."""

    checksum: int
    id: bytes
    offset_delta: int
    time_delta_us: int
    reserved: int
    payload_at: int
    headers_at: int
    end: int


def read_batch(data: memoryview, at: int, end: int) -> StoredBatch | None:
    """Return the batch at ``at``, or None if it does not end by ``end``."""
    if end - at < BATCH_HEAD_BYTES:
        return None
    partition, offset, time_us, origin_us, length, checksum, messages_count = _BATCH_HEAD.unpack_from(data, at)
    if not BATCH_HEAD_BYTES <= length <= end - at:
        return None
    return StoredBatch(partition, offset, time_us, origin_us, length, checksum, messages_count, at + length)


def read_frame(data: memoryview, at: int, end: int) -> StoredFrame | None:
    """Return the frame at ``at``, or None if it does not end by ``end``."""
    if end - at < FRAME_HEAD_BYTES:
        return None
    checksum, id_, offset_delta, time_delta, headers_size, payload_size, reserved = _FRAME_HEAD.unpack_from(data, at)
    payload_at = at + FRAME_HEAD_BYTES
    headers_at = payload_at + payload_size
    if headers_at + headers_size > end:
        return None
    place = payload_at, headers_at, headers_at + headers_size
    return StoredFrame(checksum, id_, offset_delta, time_delta, reserved, *place)


def cut(
    region: Bytes, body_start: int, body_end: int, first: int, end: int, parts: Longs, heads: Bytes
) -> tuple[int, int, int, int]:
    """Find the byte ranges of one body's messages with first <= offset < end: (parts, messages, reason, position).

    Fills ``parts`` (shape (n, 3)) with the start and end of one batch's frames and whether a new head was made: batches
    that are served whole are taken with their heads, unless they are numbered. New heads follow each other in
    ``heads``; a head has the count, length and checksum of its slice, and keeps base offset and base time
    (iggy-current.md N4). Stops when ``parts`` is full, with the position of the next batch as ``position``.
    """
    data = region.data
    part = count = made = 0
    at = body_start
    while at < body_end:
        batch = read_batch(data, at, body_end)
        if batch is None:
            return part, count, CUT, at
        if part == len(parts):
            return part, count, FINE, at
        is_wanted = first <= batch.base_offset and batch.base_offset + batch.messages_count <= end
        if is_wanted and not data[at + PRODUCER]:
            parts[part] = at, batch.end, 0
            part, count, at = part + 1, count + batch.messages_count, batch.end
            continue
        checksums = bytearray()
        start = stop = here = at + BATCH_HEAD_BYTES
        while here < batch.end:
            frame = read_frame(data, here, batch.end)
            if frame is None:
                return part, count, CUT, here
            offset = batch.base_offset + frame.offset_delta
            if offset > POSITION_MAX:
                return part, count, BAD_POSITION, here
            if offset < first:
                start = stop = frame.end
            elif offset < end:
                checksums += _U64.pack(frame.checksum)
                stop = frame.end
            here = frame.end
        kept = len(checksums) // _U64.size
        if kept:
            head = heads[made : made + BATCH_HEAD_BYTES]
            head[:] = np.frombuffer(
                make_head(data[at : at + BATCH_HEAD_BYTES], stop - start, kept, checksums), np.uint8
            )
            made += BATCH_HEAD_BYTES
            parts[part] = start, stop, 1
            part, count = part + 1, count + kept
        at = batch.end
    return part, count, FINE, at


def make_head(head: memoryview, frames_bytes: int, count: int, checksums: bytes | bytearray) -> bytes:
    """Return the head of a batch with other frames: with their count, length and checksum, and not numbered."""
    made = bytearray(head)
    made[PRODUCER:PRODUCER_END] = bytes(PRODUCER_END - PRODUCER)
    struct.pack_into("<Q", made, BATCH_LENGTH, BATCH_HEAD_BYTES + frames_bytes)
    struct.pack_into("<I", made, MESSAGE_COUNT, count)
    struct.pack_into("<Q", made, BATCH_CHECKSUM, hash_batch(made, checksums))
    return bytes(made)


def survey(region: Bytes, start: int, end: int, chunks: Longs) -> tuple[int, int, int]:
    """List the batches in ``region[start:end]``, whose offsets have to ascend: (batches, reason, position).

    Fills a row of ``chunks`` for each, as ``model.chunk_table`` has it, as far as there are rows, and counts all.
    """
    data = region.data
    at, last, found = start, -1, 0
    while at < end:
        batch = read_batch(data, at, end)
        if batch is None:
            return found, CUT, at
        here, count, low, high = at + BATCH_HEAD_BYTES, 0, -1, last
        while here < batch.end:
            frame = read_frame(data, here, batch.end)
            if frame is None:
                return found, CUT, here
            offset = batch.base_offset + frame.offset_delta
            if not high < offset <= POSITION_MAX or batch.base_time_us > POSITION_MAX:
                return found, BAD_POSITION, here
            low = offset if low < 0 else low
            high, count, here = offset, count + 1, frame.end
        if count != batch.messages_count or not count:
            return found, CUT, at
        if found < len(chunks):
            chunks[found] = at, batch.end, low, count, high, batch.base_time_us, batch.base_time_us, 0
        found, last, at = found + 1, high, batch.end
    return found, FINE, at


def intact(body: Bytes, first: int, end: int, found: Longs, budget: int) -> int:
    """Fill ``found`` with batch, frame and end of frames in a damaged body whose checksum holds: how many.

    A frame counts under the head before it whose own checksum holds, or whose frames all do; ``budget`` bounds the
    bytes that are checked in all. Offsets lie in ``first`` to ``end`` and rise.
    """
    data, kept, at = body.data, 0, 0
    last = first - 1
    while at + BATCH_HEAD_BYTES <= body.size and budget > 0 and 3 * kept < len(found):
        batch = read_batch(data, at, body.size)
        frames = [] if batch is None else _read_frames(data, at, batch)
        if batch is None or not frames or not first <= batch.base_offset < end:
            at += 1
            continue
        budget -= batch.end - at
        checksums = b"".join(_U64.pack(frame.checksum) for _, frame in frames)
        if hash_batch(data[at : at + BATCH_HEAD_BYTES], checksums) != batch.checksum:
            at += 1
            continue
        for start, frame in frames:
            offset = batch.base_offset + frame.offset_delta
            sound = hash_bytes(data[start + _U64.size : frame.end]) == frame.checksum
            if sound and last < offset < end and 3 * kept < len(found):
                found[3 * kept : 3 * kept + 3] = at, start, frame.end
                kept, last = kept + 1, offset
        at = batch.end
    return kept


def _read_frames(data: memoryview, at: int, batch: StoredBatch) -> list[tuple[int, StoredFrame]]:
    """Return the frames of a batch with their positions, or none if they do not fill it or their number is wrong."""
    found = []
    here = at + BATCH_HEAD_BYTES
    while here < batch.end:
        frame = read_frame(data, here, batch.end)
        if frame is None:
            return []
        found.append((here, frame))
        here = frame.end
    return found if len(found) == batch.messages_count else []

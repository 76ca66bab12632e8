"""Kernels that find, cut and rescue stored batches; ``stored_fallback.py`` says what each does."""

from __future__ import annotations

import numpy as np

from lading.kernels.arrays import Bytes, Longs, Table
from lading.kernels.memory import (
    base,
    load8,
    load16,
    load32,
    load64,
    loadi64,
    memcpy,
    store8,
    store16,
    store32,
    store64,
)
from lading.kernels.signature import (
    BYTES,
    LONG,
    OUT_BYTES,
    OUT_LONGS,
    OUT_TABLE,
    Data,
    inline,
    int64,
    kernel,
    routine,
    several,
    uint64,
)
from lading.kernels.xxh3 import xxh3_64
from lading.model import chunk_table

from ..messages.layout import BAD_POSITION, CUT, FINE
from .layout import (
    BASE_OFFSET,
    BASE_TIME,
    BATCH_CHECKSUM,
    BATCH_HEAD_BYTES,
    BATCH_HEAD_HASHED_BYTES,
    BATCH_LENGTH,
    CHECKSUM_BYTES,
    FRAME_HEAD_BYTES,
    FRAMES_AT,
    HEADERS_LENGTH,
    MESSAGE_COUNT,
    OFFSET_DELTA,
    PAYLOAD_LENGTH,
    PRODUCER,
    PRODUCER_EPOCH,
    PRODUCER_EPOCH_MAX,
    PRODUCER_HASHED_BYTES,
    PRODUCER_ID,
    PRODUCER_SEQUENCE,
    PRODUCER_SEQUENCE_MAX,
    SCRATCH_BYTES,
)

_ZERO = uint64(0)


@inline
def batch_end(data: Data, at: int, end: int) -> int:
    """Return the end of the batch at ``at``, or -1 if that is not before ``end``."""
    # in bounds: the head is read only if it lies before ``end``, which callers keep inside their array
    if end - at < BATCH_HEAD_BYTES:
        return -1
    length: int = loadi64(data, at + BATCH_LENGTH)
    if length < BATCH_HEAD_BYTES or length > end - at:
        return -1
    return at + length


@inline
def frame_end(data: Data, at: int, end: int) -> int:
    """Return the end of the frame at ``at``, or -1 if that is not before ``end``."""
    # in bounds: the head is read only if it lies before ``end``, which callers keep inside their array
    if end - at < FRAME_HEAD_BYTES:
        return -1
    lengths = int64(load32(data, at + HEADERS_LENGTH)) + int64(load32(data, at + PAYLOAD_LENGTH))
    if lengths > end - at - FRAME_HEAD_BYTES:
        return -1
    return at + FRAME_HEAD_BYTES + lengths


@routine
def batch_checksum(head: Data, at: int, scratch: Data, count: int) -> int:
    """The checksum of the batch whose head lies at ``head[at:]``.

    ``scratch`` has those of its ``count`` frames from FRAMES_AT on; what is before them is written here.
    """
    # in bounds: the caller has a whole head, and made ``scratch`` as large as that
    start = PRODUCER_HASHED_BYTES
    if load8(head, at + PRODUCER) != 0:
        start = 0
        store8(scratch, BATCH_HEAD_HASHED_BYTES, load8(head, at + PRODUCER))
        store64(scratch, BATCH_HEAD_HASHED_BYTES + 1, load64(head, at + PRODUCER_ID))
        store16(scratch, BATCH_HEAD_HASHED_BYTES + 9, load16(head, at + PRODUCER_EPOCH))
        store32(scratch, BATCH_HEAD_HASHED_BYTES + 11, load32(head, at + PRODUCER_SEQUENCE))
    memcpy(scratch, start, head, at, BATCH_CHECKSUM)
    store32(scratch, start + BATCH_CHECKSUM, load32(head, at + MESSAGE_COUNT))
    return xxh3_64(scratch, start, FRAMES_AT - start + CHECKSUM_BYTES * count)


@inline
def is_producer_sound(data: Data, at: int) -> bool:
    """Whether what the head at ``at`` says of its producer is something: nothing at all, or an id, epoch and number."""
    # in bounds: the caller has a whole head
    word = load32(data, at + PRODUCER)
    epoch = load32(data, at + PRODUCER_EPOCH)
    sequence = load32(data, at + PRODUCER_SEQUENCE)
    if word == 0:
        sound: bool = load64(data, at + PRODUCER_ID) == _ZERO and epoch == 0 and sequence == 0
    else:
        # an id has its highest bit clear, which is in its last byte: as a number it would be compared as a float
        is_id = load8(data, at + PRODUCER_ID + 7) < 128
        sound = word == 1 and is_id and epoch <= PRODUCER_EPOCH_MAX and sequence <= PRODUCER_SEQUENCE_MAX
    return sound


@kernel(several(4)(BYTES, *[LONG] * 4, OUT_TABLE, OUT_BYTES))
def cut(
    region: Bytes, body_start: int, body_end: int, first: int, end: int, parts: Table, heads: Bytes
) -> tuple[int, int, int, int]:
    data = base(region)
    made_data = base(heads)
    part = 0
    count = 0
    made = 0
    at = body_start
    # of a cut batch, as many frames as lie in the body at most
    scratch_array = np.empty(SCRATCH_BYTES + CHECKSUM_BYTES * ((body_end - body_start) // FRAME_HEAD_BYTES), np.uint8)
    scratch = base(scratch_array)
    while at < body_end:
        stop_at = batch_end(data, at, body_end)
        if stop_at < 0:
            return part, count, CUT, at
        if part == parts.shape[0]:
            return part, count, FINE, at
        # in bounds: ``batch_end`` found the head, ``frame_end`` each frame, and heads has room for every part
        offset = loadi64(data, at + BASE_OFFSET)
        held = int64(load32(data, at + MESSAGE_COUNT))
        # a batch that is served whole; one that is numbered gets a head without that
        is_numbered = load8(data, at + PRODUCER) != 0
        if not is_numbered and offset >= first and offset + held <= end and offset + held >= offset:
            parts[part, 0] = at
            parts[part, 1] = stop_at
            parts[part, 2] = 0
            part += 1
            count += held
            at = stop_at
            continue
        # the frames that are asked for, and their checksums
        # in bounds: ``frame_end`` found each frame, and ``scratch`` has a word for every frame of the body
        here = at + BATCH_HEAD_BYTES
        start = here
        stop = here
        kept = 0
        while here < stop_at:
            next_at = frame_end(data, here, stop_at)
            if next_at < 0:
                return part, count, CUT, here
            own = offset + int64(load32(data, here + OFFSET_DELTA))
            if offset < 0 or own < 0:
                return part, count, BAD_POSITION, here
            if own < first:
                start = next_at
                stop = next_at
            elif own < end:
                store64(scratch, FRAMES_AT + CHECKSUM_BYTES * kept, load64(data, here))
                kept += 1
                stop = next_at
            here = next_at
        # a head for these frames
        # in bounds: ``heads`` has room for a head in every part
        if kept > 0:
            memcpy(made_data, made, data, at, BATCH_HEAD_BYTES)
            store64(made_data, made + BATCH_LENGTH, BATCH_HEAD_BYTES + stop - start)
            store32(made_data, made + MESSAGE_COUNT, kept)
            store32(made_data, made + PRODUCER, 0)
            store64(made_data, made + PRODUCER_ID, 0)
            store64(made_data, made + PRODUCER_EPOCH, 0)
            store64(made_data, made + BATCH_CHECKSUM, batch_checksum(made_data, made, scratch, kept))
            made += BATCH_HEAD_BYTES
            parts[part, 0] = start
            parts[part, 1] = stop
            parts[part, 2] = 1
            part += 1
            count += kept
        at = stop_at
    # Numba frees an array after its last use: this one was used by its address
    scratch_array[0] = 0
    return part, count, FINE, at


@kernel(several(3)(BYTES, LONG, LONG, OUT_TABLE))
def survey(region: Bytes, start: int, end: int, chunks: Table) -> tuple[int, int, int]:
    data = base(region)
    found = 0
    last = -1
    at = start
    while at < end:
        stop_at = batch_end(data, at, end)
        if stop_at < 0:
            return found, CUT, at
        # in bounds: ``batch_end`` found the head, ``frame_end`` each frame
        offset = loadi64(data, at + BASE_OFFSET)
        time_us = loadi64(data, at + BASE_TIME)
        here = at + BATCH_HEAD_BYTES
        count = 0
        low = -1
        high = last
        while here < stop_at:
            next_at = frame_end(data, here, stop_at)
            if next_at < 0:
                return found, CUT, here
            own = offset + int64(load32(data, here + OFFSET_DELTA))
            if offset < 0 or own <= high or time_us < 0:
                return found, BAD_POSITION, here
            if low < 0:
                low = own
            high = own
            count += 1
            here = next_at
        if count == 0 or count != int64(load32(data, at + MESSAGE_COUNT)):
            return found, CUT, at
        if found < chunks.shape[0]:
            chunks[found, chunk_table.BODY_START] = at
            chunks[found, chunk_table.BODY_END] = stop_at
            chunks[found, chunk_table.BASE_OFFSET] = low
            chunks[found, chunk_table.COUNT] = count
            chunks[found, chunk_table.LAST_OFFSET] = high
            chunks[found, chunk_table.MIN_TIMESTAMP_US] = time_us
            chunks[found, chunk_table.MAX_TIMESTAMP_US] = time_us
            chunks[found, chunk_table.FLAGS] = 0
        found += 1
        last = high
        at = stop_at
    return found, FINE, at


@kernel(LONG(BYTES, LONG, LONG, OUT_LONGS, LONG))
def intact(body: Bytes, first: int, end: int, found: Longs, budget: int) -> int:
    data = base(body)
    size = body.size
    scratch_array = np.empty(SCRATCH_BYTES + CHECKSUM_BYTES * (size // FRAME_HEAD_BYTES), np.uint8)
    scratch = base(scratch_array)
    kept = 0
    last = first - 1
    at = 0
    while at + BATCH_HEAD_BYTES <= size and budget > 0 and 3 * kept < found.size:
        stop_at = batch_end(data, at, size)
        # in bounds: ``batch_end`` found the head, ``frame_end`` each frame; a body holds no more frames than scratch
        offset = loadi64(data, at + BASE_OFFSET)
        if stop_at < 0 or offset < first or offset >= end:
            at += 1
            continue
        count = 0
        here = at + BATCH_HEAD_BYTES
        while here >= 0 and here < stop_at:
            store64(scratch, FRAMES_AT + CHECKSUM_BYTES * count, load64(data, here))
            count += 1
            here = frame_end(data, here, stop_at)
        if here < 0 or count == 0 or count != int64(load32(data, at + MESSAGE_COUNT)):
            at += 1
            continue
        budget -= stop_at - at
        if batch_checksum(data, at, scratch, count) != load64(data, at + BATCH_CHECKSUM):
            at += 1
            continue
        here = at + BATCH_HEAD_BYTES
        while here < stop_at:
            next_at = frame_end(data, here, stop_at)
            own = offset + int64(load32(data, here + OFFSET_DELTA))
            is_sound = xxh3_64(data, here + CHECKSUM_BYTES, next_at - here - CHECKSUM_BYTES) == load64(data, here)
            if is_sound and own > last and own < end and 3 * kept < found.size:
                found[3 * kept] = at
                found[3 * kept + 1] = here
                found[3 * kept + 2] = next_at
                kept += 1
                last = own
            here = next_at
        at = stop_at
    # Numba frees an array after its last use: this one was used by its address
    scratch_array[0] = 0
    return kept

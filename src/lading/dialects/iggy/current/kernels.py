"""Kernels that make columns of stored batches; ``fallback.py`` says what each does, and gives the same bytes."""

from __future__ import annotations

from lading.kernels.arrays import Bytes, KindTable, Longs, Table
from lading.kernels.memory import load32, load64, loadi64, memcpy, store64
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
    int64,
    kernel,
    step,
)

from ..messages.layout import BAD_POSITION, FINE, TYPED
from ..messages.scanning import MessageParts, fill_messages, scan_messages
from .layout import (
    BASE_OFFSET,
    BASE_TIME,
    BATCH_HEAD_BYTES,
    FRAME_HEAD_BYTES,
    HEADERS_LENGTH,
    ID,
    IDS,
    KEY_ENDS,
    KEYS,
    KINDS,
    LIST_ENDS,
    OFFSET_DELTA,
    OFFSETS,
    PAYLOAD_ENDS,
    PAYLOAD_LENGTH,
    PAYLOADS,
    TIMESTAMPS,
    VALUE_ENDS,
    VALUES,
)
from .stored_kernels import batch_end, frame_end

FixedPlaces = tuple[int, int, int]
ROW_WORDS = 2


@step
def _find_batch(data: Data, at: int, end: int) -> tuple[int, int, int]:
    # in bounds: the head is read only if ``batch_end`` found it before ``end``
    stop_at = batch_end(data, at, end)
    if stop_at < 0:
        return -1, -1, 0
    return at + BATCH_HEAD_BYTES, stop_at, loadi64(data, at + BASE_OFFSET)


@step
def _find_frame(data: Data, at: int, end: int) -> MessageParts:
    # in bounds: the frame is read only if ``frame_end`` found it before ``end``
    next_at = frame_end(data, at, end)
    if next_at < 0:
        return -1, 0, 0, 0, 0, 0
    payload_at = at + FRAME_HEAD_BYTES
    payload_size = int64(load32(data, at + PAYLOAD_LENGTH))
    offset_delta = int64(load32(data, at + OFFSET_DELTA))
    return next_at, offset_delta, payload_at + payload_size, next_at, payload_at, payload_size


@step
def _judge(data: Data, batch_at: int, at: int) -> int:
    # in bounds: callers have found the whole batch
    return BAD_POSITION if loadi64(data, batch_at + BASE_TIME) < 0 else FINE


@step
def _place(data: Data, at: int) -> tuple[int, int, int, int]:
    # in bounds: callers have found the whole frame
    payload_size = int64(load32(data, at + PAYLOAD_LENGTH))
    headers_at = at + FRAME_HEAD_BYTES + payload_size
    return headers_at, headers_at + int64(load32(data, at + HEADERS_LENGTH)), at + FRAME_HEAD_BYTES, payload_size


@step
def _copy_fixed(out: Data, places: FixedPlaces, row: int, data: Data, batch_at: int, at: int) -> None:
    """Write offset, time and id, each to the column that was asked for."""
    # in bounds: ``scan`` found batch and frame whole, and the columns have a place for each row
    offsets, timestamps, ids = places
    if offsets >= 0:
        own = loadi64(data, batch_at + BASE_OFFSET) + int64(load32(data, at + OFFSET_DELTA))
        store64(out, offsets + 8 * row, own)
    if timestamps >= 0:
        store64(out, timestamps + 8 * row, load64(data, batch_at + BASE_TIME))
    if ids >= 0:
        memcpy(out, ids + 16 * row, data, at + ID, 16)


@kernel(
    LONG(
        BYTES, CHUNKS, OUT_LONGS, *[LONG] * 5, BYTES, LONGS, OUT_TABLE, OUT_TABLE, OUT_TABLE, OUT_KIND_TABLE, OUT_LONGS
    )
)
def scan(
    region: Bytes,
    chunks: Table,
    cursor: Longs,
    first: int,
    end: int,
    max_rows: int,
    max_bytes: int,
    wants: int,
    keys: Bytes,
    key_ends: Longs,
    rows: Table,
    starts: Table,
    lengths: Table,
    kinds: KindTable,
    totals: Longs,
) -> int:
    # written out: Numba makes first-class functions, which it cannot inline, of those in a call with a star
    return scan_messages(
        _find_batch,
        _find_frame,
        _judge,
        TYPED,
        ROW_WORDS,
        region,
        chunks,
        cursor,
        first,
        end,
        max_rows,
        max_bytes,
        wants,
        keys,
        key_ends,
        rows,
        starts,
        lengths,
        kinds,
        totals,
    )


@kernel(NOTHING(BYTES, TABLE, LONG, OUT_BYTES, LONGS))
def fill(region: Bytes, rows: Table, odd: int, memory: Bytes, places: Longs) -> None:
    fill_messages(
        _place,
        _copy_fixed,
        TYPED,
        ROW_WORDS,
        region,
        rows,
        odd,
        memory,
        (places[OFFSETS], places[TIMESTAMPS], places[IDS]),
        (places[LIST_ENDS], places[KEY_ENDS], places[KEYS], places[KINDS], places[VALUE_ENDS], places[VALUES]),
        places[PAYLOAD_ENDS],
        places[PAYLOADS],
    )

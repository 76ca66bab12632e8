"""Kernels that make columns of stored messages; ``fallback.py`` says what each does, and gives the same bytes."""

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
    Data,
    int64,
    kernel,
    step,
)

from ..messages.layout import BAD_POSITION, FINE, TYPED
from ..messages.scanning import fill_messages, find_body, scan_messages
from .layout import (
    HEAD_BYTES,
    HEADERS_LENGTH,
    ID,
    IDS,
    KEY_ENDS,
    KEYS,
    KINDS,
    LIST_ENDS,
    OFFSET,
    OFFSETS,
    PAYLOAD_ENDS,
    PAYLOAD_LENGTH,
    PAYLOADS,
    TIMESTAMP,
    TIMESTAMPS,
    VALUE_ENDS,
    VALUES,
)
from .stored_kernels import find_message

FixedPlaces = tuple[int, int, int]


@step
def _judge(data: Data, batch_at: int, at: int) -> int:
    # in bounds: callers have found the whole message
    return BAD_POSITION if loadi64(data, at + TIMESTAMP) < 0 else FINE


@step
def _place(data: Data, at: int) -> tuple[int, int, int, int]:
    # in bounds: callers have found the whole message
    payload_size = int64(load32(data, at + PAYLOAD_LENGTH))
    headers_at = at + HEAD_BYTES + payload_size
    return headers_at, headers_at + int64(load32(data, at + HEADERS_LENGTH)), at + HEAD_BYTES, payload_size


@step
def _copy_fixed(out: Data, places: FixedPlaces, row: int, data: Data, batch_at: int, at: int) -> None:
    """Write what stands in front of a message's payload, each to the column that was asked for."""
    # in bounds: ``scan`` found the message whole, and the columns have a place for each row
    offsets, timestamps, ids = places
    if offsets >= 0:
        store64(out, offsets + 8 * row, load64(data, at + OFFSET))
    if timestamps >= 0:
        store64(out, timestamps + 8 * row, load64(data, at + TIMESTAMP))
    if ids >= 0:
        memcpy(out, ids + 16 * row, data, at + ID, 16)


@kernel(
    LONG(
        BYTES, CHUNKS, OUT_LONGS, *[LONG] * 5, BYTES, LONGS, OUT_LONGS, OUT_TABLE, OUT_TABLE, OUT_KIND_TABLE, OUT_LONGS
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
    rows: Longs,
    starts: Table,
    lengths: Table,
    kinds: KindTable,
    totals: Longs,
) -> int:
    # written out: Numba makes first-class functions, which it cannot inline, of those in a call with a star
    return scan_messages(
        find_body,
        find_message,
        _judge,
        TYPED,
        1,
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


@kernel(NOTHING(BYTES, LONGS, LONG, OUT_BYTES, LONGS))
def fill(region: Bytes, rows: Longs, odd: int, memory: Bytes, places: Longs) -> None:
    fill_messages(
        _place,
        _copy_fixed,
        TYPED,
        1,
        region,
        rows,
        odd,
        memory,
        (places[OFFSETS], places[TIMESTAMPS], places[IDS]),
        (places[LIST_ENDS], places[KEY_ENDS], places[KEYS], places[KINDS], places[VALUE_ENDS], places[VALUES]),
        places[PAYLOAD_ENDS],
        places[PAYLOADS],
    )

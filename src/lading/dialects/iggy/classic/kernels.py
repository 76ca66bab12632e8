"""Kernels that make columns of stored messages; ``fallback.py`` says what each does, and gives the same bytes."""

from __future__ import annotations

from lading.kernels.arrays import Bytes, KindTable, Longs, Table
from lading.kernels.memory import load8, load32, load64, loadi64, memcpy, store8, store32, store64
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

from ..messages.layout import BAD_POSITION, BAD_STATE, FINE, UNTYPED
from ..messages.scanning import fill_messages, find_body, scan_messages
from .layout import (
    CHECKSUM,
    CHECKSUMS,
    HEADERS,
    HEADERS_LENGTH,
    ID,
    IDS,
    KEY_ENDS,
    KEYS,
    KINDS,
    LIST_ENDS,
    OFFSETS,
    PAYLOAD_ENDS,
    PAYLOADS,
    STATE,
    STATES,
    TIMESTAMP,
    TIMESTAMPS,
    VALUE_ENDS,
    VALUES,
)
from .stored_kernels import find_message, is_known_state

FixedPlaces = tuple[int, int, int, int, int]


@step
def _judge(data: Data, batch_at: int, at: int) -> int:
    # in bounds: callers have found the whole message
    if loadi64(data, at + TIMESTAMP) < 0:
        return BAD_POSITION
    return FINE if is_known_state(load8(data, at + STATE)) else BAD_STATE


@step
def _place(data: Data, at: int) -> tuple[int, int, int, int]:
    # in bounds: callers have found the whole message
    length_at = at + HEADERS + int64(load32(data, at + HEADERS_LENGTH))
    return at + HEADERS, length_at, length_at + 4, int64(load32(data, length_at))


@step
def _copy_fixed(out: Data, places: FixedPlaces, row: int, data: Data, batch_at: int, at: int) -> None:
    """Write what stands in front of a message's headers, each to the column that was asked for."""
    # in bounds: ``scan`` found the message whole, and the columns have a place for each row
    offsets, states, timestamps, ids, checksums = places
    if offsets >= 0:
        store64(out, offsets + 8 * row, load64(data, at))
    if states >= 0:
        store8(out, states + row, load8(data, at + STATE))
    if timestamps >= 0:
        store64(out, timestamps + 8 * row, load64(data, at + TIMESTAMP))
    if ids >= 0:
        memcpy(out, ids + 16 * row, data, at + ID, 16)
    if checksums >= 0:
        store32(out, checksums + 4 * row, load32(data, at + CHECKSUM))


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
        UNTYPED,
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
        UNTYPED,
        1,
        region,
        rows,
        odd,
        memory,
        (places[OFFSETS], places[STATES], places[TIMESTAMPS], places[IDS], places[CHECKSUMS]),
        (places[LIST_ENDS], places[KEY_ENDS], places[KEYS], places[KINDS], places[VALUE_ENDS], places[VALUES]),
        places[PAYLOAD_ENDS],
        places[PAYLOADS],
    )

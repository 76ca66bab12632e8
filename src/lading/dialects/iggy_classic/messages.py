"""Messages of Iggy classic in bulk: stored and polled bytes -> columns, sent bytes -> stored bytes, and back.

The work is done by kernels or, while they are not loaded, by their readable twins; this page chooses, takes memory
and gives names to what comes out. Ids are the 16 bytes of the wire (a little-endian u128).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.kernels import engine
from lading.kernels.arrays import Bytes
from lading.model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, LAST_OFFSET
from lading.model.chunk_table import COUNT as COUNT_OF
from lading.model.errors import MalformedMessage
from lading.model.names import key_bytes, key_text
from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from ..arrow_columns import BinaryColumn, FixedColumn, HeadersColumn, StoredColumn, assemble_columns
from ..requested_keys import RequestedKeys
from . import fallback, layout, send_fallback, stored_fallback
from .encode import encode_sent, encode_stored
from .layout import COUNT, HEADER_COUNT, KEY_BYTES, ODD_KEYS, PAYLOAD_BYTES, VALUE_BYTES, WHERE

__all__ = [
    "Slices",
    "decode_columns",
    "encode_sent",
    "encode_stored",
    "polled_run",
    "random_state",
    "restamp",
    "room",
    "salvage",
    "set_states",
    "slices",
]

KERNEL_MODULE = "lading.dialects.iggy_classic.kernels"
STORED_KERNEL_MODULE = "lading.dialects.iggy_classic.stored_kernels"
SEND_KERNEL_MODULE = "lading.dialects.iggy_classic.send_kernels"
CODE = 2

_SPARE_BYTES = 8


@dataclass(frozen=True, slots=True)
class Slices:
    """Stored bytes to send as they are: ``count`` messages up to ``last_offset`` (-1: none) in ``parts``."""

    count: int
    last_offset: int
    parts: list[memoryview]


def decode_columns(run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
    """The messages asked for, in portions, as they are stored (a carrier is not undone).

    ``max_bytes`` counts headers and payload. Raises MalformedMessage, with the position in ``run.region``, at bytes
    that are no message.
    """
    size_bytes = int((run.chunks[:, BODY_END] - run.chunks[:, BODY_START]).sum())
    kernels = engine.select(KERNEL_MODULE, fallback, size_bytes)
    asked = RequestedKeys(request.keys, _stored_key)
    wants = layout.WANT_HEADERS * ("headers" in request.fields) | layout.WANT_PAYLOAD * ("payload" in request.fields)
    cursor = np.array([0, -1], np.int64)
    totals = np.zeros(layout.TOTALS, np.int64)
    room = max(1, min(request.max_rows, size_bytes // layout.STORED_BYTES_MIN + 1))
    rows = np.empty(room, np.int64)
    limit_bytes = min(request.max_bytes, layout.ARROW_BYTES_MAX)
    while cursor[0] < len(run.chunks):
        shape = (len(asked), room)
        places = np.empty(shape, np.int64), np.empty(shape, np.int64), np.empty(shape, np.int8)
        span = (cursor, request.first, request.end, room, limit_bytes, wants)
        reason = kernels.scan(run.region, run.chunks, *span, asked.bytes, asked.ends, rows, *places, totals)
        if reason:
            raise MalformedMessage(f"the message {layout.REASONS[reason]}", at=int(totals[WHERE]))
        count = int(totals[COUNT])
        if count:
            columns = _columns(kernels, run.region, rows[:count], totals.tolist(), request.fields)
            yield Decoded(count, columns, asked.locate(run.region, count, *places))


def _stored_key(text: str) -> bytes | None:
    """The bytes of a header key here, or None for a text that no key of this dialect has."""
    try:
        data, kind = key_bytes(text)
    except MalformedMessage:
        return None
    return data if kind == 2 and data and key_text(data) == text else None


def _columns(
    kernels: Any, region: Bytes, rows: NDArray[np.int64], totals: list[int], fields: frozenset[str]
) -> dict[str, pa.Array[Any]]:
    count, header_count = len(rows), totals[HEADER_COUNT]
    # in the order of layout.OFFSETS and what follows
    stored: dict[str, StoredColumn] = {
        "offset": FixedColumn(count, 8),
        "state": FixedColumn(count, 1),
        "timestamp": FixedColumn(count, 8),
        "id": FixedColumn(count, 16),
        "checksum": FixedColumn(count, 4),
        "headers": HeadersColumn(
            count,
            BinaryColumn(header_count, totals[KEY_BYTES] + _SPARE_BYTES),
            BinaryColumn(header_count, totals[VALUE_BYTES] + _SPARE_BYTES),
            FixedColumn(header_count, 1),
        ),
        "payload": BinaryColumn(count, totals[PAYLOAD_BYTES]),
    }
    return assemble_columns(count, fields, stored, partial(kernels.fill, region, rows, totals[ODD_KEYS]))


def slices(run: Run, first: int, end: int, max_messages: int, max_bytes: int) -> Slices:
    """The stored bytes of messages with first <= offset < end, for an Iggy reader: nothing is copied.

    At most ``max_messages``; at most ``max_bytes`` unless one message alone is larger. MalformedMessage with
    the position in ``run.region`` at bytes that are no message.
    """
    kernels = engine.get_loaded(STORED_KERNEL_MODULE) or stored_fallback
    parts = np.empty((max(1, len(run.chunks)), 2), np.int64)
    filled, count, last, reason, where = kernels.cut(run.region, run.chunks, first, end, max_messages, max_bytes, parts)
    if reason:
        raise MalformedMessage(f"the message {layout.REASONS[reason]}", at=where)
    data = run.region.data
    return Slices(count, last, [data[start:stop] for start, stop in parts[:filled].tolist()])


def polled_run(data: bytes | bytearray | memoryview | Bytes, start: int = layout.POLLED_HEAD_BYTES) -> Run:
    """A Run over polled messages that begin at byte ``start`` (default: behind the count of a poll's answer).

    With no message the Run has no chunk. MalformedMessage where the bytes are not whole messages of rising
    offsets, or not as many as the count in front of them says.
    """
    region = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    if region.size < start:
        raise MalformedMessage(f"a poll's answer has {region.size} bytes, not even its count", at=0)
    kernels = engine.select(STORED_KERNEL_MODULE, stored_fallback, region.size)
    count, first, last, low, high, reason = kernels.survey(region, start, region.size)
    if reason:
        raise MalformedMessage(f"the message {layout.REASONS[reason]}", at=first)
    if start == layout.POLLED_HEAD_BYTES and count != int.from_bytes(region[:start].tobytes(), "little"):
        raise MalformedMessage(f"the answer holds {count} messages, not as many as it says", at=0)
    chunks = np.array([[start, region.size, first, count, last, low, high, 0]], np.int64)
    return Run(CODE, region, chunks[: 1 if count else 0])


def set_states(data: bytearray, hidden: Sequence[tuple[int, int, int]], start: int = 0) -> int:
    """Write states into polled messages in place: for (first, end, state) in ``hidden``; how many were changed.

    Messages begin at byte ``start``; ranges may not overlap. MalformedMessage where the bytes are no messages.
    """
    if not hidden:
        return 0
    firsts, ends, states = (np.array(column) for column in zip(*sorted(hidden), strict=True))
    region = np.frombuffer(data, np.uint8)
    ranges = (firsts.astype(np.int64), ends.astype(np.int64), states.astype(np.uint8))
    changed = int((engine.get_loaded(STORED_KERNEL_MODULE) or stored_fallback).set_states(region, start, *ranges))
    if changed < 0:
        raise MalformedMessage("the message is cut short", at=-1 - changed)
    return changed


def salvage(run: Run) -> Run:
    """The messages of damaged chunks that are intact, in order, each in a chunk of its own.

    The CRC-32 covers the payload; of the rest only offset, state and lengths can be checked. So where every message
    passes, the damage lies where nothing vouches for any of them, and none is kept. The work is bounded by sixteen
    times the size of a body.
    """
    kept = [np.empty((0, run.chunks.shape[1]), np.int64)]
    for chunk in run.chunks:
        body = run.region[int(chunk[BODY_START]) : int(chunk[BODY_END])]
        room = min(int(chunk[COUNT_OF]), body.size // layout.STORED_BYTES_MIN)
        found = np.empty((room, 3), np.int64)
        kernels = engine.select(STORED_KERNEL_MODULE, stored_fallback, body.size)
        count = kernels.intact(body, int(chunk[BASE_OFFSET]), room, found.reshape(-1), 16 * body.size)
        if count == chunk[COUNT_OF]:
            continue
        rows = np.repeat(chunk[np.newaxis], count, axis=0)
        rows[:, BASE_OFFSET] = rows[:, LAST_OFFSET] = found[:count, 0]
        rows[:, BODY_START : BODY_END + 1] = found[:count, 1:] + chunk[BODY_START]
        rows[:, COUNT_OF] = 1
        kept.append(rows)
    return Run(run.dialect, run.region, np.concatenate(kept))


def room(size_bytes: int) -> int:
    """Bytes that ``restamp`` may need for a send request whose messages have ``size_bytes`` bytes."""
    return size_bytes + layout.STORED_EXTRA_BYTES * (size_bytes // layout.SENT_BYTES_MIN)


def random_state() -> NDArray[np.uint64]:
    """State for the ids that ``restamp`` draws: four words of xoshiro256**, a count, a seed for hashing; one a thread.

    Seeded by the operating system, and again after every 65,536 ids: ids are unique and well spread, but no secret.
    """
    return np.frombuffer(os.urandom(32) + bytes(8) + os.urandom(8), np.uint64).copy()


_IDS_PER_SEED = 1 << 16


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
    """Sent messages ``source[start:end]`` -> stored ones at ``target[to:]``: (code or 0, messages, bytes written).

    Checks every limit of ``limits.py`` (iggy.md A6) and takes no memory; ``target`` needs ``room(end - start)`` bytes.
    Message i gets offset ``base_offset`` + i, time ``now_us`` + i, state available, its payload's CRC-32 and, where its
    id is 0, a random UUID from ``random`` (see ``random_state``). What was written at a fault means nothing.
    """
    if random[4] >= _IDS_PER_SEED:
        random[:] = random_state()
    code, count, size_bytes = (engine.get_loaded(SEND_KERNEL_MODULE) or send_fallback).restamp(
        source, start, end, target, to, base_offset, now_us, random
    )
    return code, count, size_bytes

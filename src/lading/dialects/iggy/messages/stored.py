"""Stored messages of an Iggy generation in bulk: to columns, cut for readers, rescued from damaged chunks.

The work is done by kernels or, while they are not loaded, by their readable fallbacks; this page chooses, takes memory
and gives names to what comes out. Ids are the 16 bytes of the wire (a little-endian u128).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.kernels import engine
from lading.kernels.arrays import Bytes
from lading.model.batch import ORIGIN_TIMESTAMP, SCHEMA_WITH_ORIGIN
from lading.model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, LAST_OFFSET
from lading.model.chunk_table import COUNT as COUNT_OF
from lading.model.errors import MalformedMessage
from lading.model.names import key_bytes, key_text
from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from ....model.lazy_dataclass import lazy_dataclass
from ...arrow_columns import BinaryColumn, FixedColumn, HeadersColumn, StoredColumn, assemble_columns
from ...requested_keys import RequestedKeys
from . import layout
from .layout import COUNT, HEADER_COUNT, KEY_BYTES, ODD_KEYS, PAYLOAD_BYTES, STRING_KEY, TYPED, VALUE_BYTES, WHERE


@lazy_dataclass(frozen=True, slots=True)
class StoredForm:
    """Stored form of the messages of one generation: what reads them, and their smallest size."""

    code: int
    """The dialect's."""
    bytes_min: int
    """A message without headers and payload."""
    typed: int
    """Whether header keys have kinds: layout.TYPED or UNTYPED."""
    fixed_bytes: Mapping[str, int]
    """Fields in front of the headers by their size, in the order in which ``fill`` writes them."""
    row_words: int = field(default=1, kw_only=True)
    """Positions in a row of ``scan``: of the message, and 2 with that of its batch."""
    read_origins: Callable[[Bytes, NDArray[np.int64]], NDArray[np.uint64]] | None = field(default=None, kw_only=True)
    """Returns the times of senders of the messages at some rows, if they have one."""
    scan_home: str
    scan_fallback: ModuleType
    """Kernels and fallback of ``scan`` and ``fill``."""
    cut_home: str
    cut_fallback: ModuleType
    """Kernels and fallback of ``cut``, ``survey`` and ``intact``."""


@lazy_dataclass(frozen=True, slots=True)
class Slices:
    """Stored bytes to send as they are: ``count`` messages up to ``last_offset`` (-1: none) in ``parts``."""

    count: int
    last_offset: int
    parts: list[memoryview]


def decode_columns(form: StoredForm, run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
    """Decode the messages asked for, in portions, as they are stored (a carrier is not undone).

    ``max_bytes`` counts headers and payload. Raises MalformedMessage, with the position in ``run.region``, if the bytes
    there are not a message.
    """
    size_bytes = int((run.chunks[:, BODY_END] - run.chunks[:, BODY_START]).sum())
    kernels = engine.select(form.scan_home, form.scan_fallback, size_bytes)
    asked = RequestedKeys(request.keys, partial(_encode_key, form.typed))
    wants = layout.WANT_HEADERS * ("headers" in request.fields) | layout.WANT_PAYLOAD * ("payload" in request.fields)
    cursor = np.array([0, -1, -1], np.int64)
    totals = np.zeros(layout.TOTALS, np.int64)
    room = max(1, min(request.max_rows, size_bytes // form.bytes_min + 1))
    rows = np.empty(room if form.row_words == 1 else (room, form.row_words), np.int64)
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
            columns = _assemble_messages(
                form.fixed_bytes, kernels, run.region, rows[:count], totals.tolist(), request.fields
            )
            if form.read_origins is not None and ORIGIN_TIMESTAMP in request.fields:
                columns[ORIGIN_TIMESTAMP] = _origin_column(form.read_origins(run.region, rows[:count]))
            yield Decoded(count, columns, asked.locate(run.region, count, *places))


def gather(region: Bytes, places: NDArray[np.int64], number: type[np.unsignedinteger[Any]]) -> NDArray[np.uint64]:
    """Return the little-endian numbers that begin at these places of a region."""
    width = np.dtype(number).itemsize
    octets = region[places[:, None] + np.arange(width)]
    numbers: NDArray[np.uint64] = octets.view(np.dtype(number).newbyteorder("<")).reshape(-1).astype(np.uint64)
    return numbers


def _origin_column(times_us: NDArray[np.uint64]) -> pa.Array[Any]:
    """Return times of senders as a column of a Batch; null for those that no column can hold."""
    type_: Any = SCHEMA_WITH_ORIGIN.field(ORIGIN_TIMESTAMP).type
    made: Any = pa.array(times_us.astype(np.int64), mask=times_us > layout.POSITION_MAX)
    column: pa.Array[Any] = made.cast(type_)
    return column


def _encode_key(typed: int, text: str) -> bytes | None:
    """Encode a header key; None for a text that no key has. If keys are typed, the kind comes first."""
    try:
        data, kind = key_bytes(text)
    except MalformedMessage:
        return None
    if not data or key_text(data, kind) != text:
        return None
    if typed == TYPED:
        return bytes([kind]) + data
    return data if kind == STRING_KEY else None


def _assemble_messages(
    fixed_bytes: Mapping[str, int],
    kernels: Any,
    region: Bytes,
    rows: NDArray[np.int64],
    totals: list[int],
    fields: frozenset[str],
) -> dict[str, pa.Array[Any]]:
    """Return the columns ``fields`` of the messages at ``rows``, as ``kernels.fill`` writes them.

    ``totals`` are those of the scan. ``fixed_bytes`` are the sizes of the fields before the headers, in the order in
    which ``fill`` has them.
    """
    count, header_count = len(rows), totals[HEADER_COUNT]
    # in the order of the places that ``fill`` takes
    stored: dict[str, StoredColumn] = {
        **{field: FixedColumn(count, size_bytes) for field, size_bytes in fixed_bytes.items()},
        "headers": HeadersColumn(
            count,
            BinaryColumn(header_count, totals[KEY_BYTES] + layout.SPARE_BYTES),
            BinaryColumn(header_count, totals[VALUE_BYTES] + layout.SPARE_BYTES),
            FixedColumn(header_count, 1),
        ),
        "payload": BinaryColumn(count, totals[PAYLOAD_BYTES]),
    }
    return assemble_columns(count, fields, stored, partial(kernels.fill, region, rows, totals[ODD_KEYS]))


def slices(form: StoredForm, run: Run, first: int, end: int, max_messages: int, max_bytes: int) -> Slices:
    """Return the stored bytes of messages with first <= offset < end, for an Iggy reader, without copying.

    At most ``max_messages``; at most ``max_bytes`` unless one message alone is larger. Raises MalformedMessage, with
    the position in ``run.region``, if the bytes there are not a message.
    """
    kernels = engine.get_loaded(form.cut_home) or form.cut_fallback
    parts = np.empty((max(1, len(run.chunks)), 2), np.int64)
    filled, count, last, reason, where = kernels.cut(run.region, run.chunks, first, end, max_messages, max_bytes, parts)
    if reason:
        raise MalformedMessage(f"the message {layout.REASONS[reason]}", at=where)
    data = run.region.data
    return Slices(count, last, [data[start:stop] for start, stop in parts[:filled].tolist()])


def survey_messages(form: StoredForm, region: Bytes, start: int) -> Run:
    """Return a Run over whole messages of rising offsets in ``region[start:]``; without messages it has no chunk.

    Raises MalformedMessage if the bytes are not such messages.
    """
    kernels = engine.select(form.cut_home, form.cut_fallback, region.size)
    count, first, last, low, high, reason = kernels.survey(region, start, region.size)
    if reason:
        raise MalformedMessage(f"the message {layout.REASONS[reason]}", at=first)
    chunks = np.array([[start, region.size, first, count, last, low, high, 0]], np.int64)
    return Run(form.code, region, chunks[: 1 if count else 0])


def salvage(form: StoredForm, run: Run) -> Run:
    """Find the intact messages of damaged chunks, in order, each in a chunk of its own.

    Bytes that the checksum of a message does not cover can be checked for plausibility only. So if every message
    passes, the damage is in bytes that no checksum covers, and none of the messages is kept. The work is bounded by
    sixteen times the size of a body.
    """
    kept = [np.empty((0, run.chunks.shape[1]), np.int64)]
    for chunk in run.chunks:
        body = run.region[int(chunk[BODY_START]) : int(chunk[BODY_END])]
        room = min(int(chunk[COUNT_OF]), body.size // form.bytes_min)
        found = np.empty((room, 3), np.int64)
        kernels = engine.select(form.cut_home, form.cut_fallback, body.size)
        count = kernels.intact(body, int(chunk[BASE_OFFSET]), room, found.reshape(-1), 16 * body.size)
        if count == chunk[COUNT_OF]:
            continue
        rows = np.repeat(chunk[np.newaxis], count, axis=0)
        rows[:, BASE_OFFSET] = rows[:, LAST_OFFSET] = found[:count, 0]
        rows[:, BODY_START : BODY_END + 1] = found[:count, 1:] + chunk[BODY_START]
        rows[:, COUNT_OF] = 1
        kept.append(rows)
    return Run(run.dialect, run.region, np.concatenate(kept))

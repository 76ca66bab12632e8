"""Record batches in bulk: bytes -> columns, and which batches of a response a reader may see.

The work is done by kernels or, while they are not loaded, by their readable fallbacks; this module selects them,
allocates memory and names the results. Header values have kind raw: Kafka declares none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.kernels import arena, engine
from lading.kernels.arrays import Bytes, Table
from lading.model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, LAST_OFFSET
from lading.model.chunk_table import COUNT as COUNT_OF
from lading.model.errors import MalformedMessage
from lading.model.names import key_bytes, key_text
from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from ...model.lazy_dataclass import lazy_dataclass
from ..arrow_columns import BinaryColumn, FixedColumn, HeadersColumn, StoredColumn, assemble_columns
from ..requested_keys import RequestedKeys
from . import fallback, layout
from .compression import NONE, decompress
from .encode import encode_batches
from .layout import BATCH_HEADER_BYTES, POSITION_MAX, SPARE_BYTES

__all__ = [
    "CODE",
    "Batches",
    "Noted",
    "decode_columns",
    "decode_noted",
    "encode_batches",
    "read_batches",
    "read_batches_of",
    "salvage",
    "visible",
]

SURVEY_KERNEL_MODULE: Final = "lading.dialects.kafka.survey_kernels"
KERNEL_MODULE: Final = "lading.dialects.kafka.kernels"
FILL_KERNEL_MODULE: Final = "lading.dialects.kafka.fill_kernels"
CODE: Final = 4

_TABLE_ROWS: Final = 4096
_ROWS: Final = arena.Pool(2)
_PLACES: Final = arena.Pool(4)
"""Limits of bulk readers: some MiB for each portion."""


@lazy_dataclass(frozen=True, slots=True)
class Batches:
    """The batches in some bytes: one row of ``table`` each (see layout.START), read up to byte ``end``.

    ``reason`` says why the reading stopped there (0: at the end).
    """

    table: Table
    end: int
    reason: int


def read_batches(
    region: Bytes, start: int, end: int, *, first: int = 0, last: int = POSITION_MAX, verify: bool = True
) -> Batches:
    """Read the headers of the batches in ``region[start:end]`` that hold offsets of first <= offset < last.

    With ``verify`` each CRC-32C is checked. Never raises: see ``reason``.
    """
    chunk = np.array([[start, end, 0, 0, POSITION_MAX, 0, 0, 0]], np.int64)
    return _survey_batches(region, chunk, first, last, verify)


def read_batches_of(run: Run, first: int = 0, last: int = POSITION_MAX) -> Batches:
    """Return the batches in the chunks of a Run, whose CRCs are not checked."""
    return _survey_batches(run.region, run.chunks, first, last, False)


def _survey_batches(region: Bytes, chunks: Table, first: int, end: int, verify: bool) -> Batches:
    size_bytes = int((chunks[:, BODY_END] - chunks[:, BODY_START]).sum())
    kernels = engine.select(SURVEY_KERNEL_MODULE, fallback, size_bytes if verify else size_bytes // 16)
    cursor = np.array([0, -1], np.int64)
    tables = []
    at, reason = 0, layout.FINE
    while cursor[0] < len(chunks) and reason == layout.FINE:
        table = np.empty((_TABLE_ROWS, layout.TABLE_COLUMNS), np.int64)
        found, at, reason = kernels.survey(region, chunks, first, end, verify, cursor, table)
        tables.append(table[:found])
    return Batches(np.concatenate(tables) if tables else np.empty((0, layout.TABLE_COLUMNS), np.int64), at, reason)


def decode_columns(run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
    """Return the requested messages, in portions, as they are stored (a carrier is not undone).

    Control records are left out. Raises MalformedMessage, with the position in ``run.region``, for bytes that are not a
    batch; CRCs are not checked here.
    """
    for noted in decode_noted(run, request):
        yield noted.portion


class Noted(NamedTuple):
    """A portion of messages with the notes of ``scan`` (layout.OFFSET and the next columns), valid until
    the next one.
    """

    portion: Decoded
    rows: Table


def decode_noted(run: Run, request: ScanRequest) -> Iterator[Noted]:
    """Return the result of ``decode_columns``, with the positions of each message's parts for its located headers."""
    batches = read_batches_of(run, request.first, request.end)
    if batches.reason:
        raise MalformedMessage(f"the record batch {layout.REASONS[batches.reason]}", at=batches.end)
    asked = RequestedKeys(request.keys, _to_stored_key)
    for region, table in _note_uncompressed(run.region, batches.table, request):
        yield from _note_portions(region, table, request, asked)


def _note_uncompressed(region: Bytes, table: Table, request: ScanRequest) -> Iterator[tuple[Bytes, Table]]:
    """Return the batches with uncompressed records: regions, each with a table of the positions of records."""
    table = table[table[:, layout.ATTRIBUTES] & layout.CONTROL == 0]
    codecs = table[:, layout.ATTRIBUTES] & layout.CODEC_BITS
    edges = [0, *(np.flatnonzero((codecs[1:] == NONE) != (codecs[:-1] == NONE)) + 1).tolist(), len(table)]
    for low, high in pairwise(edges):
        some = table[low:high]
        if not len(some):
            continue
        if codecs[low] == NONE:
            rows = some.copy()
            rows[:, layout.START] += BATCH_HEADER_BYTES
            yield _with_spare(region, rows)
        else:
            yield from _decompress_batches(region, some, request)


def _with_spare(region: Bytes, rows: Table) -> tuple[Bytes, Table]:
    """Return region and rows as they are, or copied with spare bytes after the last record if it has none."""
    start, end = int(rows[0, layout.START]), int(rows[-1, layout.END])
    if end + SPARE_BYTES <= region.size and region.flags.c_contiguous:
        return region, rows
    rows[:, (layout.START, layout.END)] -= start
    return np.concatenate((region[start:end], np.zeros(SPARE_BYTES, np.uint8))), rows


def _decompress_batches(region: Bytes, table: Table, request: ScanRequest) -> Iterator[tuple[Bytes, Table]]:
    """Return the records of compressed batches one after the other, for as many batches at a time as make a portion."""
    pieces: list[Bytes] = []
    rows: list[NDArray[np.int64]] = []
    size_bytes = count = 0
    for row in table:
        start, end = int(row[layout.START]) + BATCH_HEADER_BYTES, int(row[layout.END])
        codec = int(row[layout.ATTRIBUTES]) & layout.CODEC_BITS
        try:
            plain, plain_bytes = decompress(codec, region.data[start:end], SPARE_BYTES)
        except MalformedMessage as error:
            raise MalformedMessage(str(error), at=start) from None
        if rows and (size_bytes + plain_bytes > request.max_bytes or count + int(row[layout.COUNT]) > request.max_rows):
            yield _join_pieces(pieces, rows)
            pieces, rows, size_bytes, count = [], [], 0, 0
        bounds = row.copy()
        bounds[layout.START], bounds[layout.END] = size_bytes, size_bytes + plain_bytes
        pieces.append(plain[: plain_bytes + SPARE_BYTES])
        rows.append(bounds)
        size_bytes += plain_bytes
        count += int(row[layout.COUNT])
    yield _join_pieces(pieces, rows)


def _join_pieces(pieces: list[Bytes], rows: list[NDArray[np.int64]]) -> tuple[Bytes, Table]:
    if len(pieces) == 1:
        return pieces[0], np.stack(rows)
    return np.concatenate([*(piece[:-SPARE_BYTES] for piece in pieces), pieces[-1][-SPARE_BYTES:]]), np.stack(rows)


def _note_portions(region: Bytes, table: Table, request: ScanRequest, asked: RequestedKeys) -> Iterator[Noted]:
    fields = request.fields
    size_bytes = int((table[:, layout.END] - table[:, layout.START]).sum())
    kernels = engine.select(KERNEL_MODULE, fallback, size_bytes)
    wants = (
        layout.WANT_HEADERS * ("headers" in fields)
        | layout.WANT_PAYLOAD * ("payload" in fields)
        | layout.WANT_KEY * ("key" in fields)
    )
    cursor = np.array([0, -1, 0, 0], np.int64)
    totals = np.zeros(layout.TOTALS, np.int64)
    room = max(1, min(request.max_rows, size_bytes // layout.RECORD_BYTES_MIN + 1, int(table[:, layout.COUNT].sum())))
    rows = _allocate_words(_ROWS, (room, layout.ROW_WORDS))
    limit_bytes = min(request.max_bytes, layout.ARROW_BYTES_MAX)
    while cursor[0] < len(table):
        places = _allocate_words(_PLACES, (len(asked), room)), _allocate_words(_PLACES, (len(asked), room))
        span = (cursor, request.first, request.end, room, limit_bytes, wants)
        reason = kernels.scan(region, table, *span, asked.bytes, asked.ends, rows.reshape(-1), *places, totals)
        if reason:
            raise MalformedMessage(f"a record {layout.REASONS[reason]}", at=int(totals[layout.WHERE]))
        count = int(totals[layout.TOTAL_COUNT])
        if count:
            columns = _build_columns(region, rows[:count], totals, fields)
            yield Noted(Decoded(count, columns, asked.locate(region, count, *places)), rows[:count])


def _allocate_words(pool: arena.Pool, shape: tuple[int, int]) -> Table:
    return pool.memory(8 * shape[0] * shape[1]).view(np.int64).reshape(shape)


def _to_stored_key(text: str) -> bytes | None:
    """Return the bytes of a header key in this dialect, or None for a text that no key of it has."""
    try:
        data, _ = key_bytes(text)
    except MalformedMessage:
        return None
    return data if key_text(data) == text else None


def _build_columns(
    region: Bytes, rows: Table, totals: NDArray[np.int64], fields: frozenset[str]
) -> dict[str, pa.Array[Any]]:
    count = len(rows)
    sizes = dict(enumerate(totals.tolist()))
    header_count = sizes[layout.HEADER_COUNT]
    # in the order of layout.OFFSETS and the next buffers
    stored: dict[str, StoredColumn] = {
        "offset": FixedColumn(count, 8),
        "timestamp": FixedColumn(count, 8),
        "key": BinaryColumn(count, sizes[layout.KEY_BYTES] + SPARE_BYTES, sizes[layout.NULL_KEYS] > 0),
        "headers": HeadersColumn(
            count,
            BinaryColumn(header_count, sizes[layout.NAME_BYTES] + SPARE_BYTES),
            BinaryColumn(header_count, sizes[layout.VALUE_BYTES] + SPARE_BYTES, sizes[layout.NULL_VALUES] > 0),
        ),
        "payload": BinaryColumn(count, sizes[layout.PAYLOAD_BYTES] + SPARE_BYTES, sizes[layout.NULL_PAYLOADS] > 0),
    }

    def fill(memory: Bytes, places: NDArray[np.int64]) -> None:
        engine.select(FILL_KERNEL_MODULE, fallback, memory.size).fill(region, rows, totals, memory, places)

    return assemble_columns(count, fields, stored, fill)


def salvage(run: Run) -> Run:
    """Return the batches of damaged chunks whose CRC-32C matches, in order, each as a chunk of its own.

    The CRC covers all but the base offset, which must lie within the chunk and above the one before. The work is
    bounded by sixteen times the size of a body.
    """
    kept = [np.empty((0, run.chunks.shape[1]), np.int64)]
    for chunk in run.chunks:
        at, body_end = int(chunk[BODY_START]), int(chunk[BODY_END])
        expected, budget = int(chunk[BASE_OFFSET]), 16 * (body_end - at)
        body = run.region[:body_end]
        while body_end - at >= BATCH_HEADER_BYTES and budget > 0:
            found = _next_magic(body, at)
            if found is None:
                break
            size = int.from_bytes(body[found + 8 : found + 12].tobytes(), "big") + layout.FRAME_BYTES
            whole = BATCH_HEADER_BYTES <= size <= body_end - found
            budget -= size if whole else 1
            batch = read_batches(body, found, found + size) if whole else None
            if batch is None or batch.reason or not len(batch.table) or batch.table[0, layout.BASE] < expected:
                at = found + 1
                continue
            row = chunk.copy()
            row[BODY_START], row[BODY_END] = found, found + size
            row[BASE_OFFSET], row[LAST_OFFSET] = batch.table[0, layout.BASE], batch.table[0, layout.LAST]
            row[COUNT_OF] = batch.table[0, layout.COUNT]
            if row[LAST_OFFSET] > chunk[LAST_OFFSET]:
                at = found + 1
                continue
            kept.append(row[np.newaxis])
            at, expected = found + size, int(row[LAST_OFFSET]) + 1
    return Run(run.dialect, run.region, np.concatenate(kept))


def _next_magic(body: Bytes, at: int) -> int | None:
    """Return the first position from ``at`` on at which a batch could begin.

    The magic there is 2, and the highest byte of the length is zero.
    """
    stop = body.size - BATCH_HEADER_BYTES + 1
    while at < stop:
        window = body[at + layout.MAGIC_AT : min(stop, at + 65_536) + layout.MAGIC_AT]
        hits = np.flatnonzero(window == layout.MAGIC)
        tops = hits[body[at + hits + layout.LENGTH_AT] == 0]
        if len(tops):
            return at + int(tops[0])
        at += 65_536
    return None


def visible(table: Table, aborted: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Return which batches of a response hold messages for a reader of committed messages.

    ``aborted`` is (producer id, first offset) of each aborted transaction, as in the broker's response: from there on
    the transactional batches of that producer are left out until its next control batch (kafka.md 2.4).
    """
    attributes = table[:, layout.ATTRIBUTES]
    seen = np.asarray(attributes & layout.CONTROL == 0, np.bool_)
    if not aborted:
        return seen
    waiting = sorted((first, producer) for producer, first in aborted)
    open_now: set[int] = set()
    facts = table[:, (layout.LAST, layout.PRODUCER, layout.ATTRIBUTES)].tolist()
    for at, (last, producer, bits) in enumerate(facts):
        while waiting and waiting[0][0] <= last:
            open_now.add(waiting.pop(0)[1])
        if not bits & layout.TRANSACTIONAL:
            continue
        if bits & layout.CONTROL:
            open_now.discard(producer)
        elif producer in open_now:
            seen[at] = False
    return seen

"""NSQ messages in bulk: stored bytes -> columns and located headers, and what is left of damaged chunks.

The work is done by kernels or, while they are not loaded, by their readable fallbacks; exts other than a flat JSON
object of plain values are parsed by ``ext.py``. Header kinds are string, int64, float64, bool, and raw for null.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lading.kernels import engine
from lading.kernels.arrays import Bytes, Longs
from lading.model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, LAST_OFFSET
from lading.model.chunk_table import COUNT as COUNT_OF
from lading.model.errors import MalformedMessage
from lading.model.run import Decoded, Located, Run
from lading.model.scan_request import ScanRequest

from ..arrow_columns import BinaryColumn, FixedColumn, HeadersColumn, StoredColumn, assemble_columns
from ..requested_keys import RequestedKeys
from . import fallback, layout
from .ext import headers_of

__all__ = ["CODE", "decode_columns", "salvage"]

KERNEL_MODULE = "lading.dialects.nsq.kernels"
SURVEY_KERNEL_MODULE = "lading.dialects.nsq.survey_kernels"
CODE: Final = 5


_SPARE_BYTES: Final = 8
_HEADERS_PER_MESSAGE: Final = 6
_NOTHING: Final[Bytes] = np.empty(0, np.uint8)


def decode_columns(run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
    """Return the requested messages, in portions, as they are stored (a carrier is not undone).

    ``max_bytes`` counts exts and payload. Raises MalformedMessage, with the position in ``run.region``, for bytes that
    are not a message. An ext is never refused.
    """
    size_bytes = int((run.chunks[:, BODY_END] - run.chunks[:, BODY_START]).sum())
    kernels = engine.select(KERNEL_MODULE, fallback, size_bytes)
    asked = RequestedKeys(request.keys, _to_stored_key)
    want_headers, want_payload = "headers" in request.fields or bool(request.keys), "payload" in request.fields
    cursor = np.array([0, -1, 0], np.int64)
    totals = np.zeros(layout.TOTALS, np.int64)
    room = max(1, min(request.max_rows, size_bytes // layout.RECORD_BYTES_MIN + 1))
    rows = np.empty((room, layout.ROW_WORDS), np.int64)
    # an ext has at most this many headers, and a single message must always fit
    headers_room = max(_HEADERS_PER_MESSAGE * room, (1 << 16) // 4 + 1) if want_headers else 0
    headers = np.empty((headers_room, layout.HEADER_WORDS), np.int64)
    limit_bytes = min(request.max_bytes, layout.ARROW_BYTES_MAX)
    while cursor[0] < len(run.chunks):
        span = (cursor, request.first, request.end, room, limit_bytes, want_headers, want_payload, headers_room)
        reason = kernels.scan(run.region, run.chunks, *span, rows, headers, totals)
        if reason:
            raise MalformedMessage(f"the message {layout.REASONS[reason]}", at=int(totals[layout.WHERE]))
        count = int(totals[layout.COUNT])
        if not count:
            continue
        noted, side = headers[: int(totals[layout.HEADER_COUNT])], _NOTHING
        if totals[layout.ODD_ROWS]:
            noted, side = _with_odd(run.region, rows[:count], noted)
        portion = _Portion(kernels, run.region, side, rows[:count], noted, int(totals[layout.PAYLOAD_BYTES]))
        yield Decoded(count, portion.columns(request.fields), portion.locate(asked))


def _with_odd(region: Bytes, rows: Longs, headers: Longs) -> tuple[Longs, Bytes]:
    """Return all headers in order, including those of unusual exts, which are parsed here.

    Names and values of these are in the given bytes.
    """
    pieces: list[Longs] = []
    side = bytearray()
    low = at = 0
    counts = rows[:, layout.ROW_HEADERS]
    for row in np.flatnonzero(counts < 0).tolist():
        before = int(counts[at:row].sum())
        pieces.append(headers[low : low + before])
        low, at = low + before, row + 1
        start, size = int(rows[row, layout.ROW_EXT]), int(rows[row, layout.ROW_EXT_BYTES])
        found = headers_of(-1 - int(counts[row]), region[start : start + size].tobytes())
        table = np.empty((len(found), layout.HEADER_WORDS), np.int64)
        for index, (key, kind, value) in enumerate(found):
            name, data = key.encode(), value or b""
            place = len(side)
            size_bytes = -1 if value is None else len(data)
            table[index] = place, len(name), kind, layout.ASIDE, place + len(name), size_bytes, 0
            side += name + data
        rows[row, layout.ROW_HEADERS] = len(found)
        pieces.append(table)
    pieces.append(headers[low:])
    return np.concatenate(pieces), np.frombuffer(bytes(side) + bytes(_SPARE_BYTES), np.uint8)


def _to_stored_key(text: str) -> bytes:
    # a text with a lone surrogate cannot be a key
    return text.encode(errors="surrogatepass")


class _Portion:
    """Some messages and their headers, with the notes of ``scan``."""

    def __init__(
        self, kernels: Any, region: Bytes, side: Bytes, rows: Longs, headers: Longs, payload_bytes: int
    ) -> None:
        self._kernels = kernels
        self._noted = (region, side, rows, headers)
        self._count, self._header_count = len(rows), len(headers)
        self._name_bytes = int(headers[:, layout.NAME_BYTES].sum())
        self._value_bytes = int(np.maximum(headers[:, layout.VALUE_BYTES], 0).sum())
        self._payload_bytes = payload_bytes

    def locate(self, asked: RequestedKeys) -> dict[str, Located]:
        """Return the last value of each asked header, copied out of its ext."""
        if not len(asked):
            return {}
        shape = (len(asked), self._count)
        starts, lengths = np.empty(shape, np.int64), np.empty(shape, np.int64)
        kinds = np.empty(shape, np.int8)
        memory = np.empty(self._value_bytes + _SPARE_BYTES, np.uint8)
        self._kernels.locate(*self._noted, asked.bytes, asked.ends, starts, lengths, kinds, memory)
        return asked.locate(memory, self._count, starts, lengths, kinds)

    def columns(self, fields: frozenset[str]) -> dict[str, pa.Array[Any]]:
        """Return the requested columns."""
        count, header_count = self._count, self._header_count
        # in the order of layout.OFFSETS and the next buffers
        stored: dict[str, StoredColumn] = {
            "offset": FixedColumn(count, 8),
            "timestamp": FixedColumn(count, 8),
            "id": FixedColumn(count, 16),
            "headers": HeadersColumn(
                count,
                BinaryColumn(header_count, self._name_bytes),
                BinaryColumn(header_count, self._value_bytes, nullable=True),
                FixedColumn(header_count, 1),
            ),
            "payload": BinaryColumn(count, self._payload_bytes),
        }
        return assemble_columns(count, fields, stored, partial(self._kernels.fill, *self._noted))


def salvage(run: Run) -> Run:
    """Return the messages of damaged chunks whose CRC-32C matches, in order, each in a chunk of its own.

    After damage, a message's offset is taken from its id; a message whose id is implausible is not kept. The work is
    bounded by sixteen times the size of a body.
    """
    kept = [np.empty((0, run.chunks.shape[1]), np.int64)]
    for chunk in run.chunks:
        start, stop = int(chunk[BODY_START]), int(chunk[BODY_END])
        room = max(0, min(int(chunk[COUNT_OF]), (stop - start) // layout.RECORD_BYTES_MIN))
        found = np.empty((room, 3), np.int64)
        kernels = engine.select(SURVEY_KERNEL_MODULE, fallback, stop - start)
        spans = (start, stop, int(chunk[BASE_OFFSET]), int(chunk[COUNT_OF]))
        count = kernels.intact(run.region, *spans, found, 16 * (stop - start))
        rows = np.repeat(chunk[np.newaxis], count, axis=0)
        rows[:, BASE_OFFSET] = rows[:, LAST_OFFSET] = found[:count, 0]
        rows[:, BODY_START : BODY_END + 1] = found[:count, 1:]
        rows[:, COUNT_OF] = 1
        kept.append(rows)
    return Run(run.dialect, run.region, np.concatenate(kept))

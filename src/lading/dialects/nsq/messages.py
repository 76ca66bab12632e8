"""NSQ messages in bulk: stored bytes -> columns and located headers, and what is left of damaged chunks.

The work is done by kernels or, while they are not loaded, by their readable twins; exts that are no flat JSON object of
plain values are taken apart by ``ext.py``. Header kinds are string, int64, float64, bool, and raw for null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.kernels import arena, engine
from lading.model.batch import HEADERS_TYPE, SCHEMA
from lading.model.errors import MalformedMessage
from lading.model.run import BASE_OFFSET, BODY_END, BODY_START, LAST_OFFSET, Decoded, Located, Run
from lading.model.run import COUNT as COUNT_OF
from lading.model.scan_request import ScanRequest
from lading.model.state import State

from . import fallback, layout
from .ext import headers_of

__all__ = ["CODE", "decode_columns", "salvage"]

KERNEL_MODULE = "lading.dialects.nsq.kernels"
CODE: Final = 5

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]

_SPARE_BYTES: Final = 8
_HEADERS_PER_MESSAGE: Final = 6
_NOTHING: Final[Bytes] = np.empty(0, np.uint8)


def decode_columns(run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
    """The messages asked for, in portions, as they are stored (a carrier is not undone).

    ``max_bytes`` counts exts and payload. Raises MalformedMessage, with the position in ``run.region``, at bytes that
    are no message. An ext is never refused.
    """
    size_bytes = int((run.chunks[:, BODY_END] - run.chunks[:, BODY_START]).sum())
    kernels = engine.select(KERNEL_MODULE, fallback, size_bytes)
    asked = _RequestedKeys(request.keys)
    want_headers, want_payload = "headers" in request.fields or bool(asked.texts), "payload" in request.fields
    cursor = np.array([0, -1, 0], np.int64)
    totals = np.zeros(layout.TOTALS, np.int64)
    room = max(1, min(request.max_rows, size_bytes // layout.RECORD_BYTES_MIN + 1))
    rows = np.empty((room, layout.ROW_WORDS), np.int64)
    # an ext has up to so many headers, and one message must always fit
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
        yield Decoded(count, portion.columns(request.fields), portion.located(asked))


def _with_odd(region: Bytes, rows: Longs, headers: Longs) -> tuple[Longs, Bytes]:
    """All headers in order, those of odd exts taken apart here; names and values of these lie in the bytes given."""
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


class _RequestedKeys:
    """Header keys to locate, as bytes for the kernel."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.texts = list(dict.fromkeys(keys))
        # no text with a lone surrogate is the key of anything
        known = [text.encode(errors="surrogatepass") for text in self.texts]
        self.bytes = np.frombuffer(b"".join(known) + bytes(_SPARE_BYTES), np.uint8)
        self.ends = np.cumsum([len(data) for data in known], dtype=np.int64)


class _Portion:
    """Some messages and their headers, as ``scan`` noted them."""

    def __init__(
        self, kernels: Any, region: Bytes, side: Bytes, rows: Longs, headers: Longs, payload_bytes: int
    ) -> None:
        self._kernels = kernels
        self._noted = (region, side, rows, headers)
        self._count, self._header_count = len(rows), len(headers)
        self._name_bytes = int(headers[:, layout.NAME_BYTES].sum())
        self._value_bytes = int(np.maximum(headers[:, layout.VALUE_BYTES], 0).sum())
        self._payload_bytes = payload_bytes

    def located(self, asked: _RequestedKeys) -> dict[str, Located]:
        """The last value of each asked header, copied out of its ext."""
        if not asked.texts:
            return {}
        shape = (len(asked.texts), self._count)
        starts, lengths = np.empty(shape, np.int64), np.empty(shape, np.int64)
        kinds = np.empty(shape, np.int8)
        memory = np.empty(self._value_bytes + _SPARE_BYTES, np.uint8)
        self._kernels.locate(*self._noted, asked.bytes, asked.ends, starts, lengths, kinds, memory)
        return {text: Located(memory, starts[at], lengths[at], kinds[at]) for at, text in enumerate(asked.texts)}

    def columns(self, fields: frozenset[str]) -> dict[str, pa.Array[Any]]:
        """The columns asked for."""
        count, header_count = self._count, self._header_count
        sizes_bytes: dict[str, tuple[int, ...]] = {
            "offset": (8 * count,),
            "timestamp": (8 * count,),
            "id": (16 * count,),
            "headers": (
                4 * count + 4,
                4 * header_count + 4,
                self._name_bytes,
                header_count,
                -(-header_count // 8),
                4 * header_count + 4,
                self._value_bytes,
            ),
            "payload": (4 * count + 4, self._payload_bytes),
        }
        # asked for or not, in the order of layout.OFFSETS and what follows
        memory = arena.Arena(
            [size if field in fields else -1 for field, sizes in sizes_bytes.items() for size in sizes]
        )
        self._kernels.fill(*self._noted, memory.memory, memory.places)
        buffers = memory.buffers()
        columns: dict[str, pa.Array[Any]] = {}
        for field, buffer in (("offset", layout.OFFSETS), ("timestamp", layout.TIMESTAMPS), ("id", layout.IDS)):
            if field in fields:
                columns[field] = _from_buffers(_TYPES[field], count, [None, buffers[buffer]])
        if "state" in fields:
            columns["state"] = pa.array(np.full(count, int(State.AVAILABLE), np.int8))
        for field in ("checksum", "key"):
            if field in fields:
                columns[field] = pa.nulls(count, _TYPES[field])
        if "headers" in fields:
            entries = [
                _from_buffers(pa.string(), header_count, [None, *buffers[layout.NAME_ENDS : layout.NAMES + 1]]),
                _from_buffers(pa.int8(), header_count, [None, buffers[layout.KINDS]]),
                _from_buffers(pa.binary(), header_count, buffers[layout.VALUE_VALID : layout.VALUES + 1]),
            ]
            structs = _from_buffers(HEADERS_TYPE.value_type, header_count, [None], children=entries)
            ends = buffers[layout.LIST_ENDS]
            columns["headers"] = _from_buffers(HEADERS_TYPE, count, [None, ends], children=[structs])
        if "payload" in fields:
            ends_and_bytes = buffers[layout.PAYLOAD_ENDS : layout.PLACES]
            columns["payload"] = _from_buffers(pa.binary(), count, [None, *ends_and_bytes])
        return columns


_from_buffers: Any = pa.Array.from_buffers
_TYPES = {field.name: field.type for field in SCHEMA}


def salvage(run: Run) -> Run:
    """The messages of damaged chunks whose CRC-32C holds, in order, each in a chunk of its own.

    Behind damage a message's id tells its offset; one whose id cannot be that is not kept. The work is bounded by
    sixteen times the size of a body.
    """
    kept = [np.empty((0, run.chunks.shape[1]), np.int64)]
    for chunk in run.chunks:
        start, stop = int(chunk[BODY_START]), int(chunk[BODY_END])
        room = max(0, min(int(chunk[COUNT_OF]), (stop - start) // layout.RECORD_BYTES_MIN))
        found = np.empty((room, 3), np.int64)
        kernels = engine.select(KERNEL_MODULE, fallback, stop - start)
        spans = (start, stop, int(chunk[BASE_OFFSET]), int(chunk[COUNT_OF]))
        count = kernels.intact(run.region, *spans, found, 16 * (stop - start))
        rows = np.repeat(chunk[np.newaxis], count, axis=0)
        rows[:, BASE_OFFSET] = rows[:, LAST_OFFSET] = found[:count, 0]
        rows[:, BODY_START : BODY_END + 1] = found[:count, 1:]
        rows[:, COUNT_OF] = 1
        kept.append(rows)
    return Run(run.dialect, run.region, np.concatenate(kept))

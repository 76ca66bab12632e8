"""Payloads walked by their format: a verdict for each, and the values at paths in the form that ``columns``
converts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..kernels import engine
from ..kernels.arrays import Bytes, Kinds, Longs
from ..kernels.entries import view_binary
from ..model.kinds import Kind
from ..model.lazy_dataclass import lazy_dataclass
from ..model.run import Located
from . import fallback
from .found import FoundValues, ValuePart, WalkedPayloads
from .layout import (
    ABSENT,
    BROKEN,
    JSON_DEPTH_MAX,
    JSON_ESCAPED,
    JSON_NESTED,
    JSON_PLAIN,
    JSON_REAL,
    NULL,
    SEEN_BROKEN,
)
from .paths import Path, tabulate_paths
from .tables import make_tables

KERNEL_MODULE: Final = "lading.payloads.kernels"
PAYLOAD_BYTES: Final = 64
"""Size that counts for each payload, in addition to its bytes, when kernel or fallback is chosen."""
_EXPONENT_MAX: Final = 64
"""A JSON number with a larger exponent is too large for any column of whole numbers."""


@lazy_dataclass(frozen=True, slots=True)
class JsonValues:
    """Values inside valid JSON payloads: positions in ``data``, lengths and kinds of ``layout``."""

    data: Bytes
    start: Longs
    length: Longs
    kind: Kinds
    seen: int = -1
    """Bits of ``layout``: if the bit of a kind is not set, no value has this kind."""

    @property
    def absent(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        rows: NDArray[np.bool_] = self.length == ABSENT
        return rows

    @property
    def null(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        rows: NDArray[np.bool_] = self.length == NULL
        return rows

    @property
    def missing(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        rows: NDArray[np.bool_] = (self.length < 0) & (self.length != BROKEN)
        return rows

    @property
    def readable(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        rows: NDArray[np.bool_] = self.length >= 0
        return rows

    def read_as(self, type_: pa.DataType, *, whole_numbers: bool) -> tuple[Sequence[ValuePart], NDArray[np.bool_]]:
        """See FoundValues: strings become their text, other values their JSON text, all of kind string."""
        located, broken = self.locate(whole_numbers=whole_numbers)
        return (ValuePart(located),), broken

    def locate(self, *, whole_numbers: bool) -> tuple[Located, NDArray[np.bool_]]:
        """Return the values as texts of kind string, and a mask of those that cannot be read."""
        data, start, length = self.data, self.start, self.length
        if self.seen & 1 << JSON_ESCAPED and (self.kind == JSON_ESCAPED).any():
            data = np.empty(int(length.clip(min=0).sum()), np.uint8)
            start, length = np.empty_like(start), np.empty_like(length)
            _kernels(len(data)).unescape_strings(self.data, self.start, self.length, self.kind, data, start, length)
        if whole_numbers and self.seen & 1 << JSON_REAL and (real := np.flatnonzero(self.kind == JSON_REAL)).size:
            data, start, length = _write_whole_numbers(data, start, length, real)
        if not self.seen & (SEEN_BROKEN | 1 << JSON_ESCAPED):
            broken = np.zeros(len(length), np.bool_)
        elif (broken := length == BROKEN).any():
            length = np.where(broken, ABSENT, length)
        return Located(data, start, length, np.full(len(length), Kind.STRING, np.int8)), broken

    def locate_text(self) -> Located:
        """See FoundValues."""
        quotes = ((self.kind >= JSON_PLAIN) & (self.kind <= JSON_ESCAPED) & (self.length >= 0)).astype(np.int64)
        length = np.where(self.length == BROKEN, ABSENT, self.length + 2 * quotes)
        return Located(self.data, self.start - quotes, length, np.full(len(length), Kind.STRING, np.int8))

    def list_items(self) -> tuple[NDArray[np.int32], JsonValues, NDArray[np.bool_]]:
        """See FoundValues."""
        ends, _, items = self._list("[")
        return ends, items, self._begin_with(b"[")

    def list_members(self) -> tuple[NDArray[np.int32], JsonValues, JsonValues, NDArray[np.bool_]]:
        """See FoundValues."""
        ends, names, members = self._list("{")
        return ends, names, members, self._begin_with(b"{")

    def walk(self, paths: tuple[Path, ...]) -> tuple[Mapping[Path, FoundValues], NDArray[np.bool_]]:
        """See FoundValues."""
        are_objects = self._begin_with(b"{")
        size = np.where(are_objects, self.length, NULL)
        return walk_json_spans(self.data, self.start, size, paths).values, are_objects

    def _begin_with(self, opener: bytes) -> NDArray[np.bool_]:
        rows: NDArray[np.bool_] = (self.kind == JSON_NESTED) & (self.length > 0)
        rows[rows] = self.data[self.start[rows]] == opener[0]
        return rows

    def _list(self, opener: str) -> tuple[NDArray[np.int32], JsonValues, JsonValues]:
        rows = len(self.length)
        ends, room = np.empty(rows + 1, np.int32), max(1, 2 * rows)
        stack = np.empty(JSON_DEPTH_MAX, np.uint8)
        kernels = _kernels(int(self.length.clip(min=0).sum()))
        while True:
            names, items = (_make_room(self.data, room) for _ in range(2))
            name_room, item_room = ((part.start, part.length, part.kind) for part in (names, items))
            count = kernels.list_items(
                self.data, self.start, self.length, self.kind, ord(opener), stack, ends, *name_room, *item_room
            )
            if count <= room:
                return ends, names.first(count), items.first(count)
            room = count

    def take(self, rows: NDArray[np.int64]) -> JsonValues:
        """See FoundValues."""
        return JsonValues(self.data, self.start[rows], self.length[rows], self.kind[rows], self.seen)

    def first(self, count: int) -> JsonValues:
        """Return the values of the first ``count`` rows."""
        return JsonValues(self.data, self.start[:count], self.length[:count], self.kind[:count])


class WalkedJson(WalkedPayloads):
    """Walked payloads of JSON, whose values are texts."""

    __slots__ = ()

    values: Mapping[Path, JsonValues]


def _make_room(data: Bytes, rows: int) -> JsonValues:
    return JsonValues(data, np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int8))


def walk_json(payloads: pa.Array[Any], paths: Iterable[Path]) -> WalkedJson:
    """Return the values at ``paths`` in JSON payloads, a binary column. Each payload is validated as a whole."""
    ends, data = view_binary(payloads)
    begin, size = ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64)
    if payloads.null_count:
        size[payloads.is_null().to_numpy(zero_copy_only=False)] = -1
    return walk_json_spans(data, begin, size, tuple(dict.fromkeys(paths)))


def walk_json_spans(data: Bytes, begin: Longs, size: Longs, paths: tuple[Path, ...]) -> WalkedJson:
    """Return the values for payloads of ``size`` bytes of ``data`` from ``begin`` on each; a size below 0 is a null
    payload.
    """
    table, rows = tabulate_paths(paths), len(size)
    start, length, kind = make_tables(len(table.paths), rows, np.int64, np.int64, np.int8)
    verdict, position = np.empty(rows, np.uint8), np.empty(rows, np.int64)
    room = np.empty(JSON_DEPTH_MAX, np.uint8), np.empty(len(table.names), np.uint8)
    after, seen = np.full(len(table.nodes) + len(table.keys), -1, np.int64), np.zeros(len(table.paths), np.int64)
    size_bytes = int(size.clip(min=0).sum())
    _kernels(size_bytes + rows * PAYLOAD_BYTES).walk_json(
        data, begin, size, table.nodes, table.keys, table.names, *room, start, length, kind, verdict, position,
        after, seen,
    )  # fmt: skip
    bits = seen.tolist()
    values = {
        path: JsonValues(data, start[leaf], length[leaf], kind[leaf], bits[leaf])
        for leaf, path in enumerate(table.paths)
    }
    return WalkedJson(values, verdict, position)


def write_whole_number(literal: str) -> str:
    """Return a whole JSON number, such as 1.0 or 1e3, as digits; other numbers unchanged."""
    try:
        number = Decimal(literal)
    except InvalidOperation:
        return literal
    if abs(number.adjusted()) > _EXPONENT_MAX or number != number.to_integral_value():
        return literal
    return str(int(number))


def _write_whole_numbers(data: Bytes, start: Longs, length: Longs, rows: NDArray[Any]) -> tuple[Bytes, Longs, Longs]:
    """Return the values with the numbers of ``rows`` rewritten by ``write_whole_number``, after the other data."""
    start, length = start.copy(), length.copy()
    end, written = len(data), []
    for row in rows.tolist():
        literal = data[start[row] : start[row] + length[row]].tobytes()
        text = write_whole_number(literal.decode()).encode()
        written.append(text)
        start[row], length[row] = end, len(text)
        end += len(text)
    return np.concatenate([data, np.frombuffer(b"".join(written), np.uint8)]), start, length


def _kernels(size_bytes: int) -> Any:
    return engine.select(KERNEL_MODULE, fallback, size_bytes)

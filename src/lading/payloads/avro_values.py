"""Avro payloads walked by programs: verdicts, and the values of paths in the form that columns take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..kernels import engine
from ..kernels.arrays import Bytes, Longs
from ..model.kinds import Kind
from ..model.lazy_dataclass import lazy_dataclass
from ..model.run import Located
from ..schemas.avro import AvroType
from . import avro_fallback
from .avro_datum import encode_value, find_scale, read_decimal, write_sized, write_value
from .avro_program import AvroProgram, compile_program, is_record
from .found import FoundValues, ValuePart, WalkedPayloads
from .layout import ABSENT, AVRO_DEPTH_MAX, BROKEN, FRAME_WORDS, NULL, VERDICT_GOOD, VERDICT_MISMATCH, VERDICT_UNKNOWN
from .numbers import cast_decimals, locate_numbers, locate_texts, type_instants
from .paths import Path, write_path
from .tables import make_tables

KERNEL_MODULE: Final = "lading.payloads.avro_kernels"
PAYLOAD_BYTES: Final = 64
"""Size that counts for each payload, in addition to its bytes, when kernel or fallback is chosen."""
_NUMBERS: Final = frozenset({"int", "long", "enum"})
_PLAIN_KINDS: Final[Mapping[str, Kind]] = {
    "boolean": Kind.BOOL, "float": Kind.FLOAT32, "double": Kind.FLOAT64, "string": Kind.STRING, "bytes": Kind.RAW,
    "fixed": Kind.RAW,
}  # fmt: skip
_UUID_BYTES: Final = 16
_LONG_MAX: Final = (1 << 63) - 1
_INSTANT_UNITS: Final[Mapping[str, tuple[int, int]]] = {
    f"{local}timestamp-{unit}": factors
    for local in ("", "local-")
    for unit, factors in (("millis", (1000, 1)), ("micros", (1, 1)), ("nanos", (1, 1000)))
}
"""Logical types of moments: factor and divisor that convert their number to microseconds."""
_DAY_US: Final = 86_400_000_000
Indexes = NDArray[np.int64]


@lazy_dataclass(frozen=True, slots=True)
class AvroValues:
    """Values inside valid Avro payloads: ``start`` is a position in ``data``, or the number itself.

    ``what`` is the index of a value's type among ``types``, and of the reader's type for it among ``readers``; lengths
    below 0 are those of ``layout``.
    """

    data: Bytes
    start: Longs
    length: Longs
    what: NDArray[np.int32]
    types: tuple[AvroType, ...]
    readers: tuple[AvroType | None, ...]

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
    def readable(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        rows: NDArray[np.bool_] = self.length >= 0
        return rows

    @property
    def missing(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        rows: NDArray[np.bool_] = (self.length < 0) & (self.length != BROKEN)
        return rows

    def _by_type(self) -> Iterator[tuple[AvroType, AvroType | None, Indexes | None]]:
        """Yield each type of the values, the reader's type, and its rows; None stands for all rows, some perhaps
        without a value.
        """
        readable = self.readable
        what = self.what if readable.all() else self.what[readable]
        if not what.size:
            return
        if (what == what[0]).all():
            yield self.types[what[0]], self.readers[what[0]], None
            return
        for type_ in np.unique(what).tolist():
            yield self.types[type_], self.readers[type_], np.flatnonzero(readable & (self.what == type_))

    def read_as(self, type_: pa.DataType, *, whole_numbers: bool) -> tuple[Sequence[ValuePart], NDArray[np.bool_]]:
        """See FoundValues."""
        parts: list[ValuePart] = []
        broken = self.length == BROKEN
        for found, _, rows in self._by_type():
            some = self if rows is None else self.take(rows)
            values, wrong = some._read_one_type(found, type_, whole_numbers)
            if wrong is not None:
                broken[slice(None) if rows is None else rows] |= wrong
            parts.append(ValuePart(values, rows))
        if not parts:
            nothing = np.full(len(self.length), ABSENT, np.int64)
            parts.append(ValuePart(Located(self.data, self.start, nothing, np.zeros(len(nothing), np.int8))))
        return parts, broken

    def _read_one_type(
        self, type_: AvroType, target: pa.DataType, whole_numbers: bool
    ) -> tuple[Located | pa.Array[Any], Any]:
        """Return the values of one type, null for rows without one, and a mask of unreadable values, if
        there are any.
        """
        logical = type_.attributes.get("logicalType")
        is_text = target == pa.string()
        if type_.kind == "enum":
            names = [symbol.encode() for symbol in type_.symbols]
            return locate_texts(names, np.where(self.length >= 0, self.start, 0), self.length), None
        if type_.kind == "long" and logical is not None and logical in _INSTANT_UNITS:
            return type_instants(self.start, self.length, *_INSTANT_UNITS[logical], target)
        if type_.kind == "int" and logical == "date" and (is_text or target == pa.timestamp("us", tz="UTC")):
            days, wrong = type_instants(self.start, self.length, _DAY_US, 1, pa.date32() if is_text else target)
            return (days.cast(pa.string()) if is_text and isinstance(days, pa.Array) else days), wrong
        if type_.kind in _NUMBERS and target in (pa.int64(), pa.int32() if type_.kind == "int" else pa.int64()):
            valid = self.length >= 0
            held = self.start if target == pa.int64() else self.start.astype(np.int32)
            return pa.array(held) if valid.all() else pa.array(held, mask=~valid), None
        if type_.kind in _NUMBERS:
            return locate_numbers(self.start, self.length), None
        scale = find_scale(type_)
        if scale is not None:
            return self._read_decimals(type_, scale, target, whole_numbers)
        if type_.kind == "fixed" and logical == "uuid" and type_.size_bytes == _UUID_BYTES and is_text:
            return self._write_texts(lambda held: _write_uuid(held)), None
        if type_.kind in _PLAIN_KINDS:
            kind = np.full(len(self.length), _PLAIN_KINDS[type_.kind], np.int8)
            return Located(self.data, self.start, np.where(self.length < 0, ABSENT, self.length), kind), None
        # arrays, maps and records
        if is_text:
            text = self.locate_text()
            return text, (text.length < 0) & (self.length >= 0)
        nothing = np.full(len(self.length), ABSENT, np.int64)
        return Located(self.data, self.start, nothing, np.zeros(len(nothing), np.int8)), self.length >= 0

    def _read_decimals(
        self, type_: AvroType, scale: int, target: pa.DataType, whole_numbers: bool
    ) -> tuple[Any, NDArray[np.bool_] | None]:
        rows = np.flatnonzero(self.length >= 0)
        unscaled, wide = np.empty(len(rows), np.int64), np.zeros(len(rows), np.uint8)
        _kernels(len(rows) * PAYLOAD_BYTES).read_unscaled(self.data, self.start, self.length, rows, unscaled, wide)
        values = np.zeros(len(self.length), np.int64)
        values[rows] = unscaled
        limit = 10 ** type_.attributes["precision"]
        beyond = np.zeros(len(values), np.bool_) if limit > _LONG_MAX else (values >= limit) | (values <= -limit)
        large: dict[int, Decimal] = {}
        for row in rows[np.flatnonzero(wide)].tolist():
            number = read_decimal(type_, self._bytes(row))
            if number is None:
                beyond[row] = True
            else:
                large[row] = number
        valid = (self.length >= 0) & ~beyond
        array, wrong = cast_decimals(values, valid, scale, large, target, whole_numbers=whole_numbers)
        return array, beyond if wrong is None else wrong | beyond

    def _bytes(self, row: int) -> bytes:
        return self.data[self.start[row] : self.start[row] + self.length[row]].tobytes()

    def _write_texts(self, write: Callable[[bytes], str]) -> Located:
        texts = [write(self._bytes(row)).encode() for row in np.flatnonzero(self.length >= 0).tolist()]
        places = np.cumsum(self.length >= 0) - 1
        return locate_texts(texts, places.clip(min=0), np.where(self.length == BROKEN, ABSENT, self.length))

    def locate_text(self) -> Located:
        """See FoundValues."""
        rows = np.flatnonzero(self.length >= 0).tolist()
        length = self.length.copy()
        texts: list[bytes] = []
        for row in rows:
            text = self._write_json(row)
            texts.append(b"" if text is None else text.encode())
            if text is None:
                length[row] = BROKEN
        places = np.cumsum(self.length >= 0) - 1
        return locate_texts(texts, places.clip(min=0), np.where(length == BROKEN, ABSENT, length))

    def _write_json(self, row: int) -> str | None:
        type_ = self.types[self.what[row]]
        if type_.kind in ("int", "long"):
            return str(int(self.start[row]))
        if type_.kind == "enum":
            return f'"{type_.symbols[self.start[row]]}"'
        # texts and bytes are located without the size in front of them
        held = self._bytes(row)
        return write_value(type_, write_sized(held) if type_.kind in ("string", "bytes") else held)

    def list_items(self) -> tuple[NDArray[np.int32], AvroValues, NDArray[np.bool_]]:
        """See FoundValues."""
        ends, _, items, rows = self._list("array")
        return ends, items, rows

    def list_members(self) -> tuple[NDArray[np.int32], AvroValues, AvroValues, NDArray[np.bool_]]:
        """See FoundValues."""
        return self._list("map")

    def _list(self, kind: str) -> tuple[NDArray[np.int32], AvroValues, AvroValues, NDArray[np.bool_]]:
        listed = np.zeros(len(self.length), np.bool_)
        counts = np.zeros(len(self.length), np.int32)
        parts: list[tuple[Indexes, AvroValues, AvroValues]] = []
        types: tuple[AvroType, ...] = ()
        readers: tuple[AvroType | None, ...] = ()
        for type_, reader, rows in self._by_type():
            if type_.kind != kind:
                continue
            chosen = np.flatnonzero(self.readable) if rows is None else rows
            listed[chosen] = True
            program = compile_program(type_.branches[0], ((),), _find_items(reader, kind))
            names, items = self._list_one_type(chosen, kind == "map", program, len(types), counts)
            types += program.types
            readers += program.readers
            parts.append((np.repeat(chosen, counts[chosen]), names, items))
        ends = np.zeros(len(self.length) + 1, np.int32)
        np.cumsum(counts, out=ends[1:])
        if not parts:
            return ends, self.take(np.empty(0, np.int64)), self.take(np.empty(0, np.int64)), listed
        order = np.argsort(np.concatenate([parents for parents, _, _ in parts]), kind="stable")
        names = _join([part for _, part, _ in parts], (AvroType("string"),), (None,)).take(order)
        items = _join([part for _, _, part in parts], types, readers).take(order)
        return ends, names, items, listed

    def _list_one_type(
        self, rows: Indexes, is_map: bool, program: AvroProgram, first_type: int, counts: NDArray[np.int32]
    ) -> tuple[AvroValues, AvroValues]:
        room = max(1, 2 * len(rows))
        kernels = _kernels(int(self.length[rows].sum()) + len(rows) * PAYLOAD_BYTES)
        while True:
            name_start, name_length = np.zeros(room, np.int64), np.zeros(room, np.int64)
            start, length = np.zeros((1, room), np.int64), np.empty((1, room), np.int64)
            what = np.zeros((1, room), np.int32)
            count = kernels.list_avro_items(
                self.data, self.start, self.length, rows, is_map, program.code, first_type, counts,
                name_start, name_length, start, length, what, _make_stack(),
            )  # fmt: skip
            if count <= room:
                zeros = np.zeros(count, np.int32)
                names = AvroValues(self.data, name_start[:count], name_length[:count], zeros, (), ())
                return names, AvroValues(self.data, start[0, :count], length[0, :count], what[0, :count], (), ())
            room = count

    def walk(self, paths: tuple[Path, ...]) -> tuple[Mapping[Path, FoundValues], NDArray[np.bool_]]:
        """See FoundValues."""
        groups: list[tuple[Indexes, AvroProgram]] = []
        are_records = np.zeros(len(self.length), np.bool_)
        for type_, reader, rows in self._by_type():
            if is_record(type_):
                chosen = np.flatnonzero(self.readable) if rows is None else rows
                are_records[chosen] = True
                groups.append((chosen, compile_program(type_, paths, reader)))
        return walk_avro_spans(self.data, self.start, self.length, groups, paths).values, are_records

    def take(self, rows: Indexes) -> AvroValues:
        """See FoundValues."""
        return AvroValues(self.data, self.start[rows], self.length[rows], self.what[rows], self.types, self.readers)


def _find_items(reader: AvroType | None, kind: str) -> AvroType | None:
    """Return the reader's type of the items of arrays or maps, which may be in a branch of a union."""
    if reader is None:
        return None
    branches = reader.branches if reader.kind == "union" else (reader,)
    return next((one.branches[0] for one in branches if one.kind == kind), None)


def _join(parts: Sequence[AvroValues], types: tuple[AvroType, ...], readers: tuple[AvroType | None, ...]) -> AvroValues:
    start, length, what = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("start", "length", "what")
    )
    return AvroValues(parts[0].data, start, length, what, types, readers)


def _write_uuid(held: bytes) -> str:
    digits = held.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def walk_avro_spans(
    data: Bytes, begin: Longs, size: Longs, groups: Sequence[tuple[Indexes, AvroProgram]], paths: tuple[Path, ...]
) -> WalkedPayloads:
    """Return the values at ``paths`` in payloads of ``size`` bytes from ``begin`` on each; a size below 0 is null.

    Each of ``groups`` has rows, and the program of ``paths`` for their schema; other rows have no known schema.
    """
    rows = len(size)
    leaves = sorted(paths)
    start, length, what = make_tables(len(leaves), rows, np.int64, np.int64, np.int32)
    start[:], length[:], what[:] = 0, ABSENT, 0
    verdict, position = np.full(rows, VERDICT_UNKNOWN, np.uint8), np.zeros(rows, np.int64)
    types: tuple[AvroType, ...] = ()
    readers: tuple[AvroType | None, ...] = ()
    notes: dict[int, str] = {}
    extra: list[bytes] = []
    end = len(data)
    for chosen, program in groups:
        if program.misfit is not None:
            verdict[chosen] = VERDICT_MISMATCH
            notes |= dict.fromkeys(
                chosen.tolist(), f"has a schema in which {write_path(program.misfit)} does not lead to a value"
            )
            continue
        kernels = _kernels(int(size[chosen].clip(min=0).sum()) + len(chosen) * PAYLOAD_BYTES)
        kernels.walk_avro(
            data, begin, size, chosen, program.code, len(types), start, length, what, verdict, position, _make_stack()
        )
        types += program.types
        readers += program.readers
        for path, (type_, value) in program.defaults.items():
            leaf = program.leaf_of[path]
            lacking = chosen[(length[leaf, chosen] == ABSENT) & (verdict[chosen] == VERDICT_GOOD)]
            try:
                held, number = _store_default(type_, value)
            except (ValueError, OverflowError):
                length[leaf, lacking] = BROKEN
                continue
            if type_.kind == "null":
                length[leaf, lacking] = NULL
                continue
            start[leaf, lacking] = end if number is None else number
            length[leaf, lacking], what[leaf, lacking] = len(held), len(types)
            types += (type_,)
            readers += (None,)
            extra.append(held)
            end += len(held)
    if extra:
        data = np.concatenate([data, np.frombuffer(b"".join(extra), np.uint8)])
    values = {
        path: AvroValues(data, start[leaf], length[leaf], what[leaf], types, readers)
        for leaf, path in enumerate(leaves)
    }
    return WalkedPayloads(values, verdict, position, notes)


def _store_default(type_: AvroType, value: Any) -> tuple[bytes, int | None]:
    """Store a default as walkers locate values: a text as its bytes without length, a number as eight bytes."""
    if type_.kind in ("int", "long"):
        return bytes(8), int(value)
    if type_.kind == "enum":
        return bytes(8), type_.symbols.index(value)
    if type_.kind in ("string", "bytes"):
        return value.encode("utf-8" if type_.kind == "string" else "latin-1"), None
    return encode_value(type_, value), None


def _make_stack() -> Longs:
    return np.empty(FRAME_WORDS * AVRO_DEPTH_MAX, np.int64)


def _kernels(size_bytes: int) -> Any:
    return engine.select(KERNEL_MODULE, avro_fallback, size_bytes)

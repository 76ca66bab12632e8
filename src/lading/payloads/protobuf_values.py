"""Protobuf payloads walked by programs: verdicts, and the values of paths in the form that columns take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from ..schemas.protobuf_types import FieldType, MessageType
from . import protobuf_fallback
from .found import FoundValues, ValuePart, WalkedPayloads
from .layout import ABSENT, FRAME_WORDS, PROTOBUF_DEPTH_MAX, VERDICT_MISMATCH, VERDICT_TOMBSTONE
from .numbers import TIMESTAMP, locate_numbers, locate_texts, type_instants
from .paths import Path, write_path
from .protobuf_json import (
    WELL_KNOWN,
    merge_message,
    write_duration,
    write_field_text,
    write_message_text,
    write_scalar_text,
)
from .protobuf_program import KINDS, WORD_BYTES, compile_program, find_kind, find_tag, join_texts, list_enum_numbers
from .tables import make_tables

KERNEL_MODULE: Final = "lading.payloads.protobuf_kernels"
PAYLOAD_BYTES: Final = 64
"""Size that counts for each payload, in addition to its bytes, when kernel or fallback is chosen."""
_SIGNED: Final = frozenset({"int32", "int64", "sint32", "sint64", "sfixed32", "sfixed64", "uint32", "fixed32"})
"""Kinds whose numbers fit 64 bits with a sign."""
_UNSIGNED: Final = frozenset({"uint64", "fixed64"})
_WHOLE: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_NANOS_MAX: Final = 999_999_999
_SECONDS_MAX: Final = 1 << 40
"""Largest number of seconds: in microseconds it still fits 64 bits, and is outside of the years 1 to 9999."""
_NOTHING: Final = MessageType("")
"""The type of fields that a schema does not have."""
Indexes = NDArray[np.int64]


@lazy_dataclass(frozen=True, slots=True)
class ProtobufValues:
    """Values of one field of valid Protobuf payloads: ``start`` is a position in ``data``, or the number itself.

    If the schema does not have the field, ``field`` is None and all values are absent.
    """

    data: Bytes
    start: Longs
    length: Longs
    field: FieldType | None

    @property
    def absent(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        rows: NDArray[np.bool_] = self.length < 0
        return rows

    @property
    def null(self) -> NDArray[np.bool_]:
        """See FoundValues: Protobuf has no null."""
        return np.zeros(len(self.length), np.bool_)

    @property
    def readable(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        rows: NDArray[np.bool_] = self.length >= 0
        return rows

    @property
    def missing(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        return self.absent

    def read_as(self, type_: pa.DataType, *, whole_numbers: bool) -> tuple[Sequence[ValuePart], NDArray[np.bool_]]:
        """See FoundValues."""
        broken = np.zeros(len(self.length), np.bool_)
        if self.field is None or not self.readable.any():
            nothing = np.full(len(self.length), ABSENT, np.int64)
            return (ValuePart(Located(self.data, self.start, nothing, np.zeros(len(nothing), np.int8))),), broken
        if self.field.message is not None and not self.field.is_repeated and self.field.message.name in _READERS:
            return _READERS[self.field.message.name](self, type_, whole_numbers)
        if self.field.is_repeated or self.field.message is not None:
            if type_ == pa.string():
                text = self.locate_text()
                return (ValuePart(text),), (text.length < 0) & self.readable
            nothing = np.full(len(self.length), ABSENT, np.int64)
            return (ValuePart(Located(self.data, self.start, nothing, np.zeros(len(nothing), np.int8))),), self.readable
        return (ValuePart(self._read_scalars(self.field, type_)),), broken

    def _read_scalars(self, field: FieldType, target: pa.DataType) -> Located | pa.Array[Any]:
        kind = field.kind
        if kind in ("string", "bytes"):
            kinds = np.full(len(self.length), Kind.STRING if kind == "string" else Kind.RAW, np.int8)
            return Located(self.data, self.start, self.length, kinds)
        if kind == "enum" and target not in _WHOLE:
            return self._locate_names(field)
        if target == pa.bool_() and kind not in ("float", "double"):
            # the type may have changed from a number to a boolean in a later schema
            return self._make_array(self.start != 0)
        if kind == "double":
            if target == pa.float64():
                return self._make_array(self.start.view(np.float64))
            return self._locate_words(Kind.FLOAT64, WORD_BYTES)
        if kind == "float":
            return self._locate_words(Kind.FLOAT32, 4)
        if kind in _UNSIGNED:
            return self._locate_words(Kind.UINT64, WORD_BYTES)
        if kind == "bool" and target not in _WHOLE:
            return self._locate_words(Kind.BOOL, 1)
        if target == pa.int64():
            return self._make_array(self.start)
        return locate_numbers(self.start, self.length)

    def _make_array(self, held: NDArray[Any]) -> pa.Array[Any]:
        valid = self.length >= 0
        array: pa.Array[Any] = pa.array(held) if valid.all() else pa.array(held, mask=~valid)
        return array

    def _locate_words(self, kind: Kind, size: int) -> Located:
        held = np.ascontiguousarray(self.start)
        places = np.arange(0, WORD_BYTES * len(held), WORD_BYTES, dtype=np.int64)
        length = np.where(self.length < 0, ABSENT, size)
        return Located(held.view(np.uint8), places, length, np.full(len(held), kind, np.int8))

    def _locate_names(self, field: FieldType) -> Located:
        """Return the names of enum numbers; a number without a name becomes its digits."""
        assert field.enum is not None
        numbers, places = np.unique(np.where(self.length < 0, 0, self.start), return_inverse=True)
        names = [field.enum.names.get(number, str(number)).encode() for number in numbers.tolist()]
        return locate_texts(names, places.reshape(-1), self.length)

    def locate_text(self) -> Located:
        """See FoundValues."""
        rows = np.flatnonzero(self.length >= 0).tolist()
        length = self.length.copy()
        texts: list[bytes] = []
        for row in rows:
            text = self._write_json(row)
            texts.append(b"" if text is None else text.encode())
            if text is None:
                length[row] = ABSENT
        places = np.cumsum(self.length >= 0) - 1
        return locate_texts(texts, places.clip(min=0), length)

    def _write_json(self, row: int) -> str | None:
        field = self.field
        assert field is not None
        if KINDS[field.kind] < KINDS["string"] and not field.is_repeated:
            return write_scalar_text(field, int(self.start[row]))
        held = self.data[self.start[row] : self.start[row] + self.length[row]].tobytes()
        if field.is_repeated:
            return write_field_text(field, held)
        if field.message is not None:
            return write_message_text(field.message, held)
        return write_scalar_text(field, held)

    def list_items(self) -> tuple[NDArray[np.int32], ProtobufValues, NDArray[np.bool_]]:
        """See FoundValues."""
        field = self.field
        is_list = field is not None and field.is_repeated and not field.is_map
        ends, items = self._list_occurrences(field if is_list else None)
        return ends, items, self.readable if is_list else np.zeros(len(self.length), np.bool_)

    def list_members(self) -> tuple[NDArray[np.int32], FoundValues, FoundValues, NDArray[np.bool_]]:
        """See FoundValues."""
        field = self.field
        is_map = field is not None and field.is_map
        ends, entries = self._list_occurrences(field if is_map else None)
        if field is None or field.message is None or not is_map:
            return ends, entries, entries, np.zeros(len(self.length), np.bool_)
        values = walk_protobuf_spans(
            self.data, entries.start, entries.length, field.message, (("key",), ("value",))
        ).values
        names, members = values["key",], values["value",]
        if field.message.by_name["value"].enum is not None:
            ends, names, members = _leave_out_unknown(ends, names, members, field.message, entries)
        return ends, names, members, self.readable

    def _list_occurrences(self, field: FieldType | None) -> tuple[NDArray[np.int32], ProtobufValues]:
        counts, ends = np.zeros(len(self.length), np.int32), np.zeros(len(self.length) + 1, np.int32)
        empty = np.empty(0, np.int64)
        if field is None:
            return ends, ProtobufValues(self.data, empty, empty, None)
        room = max(1, 2 * len(self.length))
        numbers = np.array(list_enum_numbers(field), np.int64)
        kernels = _kernels(int(self.length.clip(min=0).sum()) + len(counts) * PAYLOAD_BYTES)
        while True:
            start, length = np.empty(room, np.int64), np.empty(room, np.int64)
            count = kernels.list_protobuf_items(
                self.data, self.start, self.length, find_tag(field), find_kind(field), numbers, counts, start, length,
                _make_stack(),
            )  # fmt: skip
            if count <= room:
                np.cumsum(counts, out=ends[1:])
                return ends, ProtobufValues(self.data, start[:count], length[:count], field.item)
            room = count

    def walk(self, paths: tuple[Path, ...]) -> tuple[Mapping[Path, FoundValues], NDArray[np.bool_]]:
        """See FoundValues."""
        field = self.field
        message = None if field is None or field.is_repeated else field.message
        size = self.length if message is not None else np.full(len(self.length), ABSENT, np.int64)
        values = walk_protobuf_spans(self.data, self.start, size, message or _NOTHING, paths).values
        return values, size >= 0

    def take(self, rows: Indexes) -> ProtobufValues:
        """See FoundValues."""
        return ProtobufValues(self.data, self.start[rows], self.length[rows], self.field)


def _leave_out_unknown(
    ends: NDArray[np.int32], names: FoundValues, members: FoundValues, entry: MessageType, entries: ProtobufValues
) -> tuple[NDArray[np.int32], FoundValues, FoundValues]:
    """Leave out members of maps whose value is a number that the closed enum does not have."""
    enum = entry.by_name["value"].enum
    if enum is None or not enum.is_closed:
        return ends, names, members
    holder = MessageType("")
    holder.set_fields((FieldType("number", entry.by_name["value"].number, "int32", has_presence=True),))
    numbers = walk_protobuf_spans(entries.data, entries.start, entries.length, holder, (("number",),)).values["number",]
    assert isinstance(numbers, ProtobufValues)
    kept = numbers.absent | np.isin(numbers.start, list(enum.names))
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
    rows = np.flatnonzero(kept)
    return before[ends].astype(np.int32), names.take(rows), members.take(rows)


def _walk_time(values: ProtobufValues) -> tuple[Longs, Longs]:
    """Return the seconds and nanoseconds of a Timestamp or Duration; 0 for rows without one."""
    found, _ = values.walk((("nanos",), ("seconds",)))
    parts = []
    for name in ("seconds", "nanos"):
        part = found[name,]
        assert isinstance(part, ProtobufValues)
        parts.append(np.where(part.length < 0, 0, part.start))
    return parts[0], parts[1]


def _read_timestamps(
    values: ProtobufValues, type_: pa.DataType, whole_numbers: bool
) -> tuple[Sequence[ValuePart], NDArray[np.bool_]]:
    there = values.readable
    seconds, nanos = _walk_time(values)
    wrong = there & ((nanos < 0) | (nanos > _NANOS_MAX) | (seconds < -_SECONDS_MAX) | (seconds > _SECONDS_MAX))
    micros = np.where(wrong, 0, seconds) * 1_000_000 + np.where(wrong, 0, nanos) // 1000
    if not (type_ in (TIMESTAMP, pa.date32()) or pa.types.is_string(type_)):
        nothing = np.full(len(there), ABSENT, np.int64)
        return (ValuePart(Located(values.data, values.start, nothing, np.zeros(len(nothing), np.int8))),), there
    array, outside = type_instants(micros, np.where(wrong, ABSENT, values.length), 1, 1, type_)
    return (ValuePart(array),), wrong if outside is None else wrong | outside


def _read_durations(
    values: ProtobufValues, type_: pa.DataType, whole_numbers: bool
) -> tuple[Sequence[ValuePart], NDArray[np.bool_]]:
    """Return durations as their JSON texts, or as seconds for a column of numbers."""
    there = values.readable
    seconds, nanos = _walk_time(values)
    texts: list[str | None] = []
    for is_there, whole, part in zip(there.tolist(), seconds.tolist(), nanos.tolist(), strict=True):
        text = write_duration(whole, part) if is_there else None
        if text is not None and not pa.types.is_string(type_):
            number = Decimal(text[:-1])
            text = str(int(number)) if number == number.to_integral_value() else format(number, "f")
        texts.append(text)
    array: pa.Array[Any] = pa.array(texts, pa.string())
    return (ValuePart(array),), there & array.is_null().to_numpy(zero_copy_only=False)


def _read_wrapped(
    values: ProtobufValues, type_: pa.DataType, whole_numbers: bool
) -> tuple[Sequence[ValuePart], NDArray[np.bool_]]:
    found, _ = values.walk((("value",),))
    return found["value",].read_as(type_, whole_numbers=whole_numbers)


_READERS: Final = {
    f"{WELL_KNOWN}Timestamp": _read_timestamps,
    f"{WELL_KNOWN}Duration": _read_durations,
    **{
        f"{WELL_KNOWN}{name}Value": _read_wrapped
        for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
    },
}
"""Functions that read a special message as one value, by name."""


def walk_protobuf_spans(
    data: Bytes, begin: Longs, size: Longs, message: MessageType, paths: tuple[Path, ...]
) -> WalkedPayloads:
    """Return the values at ``paths`` in payloads of ``size`` bytes from ``begin`` on each; a size below 0 is null."""
    rows, leaves = len(size), sorted(paths)
    program = compile_program(message, paths)
    if program.misfit is not None:
        nothing = np.full(rows, ABSENT, np.int64)
        note = f"has a schema in which {write_path(program.misfit)} does not lead to a value"
        values = {path: ProtobufValues(data, nothing, nothing, None) for path in leaves}
        verdict = np.where(size < 0, VERDICT_TOMBSTONE, VERDICT_MISMATCH).astype(np.uint8)
        return WalkedPayloads(values, verdict, np.zeros(rows, np.int64), dict.fromkeys(range(rows), note))
    texts_at = len(data)
    data = join_texts(data, program.texts)
    start, length = make_tables(len(leaves), rows, np.int64, np.int64)
    verdict, position, split = np.empty(rows, np.uint8), np.empty(rows, np.int64), np.empty(rows, np.uint8)
    kernels = _kernels(int(size.clip(min=0).sum()) + rows * PAYLOAD_BYTES)
    kernels.walk_protobuf(
        data, begin, size, program.messages, program.fields, program.dense, program.list_defaults(texts_at),
        program.clears, program.numbers, start, length, verdict, position, split,
        np.full(program.slots, -1, np.int64), _make_stack(),
    )  # fmt: skip
    merged = np.flatnonzero(split)
    if merged.size:
        # rare: the pieces of a message are merged into one with all their fields
        texts = [
            merge_message(message, data[begin[row] : begin[row] + size[row]].tobytes(), paths)
            for row in merged.tolist()
        ]
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        whole = np.concatenate([data, np.frombuffer(b"".join(texts), np.uint8)])
        again = walk_protobuf_spans(whole, len(data) + np.cumsum(sizes) - sizes, sizes, message, paths)
        for leaf, path in enumerate(leaves):
            part = again.values[path]
            assert isinstance(part, ProtobufValues)
            data = part.data
            start[leaf, merged], length[leaf, merged] = part.start, part.length
    values = {
        path: ProtobufValues(data, start[leaf], length[leaf], program.leaf_fields[leaf])
        for leaf, path in enumerate(leaves)
    }
    return WalkedPayloads(values, verdict, position)


def _make_stack() -> Longs:
    return np.empty(FRAME_WORDS * PROTOBUF_DEPTH_MAX, np.int64)


def _kernels(size_bytes: int) -> Any:
    return engine.select(KERNEL_MODULE, protobuf_fallback, size_bytes)

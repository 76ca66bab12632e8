"""A message of Protobuf and the requested paths as tables, in which a walker looks up each field of a payload."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from ..kernels.arrays import Bytes, Longs, Table
from ..model.lazy_dataclass import lazy_dataclass
from ..schemas.protobuf_types import FieldType, MessageType
from .layout import (
    DEFAULT_COLUMNS,
    DEFAULT_START,
    DENSE_NUMBERS,
    FIELD_COLUMNS,
    KIND_BOOL,
    KIND_BYTES,
    KIND_ENUM,
    KIND_FIXED32,
    KIND_FIXED64,
    KIND_GROUP,
    KIND_INT32,
    KIND_INT64,
    KIND_MESSAGE,
    KIND_SFIXED32,
    KIND_SINT32,
    KIND_SINT64,
    KIND_STRING,
    KIND_UINT32,
    MESSAGE_COLUMNS,
    MESSAGE_DEFAULTS,
    MESSAGE_DEFAULTS_END,
    MESSAGE_FIELDS,
    MESSAGE_FIELDS_END,
    MESSAGE_SLOT,
    WIRE_FIXED32,
    WIRE_FIXED64,
    WIRE_GROUP,
    WIRE_SIZED,
    WIRE_VARINT,
)
from .paths import Path

KINDS: Final[Mapping[str, int]] = {
    "int64": KIND_INT64, "uint64": KIND_INT64, "int32": KIND_INT32, "uint32": KIND_UINT32, "sint32": KIND_SINT32,
    "sint64": KIND_SINT64, "bool": KIND_BOOL, "enum": KIND_ENUM, "fixed32": KIND_FIXED32, "float": KIND_FIXED32,
    "sfixed32": KIND_SFIXED32, "fixed64": KIND_FIXED64, "sfixed64": KIND_FIXED64, "double": KIND_FIXED64,
    "string": KIND_STRING, "bytes": KIND_BYTES, "message": KIND_MESSAGE,
}  # fmt: skip
WORD_BYTES: Final = 8
"""Length of a value that is a number."""


@lazy_dataclass(frozen=True, slots=True)
class ProtobufProgram:
    """Tables as ``layout`` names their columns; the leaf of each path, and the field it is.

    ``texts`` are bytes for defaults, placed after the payloads; ``misfit`` is a path through a field that is not a
    message, or is repeated.
    """

    messages: Table
    fields: Table
    dense: Longs
    defaults: Table
    clears: Longs
    numbers: Longs
    leaf_of: Mapping[Path, int]
    leaf_fields: tuple[FieldType | None, ...]
    slots: int
    texts: bytes
    misfit: Path | None

    def list_defaults(self, texts_at: int) -> Table:
        """Return the defaults if the bytes of ``texts`` are at this position."""
        if not self.texts:
            return self.defaults
        table = self.defaults.copy()
        # below -1: the negative distance from there, minus one
        relative = table[:, DEFAULT_START] < -1
        relative &= np.isin(table[:, 0], [leaf for leaf, one in enumerate(self.leaf_fields) if _has_text(one)])
        table[relative, DEFAULT_START] = texts_at - 2 - table[relative, DEFAULT_START]
        return table


@lru_cache(maxsize=512)
def compile_program(message: MessageType, paths: tuple[Path, ...]) -> ProtobufProgram:
    """Return the program of paths for payloads of type ``message``."""
    return _Compiler(paths).compile(message)


def find_kind(field: FieldType) -> int:
    """Return the kind by which walkers read a field."""
    return KIND_GROUP if field.is_delimited else KINDS[field.kind]


def find_tag(field: FieldType) -> int:
    """Return the tag of a single value of a field."""
    if field.is_delimited:
        return field.number << 3 | WIRE_GROUP
    kind = KINDS[field.kind]
    fixed = WIRE_FIXED64 if kind == KIND_FIXED64 else WIRE_FIXED32
    return field.number << 3 | (WIRE_VARINT if kind <= KIND_ENUM else WIRE_SIZED if kind >= KIND_STRING else fixed)


def list_enum_numbers(field: FieldType) -> list[int]:
    """Return the numbers of a closed enum, in order; for another field none."""
    return sorted(field.enum.names) if field.enum is not None and field.enum.is_closed else []


def write_word(kind: str, number: float) -> int:
    """Return a number as walkers store it: 64 bits with a sign; for a float its 32 bits."""
    if kind == "double":
        return int(struct.unpack("<q", struct.pack("<d", number))[0])
    if kind == "float":
        return int(struct.unpack("<I", struct.pack("<f", number))[0])
    return (int(number) + (1 << 63)) % (1 << 64) - (1 << 63)


def _has_text(field: FieldType | None) -> bool:
    return field is not None and field.kind in ("string", "bytes")


class _Compiler:
    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._leaves = sorted(paths)
        self._leaf_of = {path: leaf for leaf, path in enumerate(self._leaves)}
        self._slot_of: dict[Path, int] = {}
        """The slot of each path."""
        for path in self._leaves:
            for size in range(len(path)):
                self._slot_of.setdefault(path[:size], len(self._slot_of))
        self._leaf_fields: list[FieldType | None] = [None] * len(self._leaves)
        self._nodes: dict[tuple[MessageType, Path | None], int] = {}
        """The node of each message, and of each path to it if paths lead through it."""
        self._listed: list[tuple[MessageType, Path | None]] = []
        self._fields: list[list[int]] = []
        self._defaults: list[list[int]] = []
        self._clears: list[int] = []
        self._numbers: list[int] = []
        self._texts = b""
        self._misfit: Path | None = None

    def compile(self, message: MessageType) -> ProtobufProgram:
        self._find_node(message, () if self._leaves else None)
        messages: list[list[int]] = []
        dense: list[list[int]] = []
        # by index, as the list grows meanwhile
        for type_, path in self._listed:
            row = [0] * MESSAGE_COLUMNS
            row[MESSAGE_FIELDS], row[MESSAGE_DEFAULTS] = len(self._fields), len(self._defaults)
            row[MESSAGE_SLOT] = -1 if path is None else self._slot_of[path]
            places = [-1] * DENSE_NUMBERS
            for field in sorted(type_.fields, key=lambda one: one.number):
                if field.number < DENSE_NUMBERS:
                    places[field.number] = len(self._fields)
                self._add_field(type_, field, path)
            row[MESSAGE_FIELDS_END], row[MESSAGE_DEFAULTS_END] = len(self._fields), len(self._defaults)
            messages.append(row)
            dense.append(places)
        return ProtobufProgram(
            _freeze(messages, MESSAGE_COLUMNS), _freeze(self._fields, FIELD_COLUMNS), _freeze(dense, 1).reshape(-1),
            _freeze(self._defaults, DEFAULT_COLUMNS), _freeze(self._clears, 1).reshape(-1),
            _freeze(self._numbers, 1).reshape(-1), self._leaf_of, tuple(self._leaf_fields), max(1, len(self._slot_of)),
            self._texts, self._misfit,
        )  # fmt: skip

    def _find_node(self, message: MessageType, path: Path | None) -> int:
        key = message, path
        if key not in self._nodes:
            self._nodes[key] = len(self._listed)
            self._listed.append(key)
        return self._nodes[key]

    def _is_on_way(self, path: Path | None) -> bool:
        """Return whether paths lead into a value."""
        return path is not None and path in self._slot_of

    def _add_field(self, message: MessageType, field: FieldType, above: Path | None) -> None:
        path = None if above is None else (*above, field.name)
        leaf = -1 if path is None else self._leaf_of.get(path, -1)
        node = -1
        if self._is_on_way(path) and (field.message is None or field.is_repeated):
            self._misfit = self._misfit or next(one for one in self._leaves if one[: len(path or ())] == path)
        elif field.message is not None:
            node = self._find_node(field.message, path if self._is_on_way(path) else None)
        if field.message is not None and node < 0:
            node = self._find_node(field.message, None)
        clears, numbers = len(self._clears), len(self._numbers)
        if path is not None and above is not None and field.oneof is not None:
            for other in message.fields:
                if other.oneof == field.oneof and other is not field:
                    self._add_clears((*above, other.name))
        self._numbers += list_enum_numbers(field)
        if leaf >= 0:
            self._leaf_fields[leaf] = field
            self._add_default(message, field, leaf)
        self._fields.append(
            [
                find_tag(field), find_kind(field), node, leaf, int(field.is_repeated), clears, len(self._clears),
                numbers, len(self._numbers),
            ]
        )  # fmt: skip

    def _add_clears(self, path: Path) -> None:
        """Note which values another value at a path replaces: leaves, and as -1, -2, … the slots of
        messages on the way.
        """
        self._clears += [leaf for one, leaf in self._leaf_of.items() if one[: len(path)] == path]
        self._clears += [-slot - 1 for one, slot in self._slot_of.items() if one[: len(path)] == path]

    def _add_default(self, message: MessageType, field: FieldType, leaf: int) -> None:
        if field.is_repeated:
            self._defaults.append([leaf, 0, 0])
        elif field.message is not None:
            # a map member without a message has an empty one; -1 distinguishes it from a message that was read
            if message.is_map_entry:
                self._defaults.append([leaf, -1, 0])
        elif field.default is None:
            return
        elif field.kind in ("string", "bytes"):
            held = field.default.encode() if isinstance(field.default, str) else field.default
            self._defaults.append([leaf, -2 - len(self._texts) if held else 0, len(held)])
            self._texts += held
        else:
            self._defaults.append([leaf, write_word(field.kind, field.default), WORD_BYTES])


def _freeze(rows: Sequence[Sequence[int]] | Sequence[int], columns: int) -> Table:
    table = np.array(rows, np.int64).reshape(-1, columns)
    table.flags.writeable = False
    return table


def join_texts(data: Bytes, texts: bytes) -> Bytes:
    """Return payloads with the bytes of defaults after them."""
    return np.concatenate([data, np.frombuffer(texts, np.uint8)]) if texts else data

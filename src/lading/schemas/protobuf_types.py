"""The messages of a Protobuf schema with the types of their fields found: what readers and writers of payloads need."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from .protobuf import ProtobufSchema
from .protobuf_model import (
    SCALARS,
    ProtoEnum,
    ProtoField,
    ProtoFile,
    ProtoMessage,
    Types,
    find_full_name,
    list_types,
)
from .protobuf_text import parse_text, unquote

WELL_KNOWN: Final = """
syntax = "proto3"; package google.protobuf;
message Timestamp { int64 seconds = 1; int32 nanos = 2; }
message Duration { int64 seconds = 1; int32 nanos = 2; }
message Empty {}
message Any { string type_url = 1; bytes value = 2; }
message FieldMask { repeated string paths = 1; }
message DoubleValue { double value = 1; }
message FloatValue { float value = 1; }
message Int64Value { int64 value = 1; }
message UInt64Value { uint64 value = 1; }
message Int32Value { int32 value = 1; }
message UInt32Value { uint32 value = 1; }
message BoolValue { bool value = 1; }
message StringValue { string value = 1; }
message BytesValue { bytes value = 1; }
message Struct { map<string, Value> fields = 1; }
message Value { oneof kind { NullValue null_value = 1; double number_value = 2; string string_value = 3;
  bool bool_value = 4; Struct struct_value = 5; ListValue list_value = 6; } }
message ListValue { repeated Value values = 1; }
enum NullValue { NULL_VALUE = 0; }
"""
"""Files of the package google.protobuf, which registries do not keep."""
COMMON: Final = """
syntax = "proto3"; package google.type;
message Date { int32 year = 1; int32 month = 2; int32 day = 3; }
message Decimal { string value = 1; }
message Fraction { int64 numerator = 1; int64 denominator = 2; }
message Interval { google.protobuf.Timestamp start_time = 1; google.protobuf.Timestamp end_time = 2; }
message LatLng { double latitude = 1; double longitude = 2; }
message LocalizedText { string text = 1; string language_code = 2; }
message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }
message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }
message TimeZone { string id = 1; string version = 2; }
enum DayOfWeek { DAY_OF_WEEK_UNSPECIFIED = 0; MONDAY = 1; TUESDAY = 2; WEDNESDAY = 3; THURSDAY = 4; FRIDAY = 5;
  SATURDAY = 6; SUNDAY = 7; }
"""
"""Files of the package google.type, which registries do not keep either."""
_CONFLUENT: Final = """
syntax = "proto2"; package confluent.type;
message Decimal { required bytes value = 1; required uint32 precision = 2; required int32 scale = 3; }
"""
_FLOATS: Final = frozenset({"float", "double"})
_FLOAT_END: Final = (1 << 128) - (1 << 103)
"""The smallest number that rounds to an infinite float."""


@dataclass(frozen=True, slots=True, eq=False)
class EnumType:
    """An enum. A closed one, as in proto2, does not accept numbers without a name."""

    name: str
    names: Mapping[int, str]
    numbers: Mapping[str, int]
    is_closed: bool


@dataclass(frozen=True, slots=True, eq=False)
class FieldType:
    """A field; ``kind`` is a scalar, ``enum`` or ``message``; ``default`` is the value of an absent field.

    A field with presence is absent if the message lacks it; without presence it has its ``default`` then. A map is a
    repeated message of two fields, ``key`` and ``value``.
    """

    name: str
    number: int
    kind: str
    is_repeated: bool = False
    is_map: bool = False
    has_presence: bool = False
    is_required: bool = False
    is_packed: bool = False
    oneof: str | None = None
    default: Any = None
    """None if the field has presence and the schema gives no default."""
    message: MessageType | None = None
    enum: EnumType | None = None
    json_name: str | None = None
    is_delimited: bool = False
    """Whether a message is encoded between two tags, as a group is, and not with a length."""

    @property
    def item(self) -> FieldType:
        """The type of one item of a repeated field."""
        return replace(self, is_repeated=False, is_map=False)


@dataclass(slots=True, eq=False)
class MessageType:
    """A message; messages are compared by identity, as they refer to themselves."""

    name: str
    fields: tuple[FieldType, ...] = ()
    """Fields in the order of the schema."""
    by_name: dict[str, FieldType] = field(default_factory=dict)
    by_number: dict[int, FieldType] = field(default_factory=dict)
    is_map_entry: bool = False

    def set_fields(self, fields: tuple[FieldType, ...]) -> None:
        """Set the fields of the message."""
        self.fields = fields
        self.by_name = {one.name: one for one in fields}
        self.by_number = {one.number: one for one in fields}


@lru_cache(maxsize=256)
def resolve_messages(schema: ProtobufSchema) -> MessageTypes:
    """Return the messages of a schema."""
    return MessageTypes(schema)


class MessageTypes:
    """The messages of a file, by name and by Confluent's indexes; resolved when they are first requested."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self._schema = schema
        # readers and writers treat well-known messages specially
        self._types: Types = {**_list_built_in(COMMON, _CONFLUENT), **schema.types, **_list_built_in(WELL_KNOWN)}
        self._messages: dict[str, MessageType] = {}
        self._enums: dict[str, EnumType] = {}

    def list_names(self) -> list[str]:
        """Return the full names of the messages of the file, outer ones before those inside of them."""
        return [name for name, type_ in list_types(self._schema.file) if isinstance(type_, ProtoMessage)]

    def find(self, name: str) -> MessageType | None:
        """Return the message of a full name, or of one without its package; None if the file does not have it."""
        package = self._schema.file.package
        for full in (name, f"{package}.{name}"):
            if isinstance(self._types.get(full, (None, None))[1], ProtoMessage):
                return self._resolve_message(full)
        return None

    def find_by_indexes(self, indexes: tuple[int, ...]) -> MessageType | None:
        """Return the message that indexes select, at each level among the messages there; None if it does not exist."""
        file = self._schema.file
        name, types = file.package, file.types
        for index in indexes:
            messages = [one for one in types if isinstance(one, ProtoMessage)]
            if not 0 <= index < len(messages):
                return None
            name = f"{name}.{messages[index].name}" if name else messages[index].name
            types = messages[index].types
        return self._resolve_message(name) if indexes else None

    def find_indexes(self, message: MessageType) -> tuple[int, ...] | None:
        """Return the indexes of a message; None if an imported file defines it."""
        if message.name not in self.list_names():
            return None
        package = self._schema.file.package
        found: list[int] = []
        types = self._schema.file.types
        for part in message.name.removeprefix(f"{package}." if package else "").split("."):
            messages = [one for one in types if isinstance(one, ProtoMessage)]
            found.append(next(at for at, one in enumerate(messages) if one.name == part))
            types = messages[found[-1]].types
        return tuple(found)

    def _resolve_message(self, name: str) -> MessageType:
        """Return a message with the messages that it refers to."""
        if name not in self._messages:
            todo = [name]
            self._messages[name] = MessageType(name)
            while todo:
                here = todo.pop()
                self._messages[here].set_fields(tuple(self._list_fields(here, todo)))
        return self._messages[name]

    def _list_fields(self, name: str, todo: list[str]) -> Iterator[FieldType]:
        file, message = self._types[name]
        assert isinstance(message, ProtoMessage)
        members: list[tuple[ProtoField, str | None]] = [(one, None) for one in message.fields]
        members += [(one, oneof.name) for oneof in message.oneofs for one in oneof.fields]
        for one, oneof in members:
            if one.map_types is None:
                yield self._resolve_field(one, oneof, file, name, todo)
                continue
            entry = MessageType(f"{name}.{one.name}.entry", is_map_entry=True)
            pair = [ProtoField(part, at + 1, one.map_types[at]) for at, part in enumerate(("key", "value"))]
            # map entries have a length and no presence, whatever the features of the file are
            implicit = replace(file, syntax="proto3", options=())
            entry.set_fields(tuple(self._resolve_field(part, None, implicit, name, todo) for part in pair))
            yield FieldType(one.name, one.number, "message", is_repeated=True, is_map=True, message=entry)

    def _resolve_field(
        self, one: ProtoField, oneof: str | None, file: ProtoFile, scope: str, todo: list[str]
    ) -> FieldType:
        options = dict(one.options)
        kind, message, enum = one.type, None, None
        if kind not in SCALARS:
            full = find_full_name(kind, scope, self._types)
            type_ = self._types[full][1] if full is not None else None
            kind = "enum" if isinstance(type_, ProtoEnum) else "message"
            if full is None:
                # the file is missing: none of its fields is known
                message = MessageType(one.type.removeprefix("."))
            elif kind == "enum":
                enum = self._resolve_enum(full)
            else:
                if full not in self._messages:
                    self._messages[full] = MessageType(full)
                    todo.append(full)
                message = self._messages[full]
        is_repeated = one.label == "repeated"
        has_presence = not is_repeated and (message is not None or oneof is not None or _is_explicit(one, file))
        default = None if is_repeated or message is not None else _read_default(kind, enum, options.get("default"))
        if has_presence and "default" not in options:
            default = None
        packed = options.get("packed", _find_feature("repeated_field_encoding", options, file))
        is_packed = packed in ("true", "PACKED") or (packed is None and file.syntax not in ("", "proto2"))
        return FieldType(
            one.name, one.number, kind, is_repeated, False, has_presence, one.label == "required",
            is_repeated and is_packed and kind not in ("string", "bytes", "message"), oneof, default, message, enum,
            unquote(options["json_name"]) if "json_name" in options else None,
            message is not None
            and (one.is_group or _find_feature("message_encoding", options, file) == "DELIMITED"),
        )  # fmt: skip

    def _resolve_enum(self, name: str) -> EnumType:
        if name not in self._enums:
            file, enum = self._types[name]
            assert isinstance(enum, ProtoEnum)
            names: dict[int, str] = {}
            for word, number, _ in enum.values:
                names.setdefault(number, word)
            openness = _find_feature("enum_type", dict(enum.options), file)
            is_closed = openness == "CLOSED" if openness is not None else file.syntax in ("", "proto2")
            self._enums[name] = EnumType(name, names, {word: number for word, number, _ in enum.values}, is_closed)
        return self._enums[name]


@lru_cache(maxsize=2)
def _list_built_in(*texts: str) -> Types:
    files = [parse_text(text) for text in texts]
    return {name: (file, type_) for file in files for name, type_ in list_types(file)}


def _is_explicit(one: ProtoField, file: ProtoFile) -> bool:
    """Return whether a field that a message lacks counts as absent, and not as its default."""
    if file.syntax == "proto3":
        return one.label == "optional"
    return _find_feature("field_presence", dict(one.options), file) != "IMPLICIT"


def _find_feature(name: str, options: Mapping[str, str], file: ProtoFile) -> str | None:
    key = f"features.{name}"
    return options.get(key) or dict(file.options).get(key)


def _read_default(kind: str, enum: EnumType | None, text: str | None) -> Any:
    """Return the default that the schema gives, or that of the kind."""
    if enum is not None:
        first = next(iter(enum.names), 0)
        return enum.numbers.get(text, first) if text is not None else first
    if kind == "string":
        return "" if text is None else unquote(text).encode(errors="surrogateescape").decode(errors="replace")
    if kind == "bytes":
        return b"" if text is None else unquote(text).encode(errors="surrogateescape")
    if kind == "bool":
        return text == "true"
    try:
        return 0 if text is None else _read_float(kind, text) if kind in _FLOATS else _read_integer(text)
    except ValueError:
        return 0


def _read_integer(text: str) -> int:
    digits = text.removeprefix("-")
    is_octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
    number = int(digits, 8 if is_octal else 0)
    return -number if digits != text else number


def _read_float(kind: str, text: str) -> float:
    """Return a number that may be written as a whole one; if too large for a float it is infinite, as in protoc."""
    try:
        number = float(_read_integer(text))
    except OverflowError:
        number = float("inf")
    except ValueError:
        number = float(text)
    return math.copysign(float("inf"), number) if kind == "float" and abs(number) >= _FLOAT_END else number

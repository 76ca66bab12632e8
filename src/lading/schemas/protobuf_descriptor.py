"""A .proto file as a ``FileDescriptorProto``, read and written by its field numbers (google/protobuf/descriptor.proto).

Options that are extensions are left out: a descriptor has them as bytes that only their own file can decode.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from .parsed import InvalidSchema
from .protobuf_model import (
    NUMBER_MAX,
    SCALARS,
    Options,
    ProtoEnum,
    ProtoExtend,
    ProtoField,
    ProtoFile,
    ProtoMessage,
    ProtoMethod,
    ProtoOneof,
    ProtoService,
    Types,
    find_full_name,
    quote,
)
from .protobuf_text import unquote

_NAMES: Final = {number: name for name, number in SCALARS.items()}
_MESSAGE, _ENUM, _GROUP = 11, 14, 10
_LABELS: Final = {1: "optional", 2: "required", 3: "repeated"}
_EDITIONS: Final = {998: "proto2", 999: "proto3", 1000: "2023", 1001: "2024"}
_BUILT_IN_ENUMS: Final = re.compile(
    r"google\.protobuf\.(NullValue|Syntax|Field\.(Kind|Cardinality))|google\.type\.\w+Of\w+"
)
NESTED_MAX: Final = 32

_TEXT, _FLAG, _WORD = "text", "flag", "word"
_OptionTable = Mapping[int, tuple[str, str, Mapping[int, str]]]


def _build_options(texts: Mapping[int, str] = {}, flags: Mapping[int, str] = {}, **words: Any) -> _OptionTable:
    table: dict[int, tuple[str, str, Mapping[int, str]]] = {number: (name, _TEXT, {}) for number, name in texts.items()}
    table |= {number: (name, _FLAG, {}) for number, name in flags.items()}
    return table | {number: (name, _WORD, values) for name, (number, values) in words.items()}


FILE_OPTIONS: Final = _build_options(
    {
        1: "java_package", 8: "java_outer_classname", 11: "go_package", 36: "objc_class_prefix", 37: "csharp_namespace",
        39: "swift_prefix", 40: "php_class_prefix", 41: "php_namespace", 44: "php_metadata_namespace",
        45: "ruby_package",
    },
    {
        10: "java_multiple_files", 20: "java_generate_equals_and_hash", 27: "java_string_check_utf8",
        16: "cc_generic_services", 17: "java_generic_services", 18: "py_generic_services", 23: "deprecated",
        31: "cc_enable_arenas",
    },
    optimize_for=(9, {1: "SPEED", 2: "CODE_SIZE", 3: "LITE_RUNTIME"}),
)  # fmt: skip
MESSAGE_OPTIONS: Final = _build_options(
    {}, {1: "message_set_wire_format", 2: "no_standard_descriptor_accessor", 3: "deprecated"}
)
FIELD_OPTIONS: Final = _build_options(
    {},
    {2: "packed", 3: "deprecated", 5: "lazy", 10: "weak", 16: "debug_redact"},
    ctype=(1, {0: "STRING", 1: "CORD", 2: "STRING_PIECE"}),
    jstype=(6, {0: "JS_NORMAL", 1: "JS_STRING", 2: "JS_NUMBER"}),
)
ENUM_OPTIONS: Final = _build_options({}, {2: "allow_alias", 3: "deprecated"})
VALUE_OPTIONS: Final = _build_options({}, {1: "deprecated"})
OTHER_OPTIONS: Final = _build_options({}, {33: "deprecated"})
_MAP_ENTRY: Final = 7
FEATURES: Final[Mapping[int, tuple[str, Mapping[int, str]]]] = {
    1: ("field_presence", {1: "EXPLICIT", 2: "IMPLICIT", 3: "LEGACY_REQUIRED"}),
    2: ("enum_type", {1: "OPEN", 2: "CLOSED"}),
    3: ("repeated_field_encoding", {1: "PACKED", 2: "EXPANDED"}),
    4: ("utf8_validation", {2: "VERIFY", 3: "NONE"}),
    5: ("message_encoding", {1: "LENGTH_PREFIXED", 2: "DELIMITED"}),
    6: ("json_format", {1: "ALLOW", 2: "LEGACY_BEST_EFFORT"}),
}
"""The features of editions, by their numbers in a FeatureSet."""
_FEATURE_SETS: Final = {id(FILE_OPTIONS): 50, id(MESSAGE_OPTIONS): 12, id(FIELD_OPTIONS): 21, id(ENUM_OPTIONS): 7}
"""The number of the FeatureSet in each table of options."""


class _Fields:
    """The fields of one message on the wire, by number."""

    def __init__(self, data: bytes) -> None:
        self._values: dict[int, list[int | bytes]] = {}
        at = 0
        while at < len(data):
            key, at = _read_varint(data, at)
            number, wire = key >> 3, key & 7
            value: int | bytes
            if wire == 0:
                value, at = _read_varint(data, at)
            elif wire == 2:
                size, at = _read_varint(data, at)
                if at + size > len(data):
                    raise InvalidSchema("descriptor: cut off")
                value, at = data[at : at + size], at + size
            elif wire in (1, 5):
                size = 8 if wire == 1 else 4
                if at + size > len(data):
                    raise InvalidSchema("descriptor: cut off")
                value, at = data[at : at + size], at + size
            else:
                raise InvalidSchema("not a descriptor, and not the text of a .proto file")
            if number == 0:
                raise InvalidSchema("not a descriptor, and not the text of a .proto file")
            self._values.setdefault(number, []).append(value)

    def number(self, number: int, default: int = 0) -> int:
        value = self._values.get(number, [default])[-1]
        if not isinstance(value, int):
            raise InvalidSchema("descriptor: a field has another type")
        return value

    def has_only(self, number: int) -> bool:
        """Return whether the message has this field only."""
        return self._values.keys() == {number}

    def has(self, number: int) -> bool:
        return number in self._values

    def data(self, number: int) -> list[bytes]:
        values = [value for value in self._values.get(number, ()) if isinstance(value, bytes)]
        if len(values) < len(self._values.get(number, ())):
            raise InvalidSchema("descriptor: a field has another type")
        return values

    def texts(self, number: int) -> list[str]:
        try:
            return [value.decode() for value in self.data(number)]
        except UnicodeDecodeError:
            raise InvalidSchema("descriptor: a name is not UTF-8") from None

    def text(self, number: int) -> str:
        return (self.texts(number) or [""])[-1]

    def messages(self, number: int) -> list[_Fields]:
        return [_Fields(value) for value in self.data(number)]

    def message(self, number: int) -> _Fields:
        return _Fields(b"".join(self.data(number)))

    def numbers(self, number: int) -> list[int]:
        """Return repeated numbers, packed or not."""
        found: list[int] = []
        for value in self._values.get(number, ()):
            if isinstance(value, int):
                found.append(value)
            else:
                at = 0
                while at < len(value):
                    one, at = _read_varint(value, at)
                    found.append(one)
        return found


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise InvalidSchema("descriptor: cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), at
    raise InvalidSchema("descriptor: a number is too long")


_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME: Final = re.compile(r"\.?[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def _require(pattern: re.Pattern[str], name: str) -> str:
    if not pattern.fullmatch(name):
        raise InvalidSchema(f"descriptor: invalid name {name[:100]!r}")
    return name


def read_descriptor(data: bytes) -> ProtoFile:
    """Return the file of a serialised descriptor. Raises InvalidSchema."""
    file = _Fields(data)
    public, weak = set(file.numbers(10)), set(file.numbers(11))
    imports = tuple(
        ("public" if number in public else "weak" if number in weak else "", path)
        for number, path in enumerate(file.texts(3))
    )
    syntax = file.text(12)
    if syntax == "editions":
        syntax = f"edition {_EDITIONS.get(file.number(14), '2023')}"
    elif syntax not in ("", "proto2", "proto3"):
        raise InvalidSchema(f"descriptor: unknown syntax {syntax[:40]!r}")
    package = file.text(2)
    if package:
        _require(_FULL_NAME, package)
    # both have no labels for fields without one
    is_proto3 = syntax == "proto3" or syntax.startswith("edition ")
    scope = f".{package}" if package else ""
    types: tuple[ProtoMessage | ProtoEnum, ...] = (
        *(_read_message(one, scope, is_proto3, 0) for one in file.messages(4)),
        *(_read_enum(one) for one in file.messages(5)),
    )
    if not types and not imports and not file.has(7) and not file.has(6):
        raise InvalidSchema("not a descriptor, and not the text of a .proto file")
    return ProtoFile(
        syntax,
        package,
        imports,
        _read_options(file.message(8), FILE_OPTIONS),
        types,
        _read_extends(file.messages(7), is_proto3),
        tuple(_read_service(one) for one in file.messages(6)),
    )


def read_descriptor_set(data: bytes) -> list[tuple[str, bytes, list[str]]] | None:
    """Return the name, descriptor and message names of each file of a FileDescriptorSet; None for other bytes.

    ``protoc --descriptor_set_out`` writes such sets; with ``--include_imports`` files come after those they import.
    """
    try:
        found = _Fields(data)
        if not found.has_only(1):
            return None
        return [(_Fields(one).text(1), one, _list_messages(_Fields(one))) for one in found.data(1)]
    except InvalidSchema:
        return None


def _list_messages(file: _Fields) -> list[str]:
    """Return the full names of the top-level messages of a file."""
    package = file.text(2)
    return [f"{package}.{one.text(1)}" if package else one.text(1) for one in file.messages(4)]


def _read_options(options: _Fields, table: _OptionTable) -> Options:
    found = []
    for number, (name, kind, words) in table.items():
        if options.has(number):
            if kind == _TEXT:
                found.append((name, quote(options.text(number))))
            elif kind == _FLAG:
                found.append((name, "true" if options.number(number) else "false"))
            elif options.number(number) in words:
                found.append((name, words[options.number(number)]))
    features = options.message(_FEATURE_SETS[id(table)]) if id(table) in _FEATURE_SETS else _Fields(b"")
    for number, (name, words) in FEATURES.items():
        if features.number(number) in words:
            found.append((f"features.{name}", words[features.number(number)]))
    return tuple(found)


def _read_message(message: _Fields, scope: str, is_proto3: bool, depth: int) -> ProtoMessage:
    if depth > NESTED_MAX:
        raise InvalidSchema(f"messages are nested more than {NESTED_MAX} levels deep")
    name = _require(_IDENTIFIER, message.text(1))
    scope = f"{scope}.{name}"
    maps: dict[str, tuple[str, str]] = {}
    types: list[ProtoMessage | ProtoEnum] = []
    for nested in message.messages(3):
        if nested.message(7).number(_MAP_ENTRY):
            pair = {one.number(3): _type_of(one) for one in nested.messages(2)}
            maps[f"{scope}.{nested.text(1)}"] = (pair.get(1, "string"), pair.get(2, "string"))
        else:
            types.append(_read_message(nested, scope, is_proto3, depth + 1))
    types += [_read_enum(one) for one in message.messages(4)]
    oneofs = [(_require(_IDENTIFIER, one.text(1)), list[ProtoField]()) for one in message.messages(8)]
    fields: list[ProtoField] = []
    for one in message.messages(2):
        field = _read_field(one, maps, is_proto3)
        if one.has(9) and not one.number(17):
            if one.number(9) >= len(oneofs):
                raise InvalidSchema(f"descriptor: {scope}.{field.name} is in a oneof that does not exist")
            oneofs[one.number(9)][1].append(field)
        else:
            fields.append(field)
    reserved = [_write_range(one.number(1), one.number(2) - 1) for one in message.messages(9)]
    return ProtoMessage(
        name,
        tuple(fields),
        tuple(ProtoOneof(of, tuple(members)) for of, members in oneofs if members),
        tuple(types),
        _read_options(message.message(7), MESSAGE_OPTIONS),
        _join(reserved, message.texts(10)),
        tuple(_write_range(one.number(1), one.number(2) - 1) for one in message.messages(5)),
        _read_extends(message.messages(6), is_proto3),
    )


def _join(ranges: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    lists = (", ".join(ranges), ", ".join(quote(name) for name in names))
    return tuple(one for one in lists if one)


def _write_range(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {'max' if last >= NUMBER_MAX else last}"


def _type_of(field: _Fields) -> str:
    kind = field.number(5)
    if kind in _NAMES:
        return _NAMES[kind]
    return _require(_FULL_NAME, field.text(6))


def _read_field(field: _Fields, maps: Mapping[str, tuple[str, str]], is_proto3: bool) -> ProtoField:
    name, type_ = _require(_IDENTIFIER, field.text(1)), _type_of(field)
    label = _LABELS.get(field.number(4, 1), "")
    if label == "optional" and (field.has(9) or is_proto3) and not field.number(17):
        label = ""
    types = maps.get(type_)
    if types is not None:
        type_, label = f"map<{types[0]}, {types[1]}>", ""
    options = _read_options(field.message(8), FIELD_OPTIONS)
    if field.has(7):
        default = field.text(7)
        if type_ == "bytes":
            # with escapes, as in the text form
            default = quote(unquote(f'"{default}"'))
        options = (("default", quote(default) if type_ == "string" else default), *options)
    if field.has(10) and field.text(10) != make_json_name(name):
        options = (*options, ("json_name", quote(field.text(10))))
    # with an edition a group is a message field with a feature, and is declared separately
    is_group = field.number(5) == _GROUP and ("features.message_encoding", "DELIMITED") not in options
    if is_group:
        # declared in the same message, as in the text form
        type_ = type_.rpartition(".")[2]
    return ProtoField(name, field.number(3), type_, label, options, types, is_group)


def make_json_name(name: str) -> str:
    """Return the name of a field in JSON, as protoc makes it."""
    head, *tail = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in tail)


def _read_enum(enum: _Fields) -> ProtoEnum:
    values = tuple(
        (_require(_IDENTIFIER, one.text(1)), _sign(one.number(2)), _read_options(one.message(3), VALUE_OPTIONS))
        for one in enum.messages(2)
    )
    ranges = [_write_range(_sign(one.number(1)), _sign(one.number(2))) for one in enum.messages(4)]
    options = _read_options(enum.message(3), ENUM_OPTIONS)
    return ProtoEnum(_require(_IDENTIFIER, enum.text(1)), values, options, _join(ranges, enum.texts(5)))


def _sign(number: int) -> int:
    signed: int = struct.unpack("<i", struct.pack("<I", number & 0xFFFF_FFFF))[0]
    return signed


def _read_extends(fields: Iterable[_Fields], is_proto3: bool) -> tuple[ProtoExtend, ...]:
    extends: dict[str, list[ProtoField]] = {}
    for field in fields:
        extends.setdefault(_require(_FULL_NAME, field.text(2)), []).append(_read_field(field, {}, is_proto3))
    return tuple(ProtoExtend(name, tuple(found)) for name, found in extends.items())


def _read_service(service: _Fields) -> ProtoService:
    methods = tuple(
        ProtoMethod(
            _require(_IDENTIFIER, one.text(1)),
            ("stream " if one.number(5) else "") + _require(_FULL_NAME, one.text(2)),
            ("stream " if one.number(6) else "") + _require(_FULL_NAME, one.text(3)),
            _read_options(one.message(4), OTHER_OPTIONS),
        )
        for one in service.messages(2)
    )
    return ProtoService(
        _require(_IDENTIFIER, service.text(1)), methods, _read_options(service.message(3), OTHER_OPTIONS)
    )


# -- writing


def _encode_varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _encode_number(field: int, value: int) -> bytes:
    return _encode_varint(field << 3) + _encode_varint(value)


def _encode_bytes(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _encode_varint(field << 3 | 2) + _encode_varint(len(data)) + data


class _Writer:
    def __init__(self, types: Types, is_proto3: bool) -> None:
        self._types = types
        self._is_proto3 = is_proto3

    def write_types(self, types: Iterable[ProtoMessage | ProtoEnum], scope: str, numbers: tuple[int, int]) -> bytes:
        return b"".join(
            _encode_bytes(numbers[0], self.write_message(one, scope))
            if isinstance(one, ProtoMessage)
            else _encode_bytes(numbers[1], _write_enum(one))
            for one in types
        )

    def write_message(self, message: ProtoMessage, scope: str) -> bytes:
        scope = f"{scope}.{message.name}" if scope else message.name
        parts = [_encode_bytes(1, message.name)]
        entries = []
        synthetic: list[str] = []
        for field in message.fields:
            more = b""
            if self._is_proto3 and field.label == "optional":
                more = _encode_number(9, len(message.oneofs) + len(synthetic)) + _encode_number(17, 1)
                synthetic.append(f"_{field.name}")
            if field.map_types is not None:
                entries.append(self._write_entry(field, scope))
            parts.append(_encode_bytes(2, self.write_field(field, scope, more)))
        for number, oneof in enumerate(message.oneofs):
            parts += [
                _encode_bytes(2, self.write_field(field, scope, _encode_number(9, number))) for field in oneof.fields
            ]
        parts += [_encode_bytes(3, entry) for entry in entries]
        parts.append(self.write_types(message.types, scope, (3, 4)))
        parts += [
            _encode_bytes(5, _encode_number(1, first) + _encode_number(2, last + 1))
            for first, last in _parse_ranges(message.extensions)
        ]
        parts.append(self.write_extends(message.extends, scope, 6))
        parts += [_write_options(7, message.options, MESSAGE_OPTIONS)]
        parts += [
            _encode_bytes(8, _encode_bytes(1, name)) for name in (*(one.name for one in message.oneofs), *synthetic)
        ]
        parts += [
            _encode_bytes(9, _encode_number(1, first) + _encode_number(2, last + 1))
            for first, last in _parse_ranges(message.reserved)
        ]
        parts += [_encode_bytes(10, name) for name in _list_reserved_names(message.reserved)]
        return b"".join(parts)

    def _write_entry(self, field: ProtoField, scope: str) -> bytes:
        assert field.map_types is not None
        pair = [ProtoField(name, number + 1, field.map_types[number]) for number, name in enumerate(("key", "value"))]
        fields = b"".join(_encode_bytes(2, self.write_field(one, scope, b"")) for one in pair)
        return _encode_bytes(1, _entry_name(field)) + fields + _encode_bytes(7, _encode_number(_MAP_ENTRY, 1))

    def write_field(self, field: ProtoField, scope: str, more: bytes, extendee: str = "") -> bytes:
        label = {"required": 2, "repeated": 3}.get(field.label, 3 if field.map_types else 1)
        parts = [_encode_bytes(1, field.name)]
        if extendee:
            parts.append(_encode_bytes(2, self._find(extendee, scope)[0]))
        parts += [_encode_number(3, field.number), _encode_number(4, label)]
        if field.map_types is not None:
            parts += [_encode_number(5, _MESSAGE), _encode_bytes(6, f".{scope}.{_entry_name(field)}")]
        elif field.type in SCALARS:
            parts.append(_encode_number(5, SCALARS[field.type]))
        else:
            name, kind = self._find(field.type, scope)
            parts += [_encode_number(5, _GROUP if field.is_group else kind), _encode_bytes(6, name)]
        options = dict(field.options)
        if "default" in options:
            parts.append(_encode_bytes(7, _write_default(field.type, options["default"])))
        parts.append(_write_options(8, field.options, FIELD_OPTIONS))
        parts += [_encode_bytes(10, _unquote(options["json_name"])) if "json_name" in options else b"", more]
        return b"".join(parts)

    def _find(self, name: str, scope: str) -> tuple[str, int]:
        """Return the full name of a type with a leading dot, and the number of its kind."""
        full = find_full_name(name, scope, self._types)
        if full is not None:
            return f".{full}", _ENUM if isinstance(self._types[full][1], ProtoEnum) else _MESSAGE
        plain = name.removeprefix(".")
        return f".{plain}", _ENUM if _BUILT_IN_ENUMS.fullmatch(plain) else _MESSAGE

    def write_extends(self, extends: Iterable[ProtoExtend], scope: str, number: int) -> bytes:
        return b"".join(
            _encode_bytes(number, self.write_field(field, scope, b"", extend.name))
            for extend in extends
            for field in extend.fields
        )

    def write_service(self, service: ProtoService, scope: str) -> bytes:
        parts = [_encode_bytes(1, service.name)]
        for method in service.methods:
            ends = [one.removeprefix("stream ") for one in (method.request, method.response)]
            parts.append(
                _encode_bytes(
                    2,
                    _encode_bytes(1, method.name)
                    + b"".join(
                        _encode_bytes(2 + number, self._find(name, scope)[0]) for number, name in enumerate(ends)
                    )
                    + _write_options(4, method.options, OTHER_OPTIONS)
                    + (_encode_number(5, 1) if method.request.startswith("stream ") else b"")
                    + (_encode_number(6, 1) if method.response.startswith("stream ") else b""),
                )
            )
        return b"".join(parts) + _write_options(3, service.options, OTHER_OPTIONS)


def write_descriptor(file: ProtoFile, types: Types, name: str = "default") -> bytes:
    """Return the serialised descriptor of a file; ``types`` are its own and those that it imports, by full name."""
    writer = _Writer(types, file.syntax == "proto3")
    parts = [_encode_bytes(1, name), _encode_bytes(2, file.package) if file.package else b""]
    parts += [_encode_bytes(3, path) for _, path in file.imports]
    parts.append(writer.write_types(file.types, file.package, (4, 5)))
    parts += [_encode_bytes(6, writer.write_service(one, file.package)) for one in file.services]
    parts += [writer.write_extends(file.extends, file.package, 7), _write_options(8, file.options, FILE_OPTIONS)]
    for field, kind in ((10, "public"), (11, "weak")):
        parts += [_encode_number(field, number) for number, (how, _) in enumerate(file.imports) if how == kind]
    if file.syntax.startswith("edition "):
        editions = {text: number for number, text in _EDITIONS.items()}
        parts += [
            _encode_bytes(12, "editions"),
            _encode_number(14, editions.get(file.syntax.removeprefix("edition "), 1000)),
        ]
    elif file.syntax == "proto3":
        parts.append(_encode_bytes(12, file.syntax))
    return b"".join(parts)


def _entry_name(field: ProtoField) -> str:
    return "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"


def _write_enum(enum: ProtoEnum) -> bytes:
    parts = [_encode_bytes(1, enum.name)]
    parts += [
        _encode_bytes(2, _encode_bytes(1, name) + _encode_number(2, number) + _write_options(3, options, VALUE_OPTIONS))
        for name, number, options in enum.values
    ]
    parts.append(_write_options(3, enum.options, ENUM_OPTIONS))
    parts += [
        _encode_bytes(4, _encode_number(1, first) + _encode_number(2, last))
        for first, last in _parse_ranges(enum.reserved)
    ]
    return b"".join(parts) + b"".join(_encode_bytes(5, name) for name in _list_reserved_names(enum.reserved))


def _write_options(field: int, options: Options, table: _OptionTable) -> bytes:
    numbers = {name: (number, kind, words) for number, (name, kind, words) in table.items()}
    parts = []
    for name, value in options:
        if name in numbers:
            number, kind, words = numbers[name]
            if kind == _TEXT:
                parts.append(_encode_bytes(number, _unquote(value)))
            elif kind == _FLAG:
                parts.append(_encode_number(number, value == "true"))
            else:
                parts += [_encode_number(number, code) for code, word in words.items() if word == value]
    given = dict(options)
    features = b"".join(
        _encode_number(number, code)
        for number, (name, words) in FEATURES.items()
        for code, word in words.items()
        if given.get(f"features.{name}") == word
    )
    if features and id(table) in _FEATURE_SETS:
        parts.append(_encode_bytes(_FEATURE_SETS[id(table)], features))
    data = b"".join(parts)
    return _encode_bytes(field, data) if data else b""


def _unquote(text: str) -> str:
    return unquote(text).encode(errors="surrogateescape").decode(errors="replace") if text.startswith('"') else text


def _write_default(type_: str, text: str) -> str:
    """Return a default as in descriptors: a string unchanged, bytes with escapes."""
    if type_ != "bytes" or not text.startswith('"'):
        return _unquote(text)
    data = unquote(text).encode(errors="surrogateescape")
    return "".join(_ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in data)


_ESCAPES: Final = {ord(letter): f"\\{name}" for letter, name in zip("\n\r\t\"'\\", "nrt\"'\\", strict=True)}


_RANGE: Final = re.compile(r"(-?\d+)(?:\s*to\s*(-?\d+|max))?")


def _parse_ranges(texts: Iterable[str]) -> Iterator[tuple[int, int]]:
    for text in texts:
        for part in text.partition("[")[0].split(","):
            found = _RANGE.fullmatch(part.strip())
            if found is not None:
                last = NUMBER_MAX if found[2] == "max" else int(found[2] or found[1])
                yield int(found[1]), last


def _list_reserved_names(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for part in text.split(","):
            word = part.strip()
            if word and not _RANGE.fullmatch(word):
                yield _unquote(word)

"""The model of a .proto file, and its text as registries write it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

SCALARS: Final[Mapping[str, int]] = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7, "bool": 8, "string": 9,
    "bytes": 12, "uint32": 13, "sfixed32": 15, "sfixed64": 16, "sint32": 17, "sint64": 18,
}  # fmt: skip
"""Scalar types, with their numbers in a descriptor."""
NUMBER_MAX: Final = (1 << 29) - 1

Options = tuple[tuple[str, str], ...]
"""Options as pairs of name and value, both as text."""


@dataclass(frozen=True, slots=True)
class ProtoField:
    """A field; ``type`` is a scalar, a name as it was written, or ``map<key, value>`` with ``map_types`` set."""

    name: str
    number: int
    type: str
    label: str = ""
    """``optional``, ``required``, ``repeated``, or empty."""
    options: Options = ()
    map_types: tuple[str, str] | None = None
    is_group: bool = False
    """Whether the field's message is declared with it, under the name ``type``, and encoded between two tags."""


@dataclass(frozen=True, slots=True)
class ProtoOneof:
    """A choice of fields."""

    name: str
    fields: tuple[ProtoField, ...]
    options: Options = ()


@dataclass(frozen=True, slots=True)
class ProtoEnum:
    """An enum; each value has a name, a number and options."""

    name: str
    values: tuple[tuple[str, int, Options], ...]
    options: Options = ()
    reserved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProtoExtend:
    """Fields that extend a message of another scope."""

    name: str
    fields: tuple[ProtoField, ...]


@dataclass(frozen=True, slots=True)
class ProtoMessage:
    """A message; ``types`` are the messages and enums in it, in their order."""

    name: str
    fields: tuple[ProtoField, ...] = ()
    oneofs: tuple[ProtoOneof, ...] = ()
    types: tuple[ProtoMessage | ProtoEnum, ...] = ()
    options: Options = ()
    reserved: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    extends: tuple[ProtoExtend, ...] = ()

    def all_fields(self) -> Iterator[ProtoField]:
        """Yield all fields, including those of oneofs."""
        yield from self.fields
        for oneof in self.oneofs:
            yield from oneof.fields


@dataclass(frozen=True, slots=True)
class ProtoMethod:
    """A method of a service."""

    name: str
    request: str
    response: str
    options: Options = ()


@dataclass(frozen=True, slots=True)
class ProtoService:
    """A service, which payloads do not need."""

    name: str
    methods: tuple[ProtoMethod, ...]
    options: Options = ()


@dataclass(frozen=True, slots=True)
class ProtoFile:
    """A file. ``imports`` are pairs of a kind (empty, ``public`` or ``weak``) and a path."""

    syntax: str = ""
    """``proto2``, ``proto3``, empty for proto2 by default, or ``edition 2023``."""
    package: str = ""
    imports: tuple[tuple[str, str], ...] = ()
    options: Options = ()
    types: tuple[ProtoMessage | ProtoEnum, ...] = ()
    extends: tuple[ProtoExtend, ...] = ()
    services: tuple[ProtoService, ...] = ()


Types = Mapping[str, "tuple[ProtoFile, ProtoMessage | ProtoEnum]"]
"""The file and the type of each full name."""


def list_types(file: ProtoFile) -> Iterator[tuple[str, ProtoMessage | ProtoEnum]]:
    """Yield full name and type of all messages and enums of a file."""

    def walk(prefix: str, types: Iterable[ProtoMessage | ProtoEnum]) -> Iterator[tuple[str, ProtoMessage | ProtoEnum]]:
        for type_ in types:
            name = f"{prefix}.{type_.name}" if prefix else type_.name
            yield name, type_
            if isinstance(type_, ProtoMessage):
                yield from walk(name, type_.types)

    return walk(file.package, file.types)


def find_full_name(name: str, scope: str, types: Types) -> str | None:
    """Return the full name that ``name`` stands for within ``scope``, by protoc's rules; None if it does not exist."""
    if name.startswith("."):
        return name[1:] if name[1:] in types else None
    parts = scope.split(".") if scope else []
    for size in range(len(parts), -1, -1):
        full = ".".join((*parts[:size], name))
        if full in types:
            return full
    return None


# -- text


def quote(text: str) -> str:
    """Return a string literal. Bytes that are not UTF-8 are ``surrogateescape``'d in the string."""
    return '"' + "".join(_ESCAPES.get(one) or (one if one not in _BYTES else _escape_byte(one)) for one in text) + '"'


_BYTES: Final = frozenset(map(chr, range(0xDC80, 0xDD00)))


def _escape_byte(letter: str) -> str:
    return f"\\{ord(letter) - 0xDC00:03o}"


_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def write_text(file: ProtoFile) -> str:
    """Return the text of a file, laid out as registries do."""
    parts: list[str] = []
    if file.syntax.startswith("edition "):
        parts.append(f"edition = {quote(file.syntax.removeprefix('edition '))};\n")
    elif file.syntax:
        parts.append(f"syntax = {quote(file.syntax)};\n")
    if file.package:
        parts.append(f"package {file.package};\n")
    if file.imports:
        parts.append("\n")
        parts += [f"import {kind + ' ' if kind else ''}{quote(path)};\n" for kind, path in file.imports]
    if file.options:
        parts.append("\n")
        parts += [f"option {name} = {value};\n" for name, value in file.options]
    for type_ in file.types:
        parts += ["\n", *_write_type(type_, "")]
    for extend in file.extends:
        parts += ["\n", *_write_extend(extend, "")]
    for service in file.services:
        parts += ["\n", *_write_service(service)]
    return "".join(parts)


def _write_options(options: Options) -> str:
    return f" [{', '.join(f'{name} = {value}' for name, value in options)}]" if options else ""


def _write_field(field_: ProtoField, indent: str) -> str:
    label = f"{field_.label} " if field_.label else ""
    return f"{indent}{label}{field_.type} {field_.name} = {field_.number}{_write_options(field_.options)};\n"


def _write_member(field_: ProtoField, bodies: Mapping[str, ProtoMessage | ProtoEnum], indent: str) -> Iterator[str]:
    """Write a field; for a group also its message."""
    body = bodies.get(field_.type) if field_.is_group else None
    if body is None:
        yield _write_field(field_, indent)
        return
    label = f"{field_.label} " if field_.label else ""
    first, *rest = _write_type(body, indent)
    head = first.replace("message ", f"{label}group ", 1).removesuffix(" {\n")
    yield f"{head} = {field_.number}{_write_options(field_.options)} {{\n"
    yield from rest


def _write_type(type_: ProtoMessage | ProtoEnum, indent: str) -> Iterator[str]:
    below = indent + "  "
    if isinstance(type_, ProtoEnum):
        yield f"{indent}enum {type_.name} {{\n"
        yield from (f"{below}option {name} = {value};\n" for name, value in type_.options)
        yield from (f"{below}reserved {one};\n" for one in type_.reserved)
        yield from (f"{below}{name} = {number}{_write_options(options)};\n" for name, number, options in type_.values)
        yield f"{indent}}}\n"
        return
    yield f"{indent}message {type_.name} {{\n"
    yield from (f"{below}option {name} = {value};\n" for name, value in type_.options)
    yield from (f"{below}reserved {one};\n" for one in type_.reserved)
    yield from (f"{below}extensions {one};\n" for one in type_.extensions)
    groups = {one.type: one for one in type_.all_fields() if one.is_group}
    bodies = {one.name: one for one in type_.types if one.name in groups}
    for one in type_.fields:
        yield from _write_member(one, bodies, below)
    for oneof in type_.oneofs:
        yield f"\n{below}oneof {oneof.name} {{\n"
        yield from (f"{below}  option {name} = {value};\n" for name, value in oneof.options)
        for one in oneof.fields:
            yield from _write_member(one, bodies, below + "  ")
        yield f"{below}}}\n"
    for nested in type_.types:
        if nested.name in bodies:
            continue
        yield "\n"
        yield from _write_type(nested, below)
    for extend in type_.extends:
        yield "\n"
        yield from _write_extend(extend, below)
    yield f"{indent}}}\n"


def _write_extend(extend: ProtoExtend, indent: str) -> Iterator[str]:
    yield f"{indent}extend {extend.name} {{\n"
    yield from (_write_field(one, indent + "  ") for one in extend.fields)
    yield f"{indent}}}\n"


def _write_service(service: ProtoService) -> Iterator[str]:
    yield f"service {service.name} {{\n"
    yield from (f"  option {name} = {value};\n" for name, value in service.options)
    for method in service.methods:
        yield f"  rpc {method.name} ({method.request}) returns ({method.response})"
        if method.options:
            yield " {\n"
            yield from (f"    option {name} = {value};\n" for name, value in method.options)
            yield "  }\n"
        else:
            yield ";\n"
    yield "}\n"

"""Protobuf schemas: a file with those that it imports, as text or as a ``FileDescriptorProto`` in Base64.

Java's clients register text, Python's a descriptor; ``format=serialized`` asks for the latter.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from .parsed import InvalidSchema, ResolvedReference
from .protobuf_descriptor import read_descriptor, write_descriptor
from .protobuf_model import (
    NUMBER_MAX,
    SCALARS,
    ProtoEnum,
    ProtoExtend,
    ProtoField,
    ProtoFile,
    ProtoMessage,
    ProtoService,
    Types,
    find_full_name,
    list_types,
    write_text,
)
from .protobuf_text import parse_text

BUILT_IN: Final = ("google/protobuf/", "google/type/", "confluent/")
"""Imports that every client has."""
BUILT_IN_PACKAGES: Final = ("google.", "confluent.")


class ProtobufSchema:
    """A parsed file with those that it imports."""

    kind: Final = "PROTOBUF"

    def __init__(self, file: ProtoFile, imported: Mapping[str, tuple[ProtoFile, object]]) -> None:
        """``imported``: each imported file by path, with the name by which it was referred to."""
        self.file = file
        self.imported = imported
        self.types: dict[str, tuple[ProtoFile, ProtoMessage | ProtoEnum]] = {}
        """The types of the file and of the files that it imports."""
        for one in (*(found for found, _ in imported.values()), file):
            for name, type_ in list_types(one):
                if one is file and name in self.types and self.types[name][0] is file:
                    raise InvalidSchema(f"{name} is already defined")
                self.types[name] = (one, type_)
        self.text = write_text(file)

    def normalize(self) -> str:
        """Return the text with full names of types, and with imports, options and fields sorted."""
        return write_text(_Normalizer(self.types).normalize(self.file))

    def format_text(self, form: str) -> str:
        """Return the text, or for ``serialized`` the descriptor in Base64."""
        if form != "serialized":
            return self.text
        return base64.b64encode(write_descriptor(self.file, self.types)).decode()

    def require_valid(self) -> None:
        """Check that imports are given and types exist; raises InvalidSchema."""
        missing = [path for _, path in self.file.imports if path not in self.imported]
        unknown = [path for path in missing if not path.startswith(BUILT_IN)]
        if unknown:
            raise InvalidSchema(f"import {unknown[0][:200]!r}: not among the references")
        for scope, type_ in list_types(self.file):
            if isinstance(type_, ProtoMessage):
                for field_ in type_.all_fields():
                    for name in field_.map_types or (field_.type,):
                        is_known = name in SCALARS or find_full_name(name, scope, self.types) is not None
                        if not is_known and not missing:
                            raise InvalidSchema(f"{scope}.{field_.name}: type {name[:200]!r} is not defined")


def parse_protobuf(text: str, references: Sequence[ResolvedReference] = ()) -> ProtobufSchema:
    """Return the schema of a text, or of a descriptor in Base64. Raises InvalidSchema."""
    imported = {one.name: (_parse_file(one.text), one.reference) for one in references}
    return ProtobufSchema(_parse_file(text), imported)


def _parse_file(text: str) -> ProtoFile:
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return require_consistent(parse_text(text))
    if not data:
        return parse_text(text)
    return require_consistent(read_descriptor(data))


def require_consistent(file: ProtoFile) -> ProtoFile:
    """Return a file if all its fields and values have unique numbers and names. Raises InvalidSchema."""
    for scope, type_ in list_types(file):
        if isinstance(type_, ProtoEnum):
            if not type_.values:
                raise InvalidSchema(f"enum {scope}: no values")
            continue
        names: set[str] = set()
        numbers: set[int] = set()
        for field_ in type_.all_fields():
            if not 1 <= field_.number <= NUMBER_MAX or 19_000 <= field_.number < 20_000:
                raise InvalidSchema(f"{scope}.{field_.name}: invalid number {field_.number}")
            if field_.number in numbers or field_.name in names:
                raise InvalidSchema(f"{scope}.{field_.name}: number {field_.number} or name is used twice")
            names.add(field_.name)
            numbers.add(field_.number)
    return file


class _Normalizer:
    def __init__(self, types: Types) -> None:
        self._types = types

    def normalize(self, file: ProtoFile) -> ProtoFile:
        types = tuple(self._normalize_type(type_, file.package) for type_ in file.types)
        return replace(
            file,
            syntax=file.syntax or "proto2",
            imports=tuple(sorted(file.imports)),
            options=tuple(sorted(file.options)),
            types=types,
            extends=tuple(self._normalize_extend(one, file.package) for one in file.extends),
            services=tuple(self._normalize_service(one, file.package) for one in file.services),
        )

    def _normalize_service(self, service: ProtoService, scope: str) -> ProtoService:
        def normalize(name: str) -> str:
            stream = "stream " if name.startswith("stream ") else ""
            return stream + self._find(name.removeprefix("stream "), scope)

        methods = tuple(
            replace(one, request=normalize(one.request), response=normalize(one.response)) for one in service.methods
        )
        return replace(service, methods=methods)

    def _normalize_type(self, type_: ProtoMessage | ProtoEnum, scope: str) -> ProtoMessage | ProtoEnum:
        if isinstance(type_, ProtoEnum):
            values = tuple((name, number, tuple(sorted(options))) for name, number, options in type_.values)
            return replace(type_, values=values, options=tuple(sorted(type_.options)))
        scope = f"{scope}.{type_.name}" if scope else type_.name
        return replace(
            type_,
            fields=self._normalize_fields(type_.fields, scope),
            oneofs=tuple(replace(one, fields=self._normalize_fields(one.fields, scope)) for one in type_.oneofs),
            types=tuple(self._normalize_type(one, scope) for one in type_.types),
            options=tuple(sorted(type_.options)),
            extends=tuple(self._normalize_extend(one, scope) for one in type_.extends),
        )

    def _normalize_extend(self, extend: ProtoExtend, scope: str) -> ProtoExtend:
        return replace(extend, name=self._find(extend.name, scope), fields=self._normalize_fields(extend.fields, scope))

    def _normalize_fields(self, fields: Iterable[ProtoField], scope: str) -> tuple[ProtoField, ...]:
        found = []
        for one in sorted(fields, key=lambda one: one.number):
            types = None
            if one.map_types is not None:
                types = (one.map_types[0], self._find(one.map_types[1], scope))
            named = one.type if one.is_group else self._find(one.type, scope)
            type_ = f"map<{types[0]}, {types[1]}>" if types else named
            found.append(replace(one, type=type_, map_types=types, options=tuple(sorted(one.options))))
        return tuple(found)

    def _find(self, name: str, scope: str) -> str:
        full = None if name in SCALARS else find_full_name(name, scope, self._types)
        if full is None and name.startswith(BUILT_IN_PACKAGES):
            full = name
        return name if full is None else f".{full}"

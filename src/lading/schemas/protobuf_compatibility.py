"""Confluent's rules for Protobuf, as differences: fields by number, kinds of scalars, oneofs, names of messages.

``update`` can read data of ``original`` if all differences are among COMPATIBLE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from .protobuf import ProtobufSchema
from .protobuf_model import SCALARS, ProtoEnum, ProtoField, ProtoMessage, ProtoOneof, find_full_name

COMPATIBLE: Final = frozenset({
    "MESSAGE_ADDED", "MESSAGE_MOVED", "ENUM_ADDED", "ENUM_REMOVED", "ENUM_CONST_ADDED", "ENUM_CONST_CHANGED",
    "ENUM_CONST_REMOVED", "FIELD_ADDED", "FIELD_REMOVED", "FIELD_NAME_CHANGED", "FIELD_STRING_OR_BYTES_LABEL_CHANGED",
    "ONEOF_ADDED", "ONEOF_REMOVED", "ONEOF_FIELD_ADDED", "ONEOF_FIELD_MOVED_TO_TOP_LEVEL",
})  # fmt: skip
_TEXTS: Final = {
    "PACKAGE_CHANGED": "The package at '{path}' in the {new} schema does not match the package in the {old} schema",
    "MESSAGE_REMOVED": "The {new} schema is missing a MESSAGE type at path '{path}' in the {old} schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{path}' in the {new} schema does not match the {old} schema",
    "FIELD_SCALAR_KIND_CHANGED": "The kind of a SCALAR field at path '{path}' in the {new} schema does not match its "
    "kind in the {old} schema",
    "FIELD_NAMED_TYPE_CHANGED": "The type of a MESSAGE field at path '{path}' in the {new} schema does not match its "
    "type in the {old} schema",
    "FIELD_NUMERIC_LABEL_CHANGED": "The label for a NUMERIC field at path '{path}' in the {new} schema does not match "
    "its label in the {old} schema",
    "REQUIRED_FIELD_ADDED": "A required field  at path '{path}' in the {new} schema is missing in the {old} schema",
    "REQUIRED_FIELD_REMOVED": "The {new} schema is missing a required field at path: '{path}' in the {old} schema",
    "ONEOF_FIELD_REMOVED": "The {new} schema is missing a oneof field at path '{path}' in the {old} schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "Multiple fields in the oneof at path '{path}' in the {new} schema are outside a "
    "oneof in the {old} schema",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "A field in the oneof at path '{path}' in the {new} schema is outside an existing "
    "oneof in the {old} schema",
}
_GROUPS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), "number"),
    **dict.fromkeys(("sint32", "sint64"), "signed"),
    **dict.fromkeys(("string", "bytes"), "text"),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
    "float": "float",
    "double": "double",
}
"""Groups of scalars that have the same form on the wire."""
DIFFERENCES_MAX: Final = 1000
"""Sentences in one response; schemas can differ in each of thousands of fields."""

Difference = tuple[str, str]
"""Kind and path of a difference."""
Path = tuple[str, ...]


def list_protobuf_incompatibilities(
    reader: ProtobufSchema, writer: ProtobufSchema, names: tuple[str, str]
) -> list[str]:
    """Return why ``reader`` cannot read what ``writer`` has written; ``names`` are what messages call the two."""
    found = [one for one in list_differences(writer, reader) if one[0] not in COMPATIBLE][:DIFFERENCES_MAX]
    new, old = names
    return [
        f'{{errorType:"{kind}", description:"{_TEXTS[kind].format(path=path, new=new, old=old)}"}}'
        for kind, path in found
    ]


def list_differences(original: ProtobufSchema, update: ProtobufSchema) -> list[Difference]:
    """Return all differences, compatible ones too."""
    comparison = _Comparison(original, update)
    comparison.compare_files()
    return comparison.found


class _Comparison:
    def __init__(self, original: ProtobufSchema, update: ProtobufSchema) -> None:
        self._original, self._update = original, update
        self._open: set[int] = set()
        """Messages of the original that are being compared: one that contains itself is compared once."""
        self._known: dict[tuple[int, int], bool] = {}
        """Whether two imported messages are compatible, by pair."""
        self._scopes = ("", "")
        self.found: list[Difference] = []

    def compare_files(self) -> None:
        original, update = self._original.file, self._update.file
        if original.package != update.package:
            self._add("PACKAGE_CHANGED", ())
        self._compare_types(original.types, update.types, (), (original.package, update.package))

    def _add(self, kind: str, path: Path) -> None:
        self.found.append((kind, "#/" + "/".join(path)))

    def _compare_types(
        self,
        original: Iterable[ProtoMessage | ProtoEnum],
        update: Iterable[ProtoMessage | ProtoEnum],
        path: Path,
        scopes: tuple[str, str],
    ) -> None:
        messages = [{one.name: one for one in types if isinstance(one, ProtoMessage)} for types in (original, update)]
        enums = [{one.name: one for one in types if isinstance(one, ProtoEnum)} for types in (original, update)]
        orders = [list(one) for one in messages]
        for name in dict.fromkeys((*orders[0], *orders[1])):
            place = (*path, name)
            if name not in messages[1]:
                self._add("MESSAGE_REMOVED", place)
            elif name not in messages[0]:
                self._add("MESSAGE_ADDED", place)
            else:
                below = (_join(scopes[0], name), _join(scopes[1], name))
                self._compare_messages(messages[0][name], messages[1][name], place, below)
                if orders[0].index(name) != orders[1].index(name):
                    self._add("MESSAGE_MOVED", place)
        for name in dict.fromkeys((*enums[0], *enums[1])):
            place = (*path, name)
            if name not in enums[1]:
                self._add("ENUM_REMOVED", place)
            elif name not in enums[0]:
                self._add("ENUM_ADDED", place)
            else:
                self._compare_enums(enums[0][name], enums[1][name], place)

    def _compare_enums(self, original: ProtoEnum, update: ProtoEnum, path: Path) -> None:
        before, after = ({number: name for name, number, _ in one.values} for one in (original, update))
        for number in sorted(before.keys() | after.keys()):
            if before.get(number) != after.get(number):
                kind = "REMOVED" if number not in after else "ADDED" if number not in before else "CHANGED"
                self._add(f"ENUM_CONST_{kind}", (*path, str(number)))

    def _compare_messages(
        self, original: ProtoMessage, update: ProtoMessage, path: Path, scopes: tuple[str, str]
    ) -> None:
        if id(original) not in self._open:
            self._open.add(id(original))
            former, self._scopes = self._scopes, scopes
            self._compare_fields(original, update, path)
            self._scopes = former
            self._open.discard(id(original))
        self._compare_types(original.types, update.types, path, scopes)

    def _compare_fields(self, original: ProtoMessage, update: ProtoMessage, path: Path) -> None:
        before, after = ({one.number: one for one in message.all_fields()} for message in (original, update))
        old_oneofs, new_oneofs = (_oneofs_by_number(message) for message in (original, update))
        kept = {one.name for one in update.oneofs}
        deleted = {
            one.name
            for one in original.oneofs
            if one.name not in kept and not any(field.number in after for field in one.fields)
        }
        for oneof in update.oneofs:
            self._compare_origins(oneof, before, old_oneofs, (*path, oneof.name))
        names = ({one.name for one in original.oneofs}, kept)
        for name in sorted(names[0] ^ names[1]):
            self._add("ONEOF_REMOVED" if name in names[0] else "ONEOF_ADDED", (*path, name))
        for number in sorted(before.keys() | after.keys()):
            old, new, place = before.get(number), after.get(number), (*path, str(number))
            old_oneof, new_oneof = old_oneofs.get(number), new_oneofs.get(number)
            inner = (*path, new_oneof, str(number)) if new_oneof is not None else place
            if new is None:
                assert old is not None
                if old_oneof is None:
                    self._add("REQUIRED_FIELD_REMOVED" if old.label == "required" else "FIELD_REMOVED", place)
                elif old_oneof not in deleted:
                    self._add("ONEOF_FIELD_REMOVED", (*path, old_oneof, str(number)))
            elif old is None:
                if new_oneof is not None:
                    self._add("ONEOF_FIELD_ADDED", inner)
                else:
                    self._add("REQUIRED_FIELD_ADDED" if new.label == "required" else "FIELD_ADDED", place)
            else:
                if old_oneof is not None and new_oneof is None:
                    self._add("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", place)
                self._compare_field(old, new, inner)

    def _compare_origins(
        self, oneof: ProtoOneof, before: Mapping[int, ProtoField], old_oneofs: Mapping[int, str], path: Path
    ) -> None:
        """Report fields that exclude each other in the new version only."""
        numbers = [field.number for field in oneof.fields if field.number in before]
        alone = [number for number in numbers if number not in old_oneofs]
        groups = {old_oneofs[number] for number in numbers if number in old_oneofs}
        if len(alone) + len(groups) > 1:
            many = len(alone) > 1
            self._add("MULTIPLE_FIELDS_MOVED_TO_ONEOF" if many else "FIELD_MOVED_TO_EXISTING_ONEOF", path)

    def _compare_field(self, original: ProtoField, update: ProtoField, path: Path) -> None:
        if original.name != update.name:
            self._add("FIELD_NAME_CHANGED", path)
        if (original.map_types is None) != (update.map_types is None):
            self._add("FIELD_KIND_CHANGED", path)
        elif original.map_types is not None and update.map_types is not None:
            for old, new in zip(original.map_types, update.map_types, strict=True):
                self._compare_type(old, new, None, path)
        else:
            self._compare_type(original.type, update.type, (original.label, update.label), path)

    def _compare_type(self, original: str, update: str, labels: tuple[str, str] | None, path: Path) -> None:
        groups = (self._group(original, self._original, 0), self._group(update, self._update, 1))
        if (groups[0] is None) != (groups[1] is None):
            self._add("FIELD_KIND_CHANGED", path)
        elif groups[0] is None:
            self._compare_named(original, update, path)
        elif groups[0] != groups[1]:
            self._add("FIELD_SCALAR_KIND_CHANGED", path)
        elif labels is not None and labels[0] != labels[1] and all(labels):
            is_text = groups[0] == "text"
            self._add("FIELD_STRING_OR_BYTES_LABEL_CHANGED" if is_text else "FIELD_NUMERIC_LABEL_CHANGED", path)

    def _group(self, name: str, schema: ProtobufSchema, side: int) -> str | None:
        """Return the group of a scalar or enum; None for a message."""
        if name in SCALARS:
            return _GROUPS[name]
        full = find_full_name(name, self._scopes[side], schema.types)
        return "number" if full is not None and isinstance(schema.types[full][1], ProtoEnum) else None

    def _compare_named(self, original: str, update: str, path: Path) -> None:
        sides = ((original, self._original), (update, self._update))
        full = [find_full_name(name, self._scopes[side], schema.types) for side, (name, schema) in enumerate(sides)]
        if full[0] is None or full[1] is None:
            if original.removeprefix(".") != update.removeprefix("."):
                self._add("FIELD_NAMED_TYPE_CHANGED", path)
            return
        old_file, old = self._original.types[full[0]]
        new_file, new = self._update.types[full[1]]
        local = [
            name.removeprefix(f"{file.package}.") if file.package else name
            for name, file in ((full[0], old_file), (full[1], new_file))
        ]
        if local[0] != local[1]:
            self._add("FIELD_NAMED_TYPE_CHANGED", path)
            return
        if _origin_of(self._original, old_file) == _origin_of(self._update, new_file):
            return
        assert isinstance(old, ProtoMessage)
        assert isinstance(new, ProtoMessage)
        pair = (id(old), id(new))
        if pair not in self._known:
            # a pair that is met while it is being compared counts as compatible, and each pair is compared once:
            # messages that refer to each other have n! ways through them
            self._known[pair] = True
            outer, self.found = self.found, []
            self._compare_messages(old, new, tuple(local[0].split(".")), (full[0], full[1]))
            self._known[pair] = all(kind in COMPATIBLE for kind, _ in self.found)
            outer += self.found
            self.found = outer
        if not self._known[pair]:
            self._add("FIELD_NAMED_TYPE_CHANGED", path)


def _origin_of(schema: ProtobufSchema, file: object) -> object:
    """Return subject and version of the file of a type; the file of the schema itself has neither."""
    for found, reference in schema.imported.values():
        if found is file:
            return getattr(reference, "subject", None), getattr(reference, "version", None)
    return ("", -1)


def _oneofs_by_number(message: ProtoMessage) -> dict[int, str]:
    return {field.number: oneof.name for oneof in message.oneofs for field in oneof.fields}


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name

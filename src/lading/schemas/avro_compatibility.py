"""Avro's rules of schema resolution, as differences: why a reader cannot read what a writer has written.

Kinds, paths and words are those of Avro's own ``SchemaCompatibility`` as a registry shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .avro import ABSENT, AvroField, AvroSchema, AvroType
from .parsed import InvalidSchema

_WIDENED: Final[Mapping[str, frozenset[str]]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}
"""Other types of a writer that a reader's type can read."""
_TEXTS: Final = {
    "FIXED_SIZE_MISMATCH": "The size of FIXED type field at path '{path}' in the {reader} schema does not match with "
    "the {writer} schema",
    "TYPE_MISMATCH": "The type (path '{path}') of a field in the {reader} schema does not match with the {writer} "
    "schema",
    "NAME_MISMATCH": "The name of the schema has changed (path '{path}')",
    "MISSING_ENUM_SYMBOLS": "The {reader} schema is missing enum symbols '{info}' at path '{path}' in the {writer} "
    "schema",
    "MISSING_UNION_BRANCH": "The {reader} schema is missing a type inside a union field at path '{path}' in the "
    "{writer} schema",
    "READER_FIELD_MISSING_DEFAULT_VALUE": "The field '{info}' at path '{path}' in the {reader} schema has no default "
    "value and is missing in the {writer} schema",
}
DIFFERENCES_MAX: Final = 1000
"""Limit of one comparison, and of each pair of types in it; the first differences are enough."""
STEPS_MAX: Final = 500_000
"""Limit of the pairs of types in one comparison: about half a second.

The fields of 10 MB of text are fewer; but each branch of one union is compared with each of another.
"""
NAMES_OF_STEP: Final = 100
"""Aliases, symbols or fields that are looked up in the time of one pair of types."""

Difference = tuple[str, str, str]
"""Kind, path from the root, and details."""


def list_avro_incompatibilities(reader: AvroSchema, writer: AvroSchema, names: tuple[str, str]) -> list[str]:
    """Return why ``reader`` cannot read what ``writer`` has written; an empty list if it can.

    ``names`` are what messages call the two. Raises InvalidSchema if the schemas are too complex to compare.
    """
    found = _Comparison().compare(reader.root, writer.root, ())
    return [_describe(*difference, names) for difference in found[:DIFFERENCES_MAX]]


def _describe(kind: str, path: str, info: str, names: tuple[str, str]) -> str:
    text = _TEXTS[kind].format(path=path, info=info, reader=names[0], writer=names[1])
    return f"{{errorType:'{kind}', description:'{text}', additionalInfo:'{info}'}}"


class _Comparison:
    """Compares each pair of types once; a pair that is met while it is being compared counts as compatible."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[Difference]] = {}
        self._steps = 0

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > STEPS_MAX:
            raise InvalidSchema(f"too complex: comparing it takes more than {STEPS_MAX} steps")

    def compare(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[Difference]:
        self._count(1)
        pair = (id(reader), id(writer))
        if pair not in self._known:
            self._known[pair] = []
            # a type that two fields share would double the differences at each level
            self._known[pair] = self._compare(reader, writer, path)[:DIFFERENCES_MAX]
        return self._known[pair]

    def _compare(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[Difference]:
        if writer.kind == "union":
            return self._compare_branches(reader, writer, path)
        if reader.kind == "union":
            if any(not self.compare(branch, writer, path) for branch in reader.branches):
                return []
            return [("MISSING_UNION_BRANCH", _show(path), f"reader union lacking writer type: {writer.kind.upper()}")]
        if reader.kind != writer.kind:
            if writer.kind in _WIDENED.get(reader.kind, ()):
                return []
            kinds = f"reader type: {reader.kind.upper()} not compatible with writer type: {writer.kind.upper()}"
            return [("TYPE_MISMATCH", _show(path), kinds)]
        if reader.kind in ("array", "map"):
            member = "items" if reader.kind == "array" else "values"
            return self.compare(reader.branches[0], writer.branches[0], (*path, member))
        if not reader.name:
            return []
        return self._compare_names(reader, writer, path) + self._compare_named(reader, writer, path)

    def _compare_branches(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[Difference]:
        found: list[Difference] = []
        for number, branch in enumerate(writer.branches):
            if len(found) >= DIFFERENCES_MAX:
                break
            differences = self.compare(reader, branch, path)
            if differences and reader.kind == "union":
                info = f"reader union lacking writer type: {branch.kind.upper()}"
                found.append(("MISSING_UNION_BRANCH", _show((*path, str(number))), info))
            else:
                found += differences
        return found

    def _compare_names(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[Difference]:
        self._count(len(reader.aliases) // NAMES_OF_STEP)
        if reader.simple_name == writer.simple_name or writer.name in reader.aliases:
            return []
        return [("NAME_MISMATCH", _show((*path, "name")), f"expected: {writer.name}")]

    def _compare_named(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[Difference]:
        if reader.kind == "fixed":
            if reader.size_bytes == writer.size_bytes:
                return []
            sizes = f"expected: {writer.size_bytes}, found: {reader.size_bytes}"
            return [("FIXED_SIZE_MISMATCH", _show((*path, "size")), sizes)]
        if reader.kind == "enum":
            self._count((len(reader.symbols) + len(writer.symbols)) // NAMES_OF_STEP)
            symbols = set(reader.symbols)
            missing = [symbol for symbol in writer.symbols if symbol not in symbols]
            if not missing or reader.default is not None:
                return []
            return [("MISSING_ENUM_SYMBOLS", _show((*path, "symbols")), f"[{', '.join(missing)}]")]
        return self._compare_fields(reader, writer, (*path, "fields"))

    def _compare_fields(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[Difference]:
        # all branches of one union are compared with all of another, so their fields are read as often
        self._count((len(writer.fields) + sum(len(field.aliases) for field in reader.fields)) // NAMES_OF_STEP)
        written = {field.name: field for field in writer.fields}
        found: list[Difference] = []
        for number, field in enumerate(reader.fields):
            if len(found) >= DIFFERENCES_MAX:
                break
            source = _find_field(field, written)
            place = (*path, str(number))
            if source is not None:
                found += self.compare(field.type, source.type, (*place, "type"))
            elif field.default is ABSENT and field.type.default is None:
                found.append(("READER_FIELD_MISSING_DEFAULT_VALUE", _show(place), field.name))
        return found


def _find_field(field: AvroField, written: Mapping[str, AvroField]) -> AvroField | None:
    for name in (field.name, *field.aliases):
        if name in written:
            return written[name]
    return None


def _show(path: tuple[str, ...]) -> str:
    return "/" + "/".join(path)

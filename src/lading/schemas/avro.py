"""Avro schemas (specification 1.12): parsed, checked, and written as Java's ``Schema.toString`` writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .parsed import InvalidSchema, ResolvedReference, parse_json, write_json

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_RESERVED: Final = frozenset(
    {"type", "name", "namespace", "doc", "fields", "items", "values", "symbols", "size", "aliases", "default", "order"}
)
_OWN: Final[Mapping[str, frozenset[str]]] = {
    "record": frozenset({"type", "name", "namespace", "doc", "fields", "aliases"}),
    "error": frozenset({"type", "name", "namespace", "doc", "fields", "aliases"}),
    "enum": frozenset({"type", "name", "namespace", "doc", "symbols", "aliases", "default"}),
    "fixed": frozenset({"type", "name", "namespace", "doc", "size", "aliases"}),
    "array": frozenset({"type", "items"}),
    "map": frozenset({"type", "values"}),
}
"""The attributes that are part of a type; other attributes are kept unchanged."""
_FIELD: Final = frozenset({"name", "type", "doc", "default", "order", "aliases"})
_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
ABSENT: Final = object()
"""The default of a field without one."""


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record; ``default`` is a JSON value, or ``ABSENT``."""

    name: str
    type: AvroType
    default: Any = ABSENT
    doc: str | None = None
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class AvroType:
    """A type. A record that refers to itself is a circle; ``name`` is the full name, empty for types without one."""

    kind: str
    name: str = ""
    namespace: str = ""
    fields: tuple[AvroField, ...] = ()
    branches: tuple[AvroType, ...] = ()
    """The types of a union; for an array or map, the one type of its items or values."""
    symbols: tuple[str, ...] = ()
    default: str | None = None
    """The default symbol of an enum."""
    size_bytes: int = 0
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    """Other full names of the type."""
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def simple_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def label(self) -> str:
        """The text by which a branch of a union is unique."""
        return self.name or self.kind


class AvroSchema:
    """A parsed schema: ``root``, and the canonical text."""

    kind: Final = "AVRO"

    def __init__(self, root: AvroType, imported: Sequence[str]) -> None:
        """``imported``: the names that the text refers to and its references define."""
        self.root = root
        self._imported = frozenset(imported)
        self.text = write_json(_Writer(self._imported).write(root, ""))

    def normalize(self) -> str:
        """Return the text with full names, and with attributes and aliases sorted."""
        return write_json(_Writer(self._imported, is_normal=True).write(self.root, ""))

    def format_text(self, form: str) -> str:
        """Return the text; Avro has no other form than this one."""
        return self.text

    def require_valid(self) -> None:
        """Check the defaults of fields; raises InvalidSchema."""
        for type_ in list_types(self.root):
            for field_ in type_.fields:
                if field_.default is not ABSENT and not fits(field_.type, field_.default):
                    raise InvalidSchema(
                        f"Invalid default for field {field_.name}: {write_json(field_.default)[:200]} not a "
                        f"{write_json(_Writer(self._imported).write(field_.type, type_.namespace))[:200]}"
                    )


def parse_avro(text: str, references: Sequence[ResolvedReference] = ()) -> AvroSchema:
    """Return the schema of a text. Raises InvalidSchema."""
    parser = _Parser()
    for reference in references:
        parser.parse(_load(reference.text), "")
    imported = list(parser.named)
    return AvroSchema(parser.parse(_load(text), ""), imported)


def _load(text: str) -> Any:
    # a bare name of a type is a schema as well, though not JSON
    return text.strip() if text.strip() in PRIMITIVES else parse_json(text)


def list_types(root: AvroType) -> list[AvroType]:
    """Return every reachable type, each once."""
    found, left, seen = [], [root], {id(root)}
    while left:
        type_ = left.pop()
        found.append(type_)
        for below in (*type_.branches, *(field_.type for field_ in type_.fields)):
            if id(below) not in seen:
                seen.add(id(below))
                left.append(below)
    return found


class _Parser:
    def __init__(self) -> None:
        self.named: dict[str, AvroType] = {}

    def parse(self, value: Any, namespace: str) -> AvroType:
        if isinstance(value, str):
            return self._find(value, namespace)
        if isinstance(value, list):
            return self._parse_union(value, namespace)
        if not isinstance(value, dict):
            raise InvalidSchema(f"No type: {write_json(value)[:200]}")
        kind = value.get("type")
        if isinstance(kind, (dict, list)):
            # {"type": {"type": "string"}}: attributes around a type have no effect
            return self.parse(kind, namespace)
        if not isinstance(kind, str):
            raise InvalidSchema(f"No type: {write_json(value)[:200]}")
        if kind in PRIMITIVES:
            return AvroType(kind, attributes={name: one for name, one in value.items() if name not in _RESERVED})
        if kind not in _OWN:
            return self._find(kind, namespace)
        type_ = AvroType(kind)
        type_.attributes = {name: one for name, one in value.items() if name not in _OWN[kind]}
        if kind in NAMED:
            self._name(type_, value, namespace)
        if kind in ("record", "error"):
            type_.fields = self._parse_fields(value, type_)
        elif kind == "enum":
            _parse_symbols(type_, value)
        elif kind == "fixed":
            size = value.get("size")
            if type(size) is not int or not 0 <= size <= _INT_MAX:
                raise InvalidSchema(f"Invalid or no size of fixed {type_.name}: {write_json(size)[:40]}")
            type_.size_bytes = size
        else:
            member = "items" if kind == "array" else "values"
            if member not in value:
                raise InvalidSchema(f"{kind.capitalize()} has no {member} type: {write_json(value)[:200]}")
            type_.branches = (self.parse(value[member], namespace),)
        return type_

    def _find(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        for full in (name,) if "." in name else (f"{namespace}.{name}" if namespace else name, name):
            if full in self.named:
                return self.named[full]
        raise InvalidSchema(f"Undefined name: {name[:200]!r}")

    def _name(self, type_: AvroType, value: Mapping[str, Any], namespace: str) -> None:
        name, space = value.get("name"), value.get("namespace")
        if not isinstance(name, str) or not (space is None or isinstance(space, str)):
            raise InvalidSchema(f"No name in schema: {write_json(value)[:200]}")
        if "." in name:
            space, _, name = name.rpartition(".")
        elif space is None:
            space = namespace
        for part in (*(space.split(".") if space else ()), name):
            require_name(part)
        type_.namespace, type_.name = space, f"{space}.{name}" if space else name
        if type_.simple_name in PRIMITIVES and not space:
            raise InvalidSchema(f"Schemas may not be named after primitives: {name}")
        if type_.name in self.named:
            raise InvalidSchema(f"Can't redefine: {type_.name}")
        type_.doc = _parse_doc(value)
        type_.aliases = tuple(
            alias if "." in alias or not space else f"{space}.{alias}" for alias in _parse_aliases(value)
        )
        self.named[type_.name] = type_

    def _parse_fields(self, value: Mapping[str, Any], record: AvroType) -> tuple[AvroField, ...]:
        rows = value.get("fields")
        if not isinstance(rows, list):
            raise InvalidSchema(f"Record has no fields: {record.name}")
        fields: dict[str, AvroField] = {}
        for row in rows:
            if not isinstance(row, dict) or not isinstance(row.get("name"), str):
                raise InvalidSchema(f"No field name in record {record.name}: {write_json(row)[:200]}")
            name = row["name"]
            require_name(name)
            if name in fields:
                raise InvalidSchema(f"Duplicate field {name} in record {record.name}")
            if "type" not in row:
                raise InvalidSchema(f"No field type: {name} in record {record.name}")
            order = row.get("order", "ascending")
            if not isinstance(order, str) or order.lower() not in ("ascending", "descending", "ignore"):
                raise InvalidSchema(f"Invalid order of field {name}: {write_json(order)[:40]}")
            fields[name] = AvroField(
                name,
                self.parse(row["type"], record.namespace),
                row.get("default", ABSENT),
                _parse_doc(row),
                order.lower(),
                _parse_aliases(row),
                {key: one for key, one in row.items() if key not in _FIELD},
            )
        return tuple(fields.values())

    def _parse_union(self, rows: list[Any], namespace: str) -> AvroType:
        branches: dict[str, AvroType] = {}
        for row in rows:
            branch = self.parse(row, namespace)
            if branch.kind == "union":
                raise InvalidSchema(f"Nested union: {write_json(rows)[:200]}")
            if branch.label in branches:
                raise InvalidSchema(f"Duplicate in union: {branch.label}")
            branches[branch.label] = branch
        return AvroType("union", branches=tuple(branches.values()))


def _parse_symbols(type_: AvroType, value: Mapping[str, Any]) -> None:
    symbols = value.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise InvalidSchema(f"Enum has no symbols: {type_.name}")
    for symbol in symbols:
        require_name(symbol)
    if len(set(symbols)) < len(symbols):
        raise InvalidSchema(f"Duplicate enum symbol in {type_.name}")
    default = value.get("default")
    if default is not None and default not in symbols:
        raise InvalidSchema(f"The Enum Default: {write_json(default)[:40]} is not in the enum symbol set: {type_.name}")
    type_.symbols, type_.default = tuple(symbols), default


def _parse_doc(value: Mapping[str, Any]) -> str | None:
    doc = value.get("doc")
    return doc if isinstance(doc, str) else None


def _parse_aliases(value: Mapping[str, Any]) -> tuple[str, ...]:
    aliases = value.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise InvalidSchema(f"aliases not an array of names: {write_json(aliases)[:200]}")
    return tuple(dict.fromkeys(aliases))


def require_name(name: str) -> None:
    """Raise InvalidSchema unless ``name`` has only letters, digits and ``_``, and does not begin with a digit."""
    if not name:
        raise InvalidSchema("Empty name")
    if not (name[0].isalpha() or name[0] == "_"):
        raise InvalidSchema(f"Illegal initial character: {name[:200]}")
    if not name.replace("_", "a").isalnum():
        raise InvalidSchema(f"Illegal character in: {name[:200]}")


class _Writer:
    """Writes a schema as a JSON value; each named type in full once, and by its name afterwards."""

    def __init__(self, known: frozenset[str], *, is_normal: bool = False) -> None:
        self._known = set(known)
        self._is_normal = is_normal

    def write(self, type_: AvroType, namespace: str) -> Any:
        kind = type_.kind
        if kind == "union":
            return [self.write(branch, namespace) for branch in type_.branches]
        if kind in PRIMITIVES:
            return {"type": kind, **self._order_attributes(type_.attributes)} if type_.attributes else kind
        if kind in ("array", "map"):
            member = "items" if kind == "array" else "values"
            below = self.write(type_.branches[0], namespace)
            return {"type": kind, member: below, **self._order_attributes(type_.attributes)}
        if type_.name in self._known:
            is_near = not self._is_normal and type_.namespace == namespace
            return type_.simple_name if is_near else type_.name
        self._known.add(type_.name)
        return self._write_named(type_, namespace)

    def _write_named(self, type_: AvroType, namespace: str) -> dict[str, Any]:
        document: dict[str, Any] = {"type": type_.kind}
        if self._is_normal:
            document["name"] = type_.name
        else:
            document["name"] = type_.simple_name
            if type_.namespace != namespace:
                document["namespace"] = type_.namespace
        if type_.doc is not None:
            document["doc"] = type_.doc
        if type_.kind == "enum":
            document["symbols"] = list(type_.symbols)
            if type_.default is not None:
                document["default"] = type_.default
        elif type_.kind == "fixed":
            document["size"] = type_.size_bytes
        else:
            document["fields"] = [self._write_field(field_, type_.namespace) for field_ in type_.fields]
        document |= self._order_attributes(type_.attributes)
        if type_.aliases:
            document["aliases"] = self._write_aliases(type_)
        return document

    def _write_aliases(self, type_: AvroType) -> list[str]:
        if self._is_normal:
            return sorted(type_.aliases)
        parts = [(alias, *alias.rpartition(".")[::2]) for alias in type_.aliases]
        return [name if space == type_.namespace else alias for alias, space, name in parts]

    def _write_field(self, field_: AvroField, namespace: str) -> dict[str, Any]:
        document: dict[str, Any] = {"name": field_.name, "type": self.write(field_.type, namespace)}
        if field_.doc is not None:
            document["doc"] = field_.doc
        if field_.default is not ABSENT:
            document["default"] = field_.default
        if field_.order != "ascending":
            document["order"] = field_.order
        if field_.aliases:
            document["aliases"] = sorted(field_.aliases) if self._is_normal else list(field_.aliases)
        return document | self._order_attributes(field_.attributes)

    def _order_attributes(self, attributes: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(attributes.items())) if self._is_normal else attributes


def fits(type_: AvroType, value: Any) -> bool:
    """Return whether a JSON value is a valid default of a type; of a union, of one of its branches."""
    return _fits(type_, value, {})


def _fits(type_: AvroType, value: Any, known: dict[tuple[int, int], bool]) -> bool:
    """Return the same as ``fits``; ``known`` has earlier results, as several branches of unions lead to the
    same values.
    """
    kind = type_.kind
    if kind in _FITS:
        return _FITS[kind](value)
    key = id(type_), id(value)
    if key in known:
        return known[key]
    found = False
    if kind == "union":
        found = any(_fits(branch, value, known) for branch in type_.branches)
    elif kind in ("array", "map"):
        below = value if kind == "array" else list(value.values()) if isinstance(value, dict) else None
        found = isinstance(below, list) and all(_fits(type_.branches[0], item, known) for item in below)
    elif isinstance(value, dict):
        found = all(
            _fits(field_.type, value[field_.name], known) if field_.name in value else field_.default is not ABSENT
            for field_ in type_.fields
        )
    known[key] = found
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole(value: Any, maximum: int) -> bool:
    return type(value) is int and -maximum - 1 <= value <= maximum


_FITS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": lambda value: _is_whole(value, _INT_MAX),
    "long": lambda value: _is_whole(value, _LONG_MAX),
    "float": _is_number,
    "double": _is_number,
    **dict.fromkeys(("bytes", "string", "enum", "fixed"), lambda value: isinstance(value, str)),
}

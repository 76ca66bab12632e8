"""JSON Schema (drafts 4 to 7, 2019-09 and 2020-12) as typed parts, as registries compare it.

A schema with keywords for several types becomes a combination (``allOf``) of one part for each type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from .parsed import InvalidSchema, ResolvedReference, parse_json, write_json

ABSENT: Final = object()
KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "array": frozenset({"items", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "prefixItems"}),
    "object": frozenset({
        "properties", "required", "minProperties", "maxProperties", "dependencies", "patternProperties",
        "additionalProperties", "propertyNames", "dependentRequired", "dependentSchemas",
    }),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
}  # fmt: skip
"""Keywords that imply the type of a schema without ``type``."""
TYPES: Final = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})
COMBINATIONS: Final = ("allOf", "anyOf", "oneOf")
_COUNTS: Final = (
    "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties", "minContains", "maxContains",
)  # fmt: skip
_NUMBERS: Final = ("minimum", "maximum", "multipleOf")
_MODERN: Final = ("2019-09", "2020-12")
_ANNOTATIONS: Final = frozenset({"title", "description", "$comment", "default", "examples", "$id", "$schema", "$defs"})


@dataclass(slots=True, eq=False)
class JsonPart:
    """One part of a schema. ``kind`` is a type, ``enum``, ``const``, ``not``, ``if``, ``empty``, ``true``, ``false``,
    or ``combined``."""

    kind: str
    raw: Any
    is_integer: bool = False
    criterion: str = ""
    """The keyword of a combination: ``allOf``, ``anyOf`` or ``oneOf``."""
    parts: list[JsonPart] = field(default_factory=list)
    """The schemas of a combination, or of ``not``."""
    properties: dict[str, JsonPart] = field(default_factory=dict)
    patterns: dict[str, JsonPart] = field(default_factory=dict)
    dependencies: dict[str, JsonPart] = field(default_factory=dict)
    items: list[JsonPart] | None = None
    """The schemas of an array's items by position."""
    item: JsonPart | None = None
    """The schema of all items of an array."""
    additional: JsonPart | None = None
    """The schema of other properties, or of other items."""
    permits_additional: bool = True
    unevaluated: JsonPart | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """Id, title, description and default, if the schema is this part alone."""
    target: JsonPart | None = None
    """The schema that a reference names."""

    @property
    def is_empty(self) -> bool:
        """Whether every value is valid."""
        return self.kind in ("empty", "true")

    @property
    def required(self) -> frozenset[str]:
        """The names of properties that an object has to have."""
        return frozenset(self.raw.get("required", ()))

    def get(self, name: str) -> Any:
        """Return a keyword of the schema; None without it."""
        return self.raw.get(name) if isinstance(self.raw, dict) else None

    def resolve(self) -> JsonPart:
        """Return the part that a reference leads to."""
        part, seen = self, set[int]()
        while part.target is not None and id(part) not in seen:
            seen.add(id(part))
            part = part.target
        return part


class JsonSchema:
    """A parsed schema; ``root`` is built when it is first compared or checked."""

    kind: Final = "JSON"

    def __init__(self, document: Any, references: Sequence[ResolvedReference]) -> None:
        self._document = document
        self._references = references
        self._root: JsonPart | None = None
        self.text = write_json(document)

    @property
    def title(self) -> str | None:
        """The title of the schema, which stands for the name of a record; None without one."""
        title = self._document.get("title") if isinstance(self._document, dict) else None
        return title if isinstance(title, str) else None

    def is_same(self, other: JsonSchema) -> bool:
        """Return whether both schemas, and the schemas that they refer to, have the same text."""
        texts = [[reference.text for reference in one._references] for one in (self, other)]
        return self.text == other.text and texts[0] == texts[1]

    @property
    def root(self) -> JsonPart:
        """The schema as parts. Raises InvalidSchema."""
        if self._root is None:
            self._root = _Builder(self._document, self._references).build_root()
        return self._root

    def normalize(self) -> str:
        """Return the text with the members of objects sorted."""
        return write_json(_sort(self._document))

    def format_text(self, form: str) -> str:
        """Return the text; JSON Schema has no other form than this one."""
        return self.text

    def require_valid(self) -> None:
        """Check keywords and references; raises InvalidSchema."""
        if self.root.kind == "reference" and self.root.resolve().target is not None:
            raise InvalidSchema("$ref: refers to itself")


def parse_json_schema(text: str, references: Sequence[ResolvedReference] = ()) -> JsonSchema:
    """Return the schema of a text. Raises InvalidSchema."""
    document = parse_json(text)
    if not isinstance(document, (dict, bool)):
        raise InvalidSchema(f"a schema is an object or a boolean, not {write_json(document)[:100]}")
    return JsonSchema(document, references)


def _sort(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sort(value[name]) for name in sorted(value)}
    return [_sort(item) for item in value] if isinstance(value, list) else value


class _Builder:
    def __init__(self, document: Any, references: Sequence[ResolvedReference]) -> None:
        self._root = document
        self._documents: dict[str, Any] = {}
        for reference in references:
            found = parse_json(reference.text)
            self._documents[reference.name] = found
            name = _id_of(found)
            if name:
                self._documents.setdefault(name.rstrip("#"), found)
        self._anchors: dict[tuple[int, str], Any] = {}
        self._known: dict[int, JsonPart] = {}
        """Parts by the identity of their JSON value."""
        for one in (document, *self._documents.values()):
            self._index_anchors(one)

    def _index_anchors(self, document: Any) -> None:
        left = [document]
        while left:
            value = left.pop()
            if isinstance(value, dict):
                for name in ("$anchor", "$id", "id"):
                    anchor = value.get(name)
                    if isinstance(anchor, str):
                        self._anchors.setdefault((id(document), anchor.removeprefix("#")), value)
                left += value.values()
            elif isinstance(value, list):
                left += value

    def build_root(self) -> JsonPart:
        return self._build(self._root, self._root)

    def _is_modern(self, document: Any) -> bool:
        draft = document.get("$schema") if isinstance(document, dict) else None
        return isinstance(draft, str) and any(name in draft for name in _MODERN)

    def _build(self, value: Any, document: Any) -> JsonPart:
        if isinstance(value, bool):
            return JsonPart("true" if value else "false", value)
        if not isinstance(value, dict):
            raise InvalidSchema(f"a schema is an object or a boolean, not {write_json(value)[:100]}")
        if id(value) not in self._known:
            part = self._known[id(value)] = JsonPart("empty", value)
            self._fill(part, value, document)
        return self._known[id(value)]

    def _fill(self, part: JsonPart, value: dict[str, Any], document: Any) -> None:
        """Set the kind of a part. Other parts may refer to it already, if it contains itself."""
        reference = value.get("$ref")
        if isinstance(reference, str):
            target = JsonPart("reference", value)
            target.target = self._find(reference, document)
            rest = {name: one for name, one in value.items() if name != "$ref"}
            if not (self._is_modern(document) and rest.keys() - _ANNOTATIONS):
                part.kind, part.target = "reference", target.target
                return
            parts = [target, *self._list_parts(rest, document)]
        else:
            parts = self._list_parts(value, document)
        if len(parts) == 1:
            for name in JsonPart.__slots__:
                setattr(part, name, getattr(parts[0], name))
        elif parts:
            part.kind, part.criterion = "combined", "allOf"
            part.parts = _sort_combined_first(parts)
        names = {"id": _id_of(value) or None, "title": value.get("title"), "description": value.get("description")}
        part.facts = {**names, "default": value.get("default")}

    def _list_parts(self, value: dict[str, Any], document: Any) -> list[JsonPart]:
        parts: list[JsonPart] = []
        if "enum" in value:
            if not isinstance(value["enum"], list):
                raise InvalidSchema("enum: has to be a list")
            parts.append(JsonPart("enum", value))
        for criterion in COMBINATIONS:
            if criterion in value:
                rows = value[criterion]
                if not isinstance(rows, list):
                    raise InvalidSchema(f"{criterion}: has to be a list")
                built = _sort_combined_first([self._build(row, document) for row in rows])
                parts.append(JsonPart("combined", value, criterion=criterion, parts=built))
        if "not" in value:
            parts.append(JsonPart("not", value, parts=[self._build(value["not"], document)]))
        if "const" in value:
            parts.append(JsonPart("const", value))
        if "if" in value:
            parts.append(JsonPart("if", value))
        if "type" in value:
            parts.append(self._build_types(value, document))
        else:
            parts += [
                self._build_type(kind, value, document) for kind, names in KEYWORDS.items() if names & value.keys()
            ]
        return parts

    def _build_types(self, value: dict[str, Any], document: Any) -> JsonPart:
        types = value["type"]
        if isinstance(types, str):
            return self._build_type(types, value, document)
        if not isinstance(types, list) or not all(isinstance(one, str) for one in types):
            raise InvalidSchema(f"type: has to be a name or a list of names, not {write_json(types)[:100]}")
        parts = [self._build_type(one, value, document) for one in types]
        return JsonPart("combined", value, criterion="anyOf", parts=parts)

    def _build_type(self, type_: str, value: dict[str, Any], document: Any) -> JsonPart:
        if type_ not in TYPES:
            raise InvalidSchema(f"unknown type: [{type_[:100]}]")
        kind = "number" if type_ == "integer" else type_
        part = JsonPart(kind, value, is_integer=type_ == "integer")
        for name in (*_COUNTS, *_NUMBERS):
            number = value.get(name)
            if number is not None and (isinstance(number, bool) or not isinstance(number, (int, float))):
                raise InvalidSchema(f"{name}: has to be a number")
        if kind == "object":
            self._fill_object(part, value, document)
        elif kind == "array":
            self._fill_array(part, value, document)
        elif kind == "string" and not isinstance(value.get("pattern", ""), str):
            raise InvalidSchema("pattern: has to be a text")
        return part

    def _fill_object(self, part: JsonPart, value: dict[str, Any], document: Any) -> None:
        required = value.get("required", [])
        if isinstance(required, bool):
            # draft 3 has "required" at the property itself
            required = []
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise InvalidSchema("required: has to be a list of names")
        for name, built in (("properties", part.properties), ("patternProperties", part.patterns)):
            built |= {key: self._build(one, document) for key, one in _members_of(value, name)}
        part.raw = {**value, "required": required}
        lists: dict[str, list[str]] = {}
        for name in ("dependencies", "dependentRequired", "dependentSchemas"):
            for key, one in _members_of(value, name):
                if isinstance(one, list):
                    lists[key] = [str(item) for item in one]
                else:
                    part.dependencies[key] = self._build(one, document)
        part.raw["dependencies"] = lists
        self._fill_additional(part, value.get("additionalProperties"), document)
        if "unevaluatedProperties" in value:
            part.unevaluated = self._build(value["unevaluatedProperties"], document)

    def _fill_array(self, part: JsonPart, value: dict[str, Any], document: Any) -> None:
        items, prefix = value.get("items"), value.get("prefixItems")
        additional = value.get("additionalItems")
        if isinstance(prefix, list) and not isinstance(items, list):
            items, additional = prefix, items
        if isinstance(items, list):
            part.items = [self._build(one, document) for one in items]
        elif items is not None:
            part.item = self._build(items, document)
        self._fill_additional(part, additional, document)
        if "unevaluatedItems" in value:
            part.unevaluated = self._build(value["unevaluatedItems"], document)

    def _fill_additional(self, part: JsonPart, value: Any, document: Any) -> None:
        if isinstance(value, bool):
            part.permits_additional = value
        elif value is not None:
            part.additional = self._build(value, document)

    def _find(self, reference: str, document: Any) -> JsonPart:
        place, _, fragment = reference.partition("#")
        found = document
        if place:
            base = _id_of(document)
            if place not in self._documents and place != base:
                local = self._anchors.get((id(document), place))
                name = next((one for one in self._documents if one.endswith("/" + place)), None)
                if local is None and name is None:
                    raise InvalidSchema(f"$ref {reference[:200]!r}: not among the references")
                found = local if local is not None else self._documents[name or ""]
            elif place != base:
                found = self._documents[place]
        value = found
        if fragment.startswith("/"):
            for part in fragment[1:].split("/"):
                value = _follow_step(value, unquote(part).replace("~1", "/").replace("~0", "~"), reference)
        elif fragment:
            value = self._anchors.get((id(found), fragment), ABSENT)
            if value is ABSENT:
                raise InvalidSchema(f"$ref {reference[:200]!r}: does not exist")
        return self._build(value, found)


def _follow_step(value: Any, name: str, reference: str) -> Any:
    if isinstance(value, dict) and name in value:
        return value[name]
    if isinstance(value, list) and name.isascii() and name.isdigit() and int(name[:9]) < len(value):
        return value[int(name[:9])]
    raise InvalidSchema(f"$ref {reference[:200]!r}: does not exist")


def _id_of(value: Any) -> str:
    name = (value.get("$id") or value.get("id")) if isinstance(value, dict) else None
    return name if isinstance(name, str) else ""


def _members_of(value: dict[str, Any], name: str) -> Iterable[tuple[str, Any]]:
    members = value.get(name, {})
    if not isinstance(members, dict):
        raise InvalidSchema(f"{name}: has to be an object")
    return members.items()


def _sort_combined_first(parts: list[JsonPart]) -> list[JsonPart]:
    return sorted(parts, key=lambda part: part.kind != "combined")

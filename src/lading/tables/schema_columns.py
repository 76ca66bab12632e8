"""Columns straight from a schema: fields of Avro, Protobuf or JSON Schema as members of the payload, with types."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path as FilePath
from typing import Any, Final, Literal

from ..client.bulk import read_arrow
from ..columns.assemble import to_decoded
from ..columns.contract import FIELD_TYPES, PayloadColumn, parse_payload_type, write_field_name
from ..columns.field_names import choose_column_name
from ..model.errors import LocalError, SettingError
from ..model.lazy_dataclass import lazy_dataclass
from ..model.toml import toml_key, toml_text
from ..payloads.avro_datum import find_scale
from ..payloads.avro_program import is_record
from ..payloads.form import KINDS, PayloadForm, SchemaText, find_message, list_schemas
from ..payloads.paths import PAYLOAD, Path
from ..payloads.protobuf_json import WELL_KNOWN
from ..registry.payload_form import (
    SUFFIXES,
    RegistrySchemas,
    parse_payload_form,
    parse_schema_imports,
    read_schema_file,
)
from ..schemas.avro import AvroSchema, AvroType
from ..schemas.json_schema import JsonPart, JsonSchema
from ..schemas.parsed import InvalidSchema, ParsedSchema
from ..schemas.protobuf_types import FieldType, MessageType
from ..schemas.subjects import build_subject, list_record_names

_WORDS: Final = {
    "null": "string", "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double",
    "bytes": "binary", "fixed": "binary", "string": "string", "enum": "string",
}  # fmt: skip
_LOGICAL: Final = {
    ("int", "date"): "date", ("long", "timestamp-millis"): "timestamp", ("long", "timestamp-micros"): "timestamp",
}  # fmt: skip
_DIGITS_MAX: Final = 38
_FIELD_NAME: Final = re.compile(r"[^,<>()]+")
COLUMNS_MAX: Final = 1_000
SUBJECTS_SHOWN: Final = 20
SAMPLE_MESSAGES: Final = 1_000
"""The first messages of a topic, whose schemas are looked at."""
PROTOBUF: Final = KINDS["protobuf"]
TYPE_FIELDS_MAX: Final = 1_000
"""Fields of structs in the type of one column; above it is JSON text. Types that refer to each other have far more."""
LEVELS_MAX: Final = 50
"""Records inside one another whose fields become columns, or fields of structs."""


Field = tuple[Path, str, bool]
"""The path of a field, the word of its type, and whether it is always there."""


@lazy_dataclass(frozen=True, slots=True)
class FieldSchema:
    """A schema whose fields become columns: a record of Avro, a message of Protobuf, or an object of JSON Schema."""

    root: AvroType | MessageType | JsonPart
    format: str

    def list_fields(self, wanted: Path = ()) -> Iterator[Field]:
        """Yield the fields that are not records themselves, and those of records; with ``wanted`` those on its way."""
        return _LIST_FIELDS[self.format](self.root, (), True, (), wanted)


def read_field_schema(file: FilePath, message: str = "") -> FieldSchema:
    """Return the schema of an .avsc, .json, .proto or .desc file; ``message`` is one of Protobuf, else the first.

    Raises LocalError if it cannot be read, or has no fields.
    """
    kind = KINDS[SUFFIXES.get(file.suffix.lower(), "avro")]
    try:
        text, imports = read_schema_file(file, message)
        schema = SchemaText(kind, text, parse_schema_imports(imports)).parse()
        schema.require_valid()
        found = find_field_schema(schema, find_message(schema, message))
    except SettingError as error:
        raise LocalError(f"--schema {file}: {error}") from None
    except InvalidSchema as error:
        raise LocalError(f"--schema {file}: {error}; name a schema of {kind.capitalize()}") from None
    if found is None:
        what = f"a {schema.root.kind}" if isinstance(schema, AvroSchema) else "it"
        raise LocalError(f"--schema {file}: {what} has no fields; name the schema of a record or object")
    return found


def fetch_field_schema(
    registry: str, name: str, find_used: Callable[[PayloadForm], str] = lambda form: ""
) -> tuple[FieldSchema, str]:
    """Return a schema of a registry, by its id or its subject, whose newest version counts, and the schema in words.

    ``find_used`` returns the message of a schema of Protobuf, as ``find_used_message``; by default the first.
    Raises LocalError if the schema does not exist, or has no fields.
    """
    form = parse_payload_form({"format": "schema", "registry": registry})
    source = form.source
    assert isinstance(source, RegistrySchemas)
    words, schema = f"id {name}", None
    if name.isascii() and name.isdigit():
        schema = source.find_by_id(int(name))
    elif newest := source.find_newest(name):
        words, schema = f"version {newest[0]} of {name}", newest[1]
    if schema is None:
        raise LocalError(
            f"schema {name!r}: registry {registry} does not have it; name a subject or an id with --schema"
        )
    found = find_field_schema(schema, find_message(schema, find_used(form) if schema.kind == PROTOBUF else ""))
    if found is None:
        raise LocalError(
            f"schema {name!r}: it is of {schema.kind} and has no fields; name the schema of a record or object"
        )
    return found, words


def sample_field_schemas(
    url: str, topic: str, form: PayloadForm, states: Literal["available", "all"]
) -> list[FieldSchema]:
    """Return each schema that the first messages of a topic use and that has fields, once."""
    found: dict[int, FieldSchema] = {}
    for schema, message in _sample_schemas(url, topic, form, states):
        one = find_field_schema(schema, message)
        if one is not None:
            found[id(one.root)] = one
    return list(found.values())


def _sample_schemas(
    url: str, topic: str, form: PayloadForm, states: Literal["available", "all"]
) -> Iterator[tuple[ParsedSchema, MessageType | None]]:
    """Yield the schemas of the first messages of a topic, and messages of Protobuf, those of each batch once."""
    sample = read_arrow(
        url, topic, "payload, headers", states=states, limit=SAMPLE_MESSAGES, verify_checksum=False
    )  # fmt: skip
    for batch in sample.to_batches():
        located = to_decoded(batch, form.header_keys).located
        yield from list_schemas(form, batch.column("payload"), located)


def find_used_message(url: str, topic: str, form: PayloadForm, states: Literal["available", "all"]) -> str:
    """Return the name of the message of Protobuf of the first messages of a topic; empty without any."""
    roots = (schema.root for schema in sample_field_schemas(url, topic, form, states))
    return next((root.name for root in roots if isinstance(root, MessageType)), "")


def find_used_records(url: str, topic: str, form: PayloadForm, states: Literal["available", "all"]) -> list[str]:
    """Return the record names of a topic's first messages, each once: names of subjects may be derived from them."""
    names: dict[str, None] = {}
    for schema, message in _sample_schemas(url, topic, form, states):
        names |= dict.fromkeys(list_record_names(schema) if message is None else [message.name])
    return list(names)


def find_used_subject(
    registry: str, topic: str, strategy: str, find_records: Callable[[PayloadForm], list[str]]
) -> tuple[str, str]:
    """Return the subject of the record of a topic's messages by a strategy other than TOPIC, and the record's name.

    Raises LocalError, which names them, if the messages have several, or none.
    """
    records = find_records(parse_payload_form({"format": "schema", "registry": registry}))
    subjects = [(subject, one) for one in records if (subject := build_subject(strategy, topic, one))]
    if len(subjects) != 1:
        found = ", ".join(subject for subject, _ in subjects[:SUBJECTS_SHOWN])
        raise LocalError(
            f"topic {topic!r}: its messages have records of {len(subjects)} subjects: {found}; name one with --schema"
            if subjects
            else f"topic {topic!r}: no message names a schema with a record; name a subject with --schema"
        )
    return subjects[0]


def find_field_schema(schema: ParsedSchema, message: MessageType | None) -> FieldSchema | None:
    """Return a schema, or its message, as one with fields; None for another one."""
    if message is not None:
        return FieldSchema(message, "protobuf")
    if isinstance(schema, AvroSchema) and is_record(schema.root):
        return FieldSchema(schema.root, "avro")
    if isinstance(schema, JsonSchema) and _list_properties(schema.root):
        return FieldSchema(_list_choices(schema.root)[0][0], "json")
    return None


def find_type_word(schemas: Iterable[FieldSchema], path: Path) -> str | None:
    """Return the word of the type of a member in schemas that have it, string if it has several; None without any."""
    words = {word for schema in schemas for known, word, _ in schema.list_fields(path) if known == path}
    return None if not words else words.pop() if len(words) == 1 else "string"


def list_schema_columns(schema: FieldSchema, taken: set[str]) -> list[PayloadColumn]:
    """Return a column for each field that is not a record, and for those of records, up to COLUMNS_MAX.

    Names in lower case are noted in ``taken``, and are not given twice. A field that cannot be null is required.
    """
    columns: list[PayloadColumn] = []
    for path, word, required in schema.list_fields():
        if len(columns) == COLUMNS_MAX:
            break
        arrow_type, is_json = parse_payload_type(word)
        name = path[-1] if path[-1].lower() not in taken else "_".join((PAYLOAD, *path))
        columns.append(PayloadColumn(choose_column_name(name, taken), path, arrow_type, required, None, is_json))
    return columns


def write_schema_section(
    schema: FieldSchema, source: Mapping[str, str], taken: set[str], message: str = ""
) -> tuple[list[str], list[str]]:
    """Return the lines of the section [payload], and those of the columns in [headers].

    ``source`` is the key of the section that says the schema, ``schema`` or ``registry``.
    """
    lines = []
    for column in list_schema_columns(schema, taken):
        place = PAYLOAD if column.path == (column.name,) else column.text
        words = [column.word, *(["required"] if column.required else []), "from", place]
        lines.append(f"{toml_key(column.name)} = {toml_text(' '.join(words))}")
    if next(islice(schema.list_fields(), COLUMNS_MAX, None), None) is not None:
        lines.append(f"# only the first {COLUMNS_MAX:,} fields are listed")
    keys = {"format": schema.format, **source, **({"message": message} if message else {})}
    return ["[payload]", *(f"{key} = {toml_text(value)}" for key, value in keys.items()), ""], lines


def add_schema_columns(section: str, schema: FieldSchema, source: Mapping[str, str], message: str = "") -> str:
    """Return a section [headers] with the columns of a schema at its end, and the section [payload] before it.

    ``source`` and ``message`` are as for ``write_schema_section``.
    """
    taken = {name.lower() for name in (*FIELD_TYPES, *tomllib.loads(section)["headers"])}
    before, columns = write_schema_section(schema, source, taken, message)
    return "\n".join([*before, section + "\n".join(columns)]) + "\n"


_MESSAGE_WORDS: Final = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), "int"),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), "bigint"),
    **dict.fromkeys(("uint64", "fixed64"), "decimal(20,0)"), "float": "float", "double": "double", "bool": "boolean",
    "string": "string", "bytes": "binary", "enum": "string",
}  # fmt: skip
_WELL_KNOWN_WORDS: Final = {
    "Timestamp": "timestamp", "Duration": "string", "DoubleValue": "double", "FloatValue": "float",
    "Int64Value": "bigint", "UInt64Value": "decimal(20,0)", "Int32Value": "int", "UInt32Value": "bigint",
    "BoolValue": "boolean", "StringValue": "string", "BytesValue": "binary",
}  # fmt: skip


def _list_message_fields(
    message: MessageType, path: Path, required: bool, above: tuple[MessageType, ...], wanted: Path
) -> Iterator[Field]:
    """Yield the same of a message; a field without presence is always there if its message is."""
    messages = (*above, message)
    for field in message.fields:
        place = (*path, field.name)
        if wanted and wanted[: len(place)] != place:
            continue
        inner = None if field.is_repeated else field.message
        is_inside = inner is not None and inner.fields and not inner.name.startswith(WELL_KNOWN)
        if inner is not None and is_inside and inner not in messages and len(messages) < LEVELS_MAX:
            yield from _list_message_fields(inner, place, required and field.is_required, messages, wanted)
        else:
            needed = required and (not field.has_presence or field.is_required)
            room = iter(range(TYPE_FIELDS_MAX))
            word = _propose_of_message(field, messages, room, nested=False)
            yield place, "json" if next(room, None) is None else word, needed


def _propose_of_message(field: FieldType, above: tuple[MessageType, ...], room: Iterator[int], *, nested: bool) -> str:
    """Return the word of a column type; ``room`` counts the fields of structs, and is empty after too many."""
    text = "string" if nested else "json"
    if field.is_map:
        assert field.message is not None
        return f"map<string,{_propose_of_message(field.message.by_number[2], above, room, nested=True)}>"
    if field.is_repeated:
        return f"array<{_propose_of_message(field.item, above, room, nested=True)}>"
    message = field.message
    if message is None:
        return _MESSAGE_WORDS[field.kind]
    if message.name.startswith(WELL_KNOWN):
        return _WELL_KNOWN_WORDS.get(message.name.removeprefix(WELL_KNOWN), text)
    if not message.fields or message in above or len(above) >= LEVELS_MAX:
        return text
    below = (*above, message)
    fields = (
        f"{write_field_name(one.name)}:{_propose_of_message(one, below, room, nested=True)}"
        for one, _ in zip(message.fields, room, strict=False)
    )
    return f"struct<{','.join(fields)}>"


def _list_fields(
    type_: AvroType, path: Path, required: bool, above: tuple[AvroType, ...], wanted: Path
) -> Iterator[Field]:
    """Yield path, type and whether it is always there, of each field; ``above`` are the records around ``type_``."""
    records = (*above, type_)
    for field in type_.fields:
        inner, is_optional = _without_null(field.type)
        place, needed = (*path, field.name), required and not is_optional
        if wanted and wanted[: len(place)] != place:
            continue
        # a record inside of itself has no end
        is_outside = not any(inner is one for one in records) and len(records) < LEVELS_MAX
        if is_record(inner) and inner.fields and is_outside:
            yield from _list_fields(inner, place, needed, records, wanted)
        else:
            room = iter(range(TYPE_FIELDS_MAX))
            word = _propose(inner, records, room, nested=False)
            yield place, "json" if next(room, None) is None else word, needed


def _without_null(type_: AvroType) -> tuple[AvroType, bool]:
    """Return the one type of an optional value, and whether it is optional; else the type."""
    if type_.kind != "union":
        return type_, type_.kind == "null"
    others = [branch for branch in type_.branches if branch.kind != "null"]
    is_optional = len(others) < len(type_.branches)
    return (others[0] if len(others) == 1 else type_), is_optional


def _propose(type_: AvroType, above: tuple[AvroType, ...], room: Iterator[int], *, nested: bool) -> str:
    """Return the word of a column type; values of several types are JSON text, which inside others is a string.

    ``room`` counts the fields of structs, and is empty after too many.
    """
    text = "string" if nested else "json"
    inner, _ = _without_null(type_)
    if any(inner is one for one in above) or inner.kind == "union" or len(above) >= LEVELS_MAX:
        return text
    below = (*above, inner)
    if inner.kind in ("array", "map"):
        item = _propose(inner.branches[0], below, room, nested=True)
        return f"array<{item}>" if inner.kind == "array" else f"map<string,{item}>"
    if is_record(inner):
        if not inner.fields or not all(_FIELD_NAME.fullmatch(field.name) for field in inner.fields):
            return text
        fields = (
            f"{write_field_name(one.name)}:{_propose(one.type, below, room, nested=True)}"
            for one, _ in zip(inner.fields, room, strict=False)
        )
        return f"struct<{','.join(fields)}>"
    attributes: dict[str, Any] = inner.attributes
    scale = find_scale(inner)
    if scale is not None and attributes["precision"] <= _DIGITS_MAX:
        return f"decimal({attributes['precision']},{scale})"
    return _LOGICAL.get((inner.kind, str(attributes.get("logicalType"))), _WORDS[inner.kind])


_JSON_FORMATS: Final = {"date-time": "timestamp", "date": "date"}
"""Texts whose ``format`` is one of these have the form that columns of this type read (RFC 3339)."""
_JSON_VALUES: Final = {str: "string", bool: "boolean", int: "bigint", float: "double"}
_CHOICES: Final = ("anyOf", "oneOf")


def _list_json_fields(
    part: JsonPart, path: Path, required: bool, above: tuple[JsonPart, ...], wanted: Path
) -> Iterator[Field]:
    """Yield the same of the properties of an object; one that is not required, or may be null, is not always there."""
    objects = (*above, part)
    for name, (inner, is_needed) in _list_properties(part).items():
        place = (*path, name)
        if wanted and wanted[: len(place)] != place:
            continue
        choices, is_optional = _list_choices(inner)
        needed = required and is_needed and not is_optional
        only = choices[0] if len(choices) == 1 else None
        is_outside = not any(only is one for one in objects) and len(objects) < LEVELS_MAX
        if only is not None and is_outside and _list_properties(only):
            yield from _list_json_fields(only, place, needed, objects, wanted)
        else:
            room = iter(range(TYPE_FIELDS_MAX))
            word = _propose_of_json(inner, objects, room, nested=False)
            yield place, "json" if next(room, None) is None else word, needed


def _list_properties(part: JsonPart) -> dict[str, tuple[JsonPart, bool]]:
    """Return the properties of an object by name, and whether they are required; of ``allOf`` those of all parts."""
    properties, required = _collect_properties(part, ())
    return {name: (inner, name in required) for name, inner in properties.items()}


def _collect_properties(part: JsonPart, above: tuple[JsonPart, ...]) -> tuple[dict[str, JsonPart], set[str]]:
    choices, _ = _list_choices(part)
    if len(choices) != 1 or any(choices[0] is one for one in above):
        return {}, set()
    (only,) = choices
    if only.kind == "object":
        return dict(only.properties), set(only.required)
    properties: dict[str, JsonPart] = {}
    required: set[str] = set()
    for one in only.parts if only.kind == "combined" else ():
        inner, needed = _collect_properties(one, (*above, only))
        properties, required = inner | properties, required | needed
    return properties, required


def _list_choices(part: JsonPart) -> tuple[list[JsonPart], bool]:
    """Return what a value may be besides null, and whether it may be null."""
    found: list[JsonPart] = []
    left, seen, is_optional = [part], set[int](), False
    while left:
        one = left.pop().resolve()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if one.kind == "combined" and one.criterion in _CHOICES:
            left += reversed(one.parts)
        elif one.kind == "null":
            is_optional = True
        else:
            found.append(one)
    return found, is_optional


def _propose_of_json(part: JsonPart, above: tuple[JsonPart, ...], room: Iterator[int], *, nested: bool) -> str:
    """Return the word of a column type; values of several types are JSON text, which inside others is a string."""
    choices, _ = _list_choices(part)
    text = "string" if nested else "json"
    if len(above) >= LEVELS_MAX or any(one is known for one in choices for known in above):
        return text
    words = {_propose_of_choice(one, above, room, nested) for one in choices}
    return words.pop() if len(words) == 1 else text


def _propose_of_choice(part: JsonPart, above: tuple[JsonPart, ...], room: Iterator[int], nested: bool) -> str:
    text = "string" if nested else "json"
    below = (*above, part)
    if part.kind == "number":
        return "bigint" if part.is_integer else "double"
    if part.kind in ("enum", "const"):
        values = part.get("enum") if part.kind == "enum" else [part.get("const")]
        types = {type(value) for value in values if value is not None}
        return _JSON_VALUES.get(types.pop(), text) if len(types) == 1 else text
    if part.kind == "array" and part.item is not None:
        return f"array<{_propose_of_json(part.item, below, room, nested=True)}>"
    properties = _list_properties(part)
    if properties and all(map(_FIELD_NAME.fullmatch, properties)):
        fields = (
            f"{write_field_name(name)}:{_propose_of_json(inner, below, room, nested=True)}"
            for (name, (inner, _)), _ in zip(properties.items(), room, strict=False)
        )
        return f"struct<{','.join(fields)}>"
    if part.kind == "object" and part.additional is not None and not properties and not part.patterns:
        return f"map<string,{_propose_of_json(part.additional, below, room, nested=True)}>"
    if part.kind == "string":
        return _JSON_FORMATS.get(str(part.get("format")), "string")
    return "boolean" if part.kind == "boolean" else text


_LIST_FIELDS: Final[Mapping[str, Callable[[Any, Path, bool, tuple[Any, ...], Path], Iterator[Field]]]] = {
    "avro": _list_fields, "protobuf": _list_message_fields, "json": _list_json_fields,
}  # fmt: skip
"""Functions by the format of a schema."""

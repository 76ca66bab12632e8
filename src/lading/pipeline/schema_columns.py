"""Columns straight from a schema of Avro: each field of the writer as a member of the payload, with its type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path as FilePath
from typing import Any, Final

from ..columns.contract import PayloadColumn, parse_payload_type, write_field_name
from ..columns.field_names import choose_column_name
from ..model.errors import LocalError
from ..model.toml import toml_key, toml_text
from ..payloads.avro_datum import find_scale
from ..payloads.avro_program import is_record
from ..payloads.paths import PAYLOAD, Path
from ..schemas.avro import AvroSchema, AvroType, parse_avro
from ..schemas.parsed import InvalidSchema

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


def read_avro_file(file: FilePath) -> AvroSchema:
    """Return the schema of a file. Raises LocalError if it cannot be read, or is not one of Avro's records."""
    try:
        schema = parse_avro(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise LocalError(f"--schema {file}: cannot be read: {error}; name an .avsc file") from None
    except InvalidSchema as error:
        raise LocalError(f"--schema {file}: {error}; name a schema of Avro") from None
    if not is_record(schema.root):
        raise LocalError(f"--schema {file}: a {schema.root.kind} has no fields; name the schema of a record")
    return schema


def list_schema_columns(schema: AvroSchema, taken: set[str]) -> list[PayloadColumn]:
    """Return a column for each field that is not a record, and for those of records, up to COLUMNS_MAX.

    Names in lower case are noted in ``taken``, and are not given twice. A field that cannot be null is required.
    """
    columns: list[PayloadColumn] = []
    for path, word, required in _list_fields(schema.root, (), True, ()):
        if len(columns) == COLUMNS_MAX:
            break
        arrow_type, is_json = parse_payload_type(word)
        name = path[-1] if path[-1].lower() not in taken else "_".join((PAYLOAD, *path))
        columns.append(PayloadColumn(choose_column_name(name, taken), path, arrow_type, required, None, is_json))
    return columns


def write_schema_section(schema: AvroSchema, file: str, taken: set[str]) -> tuple[list[str], list[str]]:
    """Return the lines of the section [payload], and those of the columns in [headers]."""
    lines = []
    for column in list_schema_columns(schema, taken):
        source = PAYLOAD if column.path == (column.name,) else column.text
        words = [column.word, *(["required"] if column.required else []), "from", source]
        lines.append(f"{toml_key(column.name)} = {toml_text(' '.join(words))}")
    if next(islice(_list_fields(schema.root, (), True, ()), COLUMNS_MAX, None), None) is not None:
        lines.append(f"# only the first {COLUMNS_MAX:,} fields are listed")
    return ["[payload]", 'format = "avro"', f"schema = {toml_text(file)}", ""], lines


def _list_fields(
    type_: AvroType, path: Path, required: bool, above: tuple[AvroType, ...]
) -> Iterator[tuple[Path, str, bool]]:
    """Yield path, type and whether it is always there, of each field; ``above`` are the records around ``type_``."""
    records = (*above, type_)
    for field in type_.fields:
        inner, is_optional = _without_null(field.type)
        place, needed = (*path, field.name), required and not is_optional
        # a record inside of itself has no end
        if is_record(inner) and inner.fields and not any(inner is one for one in records):
            yield from _list_fields(inner, place, needed, records)
        else:
            yield place, _propose(inner, records, nested=False), needed


def _without_null(type_: AvroType) -> tuple[AvroType, bool]:
    """Return the one type of an optional value, and whether it is optional; else the type."""
    if type_.kind != "union":
        return type_, type_.kind == "null"
    others = [branch for branch in type_.branches if branch.kind != "null"]
    is_optional = len(others) < len(type_.branches)
    return (others[0] if len(others) == 1 else type_), is_optional


def _propose(type_: AvroType, above: tuple[AvroType, ...], *, nested: bool) -> str:
    """Return the word of a column type; values of several types are JSON text, which inside others is a string."""
    text = "string" if nested else "json"
    inner, _ = _without_null(type_)
    if any(inner is one for one in above) or inner.kind == "union":
        return text
    below = (*above, inner)
    if inner.kind in ("array", "map"):
        item = _propose(inner.branches[0], below, nested=True)
        return f"array<{item}>" if inner.kind == "array" else f"map<string,{item}>"
    if is_record(inner):
        if not inner.fields or not all(_FIELD_NAME.fullmatch(field.name) for field in inner.fields):
            return text
        fields = (f"{write_field_name(one.name)}:{_propose(one.type, below, nested=True)}" for one in inner.fields)
        return f"struct<{','.join(fields)}>"
    attributes: dict[str, Any] = inner.attributes
    scale = find_scale(inner)
    if scale is not None and attributes["precision"] <= _DIGITS_MAX:
        return f"decimal({attributes['precision']},{scale})"
    return _LOGICAL.get((inner.kind, str(attributes.get("logicalType"))), _WORDS[inner.kind])

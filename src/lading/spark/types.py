"""Conversion between Spark's types and Arrow's: the default schema, and a user's schema as what to decode.

Spark accepts a batch only if its Arrow schema equals the declared one exactly: names, order, types and nullability,
down to the fields inside a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..columns.contract import (
    TEXT_FIELDS,
    Encoding,
    HeaderColumn,
    PayloadColumn,
    Projection,
    did_you_mean,
    list_type_words,
    parse_encoding,
    parse_header_source,
    parse_payload_source,
    type_word,
    write_header_source,
)
from ..columns.instants import TIME_FIELDS
from ..model.batch import ORIGIN_TIMESTAMP, SCHEMA_WITH_ORIGIN
from ..model.errors import SettingError
from ..payloads.paths import Path, parse_path, write_path
from ..registry.payload_form import parse_payload_form
from .releases import to_arrow_schema, to_arrow_type

HEADERS = ArrayType(
    StructType(
        [
            StructField("key", StringType(), False),
            StructField("kind", ByteType(), False),
            StructField("value", BinaryType(), True),
        ]
    ),
    False,
)
"""The raw header column: ``array<struct<key string, kind tinyint, value binary>>``, in order, with duplicates."""

CHECKSUM_OK = "checksum_ok"
"""The name of a boolean column: whether the payload matches its checksum; null if the message has none."""

FIELD_TYPES: dict[str, DataType] = {
    "offset": LongType(),
    "state": ByteType(),
    "timestamp": TimestampType(),
    "id": BinaryType(),
    "checksum": LongType(),
    "key": BinaryType(),
    "headers": HEADERS,
    "payload": BinaryType(),
}
PLACE_TYPES: dict[str, DataType] = {"stream": StringType(), "topic": StringType(), "partition": IntegerType()}
KNOWN: dict[str, DataType] = {
    **PLACE_TYPES,
    **FIELD_TYPES,
    ORIGIN_TIMESTAMP: TimestampType(),
    CHECKSUM_OK: BooleanType(),
}
"""The types of all columns that are not headers, by name."""


def default_schema(headers: bool = True) -> StructType:
    """Return the schema of a read that declares none: the place a message was read from, and all its fields."""
    fields = [StructField(name, type_, False) for name, type_ in PLACE_TYPES.items()]
    for name, type_ in FIELD_TYPES.items():
        if headers or name != "headers":
            fields.append(StructField(name, type_, _may_be_null(name)))
    return StructType(fields)


def schema_of(projection: Projection) -> StructType:
    """Return the Spark schema of a projection, as in tables and the default read."""
    types = {name: KNOWN[name] for name in projection.fields}
    types |= {name: StringType() for name in projection.texts}
    types |= {column.name: from_arrow_type(column.type) for column in projection.typed}
    never_null = {name for name in projection.fields if name in PLACE_TYPES or not _may_be_null(name)}
    return StructType([StructField(name, types[name], name not in never_null) for name in projection.order])


def _may_be_null(field: str) -> bool:
    return field in TIME_FIELDS or SCHEMA_WITH_ORIGIN.field(field).nullable


@dataclass(frozen=True, slots=True)
class RequestedSchema:
    """A schema as what to decode and convert, which extra columns to compute, and the exact Arrow schema."""

    projection: Projection
    checksum_ok: bool
    schema: pa.Schema


def resolve_schema(
    schema: StructType,
    columns: Mapping[str, str],
    encodings: Mapping[str, str],
    payload: Mapping[str, str] | None = None,
) -> RequestedSchema:
    """Return what the user's schema requires.

    ``columns`` and ``encodings`` are the options ``column.*`` and ``encoding.*``, keyed by column name in lower case,
    because Spark's options do not preserve case; ``payload`` are those of ``payload.*``. Raises SettingError, which
    names the column and its possible types.
    """
    names = {field.name.lower() for field in schema.fields}
    for option, given in (("column", columns), ("encoding", encodings)):
        for name in given:
            if name not in names:
                raise SettingError(
                    f"option {option}.{name} names no column of the schema{did_you_mean(name, names)}; "
                    f"columns are {', '.join(field.name for field in schema.fields)}"
                )
    fields: list[str] = []
    texts: list[str] = []
    headers: list[HeaderColumn] = []
    members: list[PayloadColumn] = []
    order: list[str] = []
    checksum_ok = False
    for field in schema.fields:
        name = field.name
        header = columns.get(name.lower())
        path = parse_path(name) if header is None else parse_payload_source(name, header)
        if header is not None:
            header = parse_header_source(header)
        if path is not None:
            if name in KNOWN:
                raise SettingError(
                    f"column {name!r} is a field of every message; name the column of {write_path(path)} differently, "
                    f"by option column.my_{name}={write_path(path)}"
                )
            members.append(_payload_column(field, path, encodings.get(name.lower())))
            order.append(name)
            continue
        if header is None and name in TEXT_FIELDS and isinstance(field.dataType, StringType):
            fields.append(name)
            texts.append(name)
        elif header is None and name in KNOWN:
            _check_type(field)
            if name == CHECKSUM_OK:
                checksum_ok = True
                continue
            fields.append(name)
        else:
            headers.append(_header_column(field, header or name, encodings.get(name.lower())))
        order.append(name)
    projection = Projection(
        tuple(fields), tuple(headers), tuple(order), tuple(texts), tuple(members), parse_payload_form(payload)
    )
    return RequestedSchema(projection, checksum_ok, arrow_schema(schema))


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the only Arrow schema that Spark accepts for ``schema``."""
    return to_arrow_schema(schema)


def _check_type(field: StructField) -> None:
    known = KNOWN[field.name]
    # the words leave out which parts may be null: that is the user's to declare
    if field.dataType.simpleString() != known.simpleString():
        raise SettingError(
            f"column {field.name!r} is a field of every message and has the type {known.simpleString()}, "
            f"not {field.dataType.simpleString()}; for a header of that name set option "
            f"column.{field.name}={write_header_source(field.name)}"
        )


def _header_column(field: StructField, header: str, encoding: str | None) -> HeaderColumn:
    try:
        type_ = to_arrow_type(field.dataType)
        type_word(type_)
    except Exception:
        raise SettingError(
            f"column {field.name!r} would be read from the header {header!r}, and a header cannot become "
            f"{field.dataType.simpleString()}; it can become {list_type_words()}"
        ) from None
    made = Encoding.AUTO if encoding is None else parse_encoding(encoding)
    return HeaderColumn(field.name, header, type_, made, required=not field.nullable)


def _payload_column(field: StructField, path: Path, encoding: str | None) -> PayloadColumn:
    if encoding is not None:
        raise SettingError(
            f"option encoding.{field.name}: the column is read from {write_path(path)}, and the format of the payload "
            "says how values are encoded; remove the option"
        )
    try:
        return PayloadColumn(field.name, path, to_arrow_type(field.dataType), required=not field.nullable)
    except Exception:
        raise SettingError(
            f"column {field.name!r} would be read from {write_path(path)}, and a value of a payload cannot become "
            f"{field.dataType.simpleString()}; it can become {list_type_words()}, and arrays, structs and maps of them"
        ) from None

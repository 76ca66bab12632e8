"""The Arrow schema of a table: what Spark would show for the same columns, found without PySpark.

A Spark test holds it equal to what Spark's own types give, so that tables are the same whichever engine writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from ...columns.contract import PLACE_FIELDS, Projection
from ...columns.instants import TIME_FIELDS
from ...model.batch import HEADER_TYPE, SCHEMA_WITH_ORIGIN
from ...model.errors import LocalError

HEADERS_TYPE: Final = pa.list_(pa.field("element", HEADER_TYPE, nullable=False))
"""The raw header column, with Spark's name for what is in a list."""
FIELD_TYPES: Final[Mapping[str, pa.DataType]] = {
    **PLACE_FIELDS,
    **{field.name: field.type for field in SCHEMA_WITH_ORIGIN},
    # Spark has no unsigned integers and no binary of a fixed size
    "checksum": pa.int64(),
    "id": pa.binary(),
    "headers": HEADERS_TYPE,
}


def table_schema(projection: Projection) -> pa.Schema:
    """Return the schema of a table with these columns. Only fields that every message has may not be null.

    The time of a message is null if it is outside the years 1 to 9999.
    """
    nullable = {column.name: column.type for column in projection.typed}
    nullable |= {name: pa.string() for name in projection.texts}
    return pa.schema([
        pa.field(name, nullable[name]) if name in nullable else pa.field(name, FIELD_TYPES[name], _may_be_null(name))
        for name in projection.order
    ])  # fmt: skip


def _may_be_null(field: str) -> bool:
    return field in TIME_FIELDS or (field not in PLACE_FIELDS and SCHEMA_WITH_ORIGIN.field(field).nullable)


def conform(
    columns: Mapping[str, pa.Array[Any]], schema: pa.Schema, locate: Callable[[int], str] | None = None
) -> pa.RecordBatch:
    """Return the columns as a batch of exactly ``schema``.

    Raises LocalError if a column that may not be null holds a null; ``locate`` names the place of a row.
    """
    arrays = [as_field(columns[field.name], field, locate) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def as_field(array: pa.Array[Any], field: pa.Field[Any], locate: Callable[[int], str] | None = None) -> pa.Array[Any]:
    """Return the column as ``conform`` puts it into a batch."""
    if not field.nullable and array.null_count:
        place = "" if locate is None else f"{locate(array.is_null().index(True).as_py())}: "
        raise LocalError(
            f"{place}column {field.name!r} is declared NOT NULL, but a message has no value for it; "
            "declare it without NOT NULL"
        )
    if array.type == field.type:
        return array
    if pa.types.is_nested(field.type):
        return with_field_names(array, field.type)
    return array.cast(field.type)


def with_field_names(array: pa.Array[Any], type_: pa.DataType) -> pa.Array[Any]:
    """Return the same list, map or struct array under field names and null flags of ``type_``; nothing is copied."""
    if array.type == type_:
        return array
    if not pa.types.is_nested(type_):
        return array.cast(type_)
    nested: Any = array
    if pa.types.is_map(type_):
        return _with_map_names(array, type_)
    children = (
        [nested.values] if pa.types.is_list(type_) else [nested.field(at) for at in range(nested.type.num_fields)]
    )
    inner = [type_.field(at) for at in range(type_.num_fields)]
    if len(children) != len(inner):
        raise LocalError(f"a column of type {array.type} cannot become {type_}; cast it first")
    made = [with_field_names(child, part.type) for child, part in zip(children, inner, strict=True)]
    own = 2 if pa.types.is_list(type_) else 1
    if pa.types.is_struct(type_) and array.offset:
        # the children of a sliced struct are sliced already, its validity is not
        return pa.StructArray.from_arrays(made, fields=inner, mask=array.is_null() if array.null_count else None)
    return pa.Array.from_buffers(type_, len(array), array.buffers()[:own], array.null_count, array.offset, made)


def _with_map_names(array: pa.Array[Any], type_: Any) -> pa.Array[Any]:
    held: Any = array
    parts = [held.keys, with_field_names(held.items, type_.item_type)]
    entries = pa.StructArray.from_arrays(parts, fields=[type_.key_field, type_.item_field])
    return pa.Array.from_buffers(type_, len(array), array.buffers()[:2], array.null_count, array.offset, [entries])

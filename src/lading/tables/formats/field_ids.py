"""Field ids of an Iceberg table in its Parquet files (https://iceberg.apache.org/spec/#parquet).

Readers resolve the columns of such a file by these ids, also after a column was renamed. Files of earlier releases have
none, and readers resolve them by the table's name mapping, which not every engine knows: Daft 0.7 does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

FIELD_ID: Final = b"PARQUET:field_id"
"""The metadata of a field of Arrow that is its id in a Parquet file."""
FieldIds = Mapping[str, Any]
"""A field's id by its name, or a list of its id and the ids of the fields in it; JSON can express it."""
ELEMENT, KEY, VALUE = "element", "key", "value"
"""The parts of a list and a map, as the specification names them."""


def collect_ids(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ids of a schema, or a struct, in the JSON form of the specification."""
    return {field["name"]: _with_inner(field["id"], field["type"]) for field in schema["fields"]}


def _with_inner(field_id: int, type_: Any) -> Any:
    if isinstance(type_, str):
        return field_id
    if type_["type"] == "struct":
        return [field_id, collect_ids(type_)]
    if type_["type"] == "list":
        return [field_id, {ELEMENT: _with_inner(type_["element-id"], type_["element"])}]
    key, value = _with_inner(type_["key-id"], type_["key"]), _with_inner(type_["value-id"], type_["value"])
    return [field_id, {KEY: key, VALUE: value}]


def collect_mapped_ids(mapping: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the ids of a name mapping in the JSON form of the specification: of all names that a field has or had."""
    return {
        name: [field["field-id"], collect_mapped_ids(field["fields"])] if field.get("fields") else field["field-id"]
        for field in mapping
        for name in field["names"]
        if "field-id" in field
    }


def number_fields(schema: pa.Schema, ids: FieldIds) -> pa.Schema | None:
    """Return the columns with their ids; None if a field has none: a file has the ids of all, or of none."""
    fields = [_number_field(field, field.name, ids) for field in schema]
    kept = [field for field in fields if field is not None]
    return pa.schema(kept) if len(kept) == len(fields) else None


def _number_field(field: pa.Field[Any], name: str, ids: FieldIds) -> pa.Field[Any] | None:
    found = ids.get(name)
    if found is None:
        return None
    field_id, inner = (found, {}) if isinstance(found, int) else found
    type_ = _number_type(field.type, inner)
    if type_ is None:
        return None
    return pa.field(field.name, type_, field.nullable, {FIELD_ID: b"%d" % field_id})


def _number_type(type_: Any, ids: FieldIds) -> Any:
    inner = [_number_field(field, name, ids) for name, field in _list_inner(type_)]
    if any(field is None for field in inner):
        return None
    return _rebuild(type_, inner) if inner else type_


def _list_inner(type_: Any) -> list[tuple[str, Any]]:
    """Return the nested fields of a type, each with the name that the specification gives it."""
    if pa.types.is_struct(type_):
        return [(field.name, field) for field in type_]
    if pa.types.is_map(type_):
        return [(KEY, type_.key_field), (VALUE, type_.item_field)]
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return [(ELEMENT, type_.value_field)]
    return []


def _rebuild(type_: Any, inner: Sequence[Any]) -> Any:
    if pa.types.is_struct(type_):
        return pa.struct(inner)
    if pa.types.is_map(type_):
        return pa.map_(inner[0], inner[1], type_.keys_sorted)
    if pa.types.is_large_list(type_):
        return pa.large_list(inner[0])
    return pa.list_(inner[0], type_.list_size) if pa.types.is_fixed_size_list(type_) else pa.list_(inner[0])


def read_ids(schema: pa.Schema) -> dict[str, Any]:
    """Return the ids that the columns of a file have; empty if it has none."""
    return _read_inner_ids([(field.name, field) for field in schema])


def _read_inner_ids(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    ids = dict[str, Any]()
    for name, field in fields:
        held = (field.metadata or {}).get(FIELD_ID)
        if held is not None:
            inner = _read_inner_ids(_list_inner(field.type))
            ids[name] = [int(held), inner] if inner else int(held)
    return ids


def is_part_of(ids: FieldIds, whole: FieldIds) -> bool:
    """Return whether every field has the same id in ``whole``, and so has what is in it."""
    for name, found in ids.items():
        field_id, inner = (found, {}) if isinstance(found, int) else found
        other = whole.get(name)
        other_id, other_inner = (other, {}) if other is None or isinstance(other, int) else other
        if field_id != other_id or not is_part_of(inner, other_inner):
            return False
    return True

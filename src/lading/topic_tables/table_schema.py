"""The columns of a topic's table: Iceberg's fields with ids that never change, and the Arrow form of a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ..columns.instants import drop_unreadable_times
from ..columns.topic_columns import parse_topic_columns

FIRST_TYPED_ID: Final = 100
"""Ids of typed columns begin here: room for message fields to come."""
FIELD_ID: Final = b"PARQUET:field_id"
MESSAGE_FIELDS: Final = ("partition", "offset", "timestamp", "key", "state", "id", "checksum", "headers", "payload")
"""The fields of each message that are read beside the typed columns, in the order of the table."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a table: its name, its Iceberg field id, the type it is stored as; ``element_id`` is a list's."""

    name: str
    field_id: int
    type: pa.DataType
    is_required: bool = False
    element_id: int | None = None

    @property
    def arrow(self) -> pa.Field[Any]:
        """The Arrow field, whose metadata has the id for Parquet's writer."""
        return _arrow_field(self.name, self.type, self.field_id, not self.is_required)


def _arrow_field(name: str, type_: pa.DataType, field_id: int, is_nullable: bool = True) -> pa.Field[Any]:
    return pa.field(name, type_, is_nullable, {FIELD_ID: str(field_id).encode()})


_HEADER: Final = pa.struct(
    [
        _arrow_field("key", pa.string(), 10, is_nullable=False),
        _arrow_field("kind", pa.int32(), 11, is_nullable=False),
        _arrow_field("value", pa.binary(), 12),
    ]
)
_HEADERS: Final = pa.list_(_arrow_field("element", _HEADER, 9, is_nullable=False))

MESSAGE_COLUMNS: Final = (
    TableColumn("partition", 1, pa.int32(), is_required=True),
    TableColumn("offset", 2, pa.int64(), is_required=True),
    TableColumn("timestamp", 3, pa.timestamp("us", "UTC")),
    TableColumn("key", 4, pa.binary()),
    TableColumn("state", 5, pa.int32()),
    TableColumn("id", 6, pa.binary(16)),
    TableColumn("checksum", 7, pa.int64()),
    TableColumn("headers", 8, _HEADERS, element_id=9),
    TableColumn("payload", 13, pa.binary()),
)

_PRIMITIVES: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamptz",
}
_WIDENED: Final[Mapping[pa.DataType, pa.DataType]] = {pa.int8(): pa.int32(), pa.int16(): pa.int32()}
"""Types that Iceberg does not have, and those that hold their values."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """All columns of a table under one schema id, and the words that read the typed ones from messages."""

    schema_id: int
    columns: tuple[TableColumn, ...]
    words: str
    last_id: int
    """The highest field id that this schema or an earlier one uses."""

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of the files."""
        return pa.schema([column.arrow for column in self.columns])

    @property
    def selected(self) -> str:
        """The columns as ``read_arrow`` takes them."""
        return ", ".join((*MESSAGE_FIELDS, self.words) if self.words else MESSAGE_FIELDS)

    def document(self) -> dict[str, Any]:
        """The schema as Iceberg's metadata writes it."""
        fields = [
            {
                "id": column.field_id,
                "name": column.name,
                "required": column.is_required,
                "type": _describe_type(column.type, column.element_id),
            }
            for column in self.columns
        ]
        return {"type": "struct", "schema-id": self.schema_id, "fields": fields}

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch of ``selected`` as the files hold them."""
        columns = [_convert(batch.column(column.name), column.type) for column in self.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)


def _describe_type(type_: pa.DataType, element_id: int | None) -> Any:
    if isinstance(type_, pa.ListType):
        element = type_.value_field
        described = (
            {
                "type": "struct",
                "fields": [
                    {"id": _id_of(field), "name": field.name, "required": not field.nullable,
                     "type": _describe_type(field.type, None)}
                    for field in (element.type.field(at) for at in range(element.type.num_fields))
                ],
            }
            if isinstance(element.type, pa.StructType)
            else _describe_type(element.type, None)
        )  # fmt: skip
        return {
            "type": "list",
            "element-id": element_id,
            "element-required": not element.nullable,
            "element": described,
        }
    if isinstance(type_, pa.Decimal128Type):
        return f"decimal({type_.precision}, {type_.scale})"
    if isinstance(type_, pa.FixedSizeBinaryType):
        return f"fixed[{type_.byte_width}]"
    return _PRIMITIVES[type_]


def _id_of(field: pa.Field[Any]) -> int:
    return int((field.metadata or {})[FIELD_ID])


def _convert(column: Any, type_: pa.DataType) -> Any:
    if type_ == _HEADERS:
        return _convert_headers(column)
    if pa.types.is_timestamp(type_):
        return drop_unreadable_times(column.cast(type_))[0]
    if isinstance(type_, pa.ListType):
        offsets: Any = column.offsets
        return pa.ListArray.from_arrays(
            offsets, column.values.cast(type_.value_type), type=type_, mask=_null_mask(column)
        )
    return column.cast(type_)


def _convert_headers(column: Any) -> Any:
    """Return a headers column under the ids of the table; kinds are ints, as Iceberg has no type of one byte."""
    held = column.values
    keys, kinds, values = held.field("key"), held.field("kind").cast(pa.int32()), held.field("value")
    structs = pa.StructArray.from_arrays([keys, kinds, values], fields=list(_HEADER))
    return pa.ListArray.from_arrays(column.offsets, structs, type=_HEADERS, mask=_null_mask(column))


def _null_mask(column: Any) -> Any:
    return column.is_null() if column.null_count else None


def extend_schema(before: TableSchema | None, words: str) -> TableSchema:
    """Return the schema of a topic whose typed columns are ``words``, ``carrier string, delay int``.

    A column keeps the id that it has in the schema ``before`` if its name and type are the same; another one gets an
    id that was never used, ``before`` being the last of all. Raises SettingError for other words.
    """
    known = {} if before is None else {column.name: column for column in before.columns}
    next_id = FIRST_TYPED_ID if before is None else before.last_id + 1
    columns = list(MESSAGE_COLUMNS)
    for field in parse_topic_columns(words):
        stored = _WIDENED.get(field.type, field.type)
        is_list = isinstance(stored, pa.ListType)
        kept = known.get(field.name)
        if kept is not None and _is_alike(kept.type, stored):
            columns.append(kept)
            continue
        element_id = next_id + 1 if is_list else None
        if isinstance(stored, pa.ListType):
            stored = pa.list_(_arrow_field("element", stored.value_type, next_id + 1))
        columns.append(TableColumn(field.name, next_id, stored, element_id=element_id))
        next_id += 2 if is_list else 1
    return TableSchema(0 if before is None else before.schema_id + 1, tuple(columns), words, next_id - 1)


def _is_alike(held: pa.DataType, wanted: pa.DataType) -> bool:
    if isinstance(held, pa.ListType) and isinstance(wanted, pa.ListType):
        return bool(held.value_type == wanted.value_type)
    return held == wanted

"""Partitions of an Iceberg table: its spec, and the record of a file (https://iceberg.apache.org/spec/#partitioning)."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record

from ..partitions import COUNTED, Partitions

FIRST_ID = 1000
"""Of partition fields, as the specification counts them."""
PARTITION_AT = 3
"""Where a data file of pyiceberg, which is a record, has its partition."""


def partition_spec(partitions: Partitions, schema: Schema) -> PartitionSpec:
    """Return the spec of a new table with this schema."""
    fields = []
    for at, one in enumerate(partitions.fields):
        word = one.transform if one.count is None else f"{one.transform}[{one.count}]"
        source = schema.find_field(one.column).field_id
        fields.append(PartitionField(source, FIRST_ID + at, parse_transform(word), one.name))
    return PartitionSpec(*fields)


def spec_words(table: Table) -> list[str]:
    """Return the levels of a table as settings write them."""
    words = []
    for field in table.spec().fields:
        column = table.schema().find_column_name(field.source_id)
        transform, _, count = str(field.transform).rstrip("]").partition("[")
        if transform == "identity":
            words.append(str(column))
        elif transform in COUNTED:
            words.append(f"{transform}({count}, {column})")
        elif transform != "void":
            words.append(f"{transform}({column})")
    return words


def partition_record(partitions: Partitions, name: str, types: pa.Schema) -> Record:
    """Return the values of a file's partition as manifests hold them."""
    values = partitions.values_of(name)
    return Record(*(one.number(values[one.name], types.field(one.column).type) for one in partitions.fields))

"""Partitions of an Iceberg table: its spec, and the record of a file (https://iceberg.apache.org/spec/#partitioning)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record

from .manifest import DataFile
from .partitions import COUNTED, Partitions

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


def append_files(
    transaction: Transaction, partitions: Partitions, files: Sequence[DataFile], notes: dict[str, str]
) -> None:
    """Append files to a transaction, each in the partition that it was written for."""
    metadata = transaction.table_metadata
    if metadata.name_mapping() is None:
        mapping = metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
    unpartitioned = metadata.model_copy(
        update={"partition_specs": [UNPARTITIONED_PARTITION_SPEC], "default_spec_id": 0}
    )
    types = metadata.schema().as_arrow()
    with transaction._append_snapshot_producer(notes) as snapshot:
        for file in files:
            made = parquet_file_to_data_file(transaction._table.io, unpartitioned, f"{metadata.location}/{file.name}")
            made.spec_id = metadata.default_spec_id
            made[PARTITION_AT] = partition_record(partitions, file.partition, types)
            snapshot.append_data_file(made)

"""Partitions of an Iceberg table: its spec, and the record of a file (https://iceberg.apache.org/spec/#partitioning)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    _check_pyarrow_schema_compatible,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import SetDefaultSpecUpdate
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record

from .field_ids import read_ids
from .interface import AddedFile, Replacement
from .manifest import DataFile
from .partitions import COUNTED, Partitions

FIRST_ID = 1000
"""The first id of partition fields, as the specification counts them."""
VOID = "void"
"""The transform of a level that was dropped."""


def partition_spec(partitions: Partitions, schema: Schema) -> PartitionSpec:
    """Return the spec of a new table with this schema."""
    fields = []
    for at, one in enumerate(partitions.fields):
        word = one.transform if one.count is None else f"{one.transform}[{one.count}]"
        source = schema.find_field(one.column).field_id
        fields.append(PartitionField(source, FIRST_ID + at, parse_transform(word), one.name))
    return PartitionSpec(*fields)


def spec_words(table: Table, spec: PartitionSpec | None = None) -> list[str]:
    """Return the levels of a spec, by default the one for new files, as settings write them."""
    words = []
    for field in (table.spec() if spec is None else spec).fields:
        column = table.schema().find_column_name(field.source_id)
        transform, _, count = str(field.transform).rstrip("]").partition("[")
        if transform == "identity":
            words.append(str(column))
        elif transform in COUNTED:
            words.append(f"{transform}({count}, {column})")
        elif transform != VOID:
            words.append(f"{transform}({column})")
    return words


def find_spec(table: Table, words: Sequence[str]) -> PartitionSpec | None:
    """Return the newest of the table's specs that has these levels; None if it never had one."""
    specs = sorted(table.specs().values(), key=lambda spec: spec.spec_id, reverse=True)
    return next((spec for spec in [table.spec(), *specs] if spec_words(table, spec) == list(words)), None)


def are_of_spec(table: Table, partitions: Partitions, files: Sequence[DataFile]) -> bool:
    """Return whether files of earlier runs were surely written for these levels: names do not show a count."""
    names = [field.name for field in partitions.fields]
    others = [spec_words(table, spec) for spec in table.specs().values()]
    counted = [words for words in others if any(word.partition("(")[0] in COUNTED for word in words)]
    return len(counted) <= 1 and all(
        [level.partition("=")[0] for level in file.partition.split("/") if level] == names for file in files
    )


def partition_record(partitions: Partitions, spec: PartitionSpec, name: str, types: pa.Schema) -> Record:
    """Return the values of a file's partition as manifests hold them."""
    values = partitions.values_of(name)
    numbers = iter([one.number(values[one.name], types.field(one.column).type) for one in partitions.fields])
    # a level that was dropped from a table of version 1 stays in its specs, without values
    return Record(*(None if str(field.transform) == VOID else next(numbers) for field in spec.fields))


def append_files(
    transaction: Transaction,
    spec: PartitionSpec,
    partitions: Partitions,
    files: Sequence[tuple[DataFile, pq.FileMetaData]],
    notes: dict[str, str],
) -> None:
    """Append files to a transaction, each in the partition that it was written for, under the spec of that time.

    pyiceberg's ``add_files`` would guess partitions from statistics, which not every column and transform has.

    pyiceberg 0.12 writes a manifest under the table's default spec alone: if others have changed that since, it is put
    back for this one snapshot, in the same commit.
    """
    default_id = transaction.table_metadata.default_spec_id
    if spec.spec_id != default_id:
        transaction._apply((SetDefaultSpecUpdate.model_validate({"spec-id": spec.spec_id}),))
    _append_files(transaction, spec, partitions, files, notes)
    if spec.spec_id != default_id:
        transaction._apply((SetDefaultSpecUpdate.model_validate({"spec-id": default_id}),))


def _append_files(
    transaction: Transaction,
    spec: PartitionSpec,
    partitions: Partitions,
    files: Sequence[tuple[DataFile, pq.FileMetaData]],
    notes: dict[str, str],
) -> None:
    _name_columns(transaction, [footer for _, footer in files])
    types = transaction.table_metadata.schema().as_arrow()
    with transaction._append_snapshot_producer(notes) as snapshot:
        for file, footer in files:
            record = partition_record(partitions, spec, file.partition, types)
            snapshot.append_data_file(_describe_file(transaction, file, footer, spec.spec_id, record))


class _ReplaceFiles(_OverwriteFiles):
    """An overwrite whose new files may be of several specs: pyiceberg 0.12 writes them under the default one."""

    def _manifests(self) -> list[ManifestFile]:
        added, self._added_data_files = self._added_data_files, []
        try:
            manifests = super()._manifests()
        finally:
            self._added_data_files = added
        for spec_id in sorted({file.spec_id for file in added}):
            with self.new_manifest_writer(self.spec(spec_id)) as writer:
                for file in added:
                    if file.spec_id == spec_id:
                        writer.add(ManifestEntry.from_args(
                            status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, sequence_number=None,
                            file_sequence_number=None, data_file=file,
                        ))  # fmt: skip
            manifests.append(writer.to_manifest_file())
        return manifests


def replace_files(
    transaction: Transaction,
    spec: PartitionSpec,
    partitions: Partitions,
    change: Replacement,
    footers: Mapping[str, pq.FileMetaData],
) -> None:
    """Take files out of a table and add others in one snapshot, each in the partition that it was written for."""
    _name_columns(transaction, footers.values())
    types = transaction.table_metadata.schema().as_arrow()
    notes = dict(change.notes)
    with _ReplaceFiles(Operation.OVERWRITE, transaction, transaction._table.io, snapshot_properties=notes) as snapshot:
        for removed in change.removed:
            snapshot.delete_data_file(removed.native.file)
        for one in change.added:
            if one.like is not None:
                held = one.like.native.file
                spec_id, record = held.spec_id, held.partition
            else:
                spec_id, record = spec.spec_id, partition_record(partitions, spec, one.partition, types)
            snapshot.append_data_file(_describe_file(transaction, one, footers[one.name], spec_id, record))


def _name_columns(transaction: Transaction, footers: Iterable[pq.FileMetaData]) -> None:
    """Have readers find columns by name, if a file without field ids is added: earlier releases staged such files.

    Columns that the mapping of another writer lacks are added to it.
    """
    if all(read_ids(footer.schema.to_arrow_schema()) for footer in footers):
        return
    metadata = transaction.table_metadata
    held, whole = metadata.name_mapping(), metadata.schema().name_mapping
    if held is not None:
        known = {field.field_id for field in held.root}
        missing = [field for field in whole.root if field.field_id not in known]
        if not missing:
            return
        whole = NameMapping([*held.root, *missing])
    transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: whole.model_dump_json()})


def _describe_file(
    transaction: Transaction, file: DataFile | AddedFile, footer: pq.FileMetaData, spec_id: int, partition: Record
) -> IcebergFile:
    """Return a file as manifests have it, as pyiceberg's ``parquet_file_to_data_file`` does.

    That one reads the footer again, and does not know a column by its id whose name has changed since.
    """
    metadata = transaction.table_metadata
    schema, columns = metadata.schema(), footer.schema.to_arrow_schema()
    _check_pyarrow_schema_compatible(schema, columns, format_version=metadata.format_version)
    held = pyarrow_to_schema(columns, schema.name_mapping, format_version=metadata.format_version)
    statistics = data_file_statistics_from_parquet_metadata(
        footer,
        # of columns that were dropped since as well
        compute_statistics_plan(held, metadata.properties) | compute_statistics_plan(schema, metadata.properties),
        parquet_path_to_id_mapping(held),
    )
    made = IcebergFile.from_args(
        content=DataFileContent.DATA, file_path=f"{metadata.location}/{file.name}", file_format=FileFormat.PARQUET,
        partition=partition, file_size_in_bytes=file.size_bytes, sort_order_id=None, equality_ids=None,
        key_metadata=None, **statistics.to_serialized_dict(),
    )  # fmt: skip
    # no field of the record: the manifest has it
    made.spec_id = spec_id
    return made

"""The executor's half of the table path: one offset range into staged files. Rows never enter the JVM."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...columns.contract import Projection, parse_columns
from ...columns.dictionary_encoding import REPEATING
from ...columns.instants import drop_unreadable_times
from ...model.errors import LocalError, Unreachable
from ...registry.payload_form import parse_payload_form
from ...transports.fetched import States
from ..formats.data_files import COMPRESSION, FILE_BYTES, GROUP_BYTES, GROUP_ROWS, HashingFile
from ..formats.interface import FileLayout, Table, TableFile
from ..formats.manifest import TABLE, DataFile
from ..formats.parquet import ParquetTable
from ..formats.partitions import NAME_BYTES_MAX, PARTITIONS_MAX, Partitions, drop_long_values
from ..formats.registry import open_table
from ..plan.ranges import OffsetRange
from ..scan.scan import Counts, read_range
from ..scan.scan_spec import ScanSpec
from ..scan.schema import as_field, table_schema
from ..storage.files import (
    OWN,
    STAGED,
    create_file,
    delete_staged_files,
    make_local_directory,
    name_from,
    table_location,
)
from ..storage.object_path import TablePath
from ..storage.storage import bind_document
from ..topic_tables import table_of_topic
from .table_commit import StagedRange

TASK_ROWS = 65_536
"""Messages that a task decodes and judges at a time; the batch stays in the task."""


@dataclass(frozen=True)
class TableJob:
    """Description of a table to write, for executors; it travels to them as JSON."""

    from_: str
    columns: str
    table: str
    state: str
    pipeline: str
    run: str
    resume_command: str
    where: str | None = None
    states: States = "available"
    verify_checksum: bool = False
    fail_on_bad_value: bool = False
    fail_on_data_loss: bool = True
    file_bytes: int = FILE_BYTES
    compression: str = COMPRESSION
    transport: Mapping[str, Any] = field(default_factory=dict, repr=False)
    storage: Mapping[str, Any] | None = None
    """The references of the table's object store, as ``StorageReferences.document`` returns them."""
    payload: Mapping[str, str] | None = None
    """How payloads are read, as ``inline_schema`` returns it."""

    def text(self) -> str:
        """Return the job as JSON, to be read by ``parse``."""
        return json.dumps(self.__dict__)

    @classmethod
    def parse(cls, text: str) -> TableJob:
        """Parse what ``text`` returned."""
        return cls(**json.loads(text))

    @property
    def projection(self) -> Projection:
        """The table's columns."""
        return parse_columns(self.columns, parse_payload_form(self.payload))

    @property
    def schema(self) -> pa.Schema:
        """The table's Arrow schema: what Spark would see, so that both paths make the same tables."""
        return table_schema(self.projection)

    @property
    def reading(self) -> ScanSpec:
        """Return how ranges are read."""
        return ScanSpec(
            self.from_,
            self.projection,
            states=self.states,
            where=self.where,
            verify_checksum=self.verify_checksum,
            fail_on_bad_value=self.fail_on_bad_value,
            fail_on_data_loss=self.fail_on_data_loss,
            form=REPEATING,
            rows_max=TASK_ROWS,
            transport=self.transport,
        )

    def table_in_state(self, topic: str) -> str:
        """Return the table of a topic as manifests name it."""
        return name_from(Path(self.state), self._table_of(topic))

    def _table_of(self, topic: str) -> TablePath:
        return table_of_topic(table_location("table", self.table), topic)

    def target(self, topic: str) -> Target:
        """Return the table that the files of a topic are staged for."""
        text = tuple(column.name for column in self.projection.typed)
        return Target(self._table_of(topic), Path(self.state), self.schema, text, self.file_bytes, self.compression)


@dataclass(frozen=True)
class Target:
    """A table to write: its place and that of its state, its schema, columns whose values repeat, options of files."""

    table: TablePath
    state: Path
    schema: pa.Schema
    repeating: tuple[str, ...] = ()
    file_bytes: int = FILE_BYTES
    compression: str = COMPRESSION
    kind: str = TABLE


def schema_words(schema: pa.Schema) -> dict[str, str]:
    """Column → type, as manifests hold it."""
    return {name: str(type_) for name, type_ in zip(schema.names, schema.types, strict=True)}


def write_range(job: TableJob, piece: OffsetRange, attempt: str) -> StagedRange:
    """Read one range and stage its messages, synced; ``attempt`` makes the names of a retry's files unique.

    Raises as ``read_range``, and OSError; files that were begun are deleted then.
    """
    counts = Counts()
    target = job.target(piece.topic)
    bind_document(job.storage, [target.table])
    writer = TableFiles(target, piece.start, staging_stem(job.run, piece, attempt))
    try:
        for part in read_range(job.reading, piece, counts):
            writer.add(dict(zip(part.batch.schema.names, part.batch.columns, strict=True)))
            if writer.long_values and job.fail_on_bad_value:
                raise _long_value_error(writer, part.batch, piece)
        files = writer.finish()
    except BaseException:
        writer.discard()
        raise
    numbers = {"read": counts.read, "written": counts.kept, "bad_values": counts.bad_values}
    numbers |= {"unreadable_times": counts.unreadable_times, "long_values": writer.long_values}
    return StagedRange(piece, tuple(files), numbers)


def _long_value_error(writer: TableFiles, batch: pa.RecordBatch, piece: OffsetRange) -> LocalError:
    """Return the error for values that are longer than the name of a directory; ``batch`` has the first of them."""
    place = f"topic {piece.topic!r}, partition {piece.partition}"
    if "offset" in batch.schema.names and writer.long_offset is not None:
        place += f", offset {writer.long_offset}"
    return LocalError(
        f"{place}: a value by which the table is divided makes a name of more than {NAME_BYTES_MAX} bytes, which no "
        "directory has; write a delta: or iceberg: table, divide by another column, or read it as null with "
        "on_bad_value=null"
    )


def staging_stem(run: str, piece: OffsetRange, attempt: str) -> str:
    """Return the beginning of the names of all files that one attempt stages for one range."""
    return f"{run}-{attempt}-{piece.partition:05d}-{piece.start:020d}"


@dataclass(frozen=True, slots=True)
class _OpenFile:
    writer: TableFile
    sink: HashingFile
    name: str
    schema: pa.Schema
    """The table's, with dictionaries for the columns that are written as such."""


class TableFiles:
    """The files of one task in one table: rows are gathered into row groups, files closed at their size.

    Each partition has files of its own. ``first`` orders them among the files of other tasks; the names of staged files
    begin with ``stem``.
    """

    def __init__(self, target: Target, first: int, stem: str) -> None:
        self._target = target
        self._first = first
        self._stem = stem
        self._table = open_table(target.table) if target.kind == TABLE else ParquetTable(target.table)
        # what is staged for no table may lie in the directory of one
        self._levels = self._table.partitions if target.kind == TABLE else Partitions()
        self._schema = self._table.widen(target.schema) if target.kind == TABLE else target.schema
        self._partitions: dict[str, PartitionFiles] = {}
        self._done: list[tuple[int, DataFile]] = []
        self._begun = 0
        self.long_values = 0
        """Rows in the partition of null, because their value is longer than the name of a directory."""
        self.long_offset: int | None = None
        """The offset of the first of them, if the table has this column."""

    def add(self, columns: Mapping[str, pa.Array[Any]]) -> None:
        """Take some messages: at least the columns of the table, in its types or as dictionaries of them."""
        arrays = [_to_field(columns[field.name], field) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, names=self._schema.names)
        for name, rows in self._levels.split(batch):
            if self._table.reads_values_from_names and (fitting := drop_long_values(name)) != name:
                if not self.long_values and "offset" in rows.schema.names:
                    self.long_offset = rows.column("offset")[0].as_py()
                self.long_values += rows.num_rows
                name = fitting
            if (files := self._partitions.get(name)) is None:
                files = self._begin(name)
            files.add(rows)
        if len(self._partitions) > 1 and sum(one.waiting_bytes for one in self._partitions.values()) >= GROUP_BYTES:
            # of many partitions none may have a row group's worth, and together they fill the memory
            for one in self._partitions.values():
                one.write_group()

    def finish(self) -> list[tuple[int, DataFile]]:
        """Write the waiting rows and close the last file; return every file with its number within the range."""
        for files in self._partitions.values():
            files.write_group()
            files.close()
        return self._done

    def discard(self) -> None:
        """Delete everything of this attempt."""
        for files in self._partitions.values():
            files.abandon()
        # if the store cannot be reached, the next run deletes these files when it begins
        with suppress(Unreachable):
            delete_staged_files(self._target.table, f"{self._stem}-")

    def _begin(self, partition: str) -> PartitionFiles:
        if len(self._partitions) >= PARTITIONS_MAX:
            raise self._levels.too_many_error(self._target.table)
        drops = frozenset() if self._table.keeps_partition_columns else self._levels.identities
        kept = pa.schema([field for field in self._schema if field.name not in drops])
        files = PartitionFiles(self._table, self._target, kept, self._new_name, self._add_file, partition)
        self._partitions[partition] = files
        return files

    def _new_name(self) -> str:
        self._begun += 1
        return f"{self._stem}-{self._begun - 1}.{self._table.suffix}"

    def _add_file(self, file: DataFile) -> None:
        # no two files of a batch begin at the same number: it orders the files of a range
        self._done.append((self._first + len(self._done), file))


class PartitionFiles:
    """The files of one task in one partition; an unpartitioned table counts as one partition."""

    def __init__(
        self,
        table: Table,
        target: Target,
        schema: pa.Schema,
        new_name: Callable[[], str],
        add_file: Callable[[DataFile], None],
        partition: str,
    ) -> None:
        self._table = table
        self._target = target
        self._schema = schema
        self._new_name = new_name
        self._add_file = add_file
        self._partition = partition
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self.waiting_bytes = 0
        self._open: _OpenFile | None = None
        self._file_rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows with all columns of the table."""
        batch = rows if rows.num_columns == len(self._schema) else rows.select(self._schema.names)
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self.waiting_bytes += batch.nbytes
        if self._rows >= GROUP_ROWS or self.waiting_bytes >= GROUP_BYTES:
            self.write_group()

    def write_group(self) -> None:
        """Write the waiting rows as a row group."""
        if not self._waiting:
            return
        file = self._open or self._begin()
        columns = [
            _one_form([batch.column(at) for batch in self._waiting], type_)
            for at, type_ in enumerate(file.schema.types)
        ]
        file.writer.write(pa.Table.from_arrays(columns, schema=file.schema))
        self._file_rows += self._rows
        self._waiting, self._rows, self.waiting_bytes = [], 0, 0
        if file.sink.tell() >= self._target.file_bytes:
            self.close()

    def abandon(self) -> None:
        """Close the file as it is: it is about to be deleted."""
        if self._open is not None:
            self._open.writer.abandon()
            self._open.sink.close()

    def _begin(self) -> _OpenFile:
        name = self._new_name()
        directory = self._target.table / OWN / STAGED
        if isinstance(directory, Path):
            make_local_directory(directory)
        sink = HashingFile(create_file(directory / name))
        schema = pa.schema([
            field.with_type(_type_for([batch.column(at).type for batch in self._waiting], field.type))
            for at, field in enumerate(self._schema)
        ])  # fmt: skip
        types = dict(zip(self._schema.names, self._schema.types, strict=True))
        repeating = [name for name in self._target.repeating if name in types]
        layout = FileLayout(schema, types, repeating, self._target.compression)
        writer = self._table.open_file(sink, layout)
        self._open = _OpenFile(writer, sink, name, schema)
        return self._open

    def close(self) -> None:
        """Complete the file; it is on disk on return."""
        if self._open is None:
            return
        sink = self._open.sink
        self._open.writer.close()
        sink.sync()
        sink.close()
        table = name_from(self._target.state, self._target.table)
        self._add_file(
            DataFile(
                table, self._open.name, "", self._file_rows, sink.size_bytes, sink.hash, self._target.kind,
                partition=self._partition,
            )
        )  # fmt: skip
        self._open, self._file_rows = None, 0


def _to_field(array: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    if pa.types.is_timestamp(array.type):
        # SQL steps can make any time, and the whole messages of a quarantine have any
        array = drop_unreadable_times(array)[0]
    if array.type == pa.dictionary(pa.int32(), field.type) and (field.nullable or not array.null_count):
        return array
    return as_field(array, field)


def _type_for(held: list[pa.DataType], own: pa.DataType) -> pa.DataType:
    """Return the type of a column in a file that begins with chunks of these types: a dictionary if all of them are."""
    return held[0] if all(pa.types.is_dictionary(type_) for type_ in held) else own


def _one_form(chunks: list[Any], type_: Any) -> pa.ChunkedArray[Any]:
    """Convert the chunks of a column to one type, plain or dictionary: values repeat in some chunks only."""
    dictionaries = pa.types.is_dictionary(type_)
    if not dictionaries:
        plain: list[Any] = [
            chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk for chunk in chunks
        ]
        dense: pa.ChunkedArray[Any] = pa.chunked_array(plain, type_)
        return dense
    encoded: list[Any] = [
        chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode() for chunk in chunks
    ]
    unified: pa.ChunkedArray[Any] = pa.chunked_array(encoded, type_).unify_dictionaries()
    return unified

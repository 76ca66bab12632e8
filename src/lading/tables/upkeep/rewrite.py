"""Files of a table written again, in bounded memory: without some of their rows, in another order, or as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from ...model.errors import LadingError
from ..formats.data_files import COMPRESSION, FILE_BYTES, GROUP_BYTES, GROUP_ROWS, HashingFile
from ..formats.directory import REPLACING
from ..formats.field_ids import FIELD_ID
from ..formats.interface import AddedFile, FileLayout, Listing, LiveFile, Overtaken, Replacement, Table, TableFile
from ..formats.parquet import RISING
from ..storage.files import OWN, STAGED, create_file, delete_staged_files, make_local_directory
from ..storage.object_path import TablePath
from .sorting import sort_batches

RowSelection = Callable[[pa.RecordBatch], "pa.BooleanArray"]
"""Returns for each row whether it is selected; null means that it is not."""


class StagedRewrite:
    """New files of a table that no reader sees yet; unless they replace others, they are deleted at the end."""

    def __init__(self, table: Table, file_bytes: int = FILE_BYTES) -> None:
        self._table = table
        self._file_bytes = file_bytes
        self._stem = f"{REPLACING}{uuid4().hex}"
        self._begun = 0
        self._kept = False
        self._open: tuple[TableFile, HashingFile, TablePath, pa.Schema, LiveFile] | None = None
        self._rows = 0
        self.files: list[AddedFile] = []

    @property
    def directory(self) -> TablePath:
        """The directory of staged files."""
        return self._table.directory / OWN / STAGED

    def __enter__(self) -> StagedRewrite:
        if isinstance(self.directory, Path):
            make_local_directory(self.directory)
        return self

    def __exit__(self, *error: object) -> None:
        if not self._kept:
            # if the store cannot be reached, vacuum deletes them later
            with suppress(LadingError, OSError):
                delete_staged_files(self._table.directory, self._stem)

    def replace(self, listing: Listing, change: Replacement) -> None:
        """Replace files of the table by these. Raises Overtaken, after which nothing has changed."""
        # what is written down is carried out by the next process if this one ends now
        self._kept = True
        try:
            self._table.replace_files(listing, change)
        except Overtaken:
            self._kept = False
            raise

    def write(
        self,
        listing: Listing,
        files: Sequence[LiveFile],
        *,
        drop: RowSelection | None = None,
        sort_by: Sequence[str] = (),
    ) -> int:
        """Write the rows of files of one partition again, without those of ``drop``; returns how many are left."""
        batches = self._read(listing, files, drop)
        if sort_by:
            scratch = self.directory if isinstance(self.directory, Path) else None
            batches = sort_batches(batches, sort_by, scratch, f"{self._stem}-run")
        rows = 0
        for piece, schema in _row_groups(batches, keep_ids=self._table.numbers_fields):
            rows += piece.num_rows
            self._add(piece, schema, files[0])
        self._close()
        return rows

    def _read(self, listing: Listing, files: Sequence[LiveFile], drop: RowSelection | None) -> Iterator[pa.RecordBatch]:
        for file in files:
            for batch in self._table.read_file(listing, file):
                if drop is not None:
                    dropped: Any = pc.fill_null(drop(batch), pa.scalar(False))
                    batch = batch.filter(pc.invert(dropped))
                if batch.num_rows:
                    yield _to_plain(batch, keep_ids=self._table.numbers_fields)

    def _add(self, rows: pa.Table, schema: pa.Schema, like: LiveFile) -> None:
        if self._open is not None and (
            not self._open[3].equals(schema, check_metadata=True) or self._open[1].tell() >= self._file_bytes
        ):
            self._close()
        if self._open is None:
            # readers that glob for *.parquet in all directories are not to find it
            path = self.directory / f"{self._stem}-{self._begun:05d}.part"
            self._begun += 1
            sink = HashingFile(create_file(path))
            plain = {field.name: field.type for field in schema}
            repeating = [
                field.name for field in schema
                if field.name not in RISING and not (pa.types.is_nested(field.type) or pa.types.is_binary(field.type))
            ]  # fmt: skip
            writer = self._table.open_file(sink, FileLayout(schema, plain, repeating, COMPRESSION))
            self._open = writer, sink, path, schema, like
        self._open[0].write(rows)
        self._rows += rows.num_rows

    def _close(self) -> None:
        if self._open is None:
            return
        writer, sink, path, _, like = self._open
        writer.close()
        sink.sync()
        sink.close()
        stem = path.name.removeprefix(REPLACING).removesuffix(".part")
        name = f"{like.directory}{stem}.{self._table.suffix}"
        self.files.append(AddedFile(path, name, sink.size_bytes, self._rows, like=like))
        self._open, self._rows = None, 0


def _row_groups(batches: Iterable[pa.RecordBatch], *, keep_ids: bool) -> Iterator[tuple[pa.Table, pa.Schema]]:
    """Gather batches into tables of the size of a row group, each of one schema, without metadata of fields."""
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        plain = plain_schema(batch.schema, keep_ids=keep_ids)
        batch = pa.RecordBatch.from_arrays(batch.columns, schema=plain)
        if waiting and not waiting[0].schema.equals(plain, check_metadata=True):
            yield pa.Table.from_batches(waiting), waiting[0].schema
            waiting, rows, size_bytes = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= GROUP_ROWS or size_bytes >= GROUP_BYTES:
            yield pa.Table.from_batches(waiting), waiting[0].schema
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting), waiting[0].schema


def _to_plain(batch: pa.RecordBatch, *, keep_ids: bool) -> pa.RecordBatch:
    """Return the rows in plain types: other writers of a table note dictionaries and views in their files."""
    schema = plain_schema(batch.schema, keep_ids=keep_ids)
    if schema.equals(batch.schema):
        return batch
    columns: list[Any] = batch.columns
    plain = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(plain, schema=schema)


def plain_schema(schema: pa.Schema, *, keep_ids: bool = False) -> pa.Schema:
    """Return the same columns in plain types, without metadata, save ids of fields if they are kept.

    Ids of another format's files would be wrong: a log of Delta has its own.
    """
    return pa.schema([_plain_field(field, keep_ids=keep_ids) for field in schema])


def _plain_field(field: pa.Field[Any], *, keep_ids: bool) -> pa.Field[Any]:
    held = (field.metadata or {}).get(FIELD_ID) if keep_ids else None
    metadata = None if held is None else {FIELD_ID: held}
    return pa.field(field.name, _plain_type(field.type, keep_ids=keep_ids), field.nullable, metadata)


def _plain_type(type_: Any, *, keep_ids: bool) -> Any:
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_plain_field(type_.value_field, keep_ids=keep_ids))
    if pa.types.is_map(type_):
        key, item = (_plain_field(field, keep_ids=keep_ids) for field in (type_.key_field, type_.item_field))
        return pa.map_(key, item, type_.keys_sorted)
    if pa.types.is_struct(type_):
        return pa.struct([_plain_field(field, keep_ids=keep_ids) for field in type_])
    if pa.types.is_dictionary(type_):
        return _plain_type(type_.value_type, keep_ids=keep_ids)
    return type_

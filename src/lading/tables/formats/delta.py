"""Delta tables: a directory of Parquet files, of which its log, ``_delta_log``, says which ones readers see.

The log is read and written by the package ``deltalake``, which only the driver imports, when it commits. Names of the
log's actions are those of the protocol (https://github.com/delta-io/delta/blob/master/PROTOCOL.md).
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from ...model.errors import LocalError
from ..storage.files import delete_tree, sync_directory
from ..storage.object_path import ObjectPath, storage_options
from .directory import visible_names
from .interface import ALL, Listing, LiveFile, Replacement, Wanted
from .logged import COMMIT_ATTEMPTS, Column, LoggedTable, hash_files, read_footer
from .manifest import DataFile
from .partitions import name_level
from .rollback import FILES, MANIFEST, PIPELINE, LoggedCommit

if TYPE_CHECKING:
    import deltalake

LOG: Final = "_delta_log"
HISTORY: Final = 4
"""At first this many commits of a log's history are read, then more and more."""
TEXT_MAX: Final = 32
"""Characters of a text in statistics, as in those of Spark; columns of longer ones have no bounds."""
MILLISECOND: Final = timedelta(milliseconds=1)


class DeltaTable(LoggedTable["deltalake.DeltaTable"]):
    """Parquet files that one transaction of the Delta log shows, with pipeline and manifest as its ``txn``.

    Files are staged and renamed as those of a directory are: until then they lie below ``_lading``, which VACUUM leaves
    alone. Other writers may append to the table, and compact it.
    """

    form = "delta"
    suffix = "parquet"
    noun = "Delta"
    package = "deltalake"
    log = LOG
    reads_deleted_rows = False

    def read_partition(self, file: LiveFile) -> Mapping[str, str | None]:
        """Return the values of columns that are not in a file because they are its partition."""
        return _partition_texts(file)

    def prepare(self, schema: pa.Schema) -> None:
        """Create the table if it is missing, and add the columns that it lacks, in a transaction of their own.

        Raises LocalError, which names the column, if rows of ``schema`` do not fit into the table.
        """
        import deltalake

        with self._translate_errors():
            if not (self.directory / LOG).exists():
                if visible_names(self.directory):
                    raise self._missing_log_error()
                names = [field.name for field in self.partitions.fields]
                schema = pa.schema([*schema, *self.partitions.time_fields()])
                deltalake.DeltaTable.create(
                    str(self.directory), self._delta_schema(schema), partition_by=names or None,
                    storage_options=self._options,
                )  # fmt: skip
                self._sync_log(0)
                return
            table = self._load()
            self._require_partitions(table.metadata().partition_columns, [one.name for one in self.partitions.fields])
            self._add_columns(table, schema)

    def delete_empty(self) -> bool:
        """Delete the log, if it has no more than the version that made the table."""
        log = self.directory / LOG
        if log.exists():
            if [path.name for path in log.iterdir() if not path.name.startswith((".", "_"))] != [f"{0:020d}.json"]:
                return False
            delete_tree(log)
        return super().delete_empty()

    def _commit_log(
        self, table: deltalake.DeltaTable, key: tuple[str, int], files: Sequence[DataFile],
        put_back: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        pipeline, number = key
        metadata = [read_footer(self.directory / file.name) for file in files]
        actions: Any = [self._add_action(file, held) for file, held in zip(files, metadata, strict=True)]
        properties = CommitProperties(
            custom_metadata={PIPELINE: pipeline, MANIFEST: number, FILES: hash_files(files), **(put_back or {})},
            app_transactions=[Transaction(pipeline, number)],
        )
        for left in reversed(range(COMMIT_ATTEMPTS)):
            for held in metadata:
                table = self._add_columns(table, held.schema.to_arrow_schema())
            before = table.version()
            try:
                table.create_write_transaction(actions, "append", table.schema(), commit_properties=properties)
            except CommitFailedError:
                # the columns were changed meanwhile, or a second run of this pipeline was faster
                table = self._load()
                if put_back is None and self._read_last_number(table, pipeline) >= number:
                    self._require_same(table, key, files)
                    return
                if not left:
                    raise
            else:
                self._sync_log(before + 1)
                return

    def read_file(self, listing: Listing, file: LiveFile, want: Wanted = ALL) -> Iterator[pa.RecordBatch]:
        """Yield rows of a file. Raises LocalError if some of them are deleted by a vector, which Lading cannot read."""
        if file.has_deletes:
            raise LocalError(
                f"the table {self.directory}: rows of {file.name} are deleted by a deletion vector, which Lading does "
                "not read; write the file anew with REORG TABLE … APPLY (PURGE) in Spark, and run this again"
            )
        yield from super().read_file(listing, file, want)

    def vacuum_log(self, age_s: float, *, dry_run: bool) -> list[str] | None:
        """Delete files that no version of this age needs, as deltalake does it; returns their names."""
        with self._translate_errors():
            table = self._load()
            # deltalake takes whole hours; with fewer than asked for a reader could miss its files
            return table.vacuum(
                max(0, math.ceil(age_s / 3600)), dry_run=dry_run, enforce_retention_duration=False, full=True
            )  # fmt: skip

    def may_vacuum(self, name: str) -> bool:
        """Return False: ``vacuum_log`` deletes files of the table."""
        return False

    def list_used_names(self) -> Collection[str]:
        """Return the names of files that the newest version has."""
        return {file.name for file in self.list_files().files}

    def count_snapshots(self) -> int:
        """Return the number of versions that the log still has."""
        names = (path.name for path in (self.directory / LOG).iterdir())
        return sum(name.endswith(".json") and name[:20].isdigit() for name in names)

    def expire_snapshots(self, before_s: float, *, dry_run: bool) -> int:
        """Write a checkpoint, and delete the log of older versions, as far as the table's own properties allow."""
        if dry_run:
            return 0
        with self._translate_errors():
            before, table = self.count_snapshots(), self._load()
            table.create_checkpoint()
            table.cleanup_metadata()
            return max(0, before - self.count_snapshots())

    def _list(self, table: deltalake.DeltaTable) -> Listing:
        with_vectors = {row["filepath"].rpartition("/")[2] for row in pa.table(table.deletion_vectors()).to_pylist()}
        files = []
        for row in pa.table(table.get_add_actions()).to_pylist():
            # the log has paths as URLs
            values, name = row.get("partition") or {}, unquote(row["path"])
            file = LiveFile(name, "", row["size_bytes"], values, name.rpartition("/")[2] in with_vectors)
            partition = "/".join(name_level(*level) for level in _partition_texts(file).items())
            files.append(file._replace(partition=partition))
        return Listing(sorted(files, key=lambda file: file.name), table)

    def _try_replace(self, table: deltalake.DeltaTable, change: Replacement) -> bool:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        now_ms = time.time_ns() // 1_000_000
        actions: list[Any] = []
        for file in change.removed:
            removed = RemoveAction(
                file.name, change.changes_rows, now_ms, file.size_bytes, {**_partition_texts(file)}
            )  # fmt: skip
            actions.append(removed)
        for one in change.added:
            metadata = read_footer(self.directory / one.name)
            if self._add_columns(table, self._schema_of(one, metadata)) is not table:
                # another writer may have replaced the files before the version with the new columns
                return False
            values = (
                {**_partition_texts(one.like)}
                if one.like is not None
                else self.partitions.values_of(one.partition) if one.partition else {}
            )  # fmt: skip
            statistics = file_statistics(metadata)
            actions.append(AddAction(one.name, one.size_bytes, values, now_ms, change.changes_rows, statistics))
        properties = CommitProperties(
            custom_metadata={**change.notes},
            app_transactions=[] if change.key is None else [Transaction(*change.key)],
            max_commit_retries=0,
        )
        before = table.version()
        try:
            table.create_write_transaction(actions, "append", table.schema(), commit_properties=properties)
        except CommitFailedError:
            return False
        self._sync_log(before + 1)
        return True

    def _read_last_number(self, table: deltalake.DeltaTable, pipeline: str) -> int:
        # the transaction of an application is the number of a manifest
        return table.transaction_version(pipeline) or 0

    def _commits(self, table: deltalake.DeltaTable) -> Iterator[LoggedCommit]:
        is_target: Callable[[Mapping[str, Any]], bool | None] | None = None
        by = ""
        for commit in _read_history(table):
            in_table = is_target is None or is_target(commit)
            yield LoggedCommit(commit, in_table, by)
            if in_table:
                is_target = None
                if commit.get("operation") == "RESTORE":
                    by = f"RESTORE in version {commit['version']}"
                    is_target = self._target_of(commit.get("operationParameters") or {})

    def _target_of(self, parameters: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], bool | None]:
        """Return a predicate of commits: whether they are part of what a RESTORE with these parameters went back to."""
        try:
            if parameters.get("version"):
                version = int(parameters["version"])
                return lambda commit: int(commit["version"]) <= version
            # deltalake writes milliseconds, Spark what its user wrote, in the zone of the session
            at_ms = (
                int(parameters["datetime"])
                if "datetime" in parameters
                else datetime.fromisoformat(str(parameters["timestamp"])).timestamp() * 1000
            )
        except (KeyError, ValueError):
            return lambda commit: None
        return lambda commit: self._read_commit_ms(commit) <= at_ms

    def _read_commit_ms(self, commit: Mapping[str, Any]) -> int:
        """Return the time of a commit as a search by time takes it: of its file, unless the log has its own times."""
        if "inCommitTimestamp" in commit:
            return int(commit["inCommitTimestamp"])
        try:
            return (self.directory / LOG / f"{commit['version']:020d}.json").stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return int(commit["timestamp"])

    def _file_names(self, table: deltalake.DeltaTable) -> Iterator[str]:
        return (uri.rpartition("/")[2] for uri in table.file_uris())

    def _version_word(self, table: deltalake.DeltaTable) -> str:
        return f"whose version is {table.version()}"

    def _load(self) -> deltalake.DeltaTable:
        import deltalake

        if not (self.directory / LOG).exists():
            raise self._missing_log_error()
        return deltalake.DeltaTable(str(self.directory), storage_options=self._options)

    @property
    def _options(self) -> dict[str, str] | None:
        """How its library reaches the table, besides the environment."""
        if not isinstance(self.directory, ObjectPath):
            return None
        # a version of the log is an object that only one writer can put
        return {"aws_conditional_put": "etag", **storage_options(self.directory)}

    def _missing_log_error(self) -> LocalError:
        return LocalError(
            f"the table {self.directory}: {LOG} is missing, which says what of the files in it are its rows; restore "
            "it, or name another table"
        )

    def _add_columns(self, table: deltalake.DeltaTable, schema: pa.Schema) -> deltalake.DeltaTable:
        """Add the columns of ``schema`` that the table does not have; returns the table as it is then."""
        import deltalake
        from deltalake import Field

        wanted = {field.name: field for field in self._delta_schema(schema).fields}
        both = [_column(field) for field in table.schema().fields], [*map(_column, wanted.values())]
        if relaxed := self._list_relaxed_columns(*both):
            # deltalake has no other way to allow nulls in a column
            before = table.version()
            no_rows = pa.table({name: pa.nulls(0, schema.field(name).type) for name in relaxed})
            deltalake.write_deltalake(table, no_rows, mode="append", schema_mode="merge")
            self._sync_log(before + 1)
            table = self._load()
        columns = self._new_columns(*both)
        # the rows that are there have no value
        new = [Field(column.name, wanted[column.name].type, nullable=True) for column in columns]
        if not new:
            return table
        before = table.version()
        table.alter.add_columns(new)
        self._sync_log(before + 1)
        return self._load()

    def _delta_schema(self, schema: pa.Schema) -> deltalake.Schema:
        from deltalake import Schema

        for field in schema:
            try:
                Schema.from_arrow(pa.schema([field]))
            except Exception as error:
                raise self._type_error(field, error) from None
        return Schema.from_arrow(schema)

    def _add_action(self, file: DataFile, metadata: pq.FileMetaData) -> object:
        from deltalake.transaction import AddAction

        changed_ms = (self.directory / file.name).stat().st_mtime_ns // 1_000_000
        values = self.partitions.values_of(file.partition) if file.partition else {}
        return AddAction(file.name, file.size_bytes, values, changed_ms, True, file_statistics(metadata))

    def _sync_log(self, first: int) -> None:
        """Bring the log from this version on to disk: ``deltalake`` leaves that to the system's own time."""
        if isinstance(self.directory, ObjectPath):
            return
        for version in count(first):
            path = self.directory / LOG / f"{version:020d}.json"
            if not path.exists():
                break
            with path.open("rb") as file:
                os.fsync(file.fileno())
        sync_directory(self.directory / LOG)
        sync_directory(self.directory)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        self._require_library()
        from deltalake.exceptions import DeltaError

        try:
            yield
        except DeltaError as error:
            raise self._log_error(error) from error
        except OSError as error:
            # raised by the disk, or by a store that cannot be reached; our own errors of a store are not OSErrors
            if error.errno is not None:
                raise
            if isinstance(self.directory, ObjectPath):
                raise self.directory.store_error(error) from None
            raise self._log_error(error) from None


def _column(field: deltalake.Field) -> Column:
    type_: Any = field.type
    word = f"{getattr(type_, 'type', type_)}{'' if field.nullable else ' not null'}"
    return Column(field.name, type_, field.nullable, word)


def _partition_texts(file: LiveFile) -> dict[str, str | None]:
    """Return the values of the partition of a file as the log writes them."""
    return {
        key: None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in file.native.items()
    }


def _read_history(table: deltalake.DeltaTable) -> Iterator[Mapping[str, Any]]:
    """Give the commits of a log, the last one first: each of them is a file, and mostly the first few are enough."""
    seen, limit = 0, HISTORY
    while True:
        commits = table.history(limit)
        yield from commits[seen:]
        if len(commits) < limit:
            return
        seen, limit = limit, limit * 8


def file_statistics(metadata: pq.FileMetaData) -> str:
    """Return rows, nulls and bounds of a file's columns as JSON, from its footer, by which readers skip files.

    Their form is https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics.

    Columns of integers, texts, dates and times have bounds if every row group has them.
    """
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    row_groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for at in range(metadata.num_columns):
        name = metadata.schema.column(at).path
        if name != metadata.schema.column(at).name:
            # a part of a list or struct
            continue
        groups: list[Any] = [row_group.column(at).statistics for row_group in row_groups]
        if not groups or not all(group is not None and group.has_null_count for group in groups):
            continue
        nulls[name] = sum(group.null_count for group in groups)
        held = [group for group in groups if group.has_min_max]
        if held and len(held) == sum(group.num_values > 0 for group in groups):
            low, high = min(group.min for group in held), max(group.max for group in held)
            if (bounds := _bounds(low, high)) is not None:
                lows[name], highs[name] = bounds
    return json.dumps(
        {"numRecords": metadata.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}, ensure_ascii=False
    )


def _bounds(low: Any, high: Any) -> tuple[Any, Any] | None:
    """Return both bounds as the log writes them, or None if it has none of this type."""
    if isinstance(low, datetime):
        # written in milliseconds: both bounds have to hold what lies between
        try:
            up = high + (MILLISECOND - timedelta(microseconds=1))
        except OverflowError:
            # the last millisecond of the year 9999
            return None
        return tuple(_timestamp(each) for each in (low, up))  # type: ignore[return-value]
    if isinstance(low, date):
        return low.isoformat(), high.isoformat()
    if isinstance(low, str):
        return (low, high) if max(len(low), len(high)) <= TEXT_MAX else None
    if isinstance(low, int) and not isinstance(low, bool):
        return low, high
    return None


def _timestamp(value: datetime) -> str:
    # strftime writes a year before 1000 with fewer than four digits
    return f"{value.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"

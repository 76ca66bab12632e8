"""Delta tables: a directory of Parquet files, of which its log, ``_delta_log``, says which ones readers see.

The log is read and written by the package ``deltalake``, which only the driver imports, when it commits. Names of the
log's actions are those of the protocol (https://github.com/delta-io/delta/blob/master/PROTOCOL.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from ...model.errors import LocalError
from ..files import read_document, sync_directory
from ..manifest import DataFile
from .delta_statistics import file_statistics
from .directory import OWNER, visible_names
from .interface import Rename
from .parquet import ParquetTable

if TYPE_CHECKING:
    import deltalake

LOG: Final = "_delta_log"
COMMIT_ATTEMPTS: Final = 10
"""So often a commit is tried that others' changes of the table's columns overtake; appends of others never do."""
PIPELINE, MANIFEST, FILES = "lading.pipeline", "lading.manifest", "lading.files"
"""What the ``commitInfo`` of a commit holds: whose it is, its number, the hash of the names and hashes of its files."""


class DeltaTable(ParquetTable):
    """Parquet files that one transaction of the Delta log shows, with pipeline and manifest as its ``txn``.

    Files are staged and renamed as those of a directory are: until then they lie below ``_lading``, which VACUUM leaves
    alone. Other writers may append to the table, and compact it.
    """

    form = "delta"
    suffix = "parquet"

    def check_claim(self, owner: str | None) -> bool:
        """Raise LocalError as directories do, for a Delta table of somebody else, and without ``deltalake``."""
        _require_library(str(self.directory))
        if read_document(self._own / OWNER) is None and (self.directory / LOG).exists():
            raise LocalError(
                f"{self.directory} holds a Delta table that Lading did not make, and a table that it writes is its own "
                "from the first row; name another directory, and read both"
            )
        return super().check_claim(owner)

    def prepare(self, schema: pa.Schema) -> None:
        """Make the table if there is none, and add the columns that it does not have, in a transaction of their own.

        Raises LocalError, which names the column, if rows of ``schema`` do not fit into the table.
        """
        import deltalake

        with self._translate_errors():
            if not (self.directory / LOG).exists():
                if visible_names(self.directory):
                    raise self._missing_log_error()
                deltalake.DeltaTable.create(str(self.directory), self._delta_schema(schema))
                self._sync_log(0)
                return
            self._add_columns(self._load(), schema)

    def find_last_commit(self, pipeline: str) -> int:
        """Return the ``txn`` of the pipeline in the table's log, which is the number of a manifest."""
        if not (self.directory / LOG).exists():
            return 0
        with self._translate_errors():
            return self._load().transaction_version(pipeline) or 0

    def commit(self, key: tuple[str, int], files: Sequence[DataFile], rename: Rename) -> None:
        """Rename staged files, then show them all in one transaction; one that the log has already is skipped.

        Raises CorruptLog as those of directories do; LocalError if the log has this manifest with other files.
        """
        pipeline, number = key
        with self._translate_errors():
            table = self._load()
            if (table.transaction_version(pipeline) or 0) >= number:
                self._require_same(table, key, files)
                return
        super().commit(key, files, rename)
        with self._translate_errors():
            self._commit_log(table, key, files)

    def _commit_log(self, table: deltalake.DeltaTable, key: tuple[str, int], files: Sequence[DataFile]) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        pipeline, number = key
        metadata = [pq.read_metadata(self.directory / file.name) for file in files]
        actions: Any = [self._add_action(file, held) for file, held in zip(files, metadata, strict=True)]
        properties = CommitProperties(
            custom_metadata={PIPELINE: pipeline, MANIFEST: number, FILES: _hash_files(files)},
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
                if (table.transaction_version(pipeline) or 0) >= number:
                    self._require_same(table, key, files)
                    return
                if not left:
                    raise
            else:
                self._sync_log(before + 1)
                return

    def find_change(self, key: tuple[str, int], file: DataFile, *, is_read: bool) -> str | None:
        """Return in words how a published file differs from what its manifest says.

        A file that the log does not list any more is none: somebody has compacted the table, or deleted rows.
        """
        pipeline, number = key
        with self._translate_errors():
            if file.name in self._listed:
                return super().find_change(key, file, is_read=is_read)
            if (self._snapshot.transaction_version(pipeline) or 0) < number:
                return f"is not in the table's log, whose version is {self._snapshot.version()}"
            return None

    @cached_property
    def _snapshot(self) -> deltalake.DeltaTable:
        return self._load()

    @cached_property
    def _listed(self) -> frozenset[str]:
        return frozenset(uri.rpartition("/")[2] for uri in self._snapshot.file_uris())

    def _load(self) -> deltalake.DeltaTable:
        import deltalake

        if not (self.directory / LOG).exists():
            raise self._missing_log_error()
        return deltalake.DeltaTable(str(self.directory))

    def _missing_log_error(self) -> LocalError:
        return LocalError(
            f"the table {self.directory}: {LOG} is missing, which says what of the files in it are its rows; restore "
            "it, or name another table"
        )

    def _require_same(self, table: deltalake.DeltaTable, key: tuple[str, int], files: Sequence[DataFile]) -> None:
        """Raise LocalError if the log has another batch under this number; logs that were cleaned up cannot tell."""
        pipeline, number = key
        for commit in table.history():
            if (commit.get(PIPELINE), commit.get(MANIFEST)) == (pipeline, number):
                if commit.get(FILES) == _hash_files(files):
                    return
                break
        else:
            return
        raise LocalError(
            f"the table {self.directory} has manifest {number} of pipeline {pipeline!r} with other files than this "
            "one's: a second run with a copy of its state wrote it; continue with the state of that run"
        )

    def _add_columns(self, table: deltalake.DeltaTable, schema: pa.Schema) -> deltalake.DeltaTable:
        """Add the columns of ``schema`` that the table does not have; returns the table as it is then."""
        from deltalake import Field

        held = {field.name.lower(): field for field in table.schema().fields}
        new = []
        for field in self._delta_schema(schema).fields:
            there = held.pop(field.name.lower(), None)
            if there is None:
                # the rows that are there have no value
                new.append(Field(field.name, field.type, nullable=True))
            elif there.name != field.name:
                raise LocalError(
                    f"the table {self.directory} has the column {there.name!r}, and {field.name!r} differs from it in "
                    "case alone, which Delta does not tell apart; name the column otherwise"
                )
            elif there.type != field.type or (field.nullable and not there.nullable):
                raise LocalError(
                    f"the table {self.directory} has the column {field.name!r} as {_type_word(there)}, and now it "
                    f"would be {_type_word(field)}; a table keeps its types: name the old type, another column, or "
                    "another table"
                )
        for other in held.values():
            if not other.nullable:
                raise LocalError(
                    f"the table {self.directory} has the column {other.name!r}, which may not be null and is not among "
                    "the columns that are written; allow nulls in it, or write another table"
                )
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
                raise LocalError(
                    f"the table {self.directory}: the column {field.name!r} is {field.type}, which a Delta table does "
                    f"not have ({error}); give it another type, or write {ParquetTable.form}:{self.directory}"
                ) from None
        return Schema.from_arrow(schema)

    def _add_action(self, file: DataFile, metadata: pq.FileMetaData) -> object:
        from deltalake.transaction import AddAction

        changed_ms = (self.directory / file.name).stat().st_mtime_ns // 1_000_000
        return AddAction(file.name, file.size_bytes, {}, changed_ms, True, file_statistics(metadata))

    def _sync_log(self, first: int) -> None:
        """Bring the log from this version on to disk: ``deltalake`` leaves that to the system's own time."""
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
        _require_library(str(self.directory))
        from deltalake.exceptions import DeltaError

        try:
            yield
        except DeltaError as error:
            # a stack of the library follows the first line
            what = str(error).partition("\n")[0]
            raise LocalError(
                f"the table {self.directory}: its log cannot be read or written: {what}; mend that, and run this again"
            ) from error


def _require_library(table: str) -> None:
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise LocalError(
            f"the table {table} is a Delta table, which needs the package deltalake; install lading[delta]"
        ) from None


def _hash_files(files: Sequence[DataFile]) -> str:
    text = "\n".join(sorted(f"{file.name} {file.hash}" for file in files))
    return xxhash.xxh3_128_hexdigest(text.encode())


def _type_word(field: deltalake.Field) -> str:
    type_: Any = field.type
    return f"{getattr(type_, 'type', type_)}{'' if field.nullable else ' not null'}"

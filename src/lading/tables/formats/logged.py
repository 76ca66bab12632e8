"""Tables of Parquet files of which a log of their own says which ones readers see: what Delta and Iceberg share."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from ...columns.contract import did_you_mean
from ...columns.instants import TIME_FIELDS
from ...model.errors import CorruptLog, LadingError, LocalError, SettingError
from ...model.extras import describe_install
from ..storage.files import OWN, has_scheme, move_file, read_document, sync_directory, write_document
from ..storage.object_path import ObjectPath, TablePath
from .column_types import can_hold, is_wider, parse_type_word
from .directory import (
    ADOPTED,
    FILE_TYPES,
    MISSING,
    OWNER,
    PARTITION_BY,
    PUBLISHED,
    describe_partitioning,
    list_file_names,
)
from .interface import AddedFile, Listing, Overtaken, Rename, Replacement
from .manifest import DataFile
from .parquet import ParquetTable
from .partitions import Partitions, shorten_directory
from .rollback import FILES, MANIFEST, PIPELINE, PUT_BACK, LoggedCommit, Rollback, RolledBack, find_rollback

_STYLES = re.compile(r"\x1b\[[0-9;]*m")
T = TypeVar("T")
"""A table as the library of its form has loaded it."""


class Column(NamedTuple):
    """A column as a log describes it."""

    name: str
    type: pa.DataType
    nullable: bool
    word: str
    """The type of the table for people."""


class LoggedTable(ParquetTable, Generic[T]):
    """Parquet files that are staged and renamed as those of a directory are, then shown by one commit of a log.

    The commit carries the pipeline and the number of the manifest, so that the table itself knows what it holds. The
    library of the form is imported by the driver alone.
    """

    noun: ClassVar[str]
    """The form's name for people."""
    package: ClassVar[str]
    has_log = True
    reads_values_from_names = False
    log: ClassVar[str]
    """The directory of the log, in the table's."""

    def check_claim(self, owner: str | None) -> bool:
        """Raise LocalError as directories do, for a table of another owner in this form, and without the library.

        A table that another writer made may be appended to, in the partitions that it has.
        """
        self._require_library()
        if read_document(self._own / OWNER) is None:
            words = self._find_foreign_levels()
            if words is not None:
                self.require_no_lost_owner()
                if self._partition_by and self._partition_by.words != words:
                    raise LocalError(
                        f"the table {self.directory}, which another writer made, is {describe_partitioning(words)}, "
                        f"and now it would be {describe_partitioning(self._partition_by.words)}; leave out "
                        "partition_by, or name another table"
                    )
                return False
        return super().check_claim(owner)

    def claim_document(self) -> Mapping[str, Any]:
        """Return what directories return, and for a table of another writer its partitions."""
        words = self._find_foreign_levels()
        if words is None:
            return super().claim_document()
        return {**super().claim_document(), PARTITION_BY: words, ADOPTED: True}

    @cached_property
    def is_adopted(self) -> bool:
        """Whether another writer made the table."""
        return bool((read_document(self._own / OWNER) or {}).get(ADOPTED, False))

    def widen(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns in the types that the table has: those that were wider when the run began."""
        wider = (read_document(self._own / OWNER) or {}).get(FILE_TYPES, {})
        return pa.schema([
            field.with_type(parse_type_word(wider[field.name])) if field.name in wider else field for field in schema
        ])  # fmt: skip

    def delete_empty(self) -> bool:
        """Delete what ``prepare`` made; of a table of another writer that has no row of ours nothing."""
        if self.is_adopted:
            known = read_document(self._own / OWNER)
            return known is None or self.find_last_commit(known["pipeline"]) == 0
        return self.delete_empty_log() and super().delete_empty()

    def partition_directory(self, partition: str) -> str:
        """Return the directory of a partition's files: the log has its values, so that a long one may be a digest."""
        return shorten_directory(partition)

    def check_log(self) -> None:
        """Raise the error of a log, or of its catalog, that cannot be read."""
        if (self.directory / self.log).exists():
            with self._translate_errors():
                self._load()

    def find_last_commit(self, pipeline: str) -> int:
        """Return the number of the last manifest of the pipeline that the table's log has."""
        if not (self.directory / self.log).exists():
            return 0
        with self._translate_errors():
            return self._read_last_number(self._load(), pipeline)

    def commit(self, key: tuple[str, int], files: Sequence[DataFile], rename: Rename) -> None:
        """Rename staged files, then show them all in one commit; one that the log has already is skipped.

        Raises CorruptLog as those of directories do; LocalError if the log has this manifest with other files, or if
        another writer took back what the pipeline committed before.
        """
        with self._translate_errors():
            table = self._load()
            if self._has_commit(table, key, files):
                return
        super().commit(key, files, rename)
        with self._translate_errors():
            self._commit_log(table, key, files)

    def replace_files(self, listing: Listing, change: Replacement) -> None:
        """Rename the new files to their names, which no reader sees yet, then replace the others in one commit."""
        renamed = set()
        for one in change.added:
            final = self.directory / one.name
            if one.staged != final and one.staged.exists():
                if isinstance(final, Path):
                    final.parent.mkdir(parents=True, exist_ok=True)
                move_file(one.staged, final)
                renamed.add(final.parent)
        for directory in renamed:
            sync_directory(directory)
        removed = {file.name for file in change.removed}
        with self._translate_errors():
            for left in reversed(range(COMMIT_ATTEMPTS)):
                if self._try_replace(listing.snapshot, change):
                    return
                table = self._load()
                if change.key is not None and self._read_last_number(table, change.key[0]) >= change.key[1]:
                    # a commit whose response was lost
                    return
                fresh = self._list(table)
                found = {file.name: file for file in fresh.files}
                if not removed <= found.keys() or any(found[name].has_deletes for name in removed):
                    raise Overtaken(f"the table {self.directory}: another writer replaced its files; run this again")
                listing, change = fresh, change._replace(removed=[found[name] for name in sorted(removed)])
                if not left:
                    break
        raise LocalError(
            f"the table {self.directory}: other writers were faster {COMMIT_ATTEMPTS} times; nothing of this was "
            "changed, run it again"
        )

    def _schema_of(self, added: AddedFile, metadata: pq.FileMetaData) -> pa.Schema:
        """Return the columns of a new file; rows of files of the table have no null in a column without any."""
        schema = metadata.schema.to_arrow_schema()
        # other writers note every column as one that may be null
        return schema if added.like is None else pa.schema([field.with_nullable(False) for field in schema])

    def list_files(self) -> Listing:
        """Return the files that readers see, as the log says."""
        with self._translate_errors():
            return self._list(self._load())

    def find_uncommitted(self) -> str | None:
        """Return the name of a file that a manifest lists and the log does not have yet, as its run was interrupted."""
        last = dict[str, int]()
        for name in list_file_names(self.directory):
            found = PUBLISHED.match(name.rpartition("/")[2])
            if found is None or name.startswith(f"{OWN}/"):
                continue
            pipeline = found[1]
            if pipeline not in last:
                last[pipeline] = self.find_last_commit(pipeline)
            if int(name.rpartition("/")[2][len(pipeline) + 1 :][:8]) > last[pipeline]:
                return name
        return None

    def may_vacuum(self, name: str) -> bool:
        """Return whether the file holds rows of the table, now or before."""
        return name.endswith(f".{self.suffix}") and not name.startswith((f"{OWN}/", f"{self.log}/", "."))

    def read_removal_time_s(self, name: str) -> float | None:
        """Return None: the log has it until it forgets the snapshot."""
        return None

    @abstractmethod
    def delete_empty_log(self) -> bool:
        """Delete the log, unless it has rows. Return whether it was deleted."""

    @abstractmethod
    def _find_foreign_levels(self) -> list[str] | None:
        """Return the partitions of a table that Lading has not claimed, as settings write them; None without any.

        Raises LocalError if it cannot be appended to, whatever the columns are.
        """

    @abstractmethod
    def _list(self, table: T) -> Listing:
        """Return the files of a table as it is loaded."""

    @abstractmethod
    def _try_replace(self, table: T, change: Replacement) -> bool:
        """Commit a change to the table as it is loaded; returns False if another writer was faster."""

    def has_commit(self, key: tuple[str, int], files: Sequence[DataFile]) -> bool:
        """Return whether the log has this manifest. Raises LocalError if with other files, RolledBack as ``commit``."""
        with self._translate_errors():
            return self._has_commit(self._load(), key, files)

    def _has_commit(self, table: T, key: tuple[str, int], files: Sequence[DataFile]) -> bool:
        pipeline, number = key
        if self._read_last_number(table, pipeline) >= number:
            self._require_same(table, key, files)
            return True
        if (found := self._find_rollback(table, pipeline)) is not None:
            raise RolledBack(found)
        return False

    def require_commit(self, key: tuple[str, int], files: Sequence[DataFile]) -> None:
        """Raise LocalError if the log has another batch under this number than these files."""
        with self._translate_errors():
            self._require_same(self._load(), key, files)

    def find_rollback(self, pipeline: str) -> Rollback | None:
        """Return which commits of the pipeline the table has lost because another writer took it back to before."""
        if not (self.directory / self.log).exists():
            return None
        with self._translate_errors():
            return self._find_rollback(self._load(), pipeline)

    def put_back(self, key: tuple[str, int], rollback: Rollback, files: Mapping[int, Sequence[DataFile]]) -> None:
        """Show the files of manifests, by number, that were taken back, again, in one commit; but those in the table.

        ``key`` is that of the last manifest in the log, whose files are among these.

        Raises LocalError, and changes nothing, if a file is not as it was.
        """
        hidden = [file for number in rollback.numbers for file in files.get(number, ())]
        with self._translate_errors():
            hidden = [file for file in hidden if file.name.rpartition("/")[2] not in self._listed]
        for file in hidden:
            change = super().find_change(key, file, is_read=True)
            if change is not None:
                raise LocalError(
                    f"the table {self.directory}: {file.name}, which another writer took out of it ({rollback.by}), "
                    f"{change} and cannot be put back; restore the file, or write another table from the start"
                )
        notes = {FILES: hash_files(files.get(key[1], ())), PUT_BACK: " ".join(map(str, rollback.numbers))}
        with self._translate_errors():
            self._commit_log(self._load(), key, hidden, notes)

    def _find_rollback(self, table: T, pipeline: str) -> Rollback | None:
        committed = self._read_last_number(table, pipeline)
        return find_rollback(self._list_commits(table), pipeline, committed) if committed else None

    def find_change(self, key: tuple[str, int], file: DataFile, *, is_read: bool) -> str | None:
        """Return in words how a published file differs from what its manifest says.

        A file that the log does not list any more is not a change: the table was compacted, or rows were deleted.
        """
        pipeline, number = key
        with self._translate_errors():
            if file.name.rpartition("/")[2] in self._listed:
                return super().find_change(key, file, is_read=is_read)
            if self._read_last_number(self._snapshot, pipeline) < number:
                return f"is not in the table's log, {self._version_word(self._snapshot)}"
            return None

    def list_missing_files(self) -> list[str]:
        """Return the names of files that the log lists and that no longer exist, whichever writer wrote them.

        Files that lie outside of the table, as those of a shallow clone, are not looked for.
        """
        if not (self.directory / self.log).exists():
            return []
        with self._translate_errors():
            names = [file.name for file in self._list(self._snapshot).files]
        return [name for name in names if not has_scheme(name) and self._size_of(self.directory / name, name) is None]

    def _missing_file_error(self, name: str) -> LadingError:
        """Return the error for a file that was listed: it was replaced meanwhile, unless the log lists it still."""
        if all(file.name != name for file in self.list_files().files):
            return super()._missing_file_error(name)
        return CorruptLog(f"table file {self.directory / name} {MISSING}, which the table's log lists; restore it")

    @cached_property
    def _snapshot(self) -> T:
        return self._load()

    @cached_property
    def _listed(self) -> frozenset[str]:
        return frozenset(self._file_names(self._snapshot))

    def _require_same(self, table: T, key: tuple[str, int], files: Sequence[DataFile]) -> None:
        """Raise LocalError if the log has another batch under this number; a log that was cleaned up cannot show it."""
        pipeline, number = key
        for commit, _, _ in self._list_commits(table):
            if (commit.get(PIPELINE), str(commit.get(MANIFEST))) == (pipeline, str(number)):
                if commit.get(FILES) == hash_files(files):
                    return
                break
        else:
            return
        raise LocalError(
            f"the table {self.directory} has manifest {number} of pipeline {pipeline!r} with other files than this "
            "one's: a second run with a copy of its state wrote it; continue with the state of that run"
        )

    def _new_columns(self, held: Sequence[Column], wanted: Sequence[Column]) -> list[Column]:
        """Return the wanted columns that the table does not have.

        Raises LocalError, which names the column, if the table cannot take the others, or if it was made by another
        writer, to which nothing is added. Columns of ``_list_relaxed_columns`` are to be made nullable.
        """
        left = {column.name.lower(): column for column in held}
        new = []
        for column in wanted:
            there = left.pop(column.name.lower(), None)
            if there is None and self.is_adopted:
                raise LocalError(
                    f"the table {self.directory}, which another writer made, has no column {column.name!r}"
                    f"{did_you_mean(column.name, [one.name for one in held])}; add the column to it, or name the "
                    "columns to write"
                )
            if there is None:
                new.append(column)
            elif there.name != column.name:
                raise LocalError(
                    f"the table {self.directory} has the column {there.name!r}, and {column.name!r} differs from it in "
                    f"case alone, which {self.noun} does not tell apart; name the column otherwise"
                )
            elif not can_hold(there.type, column.type) or (
                column.nullable and not there.nullable and (self.is_adopted or column.name not in TIME_FIELDS)
            ):
                raise LocalError(
                    f"the table {self.directory} has the column {column.name!r} as {there.word}, and now it would be "
                    f"{column.word}; a table keeps its types: name the old type, another column, or another table"
                )
        for other in left.values():
            if not other.nullable and other.name not in self.partitions.identities:
                raise LocalError(
                    f"the table {self.directory} has the column {other.name!r}, which may not be null and is not among "
                    "the columns that are written; allow nulls in it, or write another table"
                )
        return new

    def _list_relaxed_columns(self, held: Sequence[Column], wanted: Sequence[Column]) -> list[str]:
        """Return the times of messages that the table may not hold null in: earlier releases made it so."""
        if self.is_adopted:
            return []
        nullable = {column.name for column in wanted if column.nullable}
        return [column.name for column in held if not column.nullable and column.name in nullable & TIME_FIELDS]

    def _note_wider_types(self, held: Sequence[Column], wanted: Sequence[Column]) -> None:
        """Have files written in the types of the table if these are wider."""
        there = {column.name: column.type for column in held}
        wider = {
            column.name: str(there[column.name])
            for column in wanted
            if column.name in there and is_wider(there[column.name], column.type)
        }
        known = read_document(self._own / OWNER) or {}
        if wider != known.get(FILE_TYPES, {}):
            write_document(self._own / OWNER, {**known, FILE_TYPES: wider})

    def _require_levels(self, schema: pa.Schema) -> None:
        """Raise LocalError if rows of ``schema`` cannot be divided as the table of another writer is."""
        if not self.is_adopted:
            return
        try:
            Partitions.parse(self.partitions.words, schema)
        except SettingError as error:
            raise LocalError(
                f"the table {self.directory}, which another writer made, is "
                f"{describe_partitioning(self.partitions.words)}, and its rows cannot be divided so "
                f"({str(error).removeprefix('partition_by: ')}); write these columns, or another table"
            ) from None

    def _require_partitions(self, there: Sequence[str], own: Sequence[str]) -> None:
        """Raise LocalError if the log says other partitions than the table was claimed with."""
        if list(there) != list(own):
            shown = [
                f"partitioned by {', '.join(map(repr, names))}" if names else "without partitions"
                for names in (there, own)
            ]
            raise LocalError(
                f"the table {self.directory} is {shown[0]}, and Lading writes it {shown[1]}; restore its partition "
                "spec, or write another table"
            )

    def _type_error(self, field: pa.Field[Any], error: Exception) -> LocalError:
        return LocalError(
            f"the table {self.directory}: the column {field.name!r} is {field.type}, which {self._noun} table does "
            f"not have ({error}); give it another type, or write {ParquetTable.form}:{self.directory}"
        )

    @property
    def _noun(self) -> str:
        return f"{'an' if self.noun[0] in 'AEIOU' else 'a'} {self.noun}"

    def _require_library(self) -> None:
        try:
            import_module(self.package)
        except ImportError:
            raise LocalError(
                f"the table {self.directory} is {self._noun} table, which needs the package {self.package}; "
                + describe_install(self.form)
            ) from None

    def _log_error(self, error: Exception) -> LocalError:
        first, *others = _STYLES.sub("", str(error)).splitlines() or [type(error).__name__]
        # lines with arrows are causes, the innermost one last; a stack of the library may follow
        causes = [line.strip().lstrip("↳").strip() for line in others if line.strip().startswith("↳")]
        what = ": ".join([first.strip(), *causes])
        return LocalError(
            f"the table {self.directory}: its log cannot be read or written: {what}; fix that, and run this again"
        )

    @abstractmethod
    def _load(self) -> T:
        """Return the table as its log describes it now. Raises LocalError if it does not exist."""

    @abstractmethod
    def _read_last_number(self, table: T, pipeline: str) -> int:
        """Return the number of the pipeline's last manifest in the table; 0 for none."""

    @abstractmethod
    def _list_commits(self, table: T) -> Iterator[LoggedCommit]:
        """Yield the commits that the log still has, also those that were undone, the last one first."""

    @abstractmethod
    def _file_names(self, table: T) -> Iterator[str]:
        """Yield the names of the files that readers see."""

    @abstractmethod
    def _version_word(self, table: T) -> str:
        """Return a clause that says which version of the log was read."""

    @abstractmethod
    def _commit_log(
        self, table: T, key: tuple[str, int], files: Sequence[DataFile], put_back: Mapping[str, str] | None = None
    ) -> None:
        """Show files, which are in place, unless the log has this manifest by then.

        ``put_back`` are notes of a commit that shows files again: of a manifest that the log has had before.
        """

    @abstractmethod
    def _translate_errors(self) -> AbstractContextManager[None]:
        """Raise the library's errors as LocalError."""


def read_footer(path: TablePath) -> pq.FileMetaData:
    """Return the metadata of a Parquet file."""
    if not isinstance(path, ObjectPath):
        return pq.read_metadata(path)
    with path.open_reader() as file:
        return pq.read_metadata(file)


def find_schemas(metadata: Iterable[pq.FileMetaData]) -> list[pa.Schema]:
    """Return the columns of files, each set of columns once: a batch of many partitions has as many files."""
    found: dict[bytes, pa.Schema] = {}
    for held in metadata:
        schema = held.schema.to_arrow_schema()
        found.setdefault(schema.serialize().to_pybytes(), schema)
    return list(found.values())


def hash_files(files: Sequence[DataFile]) -> str:
    """Return the hash of the files of a batch, by which a log distinguishes two batches of one number."""
    text = "\n".join(sorted(f"{file.name} {file.hash}" for file in files))
    return xxhash.xxh3_128_hexdigest(text.encode())


COMMIT_ATTEMPTS: Final = 10
"""A commit that other writers overtake is tried at most this many times."""

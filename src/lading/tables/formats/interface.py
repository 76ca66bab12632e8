"""Interface of a form of tables, such as a directory of Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import RawIOBase
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from ...model.errors import LocalError
from ..storage.object_path import TablePath
from .manifest import DataFile
from .partitions import Partitions
from .rollback import Rollback

Rename = Callable[[Any, Any], Any]
"""Moves a staged file, at one TablePath, to its published name, at another of the same kind."""


class LiveFile(NamedTuple):
    """A file that readers of a table see now."""

    name: str
    """Relative to the table; as the log has it if the file is elsewhere."""
    partition: str
    """The partition of the file for people, such as ``carrier=UA``; empty if the table has no partitions."""
    size_bytes: int
    native: Any = None
    """The file as the log describes it."""
    has_deletes: bool = False
    """Whether rows of it are deleted by another file of the table."""

    @property
    def directory(self) -> str:
        """The directory of the file with its slash, relative to the table; empty for the table's own."""
        head, slash, _ = self.name.rpartition("/")
        return f"{head}{slash}"


class AddedFile(NamedTuple):
    """A file that takes the place of others: staged, on disk, and its name in the table."""

    staged: TablePath
    name: str
    size_bytes: int
    rows: int
    partition: str = ""
    """The partition that its rows belong to, as DataFile has it, unless ``like`` says it."""
    like: LiveFile | None = None
    """A file of the same partition."""


@dataclass(frozen=True)
class Listing:
    """The files of a table at one moment."""

    files: Sequence[LiveFile]
    snapshot: Any = None
    """The table as its library has loaded it."""


class Wanted(NamedTuple):
    """The part of a file that a reader wants."""

    columns: Sequence[str] | None = None
    """None for all."""
    bounds: Mapping[str, tuple[int, int]] = MappingProxyType({})
    """The least and greatest value of each column; row groups without any such value are left out."""


ALL: Final = Wanted()


class Replacement(NamedTuple):
    """One change of a table: ``removed`` are taken out of it and ``added`` are shown, in one commit."""

    removed: Sequence[LiveFile]
    added: Sequence[AddedFile]
    notes: Mapping[str, str]
    """Facts that the log keeps with the commit."""
    key: tuple[str, int] | None = None
    """The pipeline and manifest that this is the commit of."""
    changes_rows: bool = True
    """Whether readers see other rows afterwards; False if rows only moved to other files."""


class Overtaken(LocalError):
    """Another writer took files out of a table that were about to be replaced: list them again."""


@dataclass(frozen=True, slots=True)
class FileLayout:
    """Layout of the files of a table: the columns, those whose values repeat, and how they are compressed."""

    schema: pa.Schema
    """The columns as they are handed to ``write``: of the table's types, or dictionaries of them."""
    types: Mapping[str, pa.DataType]
    """The types of the table."""
    repeating: Sequence[str]
    compression: str
    """snappy, zstd, gzip, lz4 or none, as the settings say."""

    @property
    def plain_schema(self) -> pa.Schema:
        """The columns in the types of the table, without dictionaries."""
        return pa.schema([field.with_type(self.types[field.name]) for field in self.schema])


class TableFile(Protocol):
    """A file of a table that a task writes."""

    def write(self, rows: pa.Table) -> None:
        """Add some rows, at most ``GROUP_ROWS`` or about ``GROUP_BYTES``."""

    def close(self) -> None:
        """Complete the file; the sink stays open."""

    def abandon(self) -> None:
        """Write nothing more: the file is about to be deleted."""


class Table(Protocol):
    """One table. It is committed from a manifest that is written already, so that every step may be repeated."""

    directory: TablePath

    @property
    def form(self) -> str:
        """Return the prefix of a target, before the colon, such as ``parquet``."""

    @property
    def suffix(self) -> str:
        """Return the suffix of its files, without the dot."""

    @property
    def partitions(self) -> Partitions:
        """How its rows are divided; without levels they are not."""

    @property
    def is_adopted(self) -> bool:
        """Whether another writer made the table."""

    def widen(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns in the types that files are written in: those of a table that are wider."""

    @property
    def has_log(self) -> bool:
        """Whether the table itself knows what was committed to it."""

    @property
    def reads_values_from_names(self) -> bool:
        """Whether readers take the values of partitions from the names of directories, for want of a log."""

    @property
    def numbers_fields(self) -> bool:
        """Whether the fields of files have ids by which readers resolve them."""

    @property
    def keeps_partition_columns(self) -> bool:
        """Whether files hold the columns that are partitions themselves."""

    @property
    def reads_deleted_rows(self) -> bool:
        """Whether ``read_file`` can leave out rows that another file of the table deletes."""

    def read_partition(self, file: LiveFile) -> Mapping[str, str | None]:
        """Return the values of columns that are not in a file because they are its partition."""

    def list_used_names(self) -> Collection[str]:
        """Return the names, relative to the table, of files that a snapshot of it needs."""

    def may_vacuum(self, name: str) -> bool:
        """Return whether a file of this name is one that upkeep may delete if no snapshot needs it."""

    def read_removal_time_s(self, name: str) -> float | None:
        """Return when a file was taken out of the table, in seconds since 1970; None if only its own time says it."""

    def find_uncommitted(self) -> str | None:
        """Return the name of a file that a run, when it is repeated, is going to show; None without any."""

    def vacuum_log(self, age_s: float, *, dry_run: bool) -> list[str] | None:
        """Delete files that no version of this age needs, and return their names; None if the log cannot do that."""

    def count_snapshots(self) -> int:
        """Return the number of states of the table that a reader can go back to, with the present one."""

    def expire_snapshots(self, before_s: float, *, dry_run: bool) -> int:
        """Forget older states of the table; returns how many. Their files are left to vacuum."""

    def open_file(self, sink: RawIOBase, layout: FileLayout) -> TableFile:
        """Begin a file that a task stages."""

    def check_claim(self, owner: str | None) -> bool:
        """Raise what ``claim`` would raise, without changing anything; None is an owner who has no table yet.

        Returns whether ``owner`` has claimed the table before.
        """

    def check_log(self) -> None:
        """Raise the error of a log, or of the catalog that has it, that cannot be read; there may be none yet."""

    def claim(self, owner: str) -> None:
        """Claim the table for ``owner``. Raises LocalError if it holds data of another writer or form."""

    def withdraw(self, owner: str) -> bool:
        """Undo what ``claim`` and ``prepare`` did for ``owner``, whose run was refused before it committed anything.

        Returns whether no trace is left; a table that has rows stays as it is.
        """

    def prepare(self, schema: pa.Schema) -> None:
        """Make the table ready for rows of ``schema``, whose columns are those of the manifests, or more.

        Raises LocalError, which names the column, if the table cannot take them.
        """

    def find_last_commit(self, pipeline: str) -> int:
        """Return the number of the last manifest of ``pipeline`` that the table itself knows; 0 if it keeps none."""

    def partition_directory(self, partition: str) -> str:
        """Return the directory of a partition's files, relative to the table."""

    def staging_path(self, file: DataFile) -> TablePath:
        """Return the path of a staged file, which no reader of the table sees."""

    def commit(self, key: tuple[str, int], files: Sequence[DataFile], rename: Rename) -> None:
        """Show these files, once; ``key`` is the pipeline and the number of the manifest that lists them.

        Raises CorruptLog if a file is neither staged nor shown, or is not what the manifest says; RolledBack if what
        was committed before was taken back.
        """

    def list_files(self) -> Listing:
        """Return the files that readers see. Raises LocalError if the table's log cannot be read."""

    def read_file(self, listing: Listing, file: LiveFile, want: Wanted = ALL) -> Iterator[pa.RecordBatch]:
        """Yield rows of a file in bounded memory, without those that are deleted."""

    def replace_files(self, listing: Listing, change: Replacement) -> None:
        """Take files out of the table and show others, in one commit.

        Raises Overtaken, and changes nothing, if a file to be removed is not in the table any more.
        """

    def has_commit(self, key: tuple[str, int], files: Sequence[DataFile]) -> bool:
        """Return whether the table has what this manifest put in the place of other rows.

        Raises LocalError if it has other files of this manifest, RolledBack if another writer took back what was
        committed before.
        """

    def require_commit(self, key: tuple[str, int], files: Sequence[DataFile]) -> None:
        """Raise LocalError if the table itself knows another batch under this number; ``key`` is as in ``commit``."""

    def find_rollback(self, pipeline: str) -> Rollback | None:
        """Return which commits of the pipeline the table has lost because another writer took it back to before."""

    def put_back(self, key: tuple[str, int], rollback: Rollback, files: Mapping[int, Sequence[DataFile]]) -> None:
        """Show the files of manifests, by number, that were taken back, again.

        ``key`` is that of the last manifest in the log, whose files are among these.

        Raises LocalError, and changes nothing, if a file is not as it was.
        """

    def sweep(self, needed: Collection[str]) -> int:
        """Delete staged files but those of these names; returns how many."""

    def list_missing_files(self) -> list[str]:
        """Return the names of files below the table that its log lists and that no longer exist."""

    def find_change(self, key: tuple[str, int], file: DataFile, *, is_read: bool) -> str | None:
        """Return in words how a published file differs from its entry in manifest ``key``; None if it does not.

        The hash of its bytes is compared if ``is_read``, else its size.
        """

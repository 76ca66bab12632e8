"""Tables that are a directory of files: a staged file lies below it and is published by renaming it."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from ...model.errors import CorruptLog, LadingError, LocalError
from ..storage.files import (
    OWN,
    STAGED,
    create_document,
    make_directory,
    make_local_directory,
    move_file,
    read_document,
    remove_empty,
    sync_directory,
    write_document,
)
from ..storage.object_path import ObjectPath, TablePath
from .interface import ALL, Listing, LiveFile, Overtaken, Rename, Replacement, Wanted
from .manifest import HASH_NAME, DataFile
from .partitions import Partitions
from .rollback import Rollback

_READ_BYTES = 1 << 20
OWNER: Final = "owner.json"
FORM: Final = "form"
PARTITION_BY: Final = "partition_by"
FIRST_PARTITION_BY: Final = "first_partition_by"
ADOPTED: Final = "adopted"
"""Whether another writer made the table: its columns are never changed, and nothing of it is deleted as empty."""
FILE_TYPES: Final = "file_types"
"""The wider type, by column, that a table has, and in which files are written."""
FIELD_IDS: Final = "field_ids"
"""The ids of an Iceberg table's fields, by name, which its Parquet files have."""
"""The partitions with which the table was claimed, if they have changed since: settings still have these."""
MISSING: Final = "is missing"
"""The problem of a published file that does not exist any more."""
PUBLISHED: Final = re.compile(r"(.+-[0-9a-f]{8})-\d{8}-(?:\d{3}|sql)-\d{5}-")
"""The name of a file begins with its pipeline and manifest, then topic and partition, or task."""
REPLACING: Final = "replacing-"
"""The names of staged files begin with this that a run does not delete when it begins: they replace published ones."""
REPLACING_RANGE: Final = f"{REPLACING}range-"
"""Files that replace a range: a manifest may list them, which an interrupted run still has to commit."""
CHANGES, REPLACED, FINISHED = "changes", "replaced", "finished.json"
"""In the own directory of a table without a log: what replaced files, the files that were replaced, and the number of
the last change that was carried out whole."""
READ_ROWS: Final = 65_536
DEFAULT_FORM: Final = "parquet"
"""The form of tables whose document names none."""


class DirectoryTable:
    """One directory; readers take every file in it whose name does not begin with an underscore or a dot.

    A form of such tables says its name and how its files are written.
    """

    form: ClassVar[str]
    """Prefix of a target, before the colon."""
    suffix: ClassVar[str]
    """Suffix of its files; by default the form."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "suffix" not in vars(cls):
            cls.suffix = cls.form

    counted_transforms: ClassVar[tuple[str, ...]] = ()
    """The transforms of partitions, of those that count, that the form has."""
    has_log: ClassVar[bool] = False
    """Whether the table itself knows what was committed to it."""
    reads_values_from_names: ClassVar[bool] = True
    """Whether readers take the values of partitions from the names of directories, for want of a log."""
    reads_deleted_rows: ClassVar[bool] = True
    numbers_fields: ClassVar[bool] = False
    """Whether the fields of files have ids by which readers resolve them."""
    keeps_partition_columns: ClassVar[bool] = False
    """Whether files hold the columns that are partitions; readers of directories take them from the names."""

    def __init__(self, directory: TablePath, partition_by: Partitions | None = None) -> None:
        self.directory = directory
        self._partition_by = partition_by

    @cached_property
    def partitions(self) -> Partitions:
        """The levels of partitions: as the table was claimed with, else as it is to be."""
        known = read_document(self._own / OWNER)
        if known is None:
            return self._partition_by or Partitions()
        return Partitions.parse(known.get(PARTITION_BY, ()))

    @property
    def is_adopted(self) -> bool:
        """Whether another writer made the table; one without a log is never appended to."""
        return False

    def widen(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns in the types that files are written in: those of a table that are wider."""
        return schema

    @property
    def _own(self) -> TablePath:
        return self.directory / OWN

    def check_claim(self, owner: str | None) -> bool:
        """Raise LocalError if the table holds data of another writer or form; returns whether it is ``owner``'s."""
        known = read_document(self._own / OWNER)
        if known is not None:
            if known["pipeline"] != owner:
                raise LocalError(
                    f"the table {self.directory} is written by pipeline {known['pipeline']!r}, whose state is "
                    "elsewhere; name its state directory, or another table"
                )
            if (form := form_of(known)) != self.form:
                raise LocalError(
                    f"the table {self.directory} is of the form {form}, not {self.form}; name that, or another table"
                )
            there, now = known.get(PARTITION_BY, []), self._partition_by
            follows = now is None or (not now and known.get(ADOPTED, False))
            if now is not None and not follows and now.words not in (there, known.get(FIRST_PARTITION_BY, there)):
                raise LocalError(
                    f"the table {self.directory} is {describe_partitioning(there)}, and now it would be "
                    f"{describe_partitioning(now.words)}; a table keeps its partitions: name the same, or "
                    "another table"
                )
            return True
        self.partitions.require(self.counted_transforms, f"{self.form}:")
        # files of the owner itself are there if the directory of its state was in the table's, and lost
        mine = f"{owner}-" if owner is not None else "/"
        strangers = [name for name in visible_names(self.directory) if not name.startswith(mine)]
        if strangers:
            self.require_no_lost_owner()
            raise LocalError(
                f"{self.directory} holds {strangers[0]!r}, which Lading did not write, and a table is not mixed with "
                "other files; name another directory"
            )
        return False

    def require_no_lost_owner(self) -> None:
        """Raise LocalError if names of files show that Lading wrote them, but the record of its progress is missing."""
        held = (PUBLISHED.match(path.rpartition("/")[2]) for path in list_file_names(self.directory))
        if (found := next((one for one in held if one), None)) is not None:
            raise LocalError(
                f"the table {self.directory} has files of pipeline {found[1]!r}, and its directory {OWN}, which says "
                f"how far that has read, is gone; restore {OWN} from a backup, or write another table from the start"
            )

    def check_log(self) -> None:
        """Do nothing: a directory has no log."""

    def claim(self, owner: str) -> None:
        """Claim the table for ``owner``.

        Raises LocalError if it holds data of another writer or form, or cannot be written to.
        """
        if self.check_claim(owner):
            return
        make_directory("the table", self.directory)
        make_directory("the table", self._own / STAGED)
        document = self.claim_document()
        write_document(self._own / OWNER, {"version": 1, "pipeline": owner, **document})
        vars(self).pop("partitions", None)

    def note_partitions(self, words: Sequence[str]) -> None:
        """Divide new files by other levels; settings may still name those that the table was claimed with."""
        known = dict(read_document(self._own / OWNER) or {})
        known.setdefault(FIRST_PARTITION_BY, known.get(PARTITION_BY, []))
        write_document(self._own / OWNER, {**known, PARTITION_BY: list(words)})
        vars(self).pop("partitions", None)

    def withdraw(self, owner: str) -> bool:
        """Undo a claim of ``owner``, if the table has no rows; returns whether no trace is left."""
        known = read_document(self._own / OWNER)
        if known is not None and known["pipeline"] == owner:
            if not self.delete_empty():
                return False
            self.sweep(())
            (self._own / OWNER).unlink()
        remove_empty(self._own / STAGED, self._own)
        return True

    def delete_empty(self) -> bool:
        """Delete what ``prepare`` made; returns False, and changes nothing, if the table has rows."""
        return not visible_names(self.directory)

    def claim_document(self) -> Mapping[str, Any]:
        """Return what the owner's document says besides the owner."""
        document: dict[str, Any] = {} if self.form == DEFAULT_FORM else {FORM: self.form}
        return {**document, PARTITION_BY: self.partitions.words} if self.partitions else document

    def prepare(self, schema: pa.Schema) -> None:
        """Do nothing: every file has its own columns, and readers put them together."""

    def find_last_commit(self, pipeline: str) -> int:
        """Return 0: only manifests know."""
        return 0

    def partition_directory(self, partition: str) -> str:
        """Return the directory of a partition's files below the table: readers take its values from this name."""
        return partition

    def staging_path(self, file: DataFile) -> TablePath:
        """Return the path of a staged file."""
        return self._own / STAGED / file.staged

    def commit(self, key: tuple[str, int], files: Sequence[DataFile], rename: Rename) -> None:
        """Rename staged files to their published names; one that is there already is checked."""
        renamed: set[TablePath] = set()
        for file in files:
            staged, final = self.staging_path(file), self.directory / file.name
            if final.is_file():
                _require_same(final, file, key)
            elif staged.exists():
                if staged.stat().st_size != file.size_bytes:
                    _require_same(staged, file, key)
                if isinstance(final, Path) and not final.parent.exists():
                    final.parent.mkdir(parents=True)
                    renamed |= {parent for parent in final.parents if self.directory in (parent, *parent.parents)}
                rename(staged, final)
                renamed.add(final.parent)
            else:
                raise CorruptLog(
                    f"manifest {key[1]} of pipeline {key[0]!r} lists {final.name} with {file.rows} rows, but neither "
                    f"{final} nor {staged} exists; restore one of them"
                )
        for directory in renamed:
            sync_directory(directory)

    def require_commit(self, key: tuple[str, int], files: Sequence[DataFile]) -> None:
        """Do nothing: only manifests know."""

    def find_rollback(self, pipeline: str) -> Rollback | None:
        """Return None: a directory has no older state to go back to."""
        return None

    def put_back(self, key: tuple[str, int], rollback: Rollback, files: Mapping[int, Sequence[DataFile]]) -> None:
        """Do nothing: nothing was taken back."""

    def sweep(self, needed: Collection[str]) -> int:
        """Delete staged files but those of these names; returns how many."""
        self.finish_changes()
        orphans = [
            path
            for path in (self._own / STAGED).glob("*")
            if path.name not in needed and not path.name.startswith(REPLACING)
        ]
        for orphan in orphans:
            orphan.unlink(missing_ok=True)
        return len(orphans)

    def find_change(self, key: tuple[str, int], file: DataFile, *, is_read: bool) -> str | None:
        """Return in words how a published file differs from what its manifest says; None if it does not."""
        path = self.directory / file.name
        size = self._size_of(path, file.name)
        if size is None:
            return None if file.name in self._replaced_names else MISSING
        if size != file.size_bytes:
            return f"has {size} bytes instead of {file.size_bytes}"
        # a store keeps checksums of its own, and reading it costs time and money
        if not is_read or isinstance(path, ObjectPath):
            return None
        try:
            return None if hash_of(path) == file.hash else "has other bytes than it had"
        except OSError as error:
            return f"cannot be read ({error.strerror})"

    def list_missing_files(self) -> list[str]:
        """Return nothing: only manifests say which files a directory should have."""
        return []

    def list_files(self) -> Listing:
        """Return the data files in the directory, after changes that were interrupted."""
        self.finish_changes()
        files = []
        for name, size_bytes in sorted(_walk(self.directory)):
            if name.endswith(f".{self.suffix}") and not any(part[0] in "_." for part in name.split("/")):
                files.append(LiveFile(name, name.rpartition("/")[0], size_bytes))
        return Listing(files)

    def read_file(self, listing: Listing, file: LiveFile, want: Wanted = ALL) -> Iterator[pa.RecordBatch]:
        """Yield rows of a file, of which a part is in memory at a time."""
        path = self.directory / file.name
        try:
            opened = path.open_reader() if isinstance(path, ObjectPath) else path.open("rb")
        except FileNotFoundError:
            raise self._missing_file_error(file.name) from None
        with opened as source:
            yield from read_batches(source, want)

    def _missing_file_error(self, name: str) -> LadingError:
        """Return the error for a file that was listed and cannot be found."""
        return Overtaken(f"the table {self.directory}: {name} was taken out of it meanwhile; run this again")

    def read_partition(self, file: LiveFile) -> Mapping[str, str | None]:
        """Return the values of columns that are not in a file because they are its partition."""
        if not file.partition or not self.partitions:
            return {}
        values = self.partitions.values_of(file.partition)
        return {name: values[name] for name in self.partitions.identities}

    def list_used_names(self) -> Collection[str]:
        """Return the names of files that readers see."""
        return {file.name for file in self.list_files().files}

    def may_vacuum(self, name: str) -> bool:
        """Return whether the file is one that upkeep took out of the table."""
        return name.startswith(f"{OWN}/{REPLACED}/")

    def read_removal_time_s(self, name: str) -> float | None:
        """Return when a file was taken out of the table, in seconds since 1970."""
        number = name.rpartition("/")[2].partition("-")[0]
        if not self.may_vacuum(name) or not number.isdigit():
            return None
        document = read_document(self._change_path(int(number)))
        return None if document is None else float(document["written_us"]) / 1e6

    def vacuum_log(self, age_s: float, *, dry_run: bool) -> list[str] | None:
        """Return None: a directory has none."""
        return None

    def find_uncommitted(self) -> str | None:
        """Return None: a file in a directory is in the table."""
        return None

    def count_snapshots(self) -> int:
        """Return 1: a directory has no older state."""
        return 1

    def expire_snapshots(self, before_s: float, *, dry_run: bool) -> int:
        """Return 0: a directory has no older state."""
        return 0

    def replace_files(self, listing: Listing, change: Replacement) -> None:
        """Write down the change, as the first to do so under its number, and carry it out.

        From then on it is done, also if this process ends: the next one that opens the table completes it. A
        reader of the directory may see the new files next to the old ones for a moment.
        """
        removed = [file.name for file in change.removed]
        held = {
            "key": None if change.key is None else list(change.key),
            "notes": dict(change.notes),
            "removed": removed,
            "added": [{"staged": self._in_own(one.staged), "name": one.name} for one in change.added],
        }
        changes, replaced = self._own / CHANGES, self._own / REPLACED
        for directory in (changes, replaced):
            if isinstance(directory, Path):
                make_local_directory(directory)
        while True:
            number = self.finish_changes() + 1
            if missing := next((one.staged for one in change.added if not one.staged.exists()), None):
                raise LocalError(
                    f"the table {self.directory}: {missing} was deleted before it took the place of other files; "
                    "nothing was changed, run this again, and no vacuum with --unsafe at the same time"
                )
            for name in removed:
                if not (self.directory / name).exists():
                    raise Overtaken(
                        f"the table {self.directory}: another run replaced {name} meanwhile; run this again"
                    )
            document = {"version": 1, "number": number, "written_us": time.time_ns() // 1000, **held}
            if create_document(self._change_path(number), document):
                break
        self.finish_changes()
        vars(self).pop("_replaced_names", None)

    def has_commit(self, key: tuple[str, int], files: Sequence[DataFile]) -> bool:
        """Return whether the change of this pipeline and manifest was written down, and carry it out."""
        self.finish_changes()
        return any(document.get("key") == list(key) for document in self._read_changes())

    def finish_changes(self) -> int:
        """Carry out what is written down and was interrupted; returns the number of the last change."""
        directory = self._own / CHANGES
        if not directory.exists():
            return 0
        done = number = int((read_document(directory / FINISHED) or {"number": 0})["number"])
        while (document := read_document(self._change_path(number + 1))) is not None:
            number += 1
            self._carry_out(document)
        if number > done:
            write_document(directory / FINISHED, {"number": number})
        return number

    def _carry_out(self, document: Mapping[str, Any]) -> None:
        touched: set[TablePath] = set()
        for row in document["added"]:
            staged, final = self._own / row["staged"], self.directory / row["name"]
            # another process may be doing the same
            if final.exists():
                continue
            if staged.exists():
                if isinstance(final, Path):
                    final.parent.mkdir(parents=True, exist_ok=True)
                _move(staged, final)
                touched.add(final.parent)
            elif not self._is_removed_later(row["name"], document["number"]):
                raise CorruptLog(
                    f"the table {self.directory}: change {document['number']} puts {row['name']} in the place of other "
                    f"files, but neither it nor {staged} exists; restore one of them, or delete "
                    f"{self._change_path(document['number'])} to keep the files of before"
                )
        for name in document["removed"]:
            source = self.directory / name
            if source.exists():
                # readers that glob for *.parquet in all directories are not to find it
                kept_name = f"{document['number']:08d}-{quote(name, safe='=')}.replaced"
                _move(source, self._own / REPLACED / kept_name)
                touched |= {source.parent, self._own / REPLACED}
        for directory in touched:
            sync_directory(directory)

    def _is_removed_later(self, name: str, number: int) -> bool:
        """Return whether a later change takes this file out, so that its own was carried out by another process."""
        while (document := read_document(self._change_path(number := number + 1))) is not None:
            if name in document["removed"]:
                return True
        return False

    def _change_path(self, number: int) -> TablePath:
        return self._own / CHANGES / f"{number:08d}.json"

    def _read_changes(self) -> Iterator[Mapping[str, Any]]:
        number = 1
        while (document := read_document(self._change_path(number))) is not None:
            yield document
            number += 1

    def _in_own(self, path: TablePath) -> str:
        return str(path)[len(str(self._own)) + 1 :]

    @cached_property
    def _replaced_names(self) -> frozenset[str]:
        """Names of published files that upkeep replaced by others."""
        return frozenset(name for document in self._read_changes() for name in document["removed"])

    def _size_of(self, path: TablePath, name: str) -> int | None:
        if isinstance(path, ObjectPath):
            return self._sizes.get(name)
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None

    @cached_property
    def _sizes(self) -> Mapping[str, int]:
        """The size of every object of the table: one listing instead of a request for each file."""
        return dict(self.directory.walk()) if isinstance(self.directory, ObjectPath) else {}


def describe_partitioning(words: Sequence[str]) -> str:
    return f"partitioned by {', '.join(words)}" if words else "without partitions"


def read_batches(source: Any, want: Wanted) -> Iterator[pa.RecordBatch]:
    """Yield rows of a Parquet file, of which a row group is in memory at a time."""
    return read_batches_of(open_parquet(source), want)


def open_parquet(source: Any) -> pq.ParquetFile:
    """Open a Parquet file; its source stays open when it is closed."""
    # times of Spark's files, in their old form, are in microseconds; nanoseconds would not reach the year 9999
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us")


def read_batches_of(file: pq.ParquetFile, want: Wanted) -> Iterator[pa.RecordBatch]:
    """Yield rows as ``read_batches`` does, and close the file."""
    names = file.schema_arrow.names
    wanted = None if want.columns is None else {name.lower() for name in want.columns}
    columns = None if wanted is None else [name for name in names if name.lower() in wanted]
    try:
        for group in range(file.num_row_groups):
            if _may_have(file.metadata.row_group(group), want):
                yield from file.iter_batches(READ_ROWS, row_groups=[group], columns=columns, use_threads=False)
    finally:
        file.close()


def _may_have(group: pq.RowGroupMetaData, want: Wanted) -> bool:
    """Return whether a row group may have values within the bounds, as far as its statistics say."""
    for at in range(group.num_columns if want.bounds else 0):
        column: Any = group.column(at)
        bounds, held = want.bounds.get(column.path_in_schema), column.statistics
        if bounds is not None and held is not None and held.has_min_max:
            low, high = bounds
            if held.max < low or held.min > high:
                return False
    return True


def _walk(directory: TablePath) -> Iterator[tuple[str, int]]:
    """Yield the names below a directory, relative to it, and their sizes, without Lading's own."""
    if isinstance(directory, ObjectPath):
        yield from directory.walk()
        return
    for path in directory.rglob("*.*"):
        name = str(path.relative_to(directory))
        with suppress(FileNotFoundError):
            if not name.startswith(f"{OWN}/") and path.is_file():
                yield name, path.stat().st_size


def _move(source: TablePath, target: TablePath) -> None:
    try:
        move_file(source, target)
    except FileNotFoundError:
        # another process has moved it
        if not target.exists():
            raise


def form_of(owner: Mapping[str, Any]) -> str:
    """Return the form that the owner's document of a table names."""
    form: str = owner.get(FORM, DEFAULT_FORM)
    return form


def visible_names(table: TablePath) -> list[str]:
    """Return the names in a table's directory that its readers see. Raises LocalError if it is a file."""
    if not table.exists():
        return []
    if not table.is_dir():
        raise LocalError(f"{table} is a file; a table is a directory")
    return sorted(path.name for path in table.iterdir() if not path.name.startswith(("_", ".")))


def list_file_names(table: TablePath) -> Iterator[str]:
    """Return the names of all files of a table, those of its partitions too."""
    if isinstance(table, ObjectPath):
        return (name for name, _ in table.walk())
    return (str(path.relative_to(table)) for path in table.rglob("*") if path.is_file())


def hash_of(path: TablePath) -> str:
    """Return the hash of a file's bytes, as manifests hold it."""
    digest = xxhash.xxh3_128()
    with path.open_reader() if isinstance(path, ObjectPath) else path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return f"{HASH_NAME}:{digest.hexdigest()}"


def _require_same(path: TablePath, file: DataFile, key: tuple[str, int]) -> None:
    if path.stat().st_size != file.size_bytes or hash_of(path) != file.hash:
        raise CorruptLog(
            f"{path} is not the file that manifest {key[1]} of pipeline {key[0]!r} lists ({file.size_bytes} bytes, "
            f"{file.hash}); it was changed or damaged: restore it, or remove it from there"
        )

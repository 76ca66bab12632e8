"""Iceberg tables: a directory of Parquet files, of which the table's metadata says which ones readers see.

Metadata are read and written by the package ``pyiceberg``, which only the driver imports, when it commits. A catalog
names the newest metadata: one that pyiceberg's settings name, or a SQLite database in the table's directory. Terms are
those of the specification (https://iceberg.apache.org/spec/).
"""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from io import RawIOBase
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa

from ...model.errors import LadingError, LocalError, RemoteError, SettingError, Unreachable
from ..storage.files import OWN, delete_tree, read_document, sync_directory, write_document
from ..storage.object_path import SCHEMES, ObjectPath, TablePath
from .directory import FIELD_IDS, OWNER, describe_partitioning, open_parquet, read_batches_of, visible_names
from .field_ids import collect_ids, collect_mapped_ids, is_part_of, number_fields, read_ids
from .interface import ALL, FileLayout, Listing, LiveFile, Replacement, Wanted
from .logged import COMMIT_ATTEMPTS, Column, LoggedTable, find_schemas, hash_files, read_footer
from .manifest import DataFile
from .parquet import ParquetFile
from .partitions import COUNTED, Partitions, name_level
from .rollback import FILES, MANIFEST, PIPELINE, LoggedCommit

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

METADATA: Final = "metadata"
VERSION_HINT: Final = "version-hint.text"
"""Names the newest metadata for readers that are given a directory and no catalog; catalogs do not read it."""
CATALOG: Final = "catalog"
OWN_CATALOG, OWN_CATALOG_FILE, NAMESPACE = "lading", "catalog.db", "lading"
FILE_IO: Final = "lading.tables.formats.iceberg_io.SyncedFileIO"
ATTEMPT: Final = "lading.attempt"
"""In a snapshot: the attempt to commit that made it, so that an attempt whose response was lost is recognized."""
PROPERTIES: Final = {
    # a commit writes a file of metadata, and by default none is ever deleted
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "commit.manifest-merge.enabled": "true",
}
FILE_SYSTEMS: Final = ("file", "dbfs", "hdfs", "s3a", "s3n", "gcs", "abfs", "wasb", "wasbs", *SCHEMES)
_CATALOG_PLACE: Final = re.compile(r"([\w-]{2,}(?:/[\w.-]+)?):(?!//)(.*)", re.DOTALL)
_SCHEME: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*:)?/*")
AWAY: Final = ("ServiceUnavailableError", "ServerError", "TTransportException")
FORBIDDEN: Final = ("UnauthorizedError", "ForbiddenError", "OAuthError", "AuthorizationExpiredError")
"""Errors of pyiceberg and Thrift by what they say of a catalog, which a retry may find back, or may not."""
LOG: Final = logging.getLogger("lading.tables")
LIBRARY_LOG: Final = logging.getLogger("pyiceberg.io.pyarrow")


class IcebergTable(LoggedTable["Table"]):
    """Parquet files that one snapshot shows, with pipeline and manifest among its properties.

    Files are staged and renamed as those of a directory are. The number of the last manifest is also a property of the
    table, set by the same commit, as snapshots expire. Other writers may append to the table, and compact it.
    """

    form = "iceberg"
    suffix = "parquet"
    noun = "Iceberg"
    package = "pyiceberg"
    log = METADATA

    counted_transforms = COUNTED
    numbers_fields = True
    keeps_partition_columns = True

    def read_partition(self, file: LiveFile) -> Mapping[str, str | None]:
        """Return nothing: the files have every column."""
        return {}

    def __init__(
        self, directory: TablePath, partition_by: Partitions | None = None, catalog: str | None = None
    ) -> None:
        super().__init__(directory, partition_by)
        self._named = catalog

    @classmethod
    def split_place(cls, place: str) -> tuple[str, str]:
        """Return the catalog and the directory of ``prod/lake.flights:./flights``; the catalog may be empty."""
        found = _CATALOG_PLACE.fullmatch(place)
        # dbfs:/mnt/x is a place, or a mistake; no catalog is called that
        return (found[1], found[2]) if found and found[1] not in FILE_SYSTEMS else ("", place)

    def check_claim(self, owner: str | None) -> bool:
        """Raise LocalError as tables with a log do, and for a table that is in another catalog."""
        if set(str(self.directory)) & set("?#%"):
            raise LocalError(
                f"the table {self.directory}: Iceberg writes this path into its metadata as a URL, in which ?, # and % "
                "have a meaning of their own; name another directory"
            )
        if isinstance(self.directory, ObjectPath) and not self._place_in_catalog:
            raise LocalError(
                f"the table {self.directory}: an Iceberg table on an object store needs a catalog, which says which "
                f"metadata are the newest; name one: iceberg:CATALOG:{self.directory}"
            )
        claimed = super().check_claim(owner)
        if claimed and self._named is not None and self._named != self._recorded:
            there, now = (
                f"the catalog {name!r}" if name else "its own catalog" for name in (self._recorded, self._named)
            )
            raise LocalError(f"the table {self.directory} is in {there}, not in {now}; name that, or another table")
        return claimed

    def check_log(self) -> None:
        """Raise what tables with a log do, and the error of a catalog that is named and cannot be opened."""
        if self._place_in_catalog:
            with self._translate_errors():
                _ = self._catalog
        super().check_log()

    def claim(self, owner: str) -> None:
        """Claim the table as tables with a log do, after a response of its catalog, so that a mistyped name is not
        kept."""
        if not self.check_claim(owner) and self._named:
            with self._translate_errors():
                _ = self._catalog
        super().claim(owner)

    def _find_foreign_levels(self) -> list[str] | None:
        from pyiceberg.exceptions import NoSuchTableError

        is_there = (self.directory / METADATA).exists()
        if not self._place_in_catalog:
            if is_there:
                self.require_no_lost_owner()
                raise LocalError(
                    f"{self.directory} holds an Iceberg table that Lading did not make, and only its catalog says "
                    f"which rows it has; name another directory, or that catalog: iceberg:CATALOG/NAMESPACE.TABLE:"
                    f"{self.directory}"
                )
            return None
        with self._translate_errors():
            try:
                table = self._catalog.load_table(self._identifier)
            except NoSuchTableError:
                if is_there:
                    self.require_no_lost_owner()
                    raise self._missing_table_error() from None
                return None
            self._require_here(table)
            if not is_there:
                raise LocalError(
                    f"the table {self.directory} has its metadata elsewhere ({table.metadata_location}), and Lading "
                    f"looks for them in {METADATA} below it; write another table"
                )
            from .iceberg_partitions import spec_words

            return spec_words(table)

    def _require_defaults(self, table: Table, schema: pa.Schema) -> None:
        """Raise LocalError, which names the column, if a writer has to fill in a value that rows do not have."""
        for field in table.schema().fields:
            if field.name not in schema.names and getattr(field, "write_default", None) is not None:
                raise LocalError(
                    f"the table {self.directory}: the column {field.name!r} has a default, which its writer fills in, "
                    "and is not among the columns that are written; write it, or take its default away"
                )

    def claim_document(self) -> Mapping[str, Any]:
        """Return the form and, if one is named, the catalog."""
        return {**super().claim_document(), **({CATALOG: self._named} if self._named else {})}

    @property
    def _location(self) -> str:
        return str(self.directory) if isinstance(self.directory, ObjectPath) else f"file://{self.directory}"

    @property
    def _recorded(self) -> str:
        name: str = (read_document(self._own / OWNER) or {}).get(CATALOG, "")
        return name

    @property
    def _place_in_catalog(self) -> str:
        return self._recorded if self._named is None else self._named

    @cached_property
    def _identifier(self) -> tuple[str, ...]:
        _, _, name = self._place_in_catalog.partition("/")
        return tuple(name.split(".")) if "." in name else (NAMESPACE, name or self.directory.name)

    @cached_property
    def _catalog(self) -> Catalog:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NotInstalledError

        name, _, _ = self._place_in_catalog.partition("/")
        if not name:
            uri = f"sqlite:///{self.directory / OWN / OWN_CATALOG_FILE}"
            return load_catalog(OWN_CATALOG, type="sql", uri=uri, **{"py-io-impl": FILE_IO})
        try:
            return load_catalog(name, **{"py-io-impl": FILE_IO})
        except NotInstalledError as error:
            raise LocalError(
                f"the table {self.directory}: the Iceberg catalog {name!r} lacks its packages; {error}"
            ) from None
        except ValueError as error:
            raise LocalError(
                f"the table {self.directory}: the Iceberg catalog {name!r} is not set up ({error}); name it in "
                f"~/.pyiceberg.yaml, or set PYICEBERG_CATALOG__{name.upper().replace('-', '_')}__URI"
            ) from None

    def partition_directory(self, partition: str) -> str:
        """Return the directory of a partition's files: without escapes, as metadata hold the values."""
        return re.sub(r"[^A-Za-z0-9_./-]", "_", super().partition_directory(partition))

    def open_file(self, sink: RawIOBase, layout: FileLayout) -> ParquetFile:
        """Begin a file whose fields have the ids of the table, as far as it was prepared for all of them."""
        schema = layout.schema
        if not read_ids(schema):
            schema = number_fields(schema, self._field_ids) or schema
        return ParquetFile(sink, replace(layout, schema=schema))

    @cached_property
    def _field_ids(self) -> Mapping[str, Any]:
        """The ids of the table's fields when a run last began."""
        ids: Mapping[str, Any] = (read_document(self._own / OWNER) or {}).get(FIELD_IDS, {})
        return ids

    def _note_field_ids(self, table: Table) -> None:
        """Have tasks, which cannot import the library, write the ids of the table's fields."""
        ids, known = _ids_of(table.schema()), read_document(self._own / OWNER) or {}
        if ids != known.get(FIELD_IDS):
            write_document(self._own / OWNER, {**known, FIELD_IDS: ids})
        vars(self).pop("_field_ids", None)

    def prepare(self, schema: pa.Schema) -> None:
        """Create the table if it is missing, and add the columns that it lacks, in a commit of their own.

        Raises LocalError, which names the column, if rows of ``schema`` do not fit into the table.
        """
        from pyiceberg.exceptions import NoSuchTableError

        self._require_library()
        with self._translate_errors():
            try:
                table = self._load_from_catalog()
            except NoSuchTableError:
                is_held = any(name.endswith(f".{self.suffix}") for name in visible_names(self.directory))
                if is_held or self.is_adopted:
                    raise self._missing_table_error() from None
                self._catalog.create_namespace_if_not_exists(self._identifier[:-1])
                from .iceberg_partitions import partition_spec

                made = self._iceberg_schema(schema)
                table = self._catalog.create_table(
                    self._identifier, made, self._location, partition_spec(self.partitions, made), properties=PROPERTIES
                )
                sync_directory(self.directory / OWN)
                sync_directory(self.directory)
            self._require_here(table)
            self._require_defaults(table, schema)
            self._require_levels(schema)
            table = self._add_columns(table, schema)
            self._note_version(table)
            self._follow_partitions(table, schema)
            self._note_wider_types(*self._pair_columns(table, schema))
            self._note_field_ids(table)

    def delete_empty_log(self) -> bool:
        """Delete the metadata and the catalog's entry, if the table has no snapshot."""
        from pyiceberg.exceptions import NoSuchTableError

        if (self.directory / METADATA).exists():
            with self._translate_errors():
                # without an entry the catalog has refused what the metadata were written for
                with suppress(NoSuchTableError):
                    table = self._catalog.load_table(self._identifier)
                    if self._is_here(table):
                        if table.current_snapshot() is not None:
                            return False
                        self._catalog.drop_table(self._identifier)
                delete_tree(self.directory / METADATA)
        if not self._place_in_catalog:
            (self._own / OWN_CATALOG_FILE).unlink(missing_ok=True)
        return True

    def load(self) -> Table:
        """Return the table that its catalog has, to be read, whatever its partitions are now.

        Raises LocalError, as writing does, if the table does not exist.
        """
        from pyiceberg.exceptions import NoSuchTableError

        with self._translate_errors():
            try:
                return self._catalog.load_table(self._identifier_to_read())
            except NoSuchTableError:
                raise self._missing_table_error() from None

    def _identifier_to_read(self) -> tuple[str, ...]:
        """Return the table's name in its catalog; its own has one table, also if a link leads to the directory."""
        from pyiceberg.exceptions import NoSuchNamespaceError

        if not self._place_in_catalog:
            with suppress(NoSuchNamespaceError):
                for identifier in self._catalog.list_tables(NAMESPACE):
                    return identifier
        return self._identifier

    def has_catalog(self) -> bool:
        """Return whether a catalog is known that has the table: named, noted with it, or in its directory."""
        return bool(self._place_in_catalog) or (self._own / OWN_CATALOG_FILE).exists()

    def _commit_log(
        self, table: Table, key: tuple[str, int], files: Sequence[DataFile], put_back: Mapping[str, str] | None = None
    ) -> None:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        from .iceberg_partitions import append_files, are_of_spec

        if put_back is not None and not are_of_spec(table, self.partitions, files):
            raise LocalError(
                f"the table {self.directory}: its partitions were changed after rows were taken out of it, and these "
                "cannot be put back; write another table from the start"
            )
        pipeline, number = key
        added = [(file, read_footer(self.directory / file.name)) for file in files]
        schemas = find_schemas(footer for _, footer in added)
        for left in reversed(range(COMMIT_ATTEMPTS)):
            for schema in schemas:
                table = self._add_columns_of(table, schema)
            attempt = uuid4().hex
            notes = {PIPELINE: pipeline, MANIFEST: str(number), FILES: hash_files(files), ATTEMPT: attempt}
            notes |= put_back or {}
            spec = self._find_spec(table)
            self._refuse_overtaken(table, key, attempt, spec, is_put_back=put_back is not None)
            try:
                with table.transaction() as transaction:
                    transaction.set_properties({_number_property(pipeline): str(number)})
                    append_files(transaction, spec, self.partitions, added, notes)
            except (CommitFailedException, ValidationException):
                # columns or partitions were changed meanwhile, or a second run of this pipeline was faster
                table = self._load()
                if put_back is None and self._read_last_number(table, pipeline) >= number:
                    self._require_same(table, key, files)
                    return
                if not left:
                    raise
            else:
                self._note_version(table)
                return

    def _add_columns_of(self, table: Table, schema: pa.Schema) -> Table:
        """Add the columns of a file that the table does not have, if the file has no ids; returns the table.

        A column that has an id is the table's of this id, under another name if others renamed it since. Raises
        LocalError if the table never had a column of this name and id.
        """
        ids = read_ids(schema)
        for name, found in ids.items():
            if not any(is_part_of({name: found}, _ids_of(held)) for held in table.schemas().values()):
                raise LocalError(
                    f"the table {self.directory}: the column {name!r} of a file that was written for it has other "
                    "field ids than any version of the table's schema; restore the table, or write another one from "
                    "the start"
                )
        return table if ids else self._add_columns(table, schema)

    def list_used_names(self) -> Collection[str]:
        """Return the names of data files, manifests and metadata that any snapshot needs, relative to the table."""
        with self._translate_errors():
            table = self._load()
            used = set[str]()
            used |= {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
            used |= {statistics.statistics_path for statistics in table.metadata.statistics}
            seen = set[str]()
            for snapshot in table.snapshots():
                used.add(snapshot.manifest_list)
                for manifest in snapshot.manifests(table.io):
                    if manifest.manifest_path not in seen:
                        seen.add(manifest.manifest_path)
                        entries = manifest.fetch_manifest_entry(table.io)
                        used |= {entry.data_file.file_path for entry in entries}
            # others may have named a file without the scheme, or with another one for the same store
            lead = f"{_SCHEME.sub('', table.metadata.location).rstrip('/')}/"
            return {_SCHEME.sub("", path).removeprefix(lead) for path in used | seen}

    def may_vacuum(self, name: str) -> bool:
        """Return whether the file holds rows or metadata of the table."""
        suffixes = (".avro", ".metadata.json") if name.startswith(f"{METADATA}/") else (f".{self.suffix}", ".puffin")
        return name.endswith(suffixes) and not name.startswith((f"{OWN}/", "."))

    def count_snapshots(self) -> int:
        """Return the number of snapshots in the metadata."""
        with self._translate_errors():
            return len(self._load().snapshots())

    def expire_snapshots(self, before_s: float, *, dry_run: bool) -> int:
        """Take snapshots that were replaced before this time out of the metadata, but for those with a name.

        One that is older and was the present one until later stays: a reader that began in between needs its files.
        """
        with self._translate_errors():
            table = self._load()
            kept = {table.metadata.current_snapshot_id, *(ref.snapshot_id for ref in table.refs().values())}
            # one that never was the present one, as on a branch, counts from its own time
            ended_ms = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.snapshots()}
            for shown, following in pairwise(table.metadata.snapshot_log):
                ended_ms[shown.snapshot_id] = following.timestamp_ms
            old = [
                snapshot.snapshot_id for snapshot in table.snapshots()
                if ended_ms[snapshot.snapshot_id] < before_s * 1000 and snapshot.snapshot_id not in kept
            ]  # fmt: skip
            if old and not dry_run:
                table.maintenance.expire_snapshots().by_ids(old).commit()
                self._note_version(self._load())
            return len(old)

    def _list(self, table: Table) -> Listing:
        lead, specs = f"{table.metadata.location.rstrip('/')}/", table.specs()
        files = []
        for task in table.scan().plan_files():
            held = task.file
            name = held.file_path.removeprefix(lead)
            levels = [
                name_level(field.name, _describe_value(table, field, held.partition[at]))
                for at, field in enumerate(specs[held.spec_id].fields)
            ]
            # files of different specs are never written as one
            levels = levels if held.spec_id == table.spec().spec_id else [f"spec {held.spec_id}", *levels]
            partition = "/".join(levels)
            files.append(LiveFile(name, partition, held.file_size_in_bytes, task, bool(task.delete_files)))
        return Listing(sorted(files, key=lambda file: file.name), table)

    def read_file(self, listing: Listing, file: LiveFile, want: Wanted = ALL) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, whose fields have the ids of the table.

        pyiceberg, which reads a file whole, leaves out the rows that another file deletes, and gives the columns of
        files from before a change the names of now.
        """
        table = listing.snapshot
        with self._translate_errors():
            ids = _ids_of(table.schema())
            if not file.has_deletes:
                try:
                    stream = table.io.new_input(file.native.file.file_path).open()
                except FileNotFoundError:
                    raise self._missing_file_error(file.name) from None
                with stream as source:
                    opened = open_parquet(source)
                    if _has_names_of(table, opened.schema_arrow):
                        for batch in read_batches_of(opened, want):
                            yield _number_columns(batch, ids)
                        return
                    opened.close()
            from pyiceberg.expressions import AlwaysTrue
            from pyiceberg.io.pyarrow import ArrowScan

            scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
            for batch in scan.to_record_batches([file.native]):
                yield _number_columns(batch, ids)

    def _try_replace(self, table: Table, change: Replacement) -> bool:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        from .iceberg_partitions import replace_files

        footers = {one.name: read_footer(self.directory / one.name) for one in change.added}
        for one in change.added:
            schema = self._schema_of(one, footers[one.name])
            if self._add_columns_of(table, schema) is not table:
                # another writer may have replaced the files before the metadata with the new columns
                return False
        try:
            with table.transaction() as transaction:
                if change.key is not None:
                    transaction.set_properties({_number_property(change.key[0]): str(change.key[1])})
                replace_files(transaction, self._find_spec(table), self.partitions, change, footers)
        except (CommitFailedException, ValidationException):
            return False
        self._note_version(table)
        return True

    def _refuse_overtaken(
        self, table: Table, key: tuple[str, int], attempt: str, spec: PartitionSpec, *, is_put_back: bool
    ) -> None:
        """Make pyiceberg's own attempts stop at a commit of this manifest, and at other partitions: after an attempt
        that another writer overtook, it loads the table anew and appends the same files to whatever is there."""
        from pyiceberg.exceptions import ValidationException

        pipeline, number = key
        load, written_at = table.refresh, table.spec().spec_id

        def refresh() -> Table:
            fresh = load()
            if any(notes.get(ATTEMPT) == attempt for notes, _, _ in self._list_commits(fresh)):
                return fresh
            if not is_put_back and self._read_last_number(fresh, pipeline) >= number:
                raise ValidationException(f"manifest {number} of pipeline {pipeline!r} is in the table already")
            if not spec.spec_id == written_at == fresh.spec().spec_id:
                raise ValidationException("manifests would be written under another spec than their files")
            return fresh

        table.refresh = refresh  # type: ignore[method-assign]

    def _read_last_number(self, table: Table, pipeline: str) -> int:
        return int(table.properties.get(_number_property(pipeline), 0))

    def _list_commits(self, table: Table) -> Iterator[LoggedCommit]:
        by_id = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}
        at, current, ancestors = table.current_snapshot(), table.metadata.current_snapshot_id, set[int]()
        while at is not None:
            ancestors.add(at.snapshot_id)
            at = by_id.get(at.parent_snapshot_id or -1)
        left, by = len(ancestors), f"a rollback below snapshot {current}"
        for snapshot in reversed(table.snapshots()):
            is_there = snapshot.snapshot_id in ancestors
            if snapshot.summary is not None:
                # beyond an ancestor that expired nobody knows: one of before may be there, kept by a tag
                in_table = is_there or (False if left else None)
                yield LoggedCommit(snapshot.summary.additional_properties, in_table, by)
            left -= is_there

    def _file_names(self, table: Table) -> Iterator[str]:
        snapshot = table.current_snapshot()
        for manifest in snapshot.manifests(table.io) if snapshot is not None else ():
            for entry in manifest.fetch_manifest_entry(table.io):
                yield entry.data_file.file_path.rpartition("/")[2]

    def _version_word(self, table: Table) -> str:
        return f"whose newest metadata are {table.metadata_location.rpartition('/')[2]}"

    def _load(self) -> Table:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._load_from_catalog()
        except NoSuchTableError:
            raise self._missing_table_error() from None

    def _load_from_catalog(self) -> Table:
        table = self._catalog.load_table(self._identifier)
        self._find_spec(table)
        return table

    def _find_spec(self, table: Table) -> PartitionSpec:
        """Return the spec for which this run writes its files. Raises LocalError if the table never had it."""
        from .iceberg_partitions import find_spec, spec_words

        spec = find_spec(table, self.partitions.words)
        if spec is None:
            # a file has the rows of one of our partitions, and may have those of several others
            self._require_partitions(spec_words(table), self.partitions.words)
            raise AssertionError("a spec with these levels is there")
        return spec

    def _follow_partitions(self, table: Table, schema: pa.Schema) -> None:
        """Write from now on for the partitions that others have given the table; no staged file may be left.

        The rows that are there keep theirs, as Iceberg allows it. Levels that these rows cannot be divided by, such as
        one of a column that they do not have, leave the run with those of before, which readers see as well.
        """
        from .iceberg_partitions import spec_words

        words = spec_words(table)
        if words == self.partitions.words:
            return
        try:
            Partitions.parse(words, schema)
        except SettingError as error:
            LOG.warning(
                "the table %s has new partitions, %s, by which its rows cannot be divided (%s): files are still %s",
                self.directory, ", ".join(words), error, describe_partitioning(self.partitions.words),
            )  # fmt: skip
            return
        self.note_partitions(words)

    def _missing_table_error(self) -> LocalError:
        return LocalError(
            f"the table {self.directory} is not in its catalog {self._catalog.name!r} as "
            f"{'.'.join(self._identifier)}, and the catalog says what of the files in it are its rows; restore it, or "
            "name another table"
        )

    def _is_here(self, table: Table) -> bool:
        return table.metadata.location.rstrip("/") in (self._location, str(self.directory))

    def _require_here(self, table: Table) -> None:
        if not self._is_here(table):
            raise LocalError(
                f"the catalog {self._catalog.name!r} has {'.'.join(self._identifier)} already, at "
                f"{table.metadata.location} and not at {self.directory}; to append to it, name that place, or name "
                f"another table of the catalog: iceberg:{self._catalog.name}/NAMESPACE.TABLE:{self.directory}"
            )

    def _note_version(self, table: Table) -> None:
        if self.is_adopted:
            # a hint of its own writer counts versions, and one that only Lading brings up to date would be wrong
            return
        name = table.metadata_location.rpartition("/")[2].removesuffix(".metadata.json")
        hint = self.directory / METADATA / VERSION_HINT
        if isinstance(hint, ObjectPath):
            hint.write_bytes(name.encode())
            return
        draft = hint.with_name(f".{VERSION_HINT}")
        draft.write_text(name)
        draft.replace(hint)

    def _add_columns(self, table: Table, schema: pa.Schema) -> Table:
        """Add the columns of ``schema`` that the table does not have; returns the table as it is then."""
        wanted = self._iceberg_schema(schema).as_arrow()
        both = self._pair_columns(table, schema)
        new, relaxed = self._new_columns(*both), self._list_relaxed_columns(*both)
        if not new and not relaxed:
            return table
        with table.update_schema() as update:
            # the rows that are there have no value
            update.union_by_name(pa.schema([wanted.field(column.name).with_nullable(True) for column in new]))
            for name in relaxed:
                update.make_column_optional(name)
        return self._load()

    def _pair_columns(self, table: Table, schema: pa.Schema) -> tuple[list[Column], list[Column]]:
        """Return the columns of the table, and those of ``schema`` as a table has them."""
        wanted = self._iceberg_schema(schema).as_arrow()
        return [_describe_column(field) for field in table.schema().as_arrow()], [
            _describe_column(field) for field in wanted
        ]

    def _iceberg_schema(self, schema: pa.Schema) -> Schema:
        # pyiceberg keeps the first of them to itself, and offers what takes a schema with numbered fields alone
        from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, _pyarrow_to_schema_without_ids
        from pyiceberg.schema import assign_fresh_schema_ids

        for field in schema:
            try:
                _pyarrow_to_schema_without_ids(pa.schema([field]))
            except (UnsupportedPyArrowTypeException, TypeError) as error:
                raise self._type_error(field, error) from None
        return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        self._require_library()
        catalog = self._place_in_catalog.partition("/")[0]
        with translate_library_errors(self.directory, catalog or OWN_CATALOG, self._log_error, is_own=not catalog):
            yield


def _ids_of(schema: Schema) -> dict[str, Any]:
    return collect_ids(json.loads(schema.model_dump_json()))


def _has_names_of(table: Table, schema: pa.Schema) -> bool:
    """Return whether the columns of a file are the table's of the same names."""
    ids, mapping = read_ids(schema), table.metadata.name_mapping()
    if not ids and mapping is not None:
        numbered = number_fields(schema, collect_mapped_ids(json.loads(mapping.model_dump_json())))
        ids = {} if numbered is None else read_ids(numbered)
    elif not ids:
        return True
    return len(ids) == len(schema) and is_part_of(ids, _ids_of(table.schema()))


def _number_columns(batch: pa.RecordBatch, ids: Mapping[str, Any]) -> pa.RecordBatch:
    schema = number_fields(batch.schema, ids)
    return batch if schema is None else pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _number_property(pipeline: str) -> str:
    return f"{MANIFEST}.{pipeline}"


def _describe_value(table: Table, field: PartitionField, value: Any) -> str | None:
    """Return a value of a partition as people write it, such as a day and not its number; None for null."""
    if value is None:
        return None
    try:
        return field.transform.to_human_string(table.schema().find_type(field.source_id), value)
    except (ValueError, TypeError):
        # its column was dropped
        return str(value)


def _describe_column(field: pa.Field[Any]) -> Column:
    return Column(field.name, field.type, field.nullable, f"{field.type}{'' if field.nullable else ' not null'}")


@contextmanager
def translate_library_errors(
    directory: TablePath, catalog: str, log_error: Callable[[Exception], LocalError], *, is_own: bool
) -> Iterator[None]:
    """Raise the errors of a table's catalog as ours; ``log_error`` gives the sentence for any other of the library.

    ``is_own`` is whether the catalog is the one in the table's directory.
    """
    try:
        with warnings.catch_warnings():
            # of metadata of before that others have deleted
            warnings.simplefilter("ignore")
            LIBRARY_LOG.addFilter(_is_of_note)
            yield
    except LadingError:
        raise
    except FileNotFoundError as error:
        raise log_error(error) from error
    except Exception as error:
        # errors of pyiceberg, its catalogs and its formats have no class in common
        which = f"the table {directory}: the Iceberg catalog {catalog!r}"
        if (of_catalog := _catalog_error(error, which, is_own=is_own)) is not None:
            raise of_catalog from error
        if isinstance(error, OSError):
            raise
        raise log_error(error) from error
    finally:
        LIBRARY_LOG.removeFilter(_is_of_note)


def _catalog_error(error: Exception, which: str, *, is_own: bool) -> LadingError | None:
    """Return the sentence for a catalog that is not there or not open to us; None for any other error."""
    library, name = type(error).__module__.partition(".")[0], type(error).__name__
    advice = "in ~/.pyiceberg.yaml, or in PYICEBERG_CATALOG__…"
    if library == "requests" or name in AWAY:
        # what follows the colon of the first line may be an address with a login in it
        return Unreachable(f"{which} does not answer ({name}); start it, or correct its URI {advice}")
    if name in FORBIDDEN:
        return RemoteError(f"{which} refuses this login ({name}); correct credential or token {advice}")
    if library == "sqlalchemy" and not is_own:
        cause = str(getattr(error, "orig", None) or name).partition("\n")[0]
        return LocalError(f"{which}: its database cannot be used: {cause}; fix that, or correct its URI {advice}")
    return None


def _is_of_note(record: logging.LogRecord) -> bool:
    # files have no bounds of binary columns on purpose, and pyiceberg warns of each of them
    return not str(record.msg).startswith("PyArrow statistics missing")

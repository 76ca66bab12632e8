"""Sealed files in an object store: each is put once, by whichever process has it first, and never replaced.

Several processes share a store. An object's name says which rows under which columns it holds; beside it, put after it,
is a document with its facts, so that another process lists the file without making it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import BinaryIO, Final, cast

import pyarrow as pa

from ..model.errors import LadingError, SettingError, Unreachable
from ..model.ranges import merge_ranges
from ..tables.storage.object_path import ObjectPath, import_obstore
from ..tables.storage.storage import StorageReferences
from .file_facts import FileFacts
from .files import RenderedFile
from .layout import RowRange
from .table_schema import TableSchema

LOG: Final = logging.getLogger("lading.topic_tables")
RESERVED: Final = frozenset({"topics", "v1"})
"""Buckets whose names are paths of the catalog."""
RETRY_S: Final = 30.0
"""How long a store that failed is left alone."""
COMPARED_S: Final = 3_600.0
"""How often the objects of a table are listed, and those deleted whose rows retention deleted at least as long ago."""
WAITING_MAX: Final = 10_000
"""Files that wait to be put; the others are found at a later load of their table."""
READERS: Final = 4
"""Threads that read facts of files from the store."""
FORMAT: Final = 1
OBJECT: Final = ".parquet"
FACTS: Final = ".json"


ENGINE_OPTIONS: Final[Mapping[str, str]] = {
    "aws_endpoint": "endpoint", "aws_region": "region", "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
}  # fmt: skip
"""Options that engines need, by the names that libraries have for them."""


class SharedFile(RenderedFile):
    """An object of the store."""

    def __init__(self, facts: FileFacts, path: ObjectPath) -> None:
        super().__init__(facts, None)
        self._object = path

    def open(self) -> BinaryIO:
        """Return its bytes as a stream that reads from the store as it is read. See ObjectPath for errors."""
        return cast("BinaryIO", self._object.open_reader(self.facts.size_bytes))


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A store for sealed files, and how engines reach it.

    ``engines`` is what the catalog gives to engines for this store; without it they read its objects through the
    catalog's process.
    """

    url: str
    storage: StorageReferences | None = None
    engines: StorageReferences | None = None


class FileStore:
    """The objects below a prefix of a bucket. Raises SettingError for an address that is not one of S3."""

    def __init__(self, address: StoreAddress) -> None:
        root = ObjectPath.parse(address.url)
        bucket = root.root.removeprefix("s3://")
        if not address.url.startswith("s3://") or not root.key or bucket in RESERVED:
            raise SettingError(
                f"the store of files {address.url!r}: needs a bucket of S3 that is not called topics or v1, and a "
                "prefix; write s3://BUCKET/PREFIX"
            )
        import_obstore(root)
        if address.storage is not None:
            address.storage.bind([root])
        self.root: Final = root
        self.bucket: Final = bucket
        self.engines: Final = {} if address.engines is None else _describe_access(address.engines, root)
        """The properties by which engines reach the store, by Iceberg's names."""

    def locate(self, uuid: str, name: str) -> str:
        """Return the location of a file, for engines."""
        return str(self._path_of(uuid, name, OBJECT))

    def parse_key(self, key: str) -> tuple[str, str] | None:
        """Return the uuid of the table and the name of a file by its key in the bucket; None for any other key."""
        lead = f"{self.root.key}/"
        uuid, slash, name = key.removeprefix(lead).partition("/")
        is_known = key.startswith(lead) and slash and name.endswith(OBJECT) and "/" not in name
        return (uuid, name.removesuffix(OBJECT)) if is_known else None

    def find_facts(self, uuid: str, name: str) -> FileFacts | None:
        """Return the facts of a file, or None if it is not in the store."""
        try:
            document = json.loads(self._path_of(uuid, name, FACTS).read_bytes())
        except FileNotFoundError:
            return None
        return FileFacts.parse(document)

    def put(self, uuid: str, name: str, body: bytes, facts: FileFacts) -> bool:
        """Put a file and its facts; returns False if there is one with other bytes."""
        try:
            self._path_of(uuid, name, OBJECT).create_bytes(body)
            self._path_of(uuid, name, FACTS).create_bytes(json.dumps(facts.to_document()).encode())
        except FileExistsError:
            return False
        return True

    def list_names(self, uuid: str) -> set[str]:
        """Return the names of the files of a table that are complete."""
        keys = {name for name, _ in (self.root / uuid).walk()}
        return {
            key.removesuffix(FACTS) for key in keys if key.endswith(FACTS) and key.removesuffix(FACTS) + OBJECT in keys
        }

    def delete(self, uuid: str, name: str) -> None:
        """Delete a file, its facts first: a file without facts is not listed."""
        for ending in (FACTS, OBJECT):
            self._path_of(uuid, name, ending).unlink(missing_ok=True)

    def open(self, uuid: str, name: str, facts: FileFacts) -> SharedFile:
        """Return a file of the store that has these facts."""
        return SharedFile(facts, self._path_of(uuid, name, OBJECT))

    def _path_of(self, uuid: str, name: str, ending: str) -> ObjectPath:
        return self.root / uuid / f"{name}{ending}"


def _describe_access(engines: StorageReferences, root: ObjectPath) -> dict[str, str]:
    held = engines.resolve("s3", root.root)
    missing = [name for name in ENGINE_OPTIONS if name not in held]
    if missing:
        names = ", ".join(ENGINE_OPTIONS[name] for name in missing)
        raise SettingError(f"{engines.origin}: {names} missing; give the address, the region and a key that may read")
    return {
        "s3.endpoint": held["aws_endpoint"], "s3.region": held["aws_region"], "client.region": held["aws_region"],
        "s3.access-key-id": held["aws_access_key_id"], "s3.secret-access-key": held["aws_secret_access_key"],
        "s3.path-style-access": "true",
        # in place of those of the catalog's own key
        "s3.session-token": held.get("aws_session_token", ""), "client.refresh-credentials-enabled": "false",
    }  # fmt: skip


def name_stored_file(schema: TableSchema, rows: RowRange) -> str:
    """Return the name of a file in a store: its rows, and a digest of all else that its bytes depend on."""
    return f"{rows.partition}-{rows.first}-{rows.end}-{digest_columns(schema)}"


@lru_cache(256)
def digest_columns(schema: TableSchema) -> str:
    """Return a digest of the columns with their ids, and of the release that writes them."""
    columns = {**schema.document(), "schema-id": 0}
    text = json.dumps([FORMAT, pa.__version__, columns], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _parse_rows(name: str) -> RowRange | None:
    numbers = name.split("-")
    if len(numbers) != 4 or not all(number.isascii() and number.isdecimal() for number in numbers[:3]):
        return None
    partition, first, end = map(int, numbers[:3])
    return RowRange(partition, first, end)


Spans = tuple[tuple[tuple[int, int], ...], ...]
"""Ranges of offsets by partition."""
NOTHING_JOINED: Final[tuple[tuple[str, int], Spans]] = (("", -1), ())


@dataclass(slots=True)
class StoredRows:
    """The rows of one table that are in the store, as far as this process knows, by the names of their files."""

    uuid: str
    names: dict[str, RowRange] = field(default_factory=dict)
    facts: dict[str, FileFacts] = field(default_factory=dict)
    """Facts of files that were put or listed by this process."""
    joined: tuple[tuple[str, int], Spans] = NOTHING_JOINED
    """The ranges of ``names`` under a digest of columns, and with a number of partitions."""
    left_out: set[str] = field(default_factory=set)
    """Files that are not put: rows of them are damaged, or the store has other bytes under their name."""
    waiting: set[str] = field(default_factory=set)
    compared_s: float = float("-inf")
    """When the objects were listed last."""
    firsts: tuple[int, ...] = ()
    """The first offset of each partition then."""


MakeFile = Callable[[RowRange], Future[RenderedFile]]


class FileShipper:
    """Puts sealed files into a store, one after the other, in a thread of its own: no load of a table waits for it."""

    def __init__(self, store: FileStore, clock: Callable[[], float] = time.monotonic) -> None:
        self.store: Final = store
        self._clock = clock
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="lading-store")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="lading-store-facts")
        self._lock = threading.Lock()
        self._tables: dict[str, StoredRows] = {}
        self._waiting = 0
        self._failed_s = float("-inf")

    def find_stored(
        self, uuid: str, schema: TableSchema, partitions: int, list_earlier: Callable[[], list[str]]
    ) -> Spans:
        """Return of each partition of a table the rows that are in the store under these columns.

        ``list_earlier`` returns the names of the files that an earlier process knew to be there.
        """
        with self._lock:
            held = self._tables.get(uuid)
            if held is None:
                parsed = {name: rows for name in list_earlier() if (rows := _parse_rows(name)) is not None}
                held = self._tables[uuid] = StoredRows(uuid, parsed)
            wanted = digest_columns(schema), partitions
            if held.joined[0] != wanted:
                files = [rows for name, rows in held.names.items() if name.endswith(f"-{wanted[0]}")]
                held.joined = wanted, join_rows(files, partitions)
            return held.joined[1]

    def _open(self, uuid: str) -> StoredRows:
        return self._tables.setdefault(uuid, StoredRows(uuid))

    def open(self, uuid: str, name: str) -> Future[RenderedFile]:
        """Return a file of the store as soon as its facts are read, which are kept.

        The result raises Unreachable if the store cannot be reached, or if the file was deleted there.
        """
        with self._lock:
            facts = self._open(uuid).facts.get(name) if uuid in self._tables else None
        if facts is None:
            return self._readers.submit(self._read_facts, uuid, name)
        ready: Future[RenderedFile] = Future()
        ready.set_result(self.store.open(uuid, name, facts))
        return ready

    def _read_facts(self, uuid: str, name: str) -> RenderedFile:
        try:
            facts = self.store.find_facts(uuid, name)
        except LadingError as error:
            # engines try again what is not there for a while
            raise Unreachable(str(error)) from None
        if facts is None:
            self.forget_file(uuid, name)
            raise Unreachable(f"{self.store.locate(uuid, name)}: is not in the store; load the table again")
        with self._lock:
            held = self._tables.get(uuid)
            if held is not None:
                held.facts[name] = facts
        return self.store.open(uuid, name, facts)

    def forget_file(self, uuid: str, name: str) -> None:
        """Note that a file is not in the store: the next load of its table names one of this process instead."""
        with self._lock:
            held = self._tables.get(uuid)
            if held is not None and held.names.pop(name, None) is not None:
                held.facts.pop(name, None)
                held.joined = NOTHING_JOINED

    def ship(
        self, uuid: str, schema: TableSchema, files: Iterable[RowRange], firsts: tuple[int, ...], make: MakeFile,
        *, is_identified: bool,
    ) -> None:  # fmt: skip
        """Put files that are not in the store yet; ``firsts`` are the first offsets of the table's partitions.

        With ``is_identified`` no other topic can have this uuid: a file that is there is not made again to compare it.
        """
        wanted = {name_stored_file(schema, rows): rows for rows in files}
        now = self._clock()
        with self._lock:
            held = self._open(uuid)
            if now - self._failed_s < RETRY_S:
                return
            if now - held.compared_s >= COMPARED_S:
                earlier, held.firsts, held.compared_s = held.firsts, firsts, now
                self._pool.submit(self._run, lambda: self._compare(held, earlier))
            for name, rows in wanted.items():
                if name in held.names or name in held.left_out or name in held.waiting or self._waiting >= WAITING_MAX:
                    continue
                held.waiting.add(name)
                self._waiting += 1
                self._pool.submit(self._put_waiting, held, name, rows, make, is_identified)

    def _put_waiting(self, held: StoredRows, name: str, rows: RowRange, make: MakeFile, is_identified: bool) -> None:
        try:
            if self._clock() - self._failed_s >= RETRY_S:
                self._run(lambda: self._put(held, name, rows, make, is_identified))
        finally:
            with self._lock:
                self._waiting -= 1
                held.waiting.discard(name)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (LadingError, OSError, ValueError) as error:
            self._failed_s = self._clock()
            LOG.warning("files that are not in the store yet are read from this process: %s", error)

    def _put(self, held: StoredRows, name: str, rows: RowRange, make: MakeFile, is_identified: bool) -> None:
        facts = self.store.find_facts(held.uuid, name) if is_identified else None
        if facts is None:
            made = make(rows).result()
            facts = made.facts
            is_whole = not facts.damaged
            if is_whole and not self.store.put(held.uuid, name, made.read(0, facts.size_bytes), facts):
                is_whole = False
                LOG.warning(
                    "%s: has other rows than this source; the file is served from this process instead; give each "
                    "cluster a prefix of its own", self.store.locate(held.uuid, name),
                )  # fmt: skip
            if not is_whole:
                # other processes may have the rows that are damaged here
                with self._lock:
                    held.left_out.add(name)
                return
        with self._lock:
            held.facts[name] = facts
            held.names[name] = rows
            held.joined = NOTHING_JOINED

    def _compare(self, held: StoredRows, earlier: tuple[int, ...]) -> None:
        """Forget files that are not in the store any more; delete those of rows that were deleted an hour ago."""
        there = self.store.list_names(held.uuid)
        for name in sorted(there):
            rows = _parse_rows(name)
            if rows is not None and rows.partition < len(earlier) and rows.end <= earlier[rows.partition]:
                self.store.delete(held.uuid, name)
                there.discard(name)
        with self._lock:
            for name in set(held.names) - there:
                del held.names[name]
                held.facts.pop(name, None)
            held.joined = NOTHING_JOINED

    def forget(self, uuid: str) -> None:
        """Forget a table that is another one now."""
        with self._lock:
            self._tables.pop(uuid, None)

    def close(self) -> None:
        """End the thread after the file that it puts now."""
        for pool in (self._pool, self._readers):
            pool.shutdown(wait=False, cancel_futures=True)


def join_rows(files: Iterable[RowRange], partitions: int) -> Spans:
    """Return of each partition the ranges of rows that files hold."""
    ranges: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
    for rows in files:
        if rows.partition < partitions:
            ranges[rows.partition].append((rows.first, rows.end))
    return tuple(tuple(merge_ranges(held)) for held in ranges)

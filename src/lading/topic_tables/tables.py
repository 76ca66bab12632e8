"""The tables of a source: their snapshots, and every object that engines read of them, a function of its own name.

An object's name says what it holds: ``data/<schema>-<partition>-<first>-<end>-<hidden>.parquet``,
``metadata/list-<snapshot>-<view>-<uuid>.avro``. Polars keeps manifests for the life of its process by their names if
these have a uuid, so no name is ever used for other bytes.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4
from weakref import WeakValueDictionary

from ..model.ranges import merge_ranges
from .file_facts import FileFacts, Ranges
from .file_store import RETRY_S, FileShipper, FileStore, name_stored_file
from .files import FileCache, RenderedFile, call_after, write_parquet
from .layout import RowRange, choose_seal_rows, cut_rows
from .manifests import ADDED, EXISTING, ListedManifest, SnapshotFile, write_manifest, write_manifest_list
from .snapshots import (
    NOTHING_STORED,
    SNAPSHOTS_MAX,
    Cleaned,
    Hidden,
    StoredParts,
    TableHistory,
    TableView,
    TopicSnapshot,
)
from .source import RowLosses, TableSource, TopicTable
from .table_schema import TableSchema

LOG: Final = logging.getLogger("lading.topic_tables")
BUCKET: Final = "topics"
UNUSED_S: Final = 30 * 86_400
"""A table that no engine loaded for this long begins anew: a stream that stopped before that does not find its
snapshot.
"""
DAMAGED_MAX: Final = 20
"""Ranges of damaged offsets of a partition that a property of the table lists."""
TABLES_MAX: Final = 200
"""Tables whose snapshots stay in memory, each up to a megabyte; those of others are read from disk again."""
ROWS_MAX: Final = 2 * SNAPSHOTS_MAX
"""Snapshots of a table whose text is kept."""
MAKERS: Final = 2
"""Threads that write manifests of finished files; they never wait for a file."""
OBJECT_BYTES: Final = 64 << 20
"""Manifests and metadata files of all tables that are kept in memory; the others are made again when they are read."""


class TableMetadata(NamedTuple):
    """The metadata of a table as JSON, the address of the file with them, and the id of the table."""

    uuid: str
    location: str
    text: bytes


class JoinedSnapshots(NamedTuple):
    """The text of the snapshots of a table, from the first of ``ids`` (a view, a snapshot) up to ``newest``."""

    ids: tuple[int, int]
    length: int
    newest: int
    listed: str
    log: str


NOTHING_JOINED: Final = JoinedSnapshots((-1, 0), 0, 0, "", "")


class ObjectCache:
    """Objects by the uuid of their table and their name; those read longest ago go first."""

    def __init__(self, size_bytes_max: int = OBJECT_BYTES) -> None:
        self._size_bytes_max = size_bytes_max
        self._size_bytes = 0
        self._objects: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, uuid: str, name: str) -> bytes | None:
        """Return an object that is kept."""
        with self._lock:
            if (uuid, name) in self._objects:
                self._objects.move_to_end((uuid, name))
            return self._objects.get((uuid, name))

    def keep(self, uuid: str, name: str, body: bytes) -> None:
        """Keep an object, as long as there is room."""
        with self._lock:
            self._size_bytes += len(body) - len(self._objects.pop((uuid, name), b""))
            self._objects[uuid, name] = body
            while self._size_bytes > self._size_bytes_max:
                self._size_bytes -= len(self._objects.popitem(last=False)[1])

    def clear(self) -> None:
        """Forget all objects."""
        with self._lock:
            self._objects.clear()
            self._size_bytes = 0


class LiveTable:
    """One topic as a table: makes its snapshots, and its objects by their names."""

    def __init__(
        self,
        shown_url: str,
        table: TopicTable,
        directory: Path,
        files: FileCache,
        objects: ObjectCache,
        makers: ThreadPoolExecutor,
        shipper: FileShipper | None = None,
    ) -> None:
        self._shipper = shipper
        self._shown_url = shown_url
        self._table = table
        self._files = files
        self._objects = objects
        self._makers = makers
        self._rows: dict[tuple[int, int], tuple[str, str]] = {}
        """Snapshots as metadata writes them, and their rows of the log, by the ids of the snapshot and its view."""
        self._joined = NOTHING_JOINED
        self._shipped: tuple[tuple[int, int | None], float] = ((-1, None), 0.0)
        """The view and the snapshot whose files were last offered to the store, and when."""
        self._bad_values: dict[str, int] = {}
        """Bad values by column, in the snapshot whose files an engine requested last."""
        self._damaged: dict[int, Ranges] = {}
        """Offsets that were damaged when their files were made, by partition."""
        self._history = TableHistory.open(directory / f"{table.uuid}.jsonl", table.uuid, _choose_seal_rows(table))
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()

    @property
    def uuid(self) -> str:
        """The id of the table: that of its topic, until this has fewer messages than before."""
        return self._history.uuid

    @property
    def topic(self) -> TopicTable:
        """The topic, as it was described to the caller that loaded the table last."""
        return self._table

    @property
    def location(self) -> str:
        """The address of the table, for engines."""
        return f"s3://{BUCKET}/{self._history.uuid}"

    def refresh(self, source: TableSource, table: TopicTable, now_ms: int) -> None:
        """Make the newest snapshot one with every row of ``table``, as its topic was described a moment ago."""
        # readers of objects do not wait for the source
        with self._refreshing:
            if self._history.has_shrunk(_ends_of(table)):
                # another caller may have looked at the topic later than this one
                table = source.find_table(table.namespace, table.name) or table
            uuid = self.uuid
            if self._history.has_shrunk(_ends_of(table)):
                uuid = str(uuid4())
                LOG.warning(
                    "table %s.%s: its topic has fewer messages than before; it was made again or cut back, and is "
                    "another table from now on", table.namespace, table.name,
                )  # fmt: skip
            columns, hidden = source.find_columns(table), source.find_hidden(table)
            self._refresh(uuid, table, columns, hidden, source.find_cleaned(table), now_ms)
            if self._shipper is not None:
                self._ship_sealed(self._shipper, source, table)

    def _refresh(
        self, uuid: str, table: TopicTable, columns: str, hidden: Hidden, cleaned: Cleaned, now_ms: int
    ) -> None:
        with self._lock:
            if uuid != self.uuid:
                if self._shipper is not None:
                    self._shipper.forget(self.uuid)
                self._history.restart(uuid)
                self._rows, self._damaged, self._joined = {}, {}, NOTHING_JOINED
                self._bad_values = {}
            self._table = table
            if self._history.last is None:
                # a topic that was empty a moment ago says nothing about the size of its messages
                self._history.use_seal_rows(_choose_seal_rows(table))
            schema = self._history.use_columns(columns)
            self._history.use_view(columns, hidden, cleaned, self._find_stored(schema, len(table.meta.partitions)))
            parts = table.meta.partitions
            self._history.advance([part.first_offset for part in parts], [part.end_offset for part in parts], now_ms)

    def _find_stored(self, schema: TableSchema, partitions: int) -> StoredParts:
        """Return which rows are in the store, in files with these columns."""
        if self._shipper is None:
            return NOTHING_STORED
        history, url = self._history, str(self._shipper.store.root)

        def list_earlier() -> list[str]:
            last = history.view if history.views else None
            if last is None or last.stored.url != url:
                return []
            spans = ((partition, *span) for partition, spans in enumerate(last.stored.ranges) for span in spans)
            return [
                name_stored_file(last.schema, rows) for span in spans for rows in cut_rows(*span, history.seal_rows)
            ]

        ranges = self._shipper.find_stored(self.uuid, schema, partitions, list_earlier)
        return StoredParts(url, ranges) if any(ranges) else NOTHING_STORED

    def _ship_sealed(self, shipper: FileShipper, source: TableSource, table: TopicTable) -> None:
        """Have the sealed files of the newest snapshot put into the store, if they are not there yet."""
        with self._lock:
            last, view, seal_rows = self._history.last, self._history.view, self._history.seal_rows
        now_s, changed = time.monotonic(), (view.view_id, None if last is None else last.snapshot_id)
        if last is None or (changed == self._shipped[0] and now_s - self._shipped[1] < RETRY_S):
            return
        self._shipped = changed, now_s
        # with the rows that the next snapshot has in larger files
        spans = zip(last.firsts, last.ends, strict=True)
        cuts = [cut for partition, span in enumerate(spans) for cut in cut_rows(partition, *span, seal_rows)]
        sealed = [cut for cut in cuts if cut.end - cut.first == seal_rows and view.is_plain(cut)]
        shipper.ship(
            self.uuid, view.schema, sealed, last.firsts, lambda rows: self._render_file(source, view, rows),
            is_identified=table.meta.topic_id is not None,
        )  # fmt: skip

    def describe(self) -> TableMetadata:
        """Return the metadata as they are now."""
        with self._lock:
            version = self._history.version
            # ClickHouse wants a number and a uuid in the name
            location = f"{self.location}/metadata/{version:05d}-{self._history.uuid}.metadata.json"
            text = self._describe(self._history.snapshots, self._history.view, self._count_missing())
            return TableMetadata(self.uuid, location, text)

    def _describe(self, known: list[TopicSnapshot], view: TableView, missing: dict[str, str]) -> bytes:
        history, schema, last = self._history, view.schema, known[-1] if known else None
        document = {
            "format-version": 2,
            "table-uuid": history.uuid,
            "location": self.location,
            "last-sequence-number": 0 if last is None else last.snapshot_id,
            "last-updated-ms": 0 if last is None else last.stamp_ms,
            "last-column-id": schema.last_id,
            "current-schema-id": schema.schema_id,
            "schemas": [known.document() for known in history.schemas[: schema.schema_id + 1]],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": {"lading.topic": self._table.meta.name, "lading.source": self._shown_url} | missing,
            "current-snapshot-id": -1 if last is None else last.snapshot_id,
            "metadata-log": [],
            "statistics": [],
            "partition-statistics": [],
            "refs": {} if last is None else {"main": {"snapshot-id": last.snapshot_id, "type": "branch"}},
        }
        listed, log = self._join_snapshots(known, view)
        return f'{_encode(document)[:-1]},"snapshots":[{listed}],"snapshot-log":[{log}]}}'.encode()

    def _count_missing(self) -> dict[str, str]:
        """Return the properties that say which offsets were damaged and how many values are not of their column's type.

        They are those of the files that were rendered; bad values are those in files of the snapshot that was read
        last.
        """
        bad = {"lading.bad-values": _encode(self._bad_values)} if self._bad_values else {}
        if not self._damaged:
            return bad
        count = sum(end - first for ranges in self._damaged.values() for first, end in ranges)
        listed = {str(partition): ranges[:DAMAGED_MAX] for partition, ranges in sorted(self._damaged.items())}
        return {"lading.rows-missing": str(count), "lading.damaged-offsets": _encode(listed)} | bad

    def _note_damage(self, rows: RowRange, facts: FileFacts) -> None:
        if facts.damaged:
            with self._lock:
                known = self._damaged.get(rows.partition, [])
                self._damaged[rows.partition] = merge_ranges([*known, *facts.damaged])

    def _join_snapshots(self, known: list[TopicSnapshot], view: TableView) -> tuple[str, str]:
        """Return all snapshots and their rows of the log: joining a thousand takes longer than all else of a load."""
        ids = view.view_id, known[0].snapshot_id if known else 0
        joined = self._joined
        if joined.ids == ids and joined.length in (len(known), len(known) - 1) and joined.length:
            newest = known[joined.length - 1].snapshot_id
            if newest == joined.newest and joined.length == len(known):
                return joined.listed, joined.log
            if newest == joined.newest:
                row, entry = self._encode_snapshot(known[-1], view)
                joined = JoinedSnapshots(
                    ids, len(known), known[-1].snapshot_id, f"{joined.listed},{row}", f"{joined.log},{entry}"
                )
                self._joined = joined
                return joined.listed, joined.log
        rows = [self._encode_snapshot(snapshot, view) for snapshot in known]
        listed, log = ",".join(row for row, _ in rows), ",".join(entry for _, entry in rows)
        if known:
            self._joined = JoinedSnapshots(ids, len(known), known[-1].snapshot_id, listed, log)
        return listed, log

    def _encode_snapshot(self, snapshot: TopicSnapshot, view: TableView) -> tuple[str, str]:
        key = snapshot.snapshot_id, view.view_id
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= ROWS_MAX:
                self._rows.clear()
            entry = {"snapshot-id": snapshot.snapshot_id, "timestamp-ms": snapshot.stamp_ms}
            row = self._rows[key] = _encode(self._describe_snapshot(snapshot, view)), _encode(entry)
        return row

    def _describe_snapshot(self, snapshot: TopicSnapshot, view: TableView) -> dict[str, Any]:
        """Return a snapshot in a view: the same rows in another one may be in other files."""
        parent = {} if snapshot.parent_id is None else {"parent-snapshot-id": snapshot.parent_id}
        return {
            "snapshot-id": snapshot.snapshot_id,
            **parent,
            "sequence-number": snapshot.snapshot_id,
            "timestamp-ms": snapshot.stamp_ms,
            "schema-id": view.schema.schema_id,
            "manifest-list": f"{self.location}/metadata/{self._name('list', snapshot, view)}",
            "summary": {"operation": "append", "lading.ends": json.dumps(snapshot.ends)},
        }

    def open_object(self, source: TableSource, name: str) -> Future[RenderedFile] | None:
        """Return the object of a name below the table, as soon as it is made; None for any other name."""
        kind, _, rest = name.partition("/")
        if kind == "data":
            return self._open_data(source, rest)
        return self._open_metadata(source, rest) if kind == "metadata" else None

    def _open_data(self, source: TableSource, name: str) -> Future[RenderedFile] | None:
        rows = _parse_data_name(name)
        with self._lock:
            ends = self._history.last.ends if self._history.last is not None else ()
            is_shown = rows is not None and rows.partition < len(ends) and rows.end <= ends[rows.partition]
            if rows is None or not is_shown or not 0 < rows.end - rows.first <= self._history.seal_rows:
                return None
            # each range that anybody may think of would be a file on disk
            if not self._history.has_cut(rows) and not self._files.has(f"{self.uuid}/{name}"):
                return None
            views = (view for view in reversed(self._history.views.values()) if view.name_file(rows) == name)
            view = next(views, None)
        return self._render_file(source, view, rows) if view is not None else None

    def _render_file(self, source: TableSource, view: TableView, rows: RowRange) -> Future[RenderedFile]:
        table = self._table

        def render(stream: Any) -> FileFacts:
            losses = RowLosses()
            facts = write_parquet(view.schema, source.read_rows(table, view, rows, losses), stream)
            facts.damaged = merge_ranges(losses.damaged)
            ids = {column.name: column.field_id for column in view.schema.columns}
            facts.bad = {ids[name]: count for name, count in losses.bad_values.items() if count}
            return facts

        # the newest rows of a table do not wait until old ones of another table are made
        is_short = rows.end - rows.first < self._history.seal_rows
        return self._files.get(f"{self.uuid}/{view.name_file(rows)}", render, is_short)

    def _open_metadata(self, source: TableSource, name: str) -> Future[RenderedFile] | None:
        uuid = self._history.uuid
        known = self._objects.find(uuid, name)
        if known is not None:
            return _complete(_hold(known))
        made = self._make_metadata(source, name)
        if isinstance(made, bytes):
            self._objects.keep(uuid, name, made)
            return _complete(_hold(made))
        return made

    def _make_metadata(self, source: TableSource, name: str) -> bytes | Future[RenderedFile] | None:
        history = self._history
        if not name.isascii():
            return None
        stem = name.removesuffix(f"-{history.uuid}.metadata.json")
        if stem != name:
            with self._lock:
                number = int(stem[:20]) if stem.isdecimal() else 0
                version = history.versions.get(number)
                if version is None or stem != f"{number:05d}":
                    return None
                known, view = history.list_snapshots(number), history.views.get(version[1])
                # without counts, which change while the name of the file stays
                return None if known is None or view is None else self._describe(known, view, {})
        endings = {"list": (EXISTING, ADDED), "old": (EXISTING,), "new": (ADDED,)}
        kind, *numbers = name.removesuffix(f"-{history.uuid}.avro").split("-")
        if kind not in endings or len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
            return None
        with self._lock:
            snapshot, view = history.find(int(numbers[0][:20])), history.views.get(int(numbers[1][:20]))
        if snapshot is None or view is None or name != self._name(kind, snapshot, view):
            return None
        if view.stored.url not in ("", "" if self._shipper is None else str(self._shipper.store.root)):
            # its manifests named files of another store
            return None
        # all at once, so that several threads render them
        waiting = {status: self._render_files(status, source, snapshot, view) for status in endings[kind]}

        def make() -> RenderedFile:
            made = [self._make_manifest(status, snapshot, view, files) for status, files in waiting.items()]
            body = made[0][1]
            if kind == "list":
                files = [file for manifest, _ in made for file in manifest.files]
                self._bad_values = _count_bad_values(view, files)
                held = [manifest for manifest, _ in made if manifest.files]
                body = write_manifest_list(snapshot.snapshot_id, snapshot.parent_id, held)
                self._objects.keep(history.uuid, name, body)
            return _hold(body)

        return call_after([future for files in waiting.values() for _, future in files], make, self._makers)

    def _name(self, kind: str, snapshot: TopicSnapshot, view: TableView) -> str:
        return f"{kind}-{snapshot.snapshot_id}-{view.view_id}-{self._history.uuid}.avro"

    def _render_files(
        self, status: int, source: TableSource, snapshot: TopicSnapshot, view: TableView
    ) -> list[tuple[RowRange, Future[RenderedFile]]]:
        seal_rows = self._history.seal_rows
        cuts = snapshot.cut_added(seal_rows) if status == ADDED else snapshot.cut_existing(seal_rows)
        return [(cut, self._open_file(source, view, cut)) for cut in cuts]

    def _is_stored(self, view: TableView, rows: RowRange) -> bool:
        return rows.end - rows.first == self._history.seal_rows and view.is_stored(rows)

    def _open_file(self, source: TableSource, view: TableView, rows: RowRange) -> Future[RenderedFile]:
        if self._shipper is not None and self._is_stored(view, rows):
            return self._shipper.open(self.uuid, name_stored_file(view.schema, rows))
        return self._render_file(source, view, rows)

    def _locate(self, view: TableView, rows: RowRange) -> str:
        if self._shipper is not None and self._is_stored(view, rows):
            return self._shipper.store.locate(self.uuid, name_stored_file(view.schema, rows))
        return f"{self.location}/data/{view.name_file(rows)}"

    def _make_manifest(
        self, status: int, snapshot: TopicSnapshot, view: TableView, made: list[tuple[RowRange, Future[RenderedFile]]]
    ) -> tuple[ListedManifest, bytes]:
        is_new = status == ADDED
        added_by = snapshot.snapshot_id if is_new else (snapshot.parent_id or snapshot.snapshot_id)
        files = []
        for cut, future in made:
            facts = future.result().facts
            self._note_damage(cut, facts)
            files.append(SnapshotFile(self._locate(view, cut), facts, added_by))
        files = [file for file in files if file.facts.rows]
        body = write_manifest(view.schema, status, added_by, files)
        name = self._name("new" if is_new else "old", snapshot, view)
        # engines that read the list read the manifests next
        self._objects.keep(self._history.uuid, name, body)
        return ListedManifest(f"{self.location}/metadata/{name}", len(body), status, added_by, files), body


def _encode(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))


def _hold(body: bytes) -> RenderedFile:
    return RenderedFile(FileFacts(0, len(body)), None, body)


def _count_bad_values(view: TableView, files: list[SnapshotFile]) -> dict[str, int]:
    counts = {
        column.name: sum(file.facts.bad.get(column.field_id, 0) for file in files) for column in view.schema.columns
    }
    return {name: count for name, count in counts.items() if count}


def _complete(result: RenderedFile) -> Future[RenderedFile]:
    future: Future[RenderedFile] = Future()
    future.set_result(result)
    return future


def _ends_of(table: TopicTable) -> list[int]:
    return [part.end_offset for part in table.meta.partitions]


def _choose_seal_rows(table: TopicTable) -> int:
    parts = table.meta.partitions
    messages = sum(part.end_offset - part.first_offset for part in parts)
    return choose_seal_rows(messages, sum(part.size_bytes or 0 for part in parts))


def _parse_data_name(name: str) -> RowRange | None:
    numbers = name.removesuffix(".parquet").split("-")[1:4]
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        return None
    partition, first, end = (int(number[:20]) for number in numbers)
    return RowRange(partition, first, end)


def remove_unused(directory: Path, now_s: float) -> None:
    """Delete snapshots and files of tables that no engine loaded for long: most of them of topics that were deleted."""
    for path in directory.glob("*.jsonl"):
        with suppress(OSError):
            if path.stat().st_mtime < now_s - UNUSED_S:
                shutil.rmtree(directory / "files" / _read_uuid(path), ignore_errors=True)
                path.unlink()


def _read_uuid(path: Path) -> str:
    """Return the id of a table by its file; that of its topic if the file is not one."""
    with path.open("rb") as file, suppress(ValueError, KeyError, TypeError):
        return str(UUID(json.loads(file.readline())["uuid"]))
    return path.stem


class LiveTables:
    """All tables of a source, by the uuid that their objects' names begin with."""

    def __init__(self, shown_url: str, directory: Path, workers: int, store: FileStore | None = None) -> None:
        """If a ``store`` is given, sealed files are put there, and read from there."""
        self.store: Final = store
        self._shipper = None if store is None else FileShipper(store)
        self._shown_url = shown_url
        self._directory = directory
        self._objects = ObjectCache()
        self._makers = ThreadPoolExecutor(MAKERS, thread_name_prefix="lading-manifest")
        self._files = FileCache(directory / "files", workers, on_deleted=self._objects.clear)
        remove_unused(directory, time.time())
        self._tables: WeakValueDictionary[str, LiveTable] = WeakValueDictionary()
        """All tables that are in use: two objects of one table would number its snapshots side by side."""
        self._recent: OrderedDict[str, LiveTable] = OrderedDict()
        self._topics: dict[str, str] = {}
        """Ids of topics by the ids of their tables, if the two differ."""
        self._lock = threading.Lock()

    def open_table(self, table: TopicTable) -> LiveTable:
        """Return the table of a topic."""
        with self._lock:
            known = self._tables.get(table.uuid)
            if known is None:
                made = LiveTable(
                    self._shown_url, table, self._directory, self._files, self._objects, self._makers, self._shipper
                )
                known = self._tables[table.uuid] = made
            if table.uuid not in self._recent:
                # a table that is in use is not removed
                with suppress(OSError):
                    os.utime(self._directory / f"{table.uuid}.jsonl")
            self._recent[table.uuid] = known
            self._recent.move_to_end(table.uuid)
            while len(self._recent) > TABLES_MAX:
                self._recent.popitem(last=False)
            return known

    def load(self, source: TableSource, table: TopicTable) -> TableMetadata:
        """Return the metadata of a table as it is now."""
        source.require_readable(table)
        live = self.open_table(table)
        live.refresh(source, table, time.time_ns() // 1_000_000)
        if live.uuid != table.uuid:
            with self._lock:
                self._topics[live.uuid] = table.uuid
        return live.describe()

    def find_topic_uuid(self, uuid: str) -> str:
        """Return the id that the topic of a table has in its source."""
        return self._topics.get(uuid, uuid)

    def find_opened(self, uuid: str) -> TopicTable | None:
        """Return the topic of a table that was opened, as it was loaded last; None for any other id."""
        with self._lock:
            live = self._tables.get(self._topics.get(uuid, uuid))
        return None if live is None else live.topic

    def open_stored(self, uuid: str, name: str) -> Future[RenderedFile] | None:
        """Return a file of the store by the id of its table; None without a store."""
        return None if self._shipper is None else self._shipper.open(uuid, name)

    def forget_stored(self, uuid: str, name: str) -> None:
        """Note that a file that was in the store is not there any more."""
        if self._shipper is not None:
            self._shipper.forget_file(uuid, name)

    def open_object(self, source: TableSource, uuid: str, name: str) -> Future[RenderedFile] | None:
        """Return an object of a table as soon as it is made, read from ``source``; None for any other name."""
        with self._lock:
            table = self._tables.get(self._topics.get(uuid, uuid))
        if table is None:
            # a reader that continues after a restart of this process
            listed = source.find_uuid(uuid)
            # a list says less of a topic, such as how far it is compacted
            found = None if listed is None else source.find_table(listed.namespace, listed.name)
            if found is None:
                return None
            table = self.open_table(found)
            table.refresh(source, found, time.time_ns() // 1_000_000)
        # data of another topic had the same names
        return table.open_object(source, name) if table.uuid == uuid else None

    def close(self) -> None:
        """End the work on files."""
        if self._shipper is not None:
            self._shipper.close()
        self._files.close()
        self._makers.shutdown(wait=False, cancel_futures=True)

"""The tables of a source: their snapshots, and every object that engines read of them, a function of its own name.

An object's name says what it holds: ``data/<schema>-<partition>-<first>-<end>-<hidden>.parquet``,
``metadata/list-<snapshot>-<view>-<uuid>.avro``. Polars keeps manifests for the life of its process by their names if
these have a uuid, so no name is ever used for other bytes.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from .file_facts import FileFacts
from .files import FileCache, RenderedFile, write_parquet
from .layout import RowRange, choose_seal_rows
from .manifests import ADDED, EXISTING, ListedManifest, SnapshotFile, write_manifest, write_manifest_list
from .snapshots import SNAPSHOTS_KEPT, TableHistory, TableView, TopicSnapshot
from .source import TableSource, TopicTable

BUCKET: Final = "topics"
OBJECTS_MAX: Final = 1_000
"""Manifests and metadata files that are kept in memory: a thousandth of a second makes one again."""


class LiveTable:
    """One topic as a table: makes its snapshots, and its objects by their names."""

    def __init__(self, shown_url: str, table: TopicTable, directory: Path, files: FileCache) -> None:
        self._shown_url = shown_url
        self._table = table
        self._files = files
        parts = table.meta.partitions
        messages = sum(part.end_offset - part.first_offset for part in parts)
        size_bytes = sum(part.size_bytes or 0 for part in parts)
        self._history = TableHistory.open(
            directory / f"{table.uuid}.jsonl", table.uuid, choose_seal_rows(messages, size_bytes)
        )
        self._lock = threading.Lock()
        self._objects: OrderedDict[str, bytes] = OrderedDict()

    @property
    def location(self) -> str:
        """The address of the table, for engines."""
        return f"s3://{BUCKET}/{self._history.uuid}"

    def refresh(self, source: TableSource, table: TopicTable, now_ms: int) -> None:
        """Make the newest snapshot one with every row of ``table``, as its topic was described a moment ago."""
        with self._lock:
            self._table = table
            self._history.use_view(source.find_columns(table), source.find_hidden(table))
            parts = table.meta.partitions
            self._history.advance([part.first_offset for part in parts], [part.end_offset for part in parts], now_ms)

    def describe(self) -> tuple[str, dict[str, Any]]:
        """Return the location of the metadata file and the metadata, as they are now."""
        with self._lock:
            version = self._history.version
            # ClickHouse wants a number and a uuid in the name
            location = f"{self.location}/metadata/{version:05d}-{self._history.uuid}.metadata.json"
            return location, self._describe(self._history.last, self._history.view)

    def _describe(self, last: TopicSnapshot | None, view: TableView) -> dict[str, Any]:
        history, schema = self._history, view.schema
        known = [kept for kept in history.snapshots if last is not None and kept.snapshot_id <= last.snapshot_id]
        snapshots = known[-SNAPSHOTS_KEPT:]
        return {
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
            "properties": {"lading.topic": self._table.meta.name, "lading.source": self._shown_url},
            "current-snapshot-id": -1 if last is None else last.snapshot_id,
            "snapshots": [self._describe_snapshot(snapshot, view) for snapshot in snapshots],
            "snapshot-log": [
                {"snapshot-id": snapshot.snapshot_id, "timestamp-ms": snapshot.stamp_ms} for snapshot in snapshots
            ],
            "metadata-log": [],
            "statistics": [],
            "partition-statistics": [],
            "refs": {} if last is None else {"main": {"snapshot-id": last.snapshot_id, "type": "branch"}},
        }

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

    def open_object(self, source: TableSource, name: str) -> RenderedFile | None:
        """Return the object of a name below the table, made now if it has to be; None for any other name."""
        kind, _, rest = name.partition("/")
        if kind == "data":
            return self._open_data(source, rest)
        body = self._open_metadata(source, rest) if kind == "metadata" else None
        return None if body is None else RenderedFile(FileFacts(0, len(body)), None, body)

    def _open_data(self, source: TableSource, name: str) -> RenderedFile | None:
        rows = _parse_data_name(name)
        with self._lock:
            ends = self._history.last.ends if self._history.last is not None else ()
            is_shown = rows is not None and rows.partition < len(ends) and rows.end <= ends[rows.partition]
            if rows is None or not is_shown or not 0 < rows.end - rows.first <= self._history.seal_rows:
                return None
            views = [view for view in reversed(self._history.views.values()) if view.name_file(rows) == name]
        return self._render(source, views[0], rows).result() if views else None

    def _render(self, source: TableSource, view: TableView, rows: RowRange) -> Future[RenderedFile]:
        table = self._table

        def render(stream: Any) -> FileFacts:
            return write_parquet(view.schema, source.read_rows(table, view, rows), stream)

        return self._files.get(f"{table.uuid}/{view.name_file(rows)}", render)

    def _open_metadata(self, source: TableSource, name: str) -> bytes | None:
        with self._lock:
            if (known := self._objects.get(name)) is not None:
                self._objects.move_to_end(name)
                return known
        made = self._make_metadata(source, name)
        if made is not None:
            with self._lock:
                self._objects[name] = made
                while len(self._objects) > OBJECTS_MAX:
                    self._objects.popitem(last=False)
        return made

    def _make_metadata(self, source: TableSource, name: str) -> bytes | None:
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
                snapshot, view = history.find(version[0]), history.views.get(version[1])
                is_kept = snapshot is not None or not version[0]
                return json.dumps(self._describe(snapshot, view)).encode() if view is not None and is_kept else None
        endings: dict[str, Callable[[TableSource, TopicSnapshot, TableView], bytes]] = {
            "list": self._make_list,
            "old": lambda *of: self._make_manifest(EXISTING, *of)[1],
            "new": lambda *of: self._make_manifest(ADDED, *of)[1],
        }
        kind, *numbers = name.removesuffix(f"-{history.uuid}.avro").split("-")
        if kind not in endings or len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
            return None
        with self._lock:
            snapshot, view = history.find(int(numbers[0][:20])), history.views.get(int(numbers[1][:20]))
        if snapshot is None or view is None or name != self._name(kind, snapshot, view):
            return None
        return endings[kind](source, snapshot, view)

    def _name(self, kind: str, snapshot: TopicSnapshot, view: TableView) -> str:
        return f"{kind}-{snapshot.snapshot_id}-{view.view_id}-{self._history.uuid}.avro"

    def _make_list(self, source: TableSource, snapshot: TopicSnapshot, view: TableView) -> bytes:
        manifests = [self._make_manifest(status, source, snapshot, view)[0] for status in (EXISTING, ADDED)]
        held = [manifest for manifest in manifests if manifest.files]
        return write_manifest_list(snapshot.snapshot_id, snapshot.parent_id, held)

    def _make_manifest(
        self, status: int, source: TableSource, snapshot: TopicSnapshot, view: TableView
    ) -> tuple[ListedManifest, bytes]:
        seal_rows = self._history.seal_rows
        is_new = status == ADDED
        cuts = snapshot.cut_added(seal_rows) if is_new else snapshot.cut_existing(seal_rows)
        added_by = snapshot.snapshot_id if is_new else (snapshot.parent_id or snapshot.snapshot_id)
        # all at once, so that several threads render them
        waiting = [(view.name_file(cut), self._render(source, view, cut)) for cut in cuts]
        files = [
            SnapshotFile(f"{self.location}/data/{name}", rendered.result().facts, added_by)
            for name, rendered in waiting
        ]
        files = [file for file in files if file.facts.rows]
        body = write_manifest(view.schema, status, added_by, files)
        name = self._name("new" if is_new else "old", snapshot, view)
        return ListedManifest(f"{self.location}/metadata/{name}", len(body), status, added_by, files), body


def _parse_data_name(name: str) -> RowRange | None:
    numbers = name.removesuffix(".parquet").split("-")[1:4]
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        return None
    partition, first, end = (int(number[:20]) for number in numbers)
    return RowRange(partition, first, end)


class LiveTables:
    """All tables of a source, by the uuid that their objects' names begin with."""

    def __init__(self, shown_url: str, directory: Path, workers: int) -> None:
        self._shown_url = shown_url
        self._directory = directory
        self._files = FileCache(directory / "files", workers)
        self._tables: dict[str, LiveTable] = {}
        self._lock = threading.Lock()

    def open_table(self, table: TopicTable) -> LiveTable:
        """Return the table of a topic."""
        with self._lock:
            known = self._tables.get(table.uuid)
            if known is None:
                made = LiveTable(self._shown_url, table, self._directory, self._files)
                known = self._tables[table.uuid] = made
            return known

    def load(self, source: TableSource, table: TopicTable) -> tuple[str, dict[str, Any]]:
        """Return the metadata location and the metadata of a table as it is now."""
        live = self.open_table(table)
        live.refresh(source, table, time.time_ns() // 1_000_000)
        return live.describe()

    def open_object(self, source: TableSource, uuid: str, name: str) -> RenderedFile | None:
        """Return an object of a table, read from ``source`` if it has to be made; None for any other name."""
        with self._lock:
            table = self._tables.get(uuid)
        if table is None:
            # a reader that goes on after a restart of this process
            found = source.find_uuid(uuid)
            if found is None:
                return None
            table = self.open_table(found)
            table.refresh(source, found, time.time_ns() // 1_000_000)
        return table.open_object(source, name)

    def close(self) -> None:
        """End the work on files."""
        self._files.close()

"""The snapshots of a table and the rows of each, kept on disk, since engines' checkpoints name them by their ids."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..model.errors import CorruptLog
from ..runtime.private_files import make_private_directory, open_private
from .layout import STEPS, RowRange, cut_rows
from .table_schema import TableSchema, extend_schema

LOG: Final = logging.getLogger("lading.topic_tables")
FORMAT: Final = 1
SNAPSHOTS_MAX: Final = 1_000
"""Metadata lists at most this many snapshots. Before there are more, every second one of the older half is left out."""
SNAPSHOTS_WHOLE: Final = SNAPSHOTS_MAX // 2
"""This many of the newest snapshots are never left out: streams and incremental reads reach back that far, time travel
farther.
"""
VERSIONS_KEPT: Final = 1_000
"""Changes whose metadata files can still be read when the file is written anew."""
LINES_MAX: Final = 4 * SNAPSHOTS_MAX
"""Lines of the file after which it is written anew."""
VIEWS_KEPT: Final = 16
"""Views whose files can still be made when the file is written anew."""
HIDDEN_RANGES_MAX: Final = 400_000
"""Ranges in all views, which are in memory, after which the file is written anew with the last views."""
STAMP_LAG_MS: Final = 1_000
"""Snapshots are stamped this much back: DuckDB 1.5.5 ignores one that is newer than the begin of its transaction."""


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """The rows that a table had: of each partition, those of [first, end), of which [begun, end) were new."""

    snapshot_id: int
    parent_id: int | None
    stamp_ms: int
    firsts: tuple[int, ...]
    begun: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def added(self) -> int:
        """Offsets that are new in it."""
        return sum(self.ends) - sum(self.begun)

    def cut_existing(self, seal_rows: int) -> list[RowRange]:
        """Return the files of the rows that were there before."""
        return [
            cut
            for partition, (first, begun) in enumerate(zip(self.firsts, self.begun, strict=True))
            for cut in cut_rows(partition, first, begun, seal_rows)
        ]

    def cut_added(self, seal_rows: int) -> list[RowRange]:
        """Return the files of the rows that are new."""
        return [
            cut
            for partition, (begun, end) in enumerate(zip(self.begun, self.ends, strict=True))
            for cut in cut_rows(partition, begun, end, seal_rows)
        ]

    def to_row(self) -> list[Any]:
        """Return the snapshot as JSON."""
        return [self.snapshot_id, self.parent_id, self.stamp_ms, self.firsts, self.begun, self.ends]

    @classmethod
    def parse(cls, row: Sequence[Any]) -> TopicSnapshot:
        """Return the snapshot of a row of JSON."""
        firsts, begun, ends = (tuple(map(int, numbers)) for numbers in row[3:6])
        return cls(row[0], row[1], row[2], firsts, begun, ends)


Hidden = tuple[tuple[tuple[int, int], ...], ...]
"""Ranges (first, end) of messages that are not available and hidden from readers, by partition."""


Cleaned = tuple[tuple[int, int], ...]
"""The offset before which compaction has cleaned, and the time in microseconds since 1970, by partition."""


class StoredParts(NamedTuple):
    """A store of sealed files by its URL, and by partition the ranges whose files it has."""

    url: str = ""
    ranges: Hidden = ()


NOTHING_STORED: Final = StoredParts()


@dataclass(frozen=True, slots=True)
class TableView:
    """A view of the rows of snapshots: their schema, hidden messages, the progress of compaction, and the store of
    files.

    A snapshot names the same offsets under every view; a file has another name in each view that changes its rows.
    """

    view_id: int
    schema: TableSchema
    hidden: Hidden
    cleaned: Cleaned = ()
    stored: StoredParts = NOTHING_STORED

    def is_stored(self, rows: RowRange) -> bool:
        """Return whether rows are read from a file in the store, as no message of them is hidden or compacted."""
        ranges = self.stored.ranges[rows.partition] if rows.partition < len(self.stored.ranges) else ()
        is_there = any(first <= rows.first and rows.end <= end for first, end in ranges)
        return is_there and not self._list_changes(rows)

    def is_plain(self, rows: RowRange) -> bool:
        """Return whether no message of these rows is hidden or compacted in this view."""
        return not self._list_changes(rows)

    def to_row(self) -> dict[str, Any]:
        """Return the view as JSON."""
        row = {"view": self.view_id, "schema": self.schema.schema_id, "hidden": self.hidden, "cleaned": self.cleaned}
        return row | ({"store": self.stored.url, "stored": self.stored.ranges} if self.stored.url else {})

    def find_hidden(self, partition: int) -> tuple[tuple[int, int], ...]:
        """Return the ranges of a partition that are hidden in this view."""
        return self.hidden[partition] if partition < len(self.hidden) else ()

    def name_file(self, rows: RowRange) -> str:
        """Return the name of the file that holds rows as they are in this view."""
        stem = f"{self.schema.schema_id}-{rows.partition}-{rows.first}-{rows.end}"
        held = self._list_changes(rows)
        return f"{stem}-{hashlib.sha256(repr(held).encode()).hexdigest()[:12] if held else 0}.parquet"

    def _list_changes(self, rows: RowRange) -> list[Any]:
        """Return the differences between this view and the log: hidden ranges, and the times of compaction."""
        ranges = self.find_hidden(rows.partition)
        held: list[Any] = [
            (max(first, rows.first), min(end, rows.end))
            for first, end in ranges
            if first < rows.end and end > rows.first
        ]
        end, cleaned_us = self.cleaned[rows.partition] if rows.partition < len(self.cleaned) else (0, 0)
        if rows.first < end:
            held.append(cleaned_us)
        return held


@dataclass(slots=True)
class TableHistory:
    """Snapshots, schemas and views of one table, oldest first, in a file with a line for each.

    A snapshot's id is the number of offsets that its topic ever had: with one partition the offset after its last row.
    """

    path: Path
    uuid: str
    seal_rows: int
    snapshots: list[TopicSnapshot] = field(default_factory=list)
    schemas: list[TableSchema] = field(default_factory=list)
    views: dict[int, TableView] = field(default_factory=dict)
    versions: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The newest snapshot, 0 for none, and the newest view after each change, by the number of the change."""
    version: int = 0
    _before: list[TopicSnapshot] = field(default_factory=list)
    """The snapshots that were listed before some were left out."""
    _thinned: int = 0
    """The version after which some were left out."""
    _lines: int = 0
    _is_torn: bool = False

    @classmethod
    def open(cls, path: Path, uuid: str, seal_rows: int) -> TableHistory:
        """Return the history in a file, or an empty one. Raises CorruptLog for any other file.

        ``seal_rows`` counts for an empty one: the sizes of files never change.
        """
        if not path.exists():
            made = cls(path, uuid, seal_rows)
            make_private_directory(path.parent)
            made._rewrite()
            return made
        lines = path.read_bytes().splitlines(keepends=True)
        try:
            head = json.loads(lines[0])
            if head["format"] != FORMAT:
                raise CorruptLog(
                    f"{path}: format {head['format']}, this release reads {FORMAT}; delete it to number snapshots anew"
                )
            read = cls(path, head["uuid"], head["seal_rows"], version=head["version"])
            # a line that a power cut left unfinished was never shown to an engine
            for line in (line for line in lines[1:] if line.endswith(b"\n")):
                read._take(json.loads(line))
                if read._lines < head.get("anew", 0):
                    read.versions.clear()
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise CorruptLog(f"{path}: not a list of snapshots ({error}); delete it to number them anew") from None
        if lines and not lines[-1].endswith(b"\n"):
            read._rewrite()
        return read

    def _take(self, row: dict[str, Any]) -> None:
        if "columns" in row:
            self.schemas.append(extend_schema(self.schemas[-1] if self.schemas else None, row["columns"]))
        elif "view" in row:
            hidden = tuple(tuple((first, end) for first, end in ranges) for ranges in row["hidden"])
            cleaned = tuple((end, cleaned_us) for end, cleaned_us in row.get("cleaned", ()))
            held = tuple(tuple((first, end) for first, end in ranges) for ranges in row.get("stored", ()))
            stored = StoredParts(row.get("store", ""), held)
            self.views[row["view"]] = TableView(row["view"], self.schemas[row["schema"]], hidden, cleaned, stored)
        else:
            self.snapshots.append(TopicSnapshot.parse(row["snapshot"]))
            if len(self.snapshots) > SNAPSHOTS_MAX:
                self.versions = {number: held for number, held in self.versions.items() if number >= self._thinned}
                self._before, self._thinned = self.snapshots[:-1], self.version + 1
                self.snapshots[:-SNAPSHOTS_WHOLE] = self.snapshots[:-SNAPSHOTS_WHOLE:2]
        self._lines += 1
        self.version += 1
        if self.views:
            self.versions[self.version] = (self.snapshots[-1].snapshot_id if self.snapshots else 0, max(self.views))

    def list_snapshots(self, version: int) -> list[TopicSnapshot] | None:
        """Return the snapshots that the metadata of a version list, always the same; None for an unknown version."""
        newest, _ = self.versions.get(version, (None, 0))
        if newest is None:
            return None
        held = self._before if version < self._thinned else self.snapshots
        end = bisect_right(held, newest, key=lambda snapshot: snapshot.snapshot_id)
        return held[:end] if not newest or (end and held[end - 1].snapshot_id == newest) else None

    @property
    def last(self) -> TopicSnapshot | None:
        """The newest snapshot."""
        return self.snapshots[-1] if self.snapshots else None

    @property
    def view(self) -> TableView:
        """The newest view."""
        return self.views[max(self.views)]

    def use_columns(self, words: str) -> TableSchema:
        """Return the schema with the typed columns ``words``, from now on the newest one."""
        if not self.schemas or self.schemas[-1].words != words:
            extend_schema(self.schemas[-1] if self.schemas else None, words)
            self._append({"columns": words})
        return self.schemas[-1]

    def use_view(self, words: str, hidden: Hidden, cleaned: Cleaned = (), stored: StoredParts = NOTHING_STORED) -> None:
        """Show the table with the typed columns ``words``, without what is ``hidden`` and compacted as far as it is.

        ``stored`` says which rows engines read from a store.
        """
        schema = self.use_columns(words)
        made = TableView(max(self.views, default=-1) + 1, schema, hidden, cleaned, stored)
        if not self.views or replace(self.view, view_id=made.view_id) != made:
            self._append(made.to_row())

    def advance(self, firsts: Sequence[int], ends: Sequence[int], now_ms: int) -> TopicSnapshot | None:
        """Return the newest snapshot, made now if rows arrived since the last one; None while there never was a row."""
        last = self.last
        begun = list(firsts) if last is None else [*last.ends, *firsts[len(last.ends) :]]
        # a partition can have fewer rows than before if its topic lost some: nobody sees those any more
        ends = [max(pair) for pair in zip(ends, begun, strict=True)]
        if sum(ends) <= (0 if last is None else last.snapshot_id):
            return last
        stamp_ms = now_ms - STAMP_LAG_MS
        made = TopicSnapshot(
            sum(ends),
            None if last is None else last.snapshot_id,
            stamp_ms if last is None else max(stamp_ms, last.stamp_ms + 1),
            tuple(firsts),
            tuple(max(pair) for pair in zip(begun, firsts, strict=True)),
            tuple(ends),
        )
        self._append({"snapshot": made.to_row()})
        return made

    def has_shrunk(self, ends: Sequence[int]) -> bool:
        """Return whether a topic with these ends has fewer messages or partitions than the newest snapshot."""
        last = self.last
        return last is not None and (
            len(ends) < len(last.ends) or any(end < known for end, known in zip(ends, last.ends, strict=False))
        )

    def restart(self, uuid: str) -> None:
        """Begin anew as another table: a topic of the same name, or one that lost messages, has other rows."""
        self.uuid = uuid
        self.snapshots, self.schemas, self.views, self.versions, self._before = [], [], {}, {}, []
        self._rewrite()

    def use_seal_rows(self, seal_rows: int) -> None:
        """Choose the sizes of files; after the first snapshot they stay."""
        if self.last is None and self.seal_rows != seal_rows:
            self.seal_rows = seal_rows
            self._rewrite()

    def has_cut(self, rows: RowRange) -> bool:
        """Return whether the files of a snapshot that is kept can be cut at both ends of a range, and not within it."""
        step = self.seal_rows // STEPS[-1]
        wanted = {offset for offset in (rows.first, rows.end) if offset % step}
        for snapshot in self.snapshots if wanted else ():
            if rows.partition < len(snapshot.ends):
                for offsets in (snapshot.firsts, snapshot.begun, snapshot.ends):
                    wanted.discard(offsets[rows.partition])
        return not wanted and cut_rows(*rows, self.seal_rows) == [rows]

    def find(self, snapshot_id: int) -> TopicSnapshot | None:
        """Return a snapshot that is still kept."""
        place = self.find_place(snapshot_id)
        found = self.snapshots[place] if place < len(self.snapshots) else None
        return found if found is not None and found.snapshot_id == snapshot_id else None

    def find_place(self, snapshot_id: int) -> int:
        """Return the place of a snapshot in the list, or the one that it would have."""
        return bisect_left(self.snapshots, snapshot_id, key=lambda snapshot: snapshot.snapshot_id)

    def _append(self, row: dict[str, Any]) -> None:
        self._take(json.loads(json.dumps(row)))
        if self._lines > LINES_MAX:
            self._rewrite()
            return
        if self._is_torn or ("view" in row and self._count_hidden() > HIDDEN_RANGES_MAX):
            self._rewrite()
            return
        try:
            with open(self.path, "ab", opener=open_private) as file:
                file.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
                file.flush()
                os.fdatasync(file.fileno())
        except OSError as error:
            self._note_torn(error)

    def _count_hidden(self) -> int:
        return sum(len(ranges) for view in self.views.values() for ranges in view.hidden)

    def _note_torn(self, error: OSError) -> None:
        # the file may end in a part of a line: the next change writes it anew
        self._is_torn = True
        LOG.warning(
            "%s: %s; snapshots are in memory only, and a restart forgets them; make room", self.path, error.strerror
        )

    def _rewrite(self) -> None:
        self.views = {number: self.views[number] for number in sorted(self.views)[-VIEWS_KEPT:]}
        count = len(self.schemas) + len(self.views) + len(self.snapshots)
        self.versions = {number: self.versions[number] for number in sorted(self.versions)[-VERSIONS_KEPT:]}
        # lines that are written anew are in another order: the versions between them never were
        head = {
            "format": FORMAT, "uuid": self.uuid, "seal_rows": self.seal_rows, "version": self.version - count,
            "anew": count,
        }  # fmt: skip
        rows: list[dict[str, Any]] = [head]
        rows += [{"columns": schema.words} for schema in self.schemas]
        rows += [view.to_row() for view in self.views.values()]
        rows += [{"snapshot": snapshot.to_row()} for snapshot in self.snapshots]
        self._lines = len(rows) - 1
        fresh = self.path.with_suffix(".new")
        try:
            with open(fresh, "wb", opener=open_private) as file:
                file.write(b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
            self._is_torn = False
        except OSError as error:
            self._note_torn(error)

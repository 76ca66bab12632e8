"""The topics of a source as tables: their list, their ends, and their rows as batches."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..client.reading import PartitionReader, Selection
from ..model.errors import ChecksumMismatch, LocalError, Reason, Refusal
from ..model.names import DEFAULT_STREAM, flat_name
from ..model.scan_request import MAX_OFFSET
from ..model.state import State
from ..transports.interface import Filtering, TopicMeta, Transport
from ..transports.open import is_queue, without_options
from ..transports.transport_pool import TransportPool
from .layout import RowRange
from .snapshots import Cleaned, Hidden, TableView

LOG: Final = logging.getLogger("lading.topic_tables")
FETCH_BYTES: Final = 4 << 20
SEPARATOR: Final = "\x1f"
"""The separator of levels of a namespace in paths of the catalog; a stream with it in its name cannot be a level."""


HIDDEN_MAX: Final = 10_000
"""Ranges of messages that are not available which the history of a table lists one by one."""
READABLE_MAX: Final = 10_000
"""A source remembers at most this many tables that its login may read."""
MISSED_S: Final = 0.1
"""How long such a list is used for ids that are not in it, so that requests for objects that never existed do not list
the tables each time.
"""
LISTED_S: Final = 1.0
"""How long a list of the tables counts for objects that are asked for without a signature."""


@dataclass(frozen=True, slots=True)
class TopicTable:
    """A topic as a table: its namespace and name in the catalog, and an id that no other topic ever has."""

    namespace: str
    name: str
    uuid: str
    meta: TopicMeta


@dataclass(slots=True)
class RowLosses:
    """Missing parts of rows: damaged offsets, and by column values that are null as they are not of its type."""

    damaged: list[tuple[int, int]] = field(default_factory=list)
    bad_values: dict[str, int] = field(default_factory=dict)


class TableSource:
    """A broker, cluster or directory whose topics are tables. Raises LocalError for a queue, which has no offsets."""

    def __init__(self, url: str, columns: Mapping[str, str], connect: Callable[[], Transport] | None = None) -> None:
        """``connect`` opens a transport of the source with another login than that of the URL."""
        if is_queue(url):
            raise LocalError(
                f"{url} is a queue: reading consumes its messages, so that it cannot be a table; name a broker "
                "(lading://host:port), a Kafka cluster, an Iggy server or a data directory"
            )
        self._pool: Final = TransportPool(url, connect)
        self._columns: Final = dict(columns)
        self._listed: tuple[float, dict[str, TopicTable]] = (0.0, {})
        self._loaded: dict[str, tuple[float, TopicTable]] = {}
        """Tables that were asked for by name, and when, since the list was begun: it may lack those made meanwhile."""
        self._lock: Final = threading.Lock()
        self._readable: dict[str, float] = {}
        """When messages of a table were last asked for, by its id."""

    @property
    def url(self) -> str:
        """The URL without its options, for people."""
        return without_options(self._pool.url)

    def list_tables(self) -> list[TopicTable]:
        """Return all topics as tables, by name; without those that are a server's own."""
        with self._pool.lend() as transport:
            metas = transport.topics()
        tables = (self._describe(meta) for meta in metas if SEPARATOR not in meta.stream)
        return sorted(tables, key=lambda table: (table.namespace, table.name))

    def find_table(self, namespace: str, name: str) -> TopicTable | None:
        """Return the table of a topic as it is now, or None if it does not exist."""
        with self._pool.lend() as transport:
            try:
                found = self._describe(transport.topic(flat_name(namespace, name)))
            except LocalError:
                return None
            except Refusal as refusal:
                if refusal.reason is not Reason.UNAUTHORIZED:
                    raise
                # the same as for a topic that does not exist: whether it does is not for everybody
                return None
        if (found.namespace, found.name) != (namespace, name):
            return None
        # engines ask for its objects next
        with self._lock:
            self._loaded[found.uuid] = (time.monotonic(), found)
        return found

    def find_uuid(self, wanted: str, opened: TopicTable | None = None) -> TopicTable | None:
        """Return the table with an id, or None if it does not exist; a list of a moment ago counts.

        ``opened`` is what another caller has loaded by this id: it may be newer than the list of this one.
        """
        listed_s, tables = self._listed
        age_s = time.monotonic() - listed_s
        is_known = wanted in tables or wanted in self._loaded
        if not is_known and opened is not None:
            found = self.find_table(opened.namespace, opened.name)
            if found is not None and found.uuid == wanted:
                return found
        if age_s > LISTED_S or (not is_known and age_s > MISSED_S):
            begun_s = time.monotonic()
            tables = {table.uuid: table for table in self.list_tables()}
            with self._lock:
                self._listed = (time.monotonic(), tables)
                self._loaded = {table_id: found for table_id, found in self._loaded.items() if found[0] >= begun_s}
        loaded = self._loaded.get(wanted)
        return tables.get(wanted) if loaded is None else loaded[1]

    def _describe(self, meta: TopicMeta) -> TopicTable:
        identity = meta.topic_id or hashlib.sha256(f"{self.url}\0{meta.name}".encode()).digest()[:16]
        return TopicTable(meta.stream or DEFAULT_STREAM, meta.topic, str(uuid.UUID(bytes=identity)), meta)

    def require_readable(self, table: TopicTable) -> None:
        """Ask for messages of a table with this login, if it did not a moment ago: more logins may list a topic.

        Raises the error of the source if it may not read them. Objects in a cache were rendered for any caller.
        """
        if time.monotonic() - self._readable.get(table.uuid, -LISTED_S) <= LISTED_S:
            return
        for part in table.meta.partitions[:1]:
            with self._pool.lend() as transport:
                transport.fetch(table.meta.name, part.number, part.end_offset, max_bytes=1)
        if len(self._readable) > READABLE_MAX:
            self._readable.clear()
        self._readable[table.uuid] = time.monotonic()

    def find_columns(self, table: TopicTable) -> str:
        """Return the typed columns of a table, as its topic or the settings of this process name them."""
        return self._columns.get(table.meta.name, "") or str(table.meta.settings.get("columns") or "")

    @staticmethod
    def find_cleaned(table: TopicTable) -> Cleaned:
        """Return how far compaction has cleaned each partition of a table."""
        found = tuple(part.cleaned or (0, 0) for part in table.meta.partitions)
        return found if any(end for end, _ in found) else ()

    def find_hidden(self, table: TopicTable) -> Hidden:
        """Return the messages that are not available now; empty for a source that cannot list them."""
        if not any(part.has_unavailable for part in table.meta.partitions):
            return ()
        with self._pool.lend() as transport:
            if not isinstance(transport, Filtering):
                return ()
            found = [
                tuple((first, end) for first, end, _ in transport.states(table.meta.name, part.number))
                if part.has_unavailable
                else ()
                for part in table.meta.partitions
            ]
        if sum(map(len, found)) <= HIDDEN_MAX:
            return tuple(found) if any(found) else ()
        # a mark of all of them: a change then gives every file another name
        mark = int.from_bytes(hashlib.sha256(repr(found).encode()).digest()[:6], "big")
        return tuple(((-mark - 1, MAX_OFFSET),) for _ in found)

    def read_rows(
        self, table: TopicTable, view: TableView, rows: RowRange, losses: RowLosses
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file as they are stored in it. At the end ``losses`` has what is missing in them. Damaged
        messages are left out; a line of the log reports them.
        """
        schema, hidden = view.schema, view.find_hidden(rows.partition)
        with self._pool.lend() as transport:
            # states may have changed since the view was made: its files have the rows that it showed
            is_listed = isinstance(transport, Filtering) and not any(first < 0 for first, _ in hidden)
            selection = Selection.parse(schema.selected, None, "all" if is_listed else "available", True, "skip")
            reader = PartitionReader(
                transport, table.meta, rows.partition, rows.first, end=rows.end, sure=False, max_bytes=FETCH_BYTES
            )
            while not reader.done:
                before = reader.position
                try:
                    batches = reader.read(selection)
                except ChecksumMismatch as error:
                    # one bad message never hides the others
                    LOG.warning("%s: left out offset %d: %s", table.name, reader.position, error)
                    losses.damaged.append((reader.position, reader.position + 1))
                    reader.position += 1
                    continue
                shown = (_hide_rows(batch, hidden) for batch in batches) if is_listed else batches
                yield from (schema.convert(batch) for batch in shown)
                if reader.position == before and not batches:
                    break
            losses.bad_values = reader.bad_values
            if reader.damaged:
                losses.damaged += reader.damaged
                LOG.warning("%s, partition %d: left out damaged offsets %s", table.name, rows.partition, reader.damaged)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


def _hide_rows(batch: pa.RecordBatch, hidden: Sequence[tuple[int, int]]) -> pa.RecordBatch:
    """Return the rows outside of hidden ranges, all as available."""
    offsets = batch.column("offset").to_numpy()
    keep = np.ones(batch.num_rows, np.bool_)
    for first, end in hidden:
        keep[slice(*np.searchsorted(offsets, (first, end)))] = False
    shown = batch if keep.all() else batch.filter(pa.array(keep))
    place = shown.schema.get_field_index("state")
    states = pa.array(np.full(shown.num_rows, State.AVAILABLE, np.int8))
    return shown.set_column(place, shown.schema.field(place), states)


def describe_table(table: TopicTable) -> dict[str, Any]:
    """Return the name of a table as the catalog writes it."""
    return {"namespace": [table.namespace], "name": table.name}

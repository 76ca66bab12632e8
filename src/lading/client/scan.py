"""A lazy scan of topics: read anew each time that a data frame or query engine asks for its Arrow stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from ..columns.contract import did_you_mean, split_columns
from ..filter.tree import list_paths
from ..model.batch import FIELDS
from ..model.errors import SettingError
from ..transports.fetched import States
from ..transports.topic_selection import TopicSelection
from .arguments import open_for
from .bulk import make_reader, read_selection, reader_schema, select_topics
from .read_bounds import Bound, ReadBounds
from .reading import OnLoss, Selection, columns_text
from .scan_conditions import AllConditions, ColumnCondition, clip_spans, limit_to_fields, to_where


def scan(
    url: str,
    topic: str | None = None,
    columns: str | Sequence[str] | None = None,
    *,
    topics: Sequence[str] = (),
    topic_pattern: str | None = None,
    where: str | None = None,
    states: States = "available",
    start: Bound = "earliest",
    end: Bound = "latest",
    verify_checksum: bool = True,
    on_loss: OnLoss = "fail",
    payload: Mapping[str, str] | None = None,
    **options: Any,
) -> TopicScan:
    """Return a lazy scan of a topic, or of several: a source for whatever takes the Arrow C stream interface.

    DuckDB, Polars, pyarrow, pandas and Daft take it as it is: ``pl.DataFrame(scan)``, ``duckdb.sql("from scan")``,
    ``pa.RecordBatchReader.from_stream(scan)``. It is read anew each time, in batches of a few megabytes, so that a
    topic of any size needs no more memory. ``lading.integrations`` has sources that push projection and filter down.
    The arguments are those of ``read_arrow``; nothing is opened until the scan is read.
    """
    text = columns_text(columns)
    selection = Selection.parse(text, where, states, verify_checksum, on_loss, payload)
    wanted = select_topics(topic, topics, topic_pattern)
    return TopicScan(str(url), wanted, selection, payload, start, end, tuple(options.items()))


@dataclass(frozen=True, repr=False)
class TopicScan:
    """A scan of topics that is read anew each time; its methods return scans of less, and change nothing."""

    url: str
    topics: TopicSelection
    selection: Selection
    _payload: Mapping[str, str] | None
    _start: Bound
    _end: Bound
    _options: tuple[tuple[str, Any], ...]
    _names: tuple[str, ...] | None = None
    """The columns that are shown, if they are not all that are read."""
    _pushed: ColumnCondition | None = None
    _limit: int | None = None
    _partition: int | None = None
    """The partition that is read; None for all."""

    def __repr__(self) -> str:
        return f"TopicScan({self.url} {self.topics}: {', '.join(self.schema.names)})"

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        schema = reader_schema(self.selection)
        return schema if self._names is None else pa.schema([schema.field(name) for name in self._names])

    def select(self, names: Sequence[str]) -> TopicScan:
        """Return a scan of these columns alone, of which the others are not decoded.

        Raises SettingError for a column that this scan does not have.
        """
        there = self.schema.names
        wrong = next((name for name in names if name not in there), None)
        if wrong is not None:
            raise SettingError(
                f"column {wrong!r}: the scan has no such column{did_you_mean(wrong, there)}; it has {', '.join(there)}"
            )
        return replace(self, _names=tuple(dict.fromkeys(names)))

    def filter(self, where: str) -> TopicScan:
        """Return a scan of the messages for which a filter holds too (docs/reference/filter).

        It may name all columns of the first scan, and headers by their names. Raises SettingError after ``limit``.
        """
        if self._limit is not None:
            raise SettingError(f"filter {where!r}: the scan has a limit, and the limit comes first; filter before it")
        both = where if self.selection.where is None else f"({self.selection.where}) AND ({where})"
        return replace(self, selection=self._parse(self.selection.columns, both))

    def limit(self, rows: int) -> TopicScan:
        """Return a scan of the first rows alone."""
        if rows < 0:
            raise SettingError(f"limit is 0 or more, not {rows}")
        return replace(self, _limit=rows if self._limit is None else min(rows, self._limit))

    def push_down(self, condition: ColumnCondition | None) -> TopicScan:
        """Return a scan that leaves out messages for which the condition does not hold, as far as a read can.

        It may have more rows than the condition allows, never fewer; the caller applies the condition to them. After
        ``limit`` nothing is left out: the limit comes first.
        """
        if condition is None or self._limit is not None:
            return self
        both = condition if self._pushed is None else AllConditions((self._pushed, condition))
        return replace(self, _pushed=both)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of batches, which can be read once; messages are fetched while it is read."""
        selection = self._parse(self._columns_to_read(), self._where_to_read())
        projection = self.selection.projection
        fields = (*FIELDS, "partition") if projection is None else projection.fields
        clip = partial(_clip_to_condition, partition=self._partition, condition=limit_to_fields(self._pushed, fields))
        transport = open_for(scan, self.url, dict(self._options))
        batches = read_selection(
            transport, self.topics, selection, self._start, self._end, self._limit, stacklevel=2, clip=clip
        )
        reader = make_reader(selection, batches if self._limit is None else _cut(batches, self._limit))
        if self._names is None or reader.schema.names == list(self._names):
            return reader
        names = list(self._names)
        return pa.RecordBatchReader.from_batches(self.schema, (batch.select(names) for batch in reader))

    def split(self) -> list[TopicScan]:
        """Return a scan of each partition, for engines that read them side by side; asks the server for their number.

        A scan with a limit is not split.
        """
        if self._limit is not None or self._partition is not None:
            return [self]
        transport = open_for(scan, self.url, dict(self._options))
        try:
            numbers = {part.number for meta in self.topics.find(transport) for part in meta.partitions}
        finally:
            transport.close()
        return [replace(self, _partition=number) for number in sorted(numbers)]

    def to_arrow(self) -> pa.Table:
        """Return all rows as a table."""
        return self.to_reader().read_all()

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader: Any = self.to_reader()
        stream: object = reader.__arrow_c_stream__(requested_schema)
        return stream

    def _parse(self, columns: str | None, where: str | None) -> Selection:
        before = self.selection
        return Selection.parse(columns, where, before.states, before.verify, before.on_loss, self._payload)

    def _where_to_read(self) -> str | None:
        pushed = to_where(self._pushed, self.selection.projection)
        before = self.selection.where
        return f"({before}) AND {pushed}" if before is not None and pushed is not None else before or pushed

    def _columns_to_read(self) -> str | None:
        """Return the declarations of the columns that are shown, and of those whose types the user's filter needs."""
        if self._names is None:
            return self.selection.columns
        projection, condition = self.selection.projection, self.selection.filter
        # a read without any column would have no rows either
        if projection is None:
            return ", ".join(self._names) or "offset"
        named: set[str] = set()
        if condition is not None:
            paths = list_paths(condition.tree)
            named |= {column.name for column in projection.headers if column.header in condition.header_keys}
            named |= {column.name for column in projection.headers if column.name in condition.header_keys}
            named |= {column.name for column in projection.payload if column.path in paths}
        declarations = split_columns(self.selection.columns or "")
        kept = [text for name, text in declarations.items() if name in named or name in self._names]
        return ", ".join(kept) or "offset"


def _clip_to_condition(
    spans: Iterable[ReadBounds], *, partition: int | None, condition: ColumnCondition | None
) -> Iterator[ReadBounds]:
    return clip_spans((span for span in spans if partition in (None, span.partition)), condition)


def _cut(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        yield batch.slice(0, limit - rows)
        rows += min(batch.num_rows, limit - rows)
        if rows >= limit:
            return

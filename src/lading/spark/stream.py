"""Streaming reads: offsets for Spark's checkpoint, admission control, ``Trigger.AvailableNow``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ..tables.offsets import OffsetsDocument, PartitionOffsets, document, parse_document
from ..tables.options import SourceOptions
from ..tables.planning import Planner
from ..tables.scan import read_range
from .absent_headers import warn_of_absent_headers
from .scan import conform_batches, plan_scan
from .types import resolve_schema

if TYPE_CHECKING:
    import pyarrow as pa


class LadingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream.format("lading")``: which offsets each micro-batch takes, and its messages as Arrow batches.

    All state is in Spark's checkpoint; ``commit`` is a hint that never comes for the last batch, so nothing is done.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.planner = Planner(options)
        self.wanted = resolve_schema(schema, options.columns, options.encodings)
        self.reading = plan_scan(options, self.wanted)
        self._target: PartitionOffsets | None = None
        self._headers_checked = False

    def initialOffset(self) -> OffsetsDocument:
        """Where the stream begins without a checkpoint."""
        return document(self.options.topic, self.planner.initial_offsets())

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxRowsPerTrigger, else maxBytesPerTrigger, else everything."""
        if self.options.max_rows_per_trigger is not None:
            return ReadMaxRows(self.options.max_rows_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> OffsetsDocument:
        """Where the next batch ends; equal to ``start`` when there is nothing new.

        DataLoss where messages after ``start`` are gone and failOnDataLoss is on.
        """
        since = parse_document(self.options.topic, start)
        # Spark asks when the batch before is committed
        return document(self.options.topic, self.planner.next_offsets(since, *self._limits(limit), self._target))

    def reportLatestOffset(self) -> OffsetsDocument:
        """Where the topic ends now: the lag in Spark's progress."""
        return document(self.options.topic, self.planner.end_offsets())

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember what is there now; later messages are for the next run."""
        self._target = self.planner.end_offsets()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One Spark partition per offset range, the same for the same offsets."""
        topic = self.options.topic
        ranges = self.planner.ranges(parse_document(topic, start), parse_document(topic, end))
        if not self._headers_checked:
            self._headers_checked = warn_of_absent_headers(self.planner.transport, self.reading, ranges)
        return [InputPartition(piece) for piece in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range."""
        yield from conform_batches(read_range(self.reading, partition.value), self.wanted.schema)

    def stop(self) -> None:
        """Close the connection."""
        self.planner.close()

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        """Messages and bytes of a batch."""
        if isinstance(limit, ReadAllAvailable):
            return None, None
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.max_rows_per_trigger
        return rows, limit.max_bytes if isinstance(limit, ReadMaxBytes) else self.options.max_bytes_per_trigger

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

from .options import SourceOptions
from .planning import Planner, bounded
from .positions import Marks, OffsetsDocument, document, parse_document
from .reading import read_range
from .source import batches, reading
from .types import wanted

if TYPE_CHECKING:
    import pyarrow as pa


class RangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The driver's half: which offsets each micro-batch takes. ``read`` is left to those who know what to do with one.

    All state is in Spark's checkpoint; ``commit`` is a hint that never comes for the last batch, so nothing is done.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.planner = Planner(options)
        self._target: Marks | None = None

    def initialOffset(self) -> OffsetsDocument:
        """Where the stream begins without a checkpoint."""
        return document(self.options.topic, self.planner.first())

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
        self.planner.done(since)
        end = self.planner.newest(since)
        if self._target is not None:
            end = bounded(end, self._target)
        if not isinstance(limit, ReadAllAvailable):
            end = self.planner.admitted(since, end, self._rows(limit), self._bytes(limit))
        unchanged = {
            number: mark for number, mark in since.items()
            if number not in end or (end[number].offset <= mark.offset and end[number].resumed_at is None)
        }  # fmt: skip
        return document(self.options.topic, {**end, **unchanged})

    def reportLatestOffset(self) -> OffsetsDocument:
        """Where the topic ends now: the lag in Spark's progress."""
        return document(self.options.topic, self.planner.ends())

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember what is there now; later messages are for the next run."""
        self._target = self.planner.ends()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One Spark partition per offset range, the same for the same offsets."""
        topic = self.options.topic
        ranges = self.planner.ranges(parse_document(topic, start), parse_document(topic, end))
        return [InputPartition(piece) for piece in ranges]

    def stop(self) -> None:
        """Let go of the connection."""
        self.planner.close()

    def _rows(self, limit: ReadLimit) -> int | None:
        return limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.max_rows_per_trigger

    def _bytes(self, limit: ReadLimit) -> int | None:
        return limit.max_bytes if isinstance(limit, ReadMaxBytes) else self.options.max_bytes_per_trigger


class LadingStreamReader(RangeStreamReader):
    """``spark.readStream.format("lading")``: the messages of each range as Arrow batches."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options)
        self.wanted = wanted(schema, options.columns, options.encodings)
        self.reading = reading(options, self.wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range."""
        yield from batches(read_range(self.reading, partition.value), self.wanted.schema)

"""Streaming reads: offsets for Spark's checkpoint, admission control, ``Trigger.AvailableNow``."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ..client.patience import Patience
from ..model.errors import LadingError, Unreachable
from ..tables.offsets import OffsetsDocument, PartitionOffsets, document, parse_document
from ..tables.options import SourceOptions
from ..tables.planning import Planner
from ..tables.scan import read_range
from .absent_headers import warn_of_absent_headers
from .scan import conform_batches, plan_scan
from .types import resolve_schema

if TYPE_CHECKING:
    import pyarrow as pa

LOG = logging.getLogger("lading.spark")
PAUSE_MAX_S: Final = 1.0
"""Time that Spark waits for a response while the server is unreachable; stopping a query waits for that, too."""


class LadingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream.format("lading")``: the offsets of each micro-batch, and its messages as Arrow batches.

    All state is in Spark's checkpoint. ``commit`` does nothing, because Spark never calls it for the last batch.
    If the server becomes unreachable after its first response, driver and tasks wait for it.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.planner = Planner(options)
        self.wanted = resolve_schema(schema, options.columns, options.encodings)
        self.reading = plan_scan(options, self.wanted)
        self._target: PartitionOffsets | None = None
        self._headers_checked = False
        self._patience = Patience(f"the server of {options.topic!r}", _pause, LOG)
        self._has_answer = False

    def initialOffset(self) -> OffsetsDocument:
        """Return where the stream starts without a checkpoint."""
        found = document(self.options.topic, self.planner.initial_offsets())
        self._has_answer = True
        return found

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return maxRowsPerTrigger, else maxBytesPerTrigger, else no limit."""
        if self.options.max_rows_per_trigger is not None:
            return ReadMaxRows(self.options.max_rows_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> OffsetsDocument:
        """Return where the next batch ends; equal to ``start`` if there is nothing new, or the server is unreachable.

        Raises DataLoss if messages after ``start`` were deleted and failOnDataLoss is on.
        """
        since = parse_document(self.options.topic, start)
        try:
            # Spark asks when the batch before is committed
            end = self.planner.next_offsets(since, *self._limits(limit), self._target)
        except LadingError as error:
            # for Trigger.AvailableNow nothing new means that all is read
            if self._target is not None or not self._has_answer:
                raise
            self._patience.wait(error)
            return document(self.options.topic, since)
        self._has_answer = True
        self._patience.reset()
        return document(self.options.topic, end)

    def reportLatestOffset(self) -> OffsetsDocument | None:
        """Return the present end of the topic, for the lag in Spark's progress; None if the server is unreachable."""
        try:
            return document(self.options.topic, self.planner.end_offsets())
        except Unreachable:
            return None

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the present end of the topic as the end of this run."""
        self._target = self.planner.end_offsets()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one Spark partition per offset range; the same for the same offsets."""
        topic = self.options.topic
        ranges = self.planner.ranges(parse_document(topic, start), parse_document(topic, end))
        if not self._headers_checked:
            self._headers_checked = warn_of_absent_headers(self.planner.transport, self.reading, ranges)
        return [InputPartition(piece) for piece in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one range."""
        patience = Patience(f"the server of {self.options.topic!r}", log=LOG)
        batches = read_range(self.reading, partition.value, patience=patience)
        yield from conform_batches(batches, self.wanted.schema)

    def stop(self) -> None:
        """Close the connection."""
        self.planner.close()

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        """Return the maximum messages and bytes of a batch."""
        if isinstance(limit, ReadAllAvailable):
            return None, None
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.max_rows_per_trigger
        return rows, limit.max_bytes if isinstance(limit, ReadMaxBytes) else self.options.max_bytes_per_trigger


def _pause(seconds: float) -> None:
    time.sleep(min(seconds, PAUSE_MAX_S))

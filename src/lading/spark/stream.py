"""Streaming reads: the offsets of each micro-batch for Spark's checkpoint, as Spark 4.0 and 4.1 ask for them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ..client.patience import Patience
from ..model.errors import LadingError
from ..tables.plan.offsets import OffsetsDocument
from ..tables.plan.options import SourceOptions
from ..tables.plan.source_planner import SourcePlanner
from ..tables.scan.scan import read_range
from .absent_headers import warn_of_absent_headers
from .scan import conform_batches, plan_scan
from .types import resolve_schema

if TYPE_CHECKING:
    import pyarrow as pa

LOG = logging.getLogger("lading.spark")
PAUSE_MAX_S: Final = 1.0
"""Time that Spark waits for a response while the server is unreachable; stopping a query waits for that, too."""


class LadingStreamReader(DataSourceStreamReader):
    """``spark.readStream.format("lading")``: the offsets of each micro-batch, and its messages as Arrow batches.

    All state is in Spark's checkpoint. ``commit`` does nothing, because Spark never calls it for the last batch. If the
    server becomes unreachable after its first response, driver and tasks wait for it. A batch ends at the end of the
    topic; limits are in ``stream_limits``.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.planner = SourcePlanner(options)
        self.wanted = resolve_schema(schema, options.columns, options.encodings, options.payload)
        self.reading = plan_scan(options, self.wanted)
        self._since: OffsetsDocument | None = None
        self._headers_checked = False
        self._patience = Patience(f"the server of {options.selection}", _pause, LOG)
        self._has_answer = False

    def initialOffset(self) -> OffsetsDocument:
        """Return the offsets at which the stream starts without a checkpoint."""
        self._since = self.planner.initial_offsets()
        self._has_answer = True
        return self._since

    def latestOffset(self) -> OffsetsDocument:  # type: ignore[override] # as before Spark 4.2
        """Return the end of the topic, or of the batch before if nothing is new or no server can be reached.

        Raises DataLoss if messages after the batch before were deleted and failOnDataLoss is on.
        """
        if self._since is None:
            # Spark does not pass the position of its checkpoint here: ``partitions`` is the first to know it
            return self.planner.end_offsets()
        return self.advance(self._since, None, None)

    def advance(
        self,
        since: OffsetsDocument,
        rows_max: int | None,
        bytes_max: int | None,
        last: OffsetsDocument | None = None,
    ) -> OffsetsDocument:
        """Return the end of the batch after ``since``, within the limits; ``since`` itself if nothing is new.

        ``last`` is the end for a run that reads only what exists at its start; None for one that continues.
        """
        try:
            # Spark asks when the batch before is committed
            end = self.planner.next_offsets(since, rows_max, bytes_max, last)
        except LadingError as error:
            # for Trigger.AvailableNow nothing new means that all is read
            if last is not None or not self._has_answer:
                raise
            self._patience.wait(error)
            return since
        self._has_answer = True
        self._patience.reset()
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one Spark partition per offset range; the same for the same offsets."""
        self.planner.require_own(end)
        ranges = self.planner.ranges(self.check_start(start), end)
        self._since = end
        if not self._headers_checked:
            self._headers_checked = warn_of_absent_headers(self.planner.transport, self.reading, ranges)
        return [InputPartition(piece) for piece in ranges]

    def check_start(self, since: OffsetsDocument) -> OffsetsDocument:
        """Return the start of a batch, after messages that were deleted, if ``latestOffset`` did not know its start."""
        return since if self._since is not None else self.planner.skip_losses(since)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one range."""
        patience = Patience(f"the server of {self.options.selection}", log=LOG)
        batches = read_range(self.reading, partition.value, patience=patience)
        yield from conform_batches(batches, self.wanted.schema)

    def stop(self) -> None:
        """Close the connection."""
        self.planner.close()


def _pause(seconds: float) -> None:
    time.sleep(min(seconds, PAUSE_MAX_S))

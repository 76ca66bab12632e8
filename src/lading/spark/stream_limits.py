"""Streaming reads whose batches are limited: admission control and ``Trigger.AvailableNow``, from Spark 4.2 on."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ..model.errors import Unreachable
from ..tables.plan.lag import TopicLag, measure_lag
from ..tables.plan.offsets import LAG, OffsetsDocument
from .stream import LadingStreamReader


class LimitedStreamReader(LadingStreamReader, SupportsTriggerAvailableNow):
    """A reader to which Spark passes the start of a batch, and its limit."""

    _last: OffsetsDocument | None = None
    """The end of a run with ``Trigger.AvailableNow``."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return maxRowsPerTrigger, else maxBytesPerTrigger, else no limit."""
        if self.options.max_rows_per_trigger is not None:
            return ReadMaxRows(self.options.max_rows_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(  # type: ignore[override]
        self, start: dict[str, Any], limit: ReadLimit
    ) -> OffsetsDocument:
        """Return the end of the next batch; equal to ``start`` if there is nothing new, or the server is unreachable.

        Raises DataLoss if messages after ``start`` were deleted and failOnDataLoss is on.
        """
        self.planner.require_own(start)
        return self.advance(start, *self._limits_of(limit), self._last)

    def check_start(self, since: OffsetsDocument) -> OffsetsDocument:
        """Return ``since``: ``latestOffset`` looked for losses."""
        return since

    def reportLatestOffset(self) -> OffsetsDocument | None:
        """Return the present end of the topics, and by topic the ``lag`` of what was planned, for Spark's progress.

        Spark has no metrics for sources in Python, and no description of them. Returns None if the server is
        unreachable.
        """
        try:
            ends = self.planner.end_offsets()
            lags = {} if self._since is None else measure_lag(self.planner, self._since, time.time_ns() // 1000)
        except Unreachable:
            return None
        return {topic: {**marks, **_lag_of(lags.get(topic))} for topic, marks in ends.items()}

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the present end of the topic as the end of this run."""
        self._last = self.planner.end_offsets()

    def _limits_of(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        """Return the maximum messages and bytes of a batch."""
        if isinstance(limit, ReadAllAvailable):
            return None, None
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.max_rows_per_trigger
        return rows, limit.max_bytes if isinstance(limit, ReadMaxBytes) else self.options.max_bytes_per_trigger


def _lag_of(lag: TopicLag | None) -> dict[str, dict[str, Any]]:
    return {} if lag is None else {LAG: lag.document()}

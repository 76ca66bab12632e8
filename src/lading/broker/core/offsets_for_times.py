"""Messages by their time: which is the first at or after one, and which has the latest."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ...chunk.runs import runs
from ...dialects import registry
from ...log.interface import Span
from ...model.scan_request import ScanRequest
from .topology import Partition

_FIELDS: Final = frozenset({"offset", "timestamp"})


class Timed(NamedTuple):
    """A message and its time."""

    offset: int
    timestamp_us: int


def offset_at(partition: Partition, timestamp_us: int) -> int:
    """Return the first offset with this timestamp or a later one, or else the end of the synced messages."""
    log = partition.log
    offset = log.offset_at(timestamp_us)
    span = log.read(offset, 1)
    found = None if span is None else first_in_span(span, offset, timestamp_us)
    return offset if found is None else found.offset


def first_since(partition: Partition, timestamp_us: int) -> Timed | None:
    """Return the first message at this time or later that readers see, or None."""
    log = partition.log
    span = log.read(log.offset_at(timestamp_us), 1)
    while span is not None:
        found = first_in_span(span, log.first_offset, timestamp_us)
        if found is not None:
            return found
        # what made the chunk late was a control record, or lies before the first offset that is kept
        span = log.read(span.end_offset, 1)
    return None


def first_in_span(span: Span, first_offset: int, timestamp_us: int) -> Timed | None:
    """Return the first message of a span at this time or later, or None, also if the span is damaged."""
    if span.damaged:
        return None
    for run in runs(span.region, span.start, span.end, verify=False):
        for some in registry.decode(run, ScanRequest(first_offset, fields=_FIELDS)):
            times = np.asarray(some.columns["timestamp"].to_numpy(zero_copy_only=False)).astype("datetime64[us]")
            late = np.flatnonzero(times.astype(np.int64) >= timestamp_us)
            if len(late):
                at = int(late[0])
                return Timed(int(some.columns["offset"][at].as_py()), int(times[at].astype(np.int64)))
    return None


def latest(partition: Partition) -> Timed | None:
    """Return the first message that has the latest time of all, or None without messages.

    The control record that ends a transaction counts as one, as it does in Apache Kafka (ListOffsets, timestamp -3).
    """
    log = partition.log
    highest_us = max((segment.max_timestamp_us for segment in log.segments()), default=0)
    found = first_since(partition, highest_us)
    if found is not None:
        return found
    span = log.read(log.offset_at(highest_us), 1)
    if span is None or not log.control_ranges(span.base_offset, span.end_offset):
        return None
    return Timed(span.base_offset, highest_us)

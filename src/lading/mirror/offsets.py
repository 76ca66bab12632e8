"""Find the offset that a message got at the target, from the end of its partition before and after the send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..model.scan_request import MAX_OFFSET, ScanRequest
from ..transports.interface import Transport
from ..transports.transactions import TransactionalTransport
from .state import MappedRange

if TYPE_CHECKING:
    import pyarrow as pa


def partition_ends(transport: Transport, topic: str) -> dict[int, int]:
    """Return the end offset that each partition of a topic has now."""
    return {part.number: part.end_offset for part in transport.topic(topic).partitions}


def find_offsets(
    transport: Transport, topic: str, partition: int, before: int, after: int, count: int
) -> NDArray[np.int64] | None:
    """Return the offsets of ``count`` messages sent while the partition's end moved; None if others sent as well."""
    # the cluster appends one record of its own after a transaction
    own_records = 1 if isinstance(transport, TransactionalTransport) else 0
    if after - before in (count, count + own_records):
        return np.arange(before, before + count)
    seen: list[NDArray[np.int64]] = []
    at = before
    while at < after:
        fetched = transport.fetch(topic, partition, at)
        request = ScanRequest(at, min(after, MAX_OFFSET), frozenset({"offset"}))
        seen += [
            np.asarray(part.columns["offset"].to_numpy(zero_copy_only=False))
            for part in fetched.decode(request, states="all")
        ]
        if fetched.end_offset <= at:
            break
        at = fetched.end_offset
    found = np.concatenate(seen) if seen else np.empty(0, np.int64)
    return found if len(found) == count else None


def map_offsets(batches: Sequence[pa.RecordBatch], sent: NDArray[np.int64] | None, before: int) -> list[MappedRange]:
    """Return the target's offsets of source offsets; one inexact range from ``before`` on if they are unknown."""
    were = np.concatenate([np.asarray(batch.column("offset")) for batch in batches])
    if sent is None:
        return [MappedRange(int(were[0]), int(were[-1]) + 1, before, False)]
    cuts = np.flatnonzero((np.diff(were) != 1) | (np.diff(sent) != 1)) + 1
    starts, ends = np.append(0, cuts), np.append(cuts, len(were))
    return [
        MappedRange(int(were[low]), int(were[high - 1]) + 1, int(sent[low]), True)
        for low, high in zip(starts.tolist(), ends.tolist(), strict=True)
    ]

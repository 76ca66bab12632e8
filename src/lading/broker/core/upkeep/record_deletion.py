"""Deletion of the oldest messages of a partition on request (Kafka DeleteRecords)."""

from __future__ import annotations

from ....model.errors import Reason, Refusal
from ..topology import Partition


def delete_before(partition: Partition, offset: int) -> None:
    """Delete all messages before ``offset`` for every reader. Raises Refusal for one that is not visible yet."""
    log = partition.log
    if not 0 <= offset <= log.last_stable_offset:
        raise Refusal(
            Reason.INVALID_OFFSET,
            f"messages of {partition} can be deleted up to offset {log.last_stable_offset}, not {offset}",
        )
    if offset > log.first_offset:
        log.truncate_before(offset)
        partition.forget_recent()

"""Deletion of messages of a partition on request: the oldest (Kafka DeleteRecords), or all (Iggy PurgeTopic)."""

from __future__ import annotations

from ....model.errors import Reason, Refusal
from ..topology import Partition


def delete_before(partition: Partition, offset: int) -> None:
    """Delete all messages before ``offset`` for every reader. Raises Refusal for an offset that is not visible yet."""
    log = partition.log
    if not 0 <= offset <= log.last_stable_offset:
        raise Refusal(
            Reason.INVALID_OFFSET,
            f"messages of {partition} can be deleted up to offset {log.last_stable_offset}, not {offset}",
        )
    if offset > log.first_offset:
        log.truncate_before(offset)
        partition.forget_recent()


def delete_all(partition: Partition) -> int:
    """Delete all visible messages; return how many offsets they had.

    New offsets continue after these, so that no stored offset refers to another message. Messages of open transactions
    stay.
    """
    before = partition.log.first_offset
    delete_before(partition, partition.log.last_stable_offset)
    return partition.log.first_offset - before

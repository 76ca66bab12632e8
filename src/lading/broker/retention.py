"""Retention: old segments go, by age and by size, as the topic or the broker says (and never because of damage)."""

from __future__ import annotations

from .settings import BrokerSettings
from .topology import Partition


def enforce(partition: Partition, settings: BrokerSettings, now_us: int) -> int:
    """Delete what is too old or too much, a whole segment at a time; gives how many offsets went.

    The segment that is written to stays, and so does all that an open transaction needs.
    """
    log = partition.log
    own = partition.topic.settings
    age_us = settings.retention_age_us if own.retention_age_us is None else own.retention_age_us
    size_bytes = settings.retention_bytes if own.retention_bytes is None else own.retention_bytes
    if age_us is None and size_bytes is None:
        return 0
    before = log.first_offset
    keep_from = before
    left_bytes = log.size_bytes
    for segment in log.segments()[:-1]:
        too_old = age_us is not None and 0 < segment.max_timestamp_us < now_us - age_us
        too_much = size_bytes is not None and left_bytes > size_bytes
        if not (too_old or too_much) or segment.end_offset > log.stable_end:
            break
        left_bytes -= segment.size_bytes
        keep_from = segment.end_offset
    if keep_from > before:
        log.truncate_before(keep_from)
    return log.first_offset - before

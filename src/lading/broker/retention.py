"""Retention: old segments go, by age and by size, as the topic or the broker says (and never because of damage)."""

from __future__ import annotations

from ..log.retention import expired_before
from .settings import BrokerSettings
from .topology import Partition


def enforce(partition: Partition, settings: BrokerSettings, now_us: int) -> int:
    """Delete what is too old or too much, a whole segment at a time; gives how many offsets went.

    What lies at or behind an open transaction stays until it is decided.
    """
    log = partition.log
    own = partition.topic.settings
    age_us = settings.retention_age_us if own.retention_age_us is None else own.retention_age_us
    size_bytes = settings.retention_bytes if own.retention_bytes is None else own.retention_bytes
    if age_us is None and size_bytes is None:
        return 0
    segments = log.segments()
    keep_from = expired_before(segments, now_us, age_us, size_bytes)
    if keep_from is None:
        return 0
    first = log.first_offset
    ends = [segment.end_offset for segment in segments if segment.end_offset <= min(keep_from, log.stable_end)]
    if ends and ends[-1] > first:
        log.truncate_before(ends[-1])
        # it may keep a deleted segment mapped, and its space taken
        partition.recent = None
    return log.first_offset - first

"""Retention: which whole segments are deleted, by age and by size."""

from __future__ import annotations

from collections.abc import Sequence

from .interface import SegmentInfo

_SLACK_US = 60_000_000
"""More than NTP corrects at once, and little beside any age that is worth keeping messages for."""


class AgeClock:
    """The clock of retention: the wall clock, but never faster than the monotonic clock.

    Setting the clock ahead by a day makes no message a day older, and setting it back makes none younger. Small
    corrections (a minute) apply at once.
    """

    def __init__(self) -> None:
        self._wall_us = self._monotonic_us = -1

    def now_us(self, wall_us: int, monotonic_us: int) -> int:
        """Return the present time, from both clocks of the machine."""
        if self._wall_us < 0:
            self._wall_us, self._monotonic_us = wall_us, monotonic_us
        passed = self._wall_us + max(monotonic_us - self._monotonic_us, 0)
        if abs(wall_us - passed) <= _SLACK_US:
            self._wall_us, self._monotonic_us = wall_us, monotonic_us
            return wall_us
        return min(wall_us, passed)


def find_expired_end(
    segments: Sequence[SegmentInfo], now_us: int, age_us: int | None, size_bytes: int | None
) -> int | None:
    """Return the offset before which everything may be deleted (``truncate_before``), or None.

    A segment expires when its latest message is older than ``age_us``, or while the log is larger than ``size_bytes``
    without it, the oldest first. The active segment expires by age only.
    """
    excess = sum(segment.size_bytes for segment in segments) - (size_bytes if size_bytes is not None else 0)
    before = None
    for segment in segments:
        old = age_us is not None and (segment.max_timestamp_us < now_us - age_us or segment.aged_us < now_us - age_us)
        large = size_bytes is not None and excess >= segment.size_bytes and segment is not segments[-1]
        if segment.base_offset == segment.end_offset or not (old or large):
            break
        excess -= segment.size_bytes
        before = segment.end_offset
    return before

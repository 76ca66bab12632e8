"""The start of a share group in a topic: ``share.auto.offset.reset`` (KIP-932, durations as in KIP-1106)."""

from __future__ import annotations

import re
from typing import Final

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"([-+]?)P(?=.)(?:([-+]?\d+)D)?"
    r"(?:T(?=.)(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?)(\d+)(?:[.,](\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
"""The durations of java.time.Duration.parse, which Apache Kafka calls: days to seconds, no weeks, months or years."""
SECONDS_MAX: Final = (1 << 63) - 1
"""In a duration of Java, and in each of its parts."""
SECOND_US: Final = 1_000_000
DURATION_MAX_US: Final = (1 << 62) - 1
"""Longer than any log; longer durations count as this one."""


def find_duration_us(start: str) -> int | None:
    """Check the config and return how long before now a group begins to read, in microseconds.

    None for ``earliest`` and ``latest``.

    Raises ValueError for another text, and for a duration below zero.
    """
    if start in (EARLIEST, LATEST):
        return None
    found = _DURATION.fullmatch(start.removeprefix(_BY_DURATION)) if start.startswith(_BY_DURATION) else None
    if found is None:
        raise ValueError(f"it takes {EARLIEST}, {LATEST} or {_BY_DURATION} with an ISO 8601 duration such as PT1H30M")
    sign, days, hours, minutes, seconds_sign, seconds, fraction = found.groups()
    parts_s = [int(days or 0) * 86_400, int(hours or 0) * 3_600, int(minutes or 0) * 60, int(seconds or 0)]
    if seconds_sign == "-":
        parts_s[-1] = -parts_s[-1]
    if any(abs(part_s) > SECONDS_MAX for part_s in (*parts_s, sum(parts_s))):
        raise ValueError(f"it takes a duration of at most {SECONDS_MAX} seconds")
    # the sign of "-0.5" holds for what comes after the point too
    fraction_us = int((fraction or "").ljust(9, "0")) // 1_000
    duration_us = sum(parts_s) * SECOND_US + (-fraction_us if seconds_sign == "-" else fraction_us)
    if (-duration_us if sign == "-" else duration_us) < 0:
        raise ValueError("it takes a duration of zero or more")
    return min(abs(duration_us), DURATION_MAX_US)

"""The two clocks of a broker: one that only counts, for durations, and one that can be set, for dates.

``now_us`` is the one clock of endpoints and broker. It starts at the date of the process' start and continues with the
monotonic clock: no time-out, delay or session changes when the machine's clock is set. For a date (a message's time, or
a time that is kept over a restart) use ``Dates``; the broker's tick measures how far the clocks are apart.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

_START_US: Final = time.time_ns() // 1000 - time.monotonic_ns() // 1000


def now_us() -> int:
    """Return microseconds since 1970 UTC as they were at the start, counted on by the monotonic clock."""
    return _START_US + time.monotonic_ns() // 1000


def date_us() -> int:
    """Return microseconds since 1970 UTC as the machine's clock says, which may be set at any time."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class Dates:
    """Converts times of ``now_us``, which the monotonic clock counts, into dates of the machine's clock."""

    shift_us: int = 0
    """Microseconds that the machine's clock was set ahead since the start."""

    def of(self, now_us: int) -> int:
        """Return the date of a time of ``now_us``."""
        return now_us + self.shift_us

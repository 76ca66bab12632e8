"""The times of messages as columns: a time that no calendar has, outside the years 1 to 9999, is null in them.

On the wire any 64-bit number is a time: a client that puts microseconds into Kafka's milliseconds names the year 57875.
Python, Spark, Delta and Iceberg have no such date, so it is null, as in header columns of the type ``timestamp``. Whole
Batches and ``Message.timestamp_us`` keep the number.
"""

from __future__ import annotations

from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from ..model.batch import ORIGIN_TIMESTAMP
from ..model.limits import INSTANT_MAX_US, INSTANT_MIN_US

TIME_FIELDS: Final = frozenset({"timestamp", ORIGIN_TIMESTAMP})
"""The message fields that are times."""
_BOUNDS: Final = {
    unit: (-(-INSTANT_MIN_US * numerator // denominator), INSTANT_MAX_US * numerator // denominator)
    for unit, numerator, denominator in (("s", 1, 1_000_000), ("ms", 1, 1_000), ("us", 1, 1), ("ns", 1_000, 1))
}
"""The first and last number of the years 1 to 9999, by the unit of a timestamp."""


def drop_unreadable_times(times: pa.Array[Any]) -> tuple[pa.Array[Any], pa.BooleanArray | None]:
    """Return timestamps with null for those outside the years 1 to 9999, and a mask of these, or None without any."""
    type_: Any = times.type
    numbers = times.view(pa.int64())
    low, high = _BOUNDS[type_.unit]
    extremes: Any = pc.min_max(numbers)
    first, last = extremes["min"].as_py(), extremes["max"].as_py()
    if first is None or (low <= first and last <= high):
        return times, None
    held: Any = numbers
    unreadable: Any = pc.or_(pc.less(held, pa.scalar(low, pa.int64())), pc.greater(held, pa.scalar(high, pa.int64())))
    unreadable = unreadable.fill_null(False)
    kept = pc.if_else(unreadable, pa.scalar(None, pa.int64()), held)
    return cast("pa.Array[Any]", kept).view(type_), cast("pa.BooleanArray", unreadable)


def unreadable_times_sentence(messages: int, holder: str) -> str:
    """Return a sentence: how many times are out of range and null in ``holder``, and how to see their numbers."""
    have = "1 message has a time" if messages == 1 else f"{messages:,} messages have a time"
    return (
        f"{have} outside the years 1 to 9999, which is null in {holder}; `lading message poll --output json` shows its "
        "number of microseconds as timestamp_us"
    )

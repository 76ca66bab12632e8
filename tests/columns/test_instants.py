"""Times outside the years 1 to 9999 are null in columns, and every other one stays as it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lading.columns.instants import drop_unreadable_times

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EDGES = st.sampled_from([FIRST, LAST]).flatmap(
    lambda edge: st.integers(-2, 2).map(lambda step: (edge - EPOCH) // timedelta(microseconds=1) + step)
)


def readable(number: int) -> datetime | None:
    try:
        return EPOCH + timedelta(microseconds=number)
    except OverflowError:
        return None


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.none() | EDGES | st.integers(-(1 << 63), (1 << 63) - 1)))
def test_what_python_has_no_date_for_is_null(numbers: list[int | None]) -> None:
    times: Any = pa.array(numbers, pa.int64()).cast(pa.timestamp("us", "UTC"))
    kept, unreadable = drop_unreadable_times(times)
    expected = [None if number is None else readable(number) for number in numbers]
    assert kept.to_pylist() == expected
    lost = [number is not None and date is None for number, date in zip(numbers, expected, strict=True)]
    assert (unreadable is None) is not any(lost)
    assert unreadable is None or unreadable.to_pylist() == lost


@pytest.mark.parametrize("unit, second", [("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000)])
def test_every_unit_of_a_timestamp(unit: Any, second: int) -> None:
    """Steps of a pipeline make any of them; a 64-bit number of nanoseconds is always between 1677 and 2262."""
    first_s, end_s = -62_135_596_800, 253_402_300_800
    numbers = [first_s * second, end_s * second - 1, first_s * second - 1, end_s * second]
    held = [number for number in numbers if -(1 << 63) <= number < 1 << 63]
    kept, _ = drop_unreadable_times(pa.array(held, pa.int64()).cast(pa.timestamp(unit)))
    assert kept.null_count == (0 if unit == "ns" else 2)
    assert kept.cast(pa.int64()).to_pylist()[:2] == held[:2]

"""Numbers of payloads by themselves: decimals as pyarrow casts them, moments by Python's integers of any size."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading.model.limits import INSTANT_MAX_US, INSTANT_MIN_US
from lading.payloads.numbers import TIMESTAMP, cast_decimals, locate_numbers, locate_texts, type_instants

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
EDGES = sorted({
    0, LONG_MIN, LONG_MIN + 1, LONG_MAX,
    *(sign * (10**digits + more) for digits in range(19) for more in (-1, 0, 1, 5) for sign in (1, -1)),
})  # fmt: skip
TARGETS = [
    (1, 0),
    (3, 2),
    (4, 4),
    (10, 2),
    (18, 0),
    (18, 18),
    (19, 0),
    (20, 2),
    (38, 0),
    (38, 10),
    (38, 11),
    (38, 19),
    (38, 37),
]


def fit(number: Decimal, target: pa.Decimal128Type) -> Decimal | None:
    """Return a number in a decimal type as pyarrow has it; None if it does not fit."""
    try:
        return pa.array([number]).cast(target).to_pylist()[0]
    except (pa.ArrowInvalid, ValueError):
        return None


@pytest.mark.parametrize("scale", [0, 1, 2, 9, 18, 30])
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_decimals_fit_as_in_pyarrow(scale: int, target: tuple[int, int]) -> None:
    type_ = pa.decimal128(*target)
    exact = [Decimal(number).scaleb(-scale) for number in EDGES]
    expected = [fit(number, type_) for number in exact]
    numbers = np.array([*EDGES, 5], np.int64)
    valid = np.array([True] * len(EDGES) + [False])
    array, wrong = cast_decimals(numbers, valid, scale, {}, type_, whole_numbers=False)
    if array.type == pa.string():
        # what may be more than 64 bits is left to the cast of texts
        assert wrong is None and array.to_pylist() == [*(format(number, "f") for number in exact), None]
        return
    assert array.type == type_
    assert array.to_pylist() == [*expected, None]
    bad = [number is None for number in expected]
    assert (wrong is None and not any(bad)) or (wrong is not None and wrong.tolist() == [*bad, False])


def test_decimals_are_texts_for_other_columns() -> None:
    numbers, valid = np.array([500, 550, -7, 0, 1], np.int64), np.array([True, True, True, False, True])
    large = {4: Decimal("123456789012345678901234567890.10")}
    texts, wrong = cast_decimals(numbers, valid, 2, large, pa.string(), whole_numbers=False)
    assert (texts.to_pylist(), wrong) == (["5.00", "5.50", "-0.07", None, "123456789012345678901234567890.10"], None)
    whole, _ = cast_decimals(numbers, valid, 2, large, pa.int64(), whole_numbers=True)
    assert whole.to_pylist() == ["5", "5.50", "-0.07", None, "123456789012345678901234567890.10"]


@pytest.mark.parametrize(("factor", "divisor"), [(1, 1), (1000, 1), (86_400_000_000, 1), (1, 1000)])
@pytest.mark.parametrize("target", [TIMESTAMP, pa.date32(), pa.string()], ids=str)
def test_moments_are_those_of_integers_without_a_size(factor: int, divisor: int, target: pa.DataType) -> None:
    near = [bound * divisor // factor + more for bound in (INSTANT_MIN_US, INSTANT_MAX_US) for more in (-1, 0, 1)]
    # products whose lowest 64 bits are a moment
    near += [(1 << bits) * divisor // factor + 1 for bits in range(63, 67)]
    values = sorted({*EDGES, *(number for number in near if LONG_MIN <= number <= LONG_MAX)})
    micros = [number * factor // divisor for number in values]
    good = [INSTANT_MIN_US <= moment <= INSTANT_MAX_US for moment in micros]
    length = np.array([8] * len(values) + [-1])
    array, wrong = type_instants(np.array([*values, 7], np.int64), length, factor, divisor, target)
    found: Any = array
    bad = [*(not is_good for is_good in good), False]
    assert (wrong is None and not any(bad)) or (wrong is not None and wrong.tolist() == bad)
    assert found.is_null().to_pylist() == [*(not is_good for is_good in good), True]
    if target == TIMESTAMP:
        held = found.cast(pa.int64()).to_pylist()
        assert held == [*(moment if is_good else None for moment, is_good in zip(micros, good, strict=True)), None]
    elif target == pa.date32():
        days = [moment // 86_400_000_000 if is_good else None for moment, is_good in zip(micros, good, strict=True)]
        assert found.cast(pa.int32()).to_pylist() == [*days, None]
        assert date(1970, 1, 1) + timedelta(days=days[values.index(0)] or 0) == date(1970, 1, 1)
    else:
        moments = pa.array(micros, mask=np.array([not is_good for is_good in good])).view(TIMESTAMP)
        assert found.to_pylist()[:-1] == moments.cast(pa.string()).to_pylist()


def test_a_column_of_numbers_has_them_as_they_were_written() -> None:
    numbers, length = np.array([3, -1, 5], np.int64), np.array([8, -1, 8])
    for target in (pa.int64(), pa.float64()):
        located, wrong = type_instants(numbers, length, 1000, 1, target)
        assert wrong is None and not isinstance(located, pa.Array)
        assert located.length.tolist() == [8, -1, 8]
        assert located.data.view(np.int64)[located.start // 8].tolist() == [3, -1, 5]


def test_texts_are_located_by_their_places() -> None:
    made = locate_texts([b"", b"ab", b"cde"], np.array([2, 0, 1, 2, 0]), np.array([0, 0, 0, -2, -1]))
    assert made.length.tolist() == [3, 0, 2, -2, -1]
    assert [bytes(made.data[at : at + size]) for at, size in zip(made.start[:3], made.length[:3], strict=True)] == [
        b"cde", b"", b"ab",
    ]  # fmt: skip
    assert locate_texts([], np.zeros(2, np.int64), np.array([-1, -2])).length.tolist() == [-1, -2]
    assert locate_numbers(np.array([1], np.int64), np.array([-1])).length.tolist() == [-1]

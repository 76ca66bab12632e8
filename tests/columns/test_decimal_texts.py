"""``take_decimals`` by itself: a wrong verdict is hidden in a column, as others read the texts that it leaves."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading.columns import fallback, kernels, typed
from lading.columns.rules import ABSENT, LEFT, OK, Raw
from lading.kernels import engine
from lading.model.kinds import Kind

from .values import Value, located

DIGITS_MAX = 18
PARTS = ("", "0", "1", "7", "12", "007", "9" * 9, "9" * 17, "9" * 18, "9" * 19, "1" + "0" * 17)
SIGNS = ("", "+", "-")
PAIRS = tuple(itertools.product(PARTS, PARTS))
TEXTS = [
    *(f"{sign}{whole}" for sign in SIGNS for whole in PARTS),
    *(f"{sign}{whole}.{digits}" for sign in SIGNS for whole, digits in PAIRS),
    "1.", ".1", "1..2", "1.2.3", "--1", "+-1", "1-", "1e2", "1E2", " 1", "1 ", "1,0", "0x1", "NaN", "Infinity",
    "-", "+", ".", "\u0661", "1_0", "1\n", "\n1", "1\0",
]  # fmt: skip


def words_of(text: str, scale: int) -> list[int]:
    """Return the two words of a decimal as pyarrow reads the text."""
    array: Any = pa.array([text]).cast(pa.decimal128(38, scale))
    words: list[int] = np.frombuffer(array.buffers()[1], np.int64)[:2].tolist()
    return words


def expect(text: str, scale: int, limit: int) -> list[int] | None:
    """Return the words of a text that is read at once, by its letters and pyarrow; None for one that is left."""
    body = text[1:] if text[:1] in ("+", "-") else text
    whole, point, fraction = body.partition(".")
    is_digits = all(part != "" and set(part) <= set("0123456789") for part in ([whole, fraction] if point else [whole]))
    if not is_digits or len(whole) + scale > DIGITS_MAX or len(fraction) > scale:
        return None
    return words_of(text, scale) if abs(Decimal(text).scaleb(scale)) < limit else None


def take(
    half: Any, values: list[Value], raw: Raw, scale: int, limit: int
) -> tuple[Any, list[list[int]], tuple[int, int]]:
    held = located(values)
    words, status = np.full(2 * len(values), -1, np.int64), np.full(len(values), 99, np.uint8)
    counts = half.take_decimals(
        held.data, held.start, held.length, held.kind, int(raw), scale, limit, words, status
    )  # fmt: skip
    return status.tolist(), words.reshape(-1, 2).tolist(), (int(counts[0]), int(counts[1]))


@pytest.mark.parametrize("scale", [0, 1, 2, 9, 17, 18])
@pytest.mark.parametrize("precision", [1, 10, 18])
@pytest.mark.parametrize("half", [fallback, kernels], ids=["twin", "kernel"])
def test_texts_of_digits_are_read_as_pyarrow_reads_them_and_others_are_left(
    half: Any, scale: int, precision: int
) -> None:
    if half is kernels:
        engine.load(typed.KERNEL_MODULE)
    limit = 10**precision
    status, words, counts = take(half, [(Kind.STRING, text.encode()) for text in TEXTS], Raw.TEXT, scale, limit)
    expected = [expect(text, scale, limit) for text in TEXTS]
    for text, verdict, held, wanted in zip(TEXTS, status, words, expected, strict=True):
        # a kernel may leave more: the twin reads at once what the rule says
        if half is fallback or verdict == OK:
            assert (verdict, held) == ((LEFT, [0, 0]) if wanted is None else (OK, wanted)), (text, scale, precision)
        else:
            assert verdict == LEFT, text
    assert counts == (status.count(OK), status.count(LEFT))
    # a digit before the point is one too many then
    assert status.count(OK) > 0 or scale == DIGITS_MAX


@pytest.mark.parametrize("half", [fallback, kernels], ids=["twin", "kernel"])
def test_kinds_that_are_no_texts_are_left_and_absent_ones_are_absent(half: Any) -> None:
    if half is kernels:
        engine.load(typed.KERNEL_MODULE)
    values: list[Value] = [
        (Kind.STRING, b"1"), (Kind.RAW, b"1"), None, (Kind.STRING, None), (Kind.INT8, b"1"), (Kind.UINT64, b"12345678"),
        (Kind.BOOL, b"1"), (Kind.FLOAT64, b"12345678"), (Kind.STRING, b"-2"),
    ]  # fmt: skip
    as_text, words, counts = take(half, values, Raw.TEXT, 0, 10)
    assert as_text == [OK, OK, ABSENT, ABSENT, LEFT, LEFT, LEFT, LEFT, OK]
    assert (words[0], words[1], words[2], words[-1]) == ([1, 0], [1, 0], [0, 0], [-2, -1])
    assert counts == (3, 4)
    for raw in (one for one in Raw if one is not Raw.TEXT):
        status, _, counts = take(half, values, raw, 0, 10)
        assert status == [OK, LEFT, ABSENT, ABSENT, LEFT, LEFT, LEFT, LEFT, OK], raw
        assert counts == (2, 5)

"""Dictionaries say what plain columns say: over random values, and where there can be no dictionary."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading.columns.contract import TYPES, Encoding
from lading.columns.dictionary_encoding import BYTES_MAX, ROWS_MIN, SHARE, dictionary_encode
from lading.columns.typed import convert_column
from lading.model.kinds import Kind
from lading.model.run import Located

from .values import Value, located

ROWS = 3000


def plain(array: Any) -> Any:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def same_as_typed(values: Located, type_: pa.DataType, encoding: Encoding = Encoding.AUTO) -> bool:
    """Whether there is a dictionary; fails where it says anything else than the column."""
    made, bad = dictionary_encode(values, type_, encoding)
    expected, expected_bad = convert_column(values, type_, encoding)
    made.validate(full=True)
    assert plain(made).equals(expected)
    assert bad == expected_bad
    return pa.types.is_dictionary(made.type)


def some(seed: int, rows: int, distinct: int, longest: int, *, kinds: tuple[int, ...] = (Kind.RAW, Kind.STRING)) -> Any:
    """Values of up to so many bytes, absent and null ones among them, and bytes that are no text."""
    chance = random.Random(seed)
    pool: list[Value] = [None, (Kind.STRING, None), (Kind.RAW, b""), (Kind.RAW, b"\xff\xfe"), (Kind.RAW, b"ab\xc3")]
    alphabet = "abcdefgü€".encode().decode()
    for _ in range(distinct):
        text = "".join(chance.choice(alphabet) for _ in range(chance.randrange(longest + 1))).encode()
        pool.append((chance.choice(kinds), text))
    return located([chance.choice(pool) for _ in range(rows)])


@pytest.mark.parametrize("word", ["string", "binary"])
@pytest.mark.parametrize(("distinct", "longest"), [(0, 0), (1, 9), (20, 3), (200, 20), (200, 90)])
def test_a_dictionary_of_few_values(half: str, word: str, distinct: int, longest: int) -> None:
    for seed in range(3):
        assert same_as_typed(some(seed, ROWS, distinct, longest), TYPES[word])


def test_a_dictionary_has_each_value_once(half: str) -> None:
    values = some(7, ROWS, 100, 12)
    made: Any = dictionary_encode(values, pa.binary())[0]
    held = made.dictionary.to_pylist()
    assert len(held) == len(set(held)) < 110
    assert made.null_count == int((values.length < 0).sum())


@pytest.mark.parametrize("word", ["string", "binary"])
def test_no_dictionary_where_most_values_are_new(half: str, word: str) -> None:
    unique: list[Value] = [(Kind.RAW, b"%06d" % number) for number in range(ROWS)]
    assert not same_as_typed(located(unique), TYPES[word])
    limit = ROWS // SHARE
    assert same_as_typed(located([*unique[:limit], *unique[:limit]] * 2), TYPES[word])
    assert not same_as_typed(located(unique[: limit + 1] + unique[:1] * (ROWS - limit - 1)), TYPES[word])


def test_no_dictionary_of_long_values_or_few_rows(half: str) -> None:
    long: list[Value] = [(Kind.RAW, bytes([number]) * (BYTES_MAX // 8)) for number in range(9)]
    rows = [long[number % 8] for number in range(ROWS_MIN)]
    assert same_as_typed(located(rows), pa.binary())
    assert not same_as_typed(located([*rows, long[8]]), pa.binary())
    assert not same_as_typed(located(rows[: ROWS_MIN - 1]), pa.binary())


def test_numbers_among_texts_are_told_as_texts(half: str) -> None:
    values: list[Value] = [(Kind.STRING, b"one"), (Kind.INT32, struct.pack("<i", 2))] * ROWS_MIN
    assert not same_as_typed(located(values), pa.string())
    assert same_as_typed(located(values), pa.binary())


def test_other_types_and_documents_are_typed_as_ever(half: str) -> None:
    values = located([(Kind.RAW, b"12"), None, (Kind.RAW, b"x")] * ROWS_MIN)
    for type_ in TYPES.values():
        assert same_as_typed(values, type_) == (type_ in (pa.string(), pa.binary()))
    assert not same_as_typed(located([(Kind.RAW, b'"a"')] * ROWS_MIN), pa.string(), Encoding.JSON)


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 15, 16, 17])
def test_nothing_behind_the_last_value_is_looked_at(half: str, size: int) -> None:
    """The last value ends where the memory ends; equal bytes with others behind them are the same value."""
    data = np.frombuffer(b"a" * size + b"b" * size + b"a" * size, np.uint8)
    start = np.array([0, 2 * size, size] * ROWS_MIN, np.int64)
    rows = len(start)
    values = Located(data, start, np.full(rows, size, np.int64), np.full(rows, Kind.RAW, np.int8))
    made: Any = dictionary_encode(values, pa.string())[0]
    assert made.dictionary.to_pylist() == ["a" * size, "b" * size]
    assert made.indices.to_pylist() == [0, 0, 1] * ROWS_MIN


def test_values_made_to_meet_in_one_place_cost_no_more(half: str) -> None:
    """Eight bytes whose hashes end alike: the kernel gives up instead of looking through all of them for each."""
    mix, word = 0x9E3779B97F4A7C15, (1 << 64) - 1
    back = pow(mix, -1, 1 << 64)

    def undone(code: int) -> int:
        value = (code ^ (code >> 32)) * back & word
        value = (value ^ (value >> 32)) * back & word
        return value ^ (8 * mix & word)

    met: list[Value] = [(Kind.RAW, struct.pack("<Q", undone(number << 32))) for number in range(600)]
    dictionary = same_as_typed(located(met * 5), pa.binary())
    assert dictionary == (half == "twin")

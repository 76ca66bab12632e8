"""Dates, decimals and lists of values: expected values from docs/reference/contract, written by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading.columns.assemble import assemble, to_decoded
from lading.columns.constraints import ValueConstraint
from lading.columns.contract import ARRAY, Encoding, parse_columns, parse_type, type_word
from lading.columns.locate import to_located
from lading.columns.typed import convert_column
from lading.filter.parse import parse
from lading.model.batch import SCHEMA
from lading.model.errors import FilterError, SettingError
from lading.model.kinds import Kind
from lading.model.run import Located

BAD = "bad"


def located(values: Sequence[tuple[int, bytes | None]]) -> Located:
    data = b"".join(value or b"" for _, value in values)
    length = np.array([-2 if value is None else len(value) for _, value in values], np.int64)
    held = length.clip(min=0)
    return Located(np.frombuffer(data, np.uint8), np.cumsum(held) - held, length,
                   np.array([kind for kind, _ in values], np.int8))  # fmt: skip


def read(word: str, values: Sequence[tuple[int, bytes | None]], encoding: Encoding = Encoding.AUTO) -> list[Any]:
    array, bad = convert_column(located(values), parse_type(word), encoding)
    flags = bad.to_pylist() if bad is not None else [False] * len(values)
    return [BAD if flag else value for value, flag in zip(array.to_pylist(), flags, strict=True)]


def texts(*values: str) -> list[tuple[int, bytes | None]]:
    return [(Kind.STRING, value.encode()) for value in values]


@pytest.mark.parametrize("repeated", [1, 40])
def test_dates(repeated: int) -> None:
    """Repeated, they are read by the kernel, alone by its fallback."""
    values = [
        *texts("2024-05-01", "0001-01-01", "9999-12-31", "2024-02-30", "2024-05-01T00:00:00Z", "20240501ab", "x"),
        *texts("19844", "2932897", "1700000000"), (Kind.STRING, None), (Kind.RAW, b"1970-01-01"),
        (Kind.INT32, struct.pack("<i", 19844)), (Kind.INT64, struct.pack("<q", -1)),
        (Kind.FLOAT64, struct.pack("<d", 0.5)),
    ]  # fmt: skip
    expected = [
        date(2024, 5, 1), date(1, 1, 1), date(9999, 12, 31), BAD, BAD, BAD, BAD, date(2024, 5, 1), BAD, BAD, None,
        date(1970, 1, 1), date(2024, 5, 1), date(1969, 12, 31), BAD,
    ]  # fmt: skip
    assert read("date", values * repeated) == expected * repeated
    days = [(Kind.RAW, struct.pack(">i", 19844)), (Kind.RAW, b"\0\0\1"), (Kind.STRING, b"2024-05-01")]
    assert read("date", days, Encoding.BE) == [date(2024, 5, 1), BAD, date(2024, 5, 1)]
    assert read("date", [(Kind.RAW, b'"2024-05-01"'), (Kind.RAW, b"null")], Encoding.JSON) == [date(2024, 5, 1), None]


def test_decimals_are_exact_or_unreadable(half: str) -> None:
    values = [
        *texts("12.34", "-0.5", "+7", "12.340", "0012.3", "1e2", "1.5E-1", "12.345", "123456789.00", ".5", "5."),
        *texts("", "1_0", " 1", "nan", "1e999999999", "٣", "--1"), (Kind.RAW, None),
        (Kind.INT64, struct.pack("<q", 99)), (Kind.FLOAT64, struct.pack("<d", 0.1)), (Kind.BOOL, b"\1"),
        (Kind.RAW, b"\xff"),
    ]  # fmt: skip
    expected: list[Any] = [
        "12.34", "-0.50", "7.00", "12.34", "12.30", "100.00", "0.15", BAD, BAD, "0.50", "5.00",
        BAD, BAD, BAD, BAD, BAD, BAD, BAD, None, "99.00", "0.10", BAD, BAD,
    ]  # fmt: skip
    found = [str(value) if isinstance(value, Decimal) else value for value in read("decimal(10,2)", values)]
    assert found == expected
    assert read("decimal(2,2)", texts("0.99", "1.00", "-.5")) == [Decimal("0.99"), BAD, Decimal("-0.50")]
    assert read("decimal(3,0)", texts("999", "1000", "1.0")) == [Decimal(999), BAD, Decimal(1)]
    # Kafka Connect: the unscaled number, big-endian, as BigInteger writes it
    unscaled = [
        (Kind.RAW, b"\x04\xd2"),
        (Kind.RAW, b"\xfb\x2e"),
        (Kind.STRING, b"1.5"),
        (Kind.RAW, b"\x40" + b"\0" * 7),
    ]
    assert read("decimal(10,2)", unscaled, Encoding.BE) == [Decimal("12.34"), Decimal("-12.34"), Decimal("1.50"), BAD]


def test_decimals_at_the_edges_of_what_64_bits_hold(half: str) -> None:
    values = texts(
        "9999999999999999.99", "-9999999999999999.99", "99999999999999999.9", "123456789012345678", "0", "-0.00",
        "1234567890123456789", "00000000000000000000.5", "99999999999999999999999999999999999.99", "1.2.3", "1-2", "+",
    )  # fmt: skip
    expected = [
        Decimal(text) if text else BAD
        for text in (
            "9999999999999999.99", "-9999999999999999.99", "99999999999999999.90", "123456789012345678.00", "0.00",
            "0.00", "1234567890123456789.00", "0.50", "99999999999999999999999999999999999.99", "", "", "",
        )
    ]  # fmt: skip
    assert read("decimal(37,2)", values) == expected
    assert read("decimal(18,2)", values)[:4] == [*expected[:2], BAD, BAD]
    assert read("decimal(18,18)", texts("0.123456789012345678", "0.1", "1")) == [
        Decimal("0.123456789012345678"), Decimal("0.1"), BAD,
    ]  # fmt: skip


def batch(*messages: list[tuple[str, bytes | None]]) -> pa.RecordBatch:
    rows = [
        {"offset": at, "state": 1, "timestamp": at,
         "headers": [{"key": key, "kind": int(Kind.RAW), "value": value} for key, value in headers]}
        for at, headers in enumerate(messages)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


REPEATED = batch(
    [("via", b"ORD"), ("x", b""), ("via", b"DEN")],
    [],
    [("via", None), ("via", b"")],
    [("via", b"\xff"), ("via", b"LAX")],
)


def test_every_value_of_a_repeated_header() -> None:
    projection = parse_columns("offset, via array<string>, n Array < string > from x")
    assert projection.message_fields == ("offset", "headers")
    made = assemble(to_decoded(REPEATED, projection.header_keys), projection)
    assert made.batch.column("via").to_pylist() == [["ORD", "DEN"], None, [None, ""], None]
    assert made.batch.column("n").to_pylist() == [[""], None, None, None]
    assert made.bad["via"].to_pylist() == [False, False, False, True]
    assert made.batch.schema.field("via").type == ARRAY


def test_filters_over_them() -> None:
    contract = parse_columns("via array<string>, at date, price decimal(10,2), big decimal(20,0)")
    rows = batch([("at", b"2024-05-01"), ("price", b"10.50"), ("big", b"12345678901234567890"), ("via", b"ORD"),
                  ("via", b"DEN")], [("at", b"2024-04-30"), ("price", b"10.49")], [])  # fmt: skip
    for text, expected in {
        "at >= '2024-05-01'": [True, False, None],
        "at = CAST('2024-04-30' AS date)": [False, True, None],
        "price > 10.495": [True, False, None],
        "price = CAST('10.49' AS decimal(10,2))": [False, True, None],
        "big = 12345678901234567890": [True, None, None],
        "any(via) = 'ORD'": [True, False, False],
        "via IS NULL": [False, True, True],
        "CAST(price AS string) LIKE '10.5%'": [True, False, None],
    }.items():
        assert parse(text, contract).mask(rows).to_pylist() == expected, text
    for text in ("via = 'ORD'", "via LIKE 'O%'", "via", "CAST(via AS string) = 'x'"):
        with pytest.raises(FilterError, match=r"array<string>; any\(…\)"):
            parse(text, contract)


def breaches(word: str, column: list[str | None], **asked: Any) -> list[list[bool]]:
    type_ = parse_type(word)
    array = convert_column(to_located(pa.array(column, pa.string())), type_)[0]
    constraint = ValueConstraint.of(type_, **asked)
    plain = [mask.tolist() if mask is not None else [False] * len(column) for mask in constraint.find_breaches(array)]
    encoded: pa.Array[Any] = array.dictionary_encode()
    again = [mask.tolist() if mask is not None else [False] * len(column) for mask in constraint.find_breaches(encoded)]
    assert plain == again
    return plain


def test_lists_ranges_and_patterns_of_values() -> None:
    assert breaches("string", ["UA", None, "ua"], values=["UA", "AA"]) == [[False, False, True]]
    assert breaches("int", ["-5", "10", "11", None], minimum=-4, maximum=10) == [[True, False, True, False]]
    assert breaches("double", ["nan", "1.5"], maximum=1.5) == [[True, False]]
    assert breaches("date", ["2024-05-01", "2023-12-31"], minimum=date(2024, 1, 1)) == [[False, True]]
    assert breaches("decimal(6,2)", ["0.01", "0.00"], minimum="0.01") == [[False, True]]
    assert breaches("string", ["N14", "N14\n", "xN1", ""], pattern="N[0-9]+|") == [[False, True, True, False]]
    assert breaches("int", ["1", "7"], values=[1, 2], minimum=0) == [[False, True], [False, False]]


def test_constraints_hold_for_each_value_of_a_list() -> None:
    made = assemble(to_decoded(REPEATED, ["via"]), parse_columns("via array<string>"))
    (mask,) = ValueConstraint.of(ARRAY, values=["ORD", ""]).find_breaches(made.batch.column("via"))
    assert mask is not None and mask.tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("word", "asked", "problem"),
    [
        ("string", {"minimum": "a"}, "min and max are for numbers"),
        ("int", {"pattern": "x"}, "a pattern is for texts"),
        ("string", {"pattern": "(a"}, "is not a valid regular expression"),
        ("int", {"values": [1, "x"]}, "values: 'x' is not a value of type int"),
        ("int", {"values": []}, "empty list"),
        ("int", {"minimum": 3, "maximum": 2}, "min 3 is above max 2"),
        (
            "int",
            {"values": [1, 2], "minimum": 10},
            r"both values \(1, 2\) and the rest \(at least 10",
        ),
        ("string", {"values": ["a"], "pattern": "[0-9]+"}, "no value satisfies both values"),
        ("tinyint", {"maximum": 1000}, "max: 1000 is not a value of type tinyint"),
    ],
)
def test_constraints_that_make_no_sense(word: str, asked: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        ValueConstraint.of(parse_type(word), **asked)


def test_words_of_types() -> None:
    for word in ("decimal(10,2)", "decimal(38,0)", "date", "array<string>"):
        assert type_word(parse_type(word)) == word
    assert parse_type("Decimal( 10 , 2 )") == pa.decimal128(10, 2)
    for word in ("decimal(39,0)", "decimal(4,5)", "decimal(0,0)", "array<int>"):
        with pytest.raises(SettingError, match="type"):
            parse_type(word)
    with pytest.raises(SettingError, match="encoding be"):
        parse_columns("via array<string> be")

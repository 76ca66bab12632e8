"""The typing rules as a table: kind, bytes, column type, encoding, and what comes out (docs/reference/contract)."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from lading.columns.contract import TYPES, Encoding
from lading.columns.typed import convert_column
from lading.model.errors import LocalError
from lading.model.kinds import FIXED_SIZE_BYTES, FLOATS, Kind

from .values import Value, located

BAD = object()
"""Stands for: present but cannot be read, so null and flagged."""

K = Kind
F32, F64 = struct.Struct("<f").pack, struct.Struct("<d").pack
U128_MAX = b"\xff" * 16
DECIMAL_MAX = 10**38 - 1

AUTO: list[tuple[int, bytes, str, Any]] = [
    # what a client of the seed sent: u64 123456, bool true, text
    (K.UINT64, bytes.fromhex("40e2010000000000"), "bigint", 123456),
    (K.UINT64, bytes.fromhex("40e2010000000000"), "int", 123456),
    (K.UINT64, bytes.fromhex("40e2010000000000"), "smallint", BAD),
    (K.UINT64, bytes.fromhex("40e2010000000000"), "string", "123456"),
    (K.UINT64, bytes.fromhex("40e2010000000000"), "double", 123456.0),
    (K.UINT64, bytes.fromhex("40e2010000000000"), "binary", bytes.fromhex("40e2010000000000")),
    (K.BOOL, b"\x01", "boolean", True),
    (K.BOOL, b"\x00", "string", "false"),
    (K.BOOL, b"\x01", "int", 1),
    (K.BOOL, b"\x02", "boolean", BAD),
    (K.BOOL, b"", "boolean", BAD),
    (K.STRING, b"value1", "string", "value1"),
    (K.STRING, b"value1", "binary", b"value1"),
    (K.STRING, b"", "string", ""),
    (K.STRING, b"", "int", BAD),
    (K.STRING, "grüße €𐍈".encode(), "string", "grüße €𐍈"),
    (K.STRING, b"\xff", "string", BAD),
    (K.RAW, b"\xed\xa0\x80", "string", BAD),
    (K.RAW, b"\xc0\xaf", "string", BAD),
    (K.RAW, b"\xf4\x90\x80\x80", "string", BAD),
    (K.RAW, b"a\xe2\x82", "string", BAD),
    (K.RAW, b"\xff", "binary", b"\xff"),
    # integers at their limits
    (K.INT8, b"\x80", "tinyint", -128),
    (K.UINT8, b"\x80", "tinyint", BAD),
    (K.UINT8, b"\x80", "smallint", 128),
    (K.INT16, b"\x00\x80", "smallint", -32768),
    (K.INT32, b"\xff\xff\xff\x7f", "int", 2**31 - 1),
    (K.UINT32, b"\xff\xff\xff\xff", "int", BAD),
    (K.UINT32, b"\xff\xff\xff\xff", "bigint", 2**32 - 1),
    (K.INT64, b"\x00" * 7 + b"\x80", "bigint", -(2**63)),
    (K.UINT64, b"\xff" * 8, "bigint", BAD),
    (K.UINT64, b"\xff" * 8, "decimal(38,0)", Decimal(2**64 - 1)),
    (K.UINT64, b"\xff" * 8, "string", "18446744073709551615"),
    (K.UINT64, b"\xff" * 8, "double", float(2**64 - 1)),
    (K.INT128, b"\xff" * 16, "int", -1),
    (K.INT128, (-(2**127)).to_bytes(16, "little", signed=True), "string", "-170141183460469231731687303715884105728"),
    (K.INT128, DECIMAL_MAX.to_bytes(16, "little"), "decimal(38,0)", Decimal(DECIMAL_MAX)),
    (K.INT128, (DECIMAL_MAX + 1).to_bytes(16, "little"), "decimal(38,0)", BAD),
    (K.UINT128, U128_MAX, "decimal(38,0)", BAD),
    (K.UINT128, U128_MAX, "string", "340282366920938463463374607431768211455"),
    (K.UINT128, U128_MAX, "double", float(2**128 - 1)),
    (K.INT64, b"\x01", "bigint", BAD),
    (K.INT64, b"\x01", "string", BAD),
    (K.INT64, b"\x01", "binary", b"\x01"),
    # floats
    (K.FLOAT64, F64(0.1), "double", 0.1),
    (K.FLOAT64, F64(-math.inf), "double", -math.inf),
    (K.FLOAT64, F64(math.nan), "double", math.nan),
    (K.FLOAT64, F64(math.nan), "string", "nan"),
    (K.FLOAT64, F64(0.1), "string", "0.1"),
    (K.FLOAT32, F32(0.1), "string", "0.1"),
    (K.FLOAT32, F32(0.5), "float", 0.5),
    (K.FLOAT64, F64(0.5), "float", 0.5),
    (K.FLOAT64, F64(1e39), "float", BAD),
    (K.FLOAT64, F64(math.inf), "float", math.inf),
    (K.FLOAT64, F64(12.0), "int", 12),
    (K.FLOAT64, F64(12.5), "int", BAD),
    (K.FLOAT64, F64(math.nan), "bigint", BAD),
    (K.FLOAT64, F64(2.0**63), "bigint", BAD),
    (K.FLOAT64, F64(2.0**63), "decimal(38,0)", Decimal(2**63)),
    (K.FLOAT64, F64(1e300), "decimal(38,0)", BAD),
    (K.FLOAT32, b"\x00", "double", BAD),
    # texts as numbers; binary numbers are never guessed
    (K.RAW, b"12", "int", 12),
    (K.STRING, b"-12", "tinyint", -12),
    (K.STRING, b"+12", "tinyint", 12),
    (K.STRING, b"0012", "int", 12),
    (K.RAW, b"128", "tinyint", BAD),
    (K.RAW, b" 12", "int", BAD),
    (K.RAW, b"12 ", "int", BAD),
    (K.RAW, b"1_2", "int", BAD),
    (K.RAW, b"12.0", "int", BAD),
    (K.RAW, b"1e3", "int", BAD),
    (K.RAW, b"-", "int", BAD),
    (K.RAW, b"\x00\x00\x00\x0c", "int", BAD),
    (K.RAW, "１２".encode(), "int", BAD),
    (K.RAW, b"9223372036854775807", "bigint", 2**63 - 1),
    (K.RAW, b"-9223372036854775808", "bigint", -(2**63)),
    (K.RAW, b"9223372036854775808", "bigint", BAD),
    (K.RAW, b"0" * 30 + b"7", "bigint", 7),
    (K.RAW, str(DECIMAL_MAX).encode(), "decimal(38,0)", Decimal(DECIMAL_MAX)),
    (K.RAW, str(DECIMAL_MAX + 1).encode(), "decimal(38,0)", BAD),
    (K.RAW, b"9" * 5000, "decimal(38,0)", BAD),
    (K.RAW, b"1.5", "double", 1.5),
    (K.RAW, b".5", "double", 0.5),
    (K.RAW, b"5.", "double", 5.0),
    (K.RAW, b"-0.1", "double", -0.1),
    (K.RAW, b"123456789.123456789", "double", 123456789.123456789),
    (K.RAW, b"9007199254740993", "double", 9007199254740992.0),
    (K.RAW, b"1e-7", "double", 1e-7),
    (K.RAW, b"NaN", "double", math.nan),
    (K.RAW, b"-Infinity", "double", -math.inf),
    (K.RAW, b"1e999", "double", BAD),
    (K.RAW, b"1e39", "float", BAD),
    (K.RAW, b".", "double", BAD),
    (K.RAW, b"1.5.2", "double", BAD),
    (K.RAW, b"0x10", "double", BAD),
    (K.RAW, b"1d", "double", BAD),
    (K.RAW, b"true", "boolean", True),
    (K.RAW, b"FALSE", "boolean", False),
    (K.STRING, b"1", "boolean", True),
    (K.STRING, b"0", "boolean", False),
    (K.STRING, b"yes", "boolean", BAD),
    (K.STRING, b"01", "boolean", BAD),
    (K.INT32, b"\x01\x00\x00\x00", "boolean", True),
    (K.INT32, b"\x02\x00\x00\x00", "boolean", BAD),
    # instants
    (
        K.UINT64,
        (1_690_000_000_123_456).to_bytes(8, "little"),
        "timestamp",
        datetime(2023, 7, 22, 4, 26, 40, 123456, UTC),
    ),
    (K.RAW, b"1690000000123456", "timestamp", datetime(2023, 7, 22, 4, 26, 40, 123456, UTC)),
    (K.STRING, b"2013-01-01T05:15:00Z", "timestamp", datetime(2013, 1, 1, 5, 15, tzinfo=UTC)),
    (K.STRING, b"2013-01-01 05:15", "timestamp", datetime(2013, 1, 1, 5, 15, tzinfo=UTC)),
    (K.STRING, b"2013-01-01", "timestamp", datetime(2013, 1, 1, tzinfo=UTC)),
    (K.STRING, b"2013-01-01T05:15:00-05:00", "timestamp", datetime(2013, 1, 1, 10, 15, tzinfo=UTC)),
    (K.STRING, b"2013-01-01T05:15:00+0530", "timestamp", datetime(2012, 12, 31, 23, 45, tzinfo=UTC)),
    (K.STRING, b"2013-01-01T05:15:00+05", "timestamp", datetime(2013, 1, 1, 0, 15, tzinfo=UTC)),
    (K.STRING, b"2013-01-01T05:15:00.123456789Z", "timestamp", datetime(2013, 1, 1, 5, 15, 0, 123456, UTC)),
    (K.INT64, (253_402_300_799_999_999).to_bytes(8, "little"), "timestamp", datetime.max.replace(tzinfo=UTC)),
    (K.INT64, (253_402_300_800_000_000).to_bytes(8, "little"), "timestamp", BAD),
    (K.STRING, b"0001-01-01T00:00:00+01:00", "timestamp", BAD),
    (K.STRING, b"2012-02-29", "timestamp", datetime(2012, 2, 29, tzinfo=UTC)),
    (K.STRING, b"2013-02-29", "timestamp", BAD),
    (K.STRING, b"2013-13-01", "timestamp", BAD),
    (K.STRING, b"0000-01-01", "timestamp", BAD),
    (K.STRING, b"2013-01-01T24:00", "timestamp", BAD),
    (K.STRING, b"2013-01-01T23:59:60Z", "timestamp", BAD),
    (K.STRING, b"2013-01-01T05", "timestamp", BAD),
    (K.STRING, b"2013-01-01T05:15:00.", "timestamp", BAD),
    (K.STRING, b"2013-01-01T05:15:00+24:00", "timestamp", BAD),
    (K.STRING, b"2013-01-01T05:15:00ZZ", "timestamp", BAD),
    (K.STRING, b"yesterday", "timestamp", BAD),
    # kinds that nobody knows are raw
    (99, b"12", "int", 12),
    (200, b"12", "string", "12"),
]
ENCODED: list[tuple[int, bytes, str, str, Any]] = [
    (K.RAW, b"\x00\x00\x00\x0c", "int", "be", 12),
    (K.RAW, b"\x0c\x00\x00\x00", "int", "le", 12),
    (K.RAW, b"\xff\xff\xff\xfe", "int", "be", -2),
    (K.RAW, b"\x00" * 7 + b"\x0c", "int", "be", BAD),
    (K.RAW, b"\x00" * 7 + b"\x0c", "bigint", "be", 12),
    (K.RAW, b"\x0c", "tinyint", "be", 12),
    (K.RAW, b"12", "smallint", "be", 0x3132),
    (K.RAW, b"", "int", "be", BAD),
    (K.RAW, b"\x01", "boolean", "be", True),
    (K.RAW, b"\x03", "boolean", "be", BAD),
    (K.RAW, b"\x00\xff", "decimal(38,0)", "be", Decimal(255)),
    (K.RAW, b"12", "decimal(38,0)", "be", Decimal(0x3132)),
    (K.STRING, b"12", "decimal(38,0)", "be", Decimal(12)),
    (K.RAW, b"\x80" + b"\x00" * 8, "decimal(38,0)", "be", Decimal(-(2**71))),
    (K.RAW, b"\x00" * 17, "decimal(38,0)", "be", BAD),
    (K.RAW, struct.pack(">d", 1.5), "double", "be", 1.5),
    (K.RAW, struct.pack("<d", 1.5), "double", "le", 1.5),
    (K.RAW, struct.pack(">f", 1.5), "float", "be", 1.5),
    (K.RAW, struct.pack(">f", 1.5), "double", "be", BAD),
    (K.RAW, struct.pack(">q", 1_000_000), "timestamp", "be", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    # a declared kind stands above the encoding
    (K.INT32, b"\x0c\x00\x00\x00", "int", "be", 12),
    (K.STRING, b"12", "int", "be", 12),
    (K.STRING, b"1.5", "double", "le", 1.5),
    (K.RAW, b"12", "int", "text", 12),
    (K.RAW, b'"UA"', "string", "json", "UA"),
    (K.RAW, rb'"\u00fc"', "string", "json", "ü"),
    (K.STRING, b'"12"', "int", "json", 12),
    (K.RAW, b"12", "int", "json", 12),
    (K.RAW, b"12.0", "int", "json", 12),
    (K.RAW, b"1e3", "int", "json", 1000),
    (K.RAW, b"1e999999999", "int", "json", BAD),
    (K.RAW, b"12.5", "int", "json", BAD),
    (K.RAW, b"12.50", "string", "json", "12.50"),
    (K.RAW, b"12.5", "double", "json", 12.5),
    (K.RAW, b"true", "boolean", "json", True),
    (K.RAW, b"null", "string", "json", None),
    (K.RAW, b' {"a": [1]} ', "string", "json", '{"a": [1]}'),
    (K.RAW, b"[1]", "int", "json", BAD),
    (K.RAW, b"UA", "string", "json", BAD),
    (K.RAW, b"NaN", "double", "json", BAD),
    (K.RAW, b"\xff", "string", "json", BAD),
    (K.RAW, b"[" * 100_000, "string", "json", BAD),
    (K.RAW, rb'"\ud800"', "string", "json", BAD),
    (K.INT32, b"\x0c\x00\x00\x00", "int", "json", 12),
]


@pytest.mark.parametrize(
    ("kind", "data", "word", "encoding", "expected"),
    [(kind, data, word, "auto", expected) for kind, data, word, expected in AUTO] + ENCODED,
)
def test_value(half: str, kind: int, data: bytes, word: str, encoding: str, expected: Any) -> None:
    array, bad = convert_column(located([None, (kind, data), (kind, None)]), TYPES[word], Encoding(encoding))
    assert array.type == TYPES[word]
    array.validate(full=True)
    rows: list[Any] = array.to_pylist()
    absent, value, null = rows
    assert absent is None
    assert null is None
    if expected is BAD:
        assert value is None
        assert bad is not None
        assert bad.to_pylist() == [False, True, False]
    else:
        assert bad is None
        assert type(value) is type(expected)
        assert value == expected or (math.isnan(value) and math.isnan(expected))


@pytest.mark.parametrize("kind", FIXED_SIZE_BYTES, ids=lambda kind: Kind(kind).word)
def test_one_of_each_kind_of_a_fixed_size_is_read_as_one(half: str, kind: int) -> None:
    data = FLOATS[kind].pack(1.0) if kind in FLOATS else b"\x01".ljust(FIXED_SIZE_BYTES[kind], b"\x00")
    for word, one in (("int", 1), ("double", 1.0)):
        array, _ = convert_column(located([(kind, data)]), TYPES[word])
        assert array.to_pylist() == [one], (
            f"the {half} does not read kind {Kind(kind).word} as {word}; add it to read_whole of "
            "columns/kernel_values.py, or to the rules and their kernels"
        )


def test_mixed_kinds_become_texts_row_by_row(half: str) -> None:
    values: list[Value] = [
        (K.STRING, b"UA"), (K.INT32, b"\x0c\x00\x00\x00"), None, (K.FLOAT64, F64(1.5)), (K.BOOL, b"\x01"),
        (K.UINT128, U128_MAX), (K.RAW, b"x"), (K.INT64, b"short"), (K.FLOAT32, F32(0.1)), (K.STRING, b"\xff"),
        (K.STRING, None), (K.UINT64, b"\xff" * 8),
    ]  # fmt: skip
    array, bad = convert_column(located(values), TYPES["string"])
    assert array.to_pylist() == [
        "UA", "12", None, "1.5", "true", "340282366920938463463374607431768211455", "x", None, "0.1", None, None,
        "18446744073709551615",
    ]  # fmt: skip
    assert bad is not None
    assert [row for row, wrong in enumerate(bad.to_pylist()) if wrong] == [7, 9]


def test_mixed_kinds_become_numbers_row_by_row(half: str) -> None:
    values: list[Value] = [(K.RAW, b"7"), (K.UINT64, b"\xff" * 8), None, (K.FLOAT64, F64(3.0)), (K.RAW, b"9" * 30)]
    array, bad = convert_column(located(values), TYPES["decimal(38,0)"])
    assert array.to_pylist() == [Decimal(7), Decimal(2**64 - 1), None, Decimal(3), Decimal("9" * 30)]
    assert bad is None


@pytest.mark.parametrize("word", TYPES)
def test_no_rows_and_no_values(half: str, word: str) -> None:
    for values in ([], [None], [(K.STRING, None), None]):
        array, bad = convert_column(located(values), TYPES[word])
        array.validate(full=True)
        assert array.type == TYPES[word]
        assert array.null_count == len(array) == len(values)
        assert bad is None


def test_an_unknown_type_is_refused() -> None:
    import pyarrow as pa

    with pytest.raises(LocalError, match="int8"):
        convert_column(located([]), pa.list_(pa.int8()))

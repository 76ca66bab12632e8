"""The filter in Arrow gives what the oracle gives, for random conditions over random headers, unknown included."""

from __future__ import annotations

import math
import os
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lading.columns.assemble import to_decoded
from lading.columns.contract import Projection, parse_columns
from lading.filter.parse import parse
from lading.model.batch import SCHEMA
from lading.model.errors import FilterError
from lading.model.headers import Header
from lading.model.kinds import FIXED_SIZE_BYTES, Kind
from tests.filter.oracle import Row, holds

EXAMPLES = 5_000 if os.environ.get("LADING_TEST_FULL") == "1" else 50
CONTRACT = parse_columns("a string, b int, c int be, d double, e boolean, f timestamp, g decimal(38,0), h binary")
KEYS = ["a", "b", "c", "d", "e", "f", "g", "h", "x y"]
NUMBERS = ["0", "1", "-1", "12", "2.5", "1e3", "0.0", "300", "-0.5", "9223372036854775808", "12.0"]
WORDS = ["UA", "ua", "", "U%", "12", "true", "1", "2.5", "grüße", "U_A", "a\\b", "2024-01-01", "nan", "\n"]
INSTANTS = ["2024-01-01", "2024-01-01T00:00:00.000001Z", "1969-12-31 23:59"]
PATTERNS = ["U%", "%", "_", "U\\_A", "%2%", "gr__e", "a\\\\b", "%1"]

short_numbers = st.integers(-300, 300) | st.sampled_from([0, 1, 12, 2**31, 2**63 - 1])
payloads = st.sampled_from([word.encode() for word in WORDS + NUMBERS] + [b"\xff", b"\x00\x00\x00\x0c"])


@st.composite
def held(draw: st.DrawFn) -> Header:
    key = draw(st.sampled_from(KEYS))
    kind = draw(st.sampled_from([*Kind, 99]))
    if draw(st.integers(0, 7)) == 0:
        return Header(key, kind, None)
    match kind:
        case Kind.RAW | Kind.STRING | 99:
            return Header(key, kind, draw(payloads))
        case Kind.BOOL:
            return Header(key, kind, draw(st.sampled_from([b"\x00", b"\x01", b"\x02"])))
        case Kind.FLOAT32 | Kind.FLOAT64:
            value = draw(st.sampled_from([0.0, -0.0, 1.0, 12.0, 2.5, -0.5, math.nan, math.inf, -math.inf, 300.0]))
            return Header(key, kind, struct.pack("<f" if kind == Kind.FLOAT32 else "<d", value))
        case Kind.INT128 | Kind.UINT128:
            wide = draw(st.sampled_from([0, 1, 12, 2**64, 2**127 - 1, 10**38 - 1]))
            return Header(key, kind, wide.to_bytes(16, "little"))
    size = FIXED_SIZE_BYTES[kind]
    number = draw(short_numbers) % (1 << 8 * size)
    return Header(key, kind, number.to_bytes(size, "little")[: size - (draw(st.integers(0, 15)) == 0)])


@st.composite
def row(draw: st.DrawFn) -> Row:
    fields = {
        "offset": draw(st.integers(0, 300)),
        "state": draw(st.sampled_from([1, 10, 20, 30])),
        "timestamp": datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=draw(st.integers(-2, 2))),
        "id": draw(st.none() | st.sampled_from([b"\x00" * 16, b"\x01" * 16])),
        "checksum": draw(st.none() | st.sampled_from([0, 12, 2**32 - 1])),
        "key": draw(st.none() | payloads),
        "payload": draw(st.none() | payloads),
    }
    return Row(fields, draw(st.lists(held(), max_size=5)))


POOLS = {
    "number": NUMBERS,
    "text": [f"'{word}'" for word in WORDS],
    "boolean": ["true", "FALSE"],
    "timestamp": [f"'{instant}'" for instant in INSTANTS],
    "state": ["'poisoned'", "'available'"],
    "id": ["'00000000000000000000000000000000'", "'01010101-0101-0101-0101-010101010101'"],
}
"""Constants by what they can be compared with."""

HEADER_POOLS = {"a": "text", "b": "number", "c": "number", "d": "number", "e": "boolean", "f": "timestamp",
                "g": "number", "h": "text"}  # fmt: skip
FIELD_POOLS = {"offset": "number", "state": "state", "timestamp": "timestamp", "id": "id", "checksum": "number"}
CAST_POOLS = {"string": "text", "boolean": "boolean", "tinyint": "number", "int": "number", "bigint": "number",
              "double": "number", "float": "number", "decimal(38,0)": "number", "binary": "text",
              "timestamp": "timestamp"}  # fmt: skip


@st.composite
def operand(draw: st.DrawFn, declared: bool) -> tuple[str, str]:
    """The text of an operand, and the pool of constants that fit it."""
    if draw(st.integers(0, 3)) == 0:
        name = draw(st.sampled_from([*FIELD_POOLS, "key", "payload"]))
        pool = FIELD_POOLS.get(name) or draw(st.sampled_from(["number", "text", "boolean", "timestamp"]))
    else:
        key = draw(st.sampled_from(KEYS))
        pool = HEADER_POOLS.get(key, "") if declared else ""
        pool = pool or draw(st.sampled_from(["number", "text", "boolean", "timestamp"]))
        name = key if key.isidentifier() and draw(st.booleans()) else f"header('{key}')"
        if draw(st.integers(0, 3)) == 0:
            name = f"any({name})"
    if draw(st.integers(0, 3)) == 0:
        word = draw(st.sampled_from(list(CAST_POOLS)))
        return f"CAST({name} AS {word})", CAST_POOLS[word]
    return name, pool


@st.composite
def predicate(draw: st.DrawFn, declared: bool) -> str:
    name, pool = draw(operand(declared))
    fitting = st.sampled_from(POOLS[pool]) | st.just("NULL")
    wild = st.sampled_from([one for pool in POOLS.values() for one in pool])
    constant = fitting | fitting | fitting | wild
    shape = draw(st.integers(0, 9))
    if shape <= 2:
        other = draw(constant)
    elif shape == 3:
        other = draw(operand(declared))[0]
    else:
        other = ""
    negated = draw(st.sampled_from(["", "NOT "]))
    if other:
        sides = [name, other] if draw(st.booleans()) else [other, name]
        return f" {draw(st.sampled_from(['=', '<>', '!=', '<', '<=', '>', '>=']))} ".join(sides)
    match shape:
        case 4:
            return f"{name} {negated}BETWEEN {draw(constant)} AND {draw(constant)}"
        case 5 | 6:
            return f"{name} {negated}IN ({', '.join(draw(st.lists(constant, min_size=1, max_size=3)))})"
        case 7:
            return f"{name} {negated}LIKE '{draw(st.sampled_from(PATTERNS))}'"
    if shape == 9:
        return f"{negated}present(header('{draw(st.sampled_from(KEYS))}'))"
    return f"{name} IS {negated}NULL" if draw(st.booleans()) else name


@st.composite
def condition(draw: st.DrawFn, declared: bool) -> str:
    text = draw(predicate(declared))
    for _ in range(draw(st.integers(0, 2))):
        text = f"{text} {draw(st.sampled_from(['AND', 'OR']))} {draw(predicate(declared))}"
        text = draw(st.sampled_from(["{}", "({})", "NOT ({})"])).format(text)
    return text


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{**one.fields, "headers": [header._asdict() for header in one.headers]} for one in rows], schema=SCHEMA
    )


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.lists(row(), max_size=6), st.sampled_from([None, CONTRACT]))
def test_arrow_and_oracle_agree(data: st.DataObject, rows: list[Row], contract: Projection | None) -> None:
    text = data.draw(condition(contract is not None))
    try:
        parsed = parse(text, contract)
    except FilterError:
        return
    expected = [holds(one, parsed.tree) for one in rows]
    batch = batch_of(rows)
    assert parsed.mask(batch).to_pylist() == expected
    decoded = to_decoded(batch, parsed.header_keys)
    assert parsed.mask(decoded).to_pylist() == expected
    assert parsed.selects(batch).to_pylist() == [one is True for one in expected]
    assert parsed.fields <= set(SCHEMA.names)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.text(st.sampled_from("ab'\"()=<>-+,.%_\\ \n\t0123NOTANDORINLIKEISULCASTheadrny;:*/{}[]@#$?!`ü\x00"), max_size=60)
)
def test_any_text_is_a_filter_or_a_filter_error(text: str) -> None:
    _parses(text)


WORDS_OF_SQL = [
    "a",
    "AND",
    "OR",
    "NOT",
    "(",
    ")",
    "IN",
    "=",
    "'x'",
    "1",
    "any(",
    "header(",
    "CAST(",
    "AS",
    "int",
    "IS",
    "NULL",
    "BETWEEN",
    "LIKE",
    ",",
    "-",
    "<",
    "select",
    "case",
    "when",
    "end",
    "interval",
    "date",
    "offset",
    ".",
    "true",
]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.sampled_from(WORDS_OF_SQL), max_size=25))
def test_any_words_are_a_filter_or_a_filter_error(words: list[str]) -> None:
    _parses(" ".join(words))


def _parses(text: str) -> Any:
    try:
        return parse(text)
    except FilterError as error:
        assert str(error)
        return None

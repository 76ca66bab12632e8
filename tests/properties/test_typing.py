"""Kernels and twin give the same columns for any bytes, and texts are read as other implementations read them."""

from __future__ import annotations

import math
import os
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lading.columns.contract import BINARY_ENCODINGS, TYPES, Encoding
from lading.columns.typed import KERNEL_MODULE, compare_bytes, convert_column
from lading.kernels import engine
from lading.model.kinds import FIXED_SIZE_BYTES, Kind
from tests.columns.values import Value, located

engine.load(KERNEL_MODULE)

EXAMPLES = 5_000 if os.environ.get("LADING_TEST_FULL") == "1" else 50
NUMBER_TEXTS = st.from_regex(rb"\A[+-]?[0-9]{0,22}(\.[0-9]{0,9})?([eE][+-]?[0-9]{1,3})?\Z")
INSTANT_TEXTS = st.from_regex(
    rb"\A[0-2][0-9]{3}-[01][0-9]-[0-3][0-9]"
    rb"([T ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{0,10})?)?(Z|[+-][0-9]{2}:?[0-9]{0,2})?)?\Z"
)
TEXTS = (
    st.text(max_size=12).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | NUMBER_TEXTS
    | INSTANT_TEXTS
    | st.sampled_from([b"true", b"FALSE", b"0", b"1", b"nan", b"-inf", b"Infinity", b"\xe2\x82", b"\xf0\x9f\x98\x80"])
)


@st.composite
def values(draw: st.DrawFn) -> Value:
    if draw(st.integers(0, 9)) == 0:
        return None
    kind = draw(st.sampled_from([*Kind, 0, 99, 255]))
    if draw(st.integers(0, 9)) == 0:
        return kind, None
    size = FIXED_SIZE_BYTES.get(kind, 0)
    if size and draw(st.integers(0, 5)):
        return kind, draw(st.binary(min_size=size, max_size=size))
    return kind, draw(TEXTS | st.binary(max_size=20))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(values(), max_size=20), st.sampled_from(list(TYPES)), st.sampled_from(list(Encoding)))
def test_kernels_and_twin_agree(rows: list[Value], word: str, encoding: Encoding) -> None:
    if encoding in BINARY_ENCODINGS and word in ("string", "binary"):
        encoding = Encoding.AUTO
    with mock.patch.object(engine, "select", lambda home, twin, size_bytes: engine.load(home)):
        fast = convert_column(located(rows), TYPES[word], encoding)
    with mock.patch.object(engine, "select", lambda home, twin, size_bytes: twin):
        plain = convert_column(located(rows), TYPES[word], encoding)
    fast[0].validate(full=True)
    assert _bits(fast[0]) == _bits(plain[0])
    assert (fast[1] and fast[1].to_pylist()) == (plain[1] and plain[1].to_pylist())


def _bits(array: pa.Array[Any]) -> list[Any]:
    """The values, doubles by their bits, NaN as one."""
    return [
        "nan" if isinstance(value, float) and math.isnan(value) else value.hex() if isinstance(value, float) else value
        for value in array.to_pylist()
    ]


@settings(deadline=None)
@given(NUMBER_TEXTS)
def test_number_texts_are_read_as_python_reads_them(text: bytes) -> None:
    try:
        expected = float(text)
    except ValueError:
        expected = None
    if expected is not None and math.isinf(expected):
        expected = None
    assert convert_column(located([(Kind.RAW, text)]), TYPES["double"])[0].to_pylist() == [expected]


@settings(deadline=None)
@given(st.binary(max_size=24) | st.text(max_size=12).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_utf8_is_what_python_decodes(data: bytes) -> None:
    try:
        expected = data.decode()
    except UnicodeDecodeError:
        expected = None
    assert convert_column(located([(Kind.RAW, data)]), TYPES["string"])[0].to_pylist() == [expected]


@settings(deadline=None)
@given(
    st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)),
    st.sampled_from(["T", " "]),
    st.sampled_from(["auto", "minutes", "seconds", "milliseconds", "microseconds"]),
    st.none() | st.integers(-23 * 60, 23 * 60),
)
def test_iso_texts_are_read_as_python_reads_them(when: datetime, parted: str, spec: str, zone: int | None) -> None:
    local = when if zone is None else when.replace(tzinfo=timezone(timedelta(minutes=zone)))
    text = local.isoformat(parted, spec)
    parsed = datetime.fromisoformat(text)
    expected = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    for kind in (Kind.RAW, Kind.STRING):
        assert convert_column(located([(kind, text.encode())]), TYPES["timestamp"])[0].to_pylist() == [expected]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(values(), max_size=20), st.sampled_from([b"", b"12", b"true"]) | TEXTS, *[st.booleans()] * 3)
def test_bytes_are_compared_as_a_column_of_them_is(
    rows: list[Value], wanted: bytes, text: bool, plain: bool, from_rows: bool
) -> None:
    if plain:
        rows = [row and (int(Kind.RAW), row[1]) for row in rows]
    held = [row[1] for row in rows if row is not None and row[1] is not None]
    if held and from_rows:
        wanted = held[0]
    try:
        constant = wanted.decode() if text else wanted
    except UnicodeDecodeError:
        text, constant = False, wanted
    column = convert_column(located(rows), pa.string() if text else pa.binary())[0]
    expected = [None if value is None else value == constant for value in column.to_pylist()]
    numbers = any(row is not None and row[1] is not None and row[0] in FIXED_SIZE_BYTES for row in rows)
    for choose in (lambda home, twin, size_bytes: engine.load(home), lambda home, twin, size_bytes: twin):
        with mock.patch.object(engine, "select", choose):
            made = compare_bytes(located(rows), wanted, text=text)
        if made is None:
            assert text and numbers
        else:
            made.validate(full=True)
            assert not (text and numbers)
            assert made.to_pylist() == expected
            assert made.null_count == expected.count(None)

"""Finding headers in any ``headers`` column, and what is assembled of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading.columns.assemble import assemble, to_decoded
from lading.columns.contract import parse_columns
from lading.columns.locate import locate, to_located
from lading.columns.typed import convert_column
from lading.model.batch import HEADER_TYPE, HEADERS_TYPE, SCHEMA
from lading.model.errors import LocalError
from lading.model.headers import Header, Headers
from lading.model.kinds import Kind
from lading.model.run import Decoded, Located
from lading.model.values import u16

from .values import headers_array

ROWS = [
    list(Headers([("a", "1"), ("b", u16(2)), ("a", "3")])),
    [],
    list(Headers([("a", None)])),
    list(Headers([("ab", "x"), ("b", None), ("b", u16(5)), ("grüße", "y")])),
    list(Headers([("a", "last"), ("a", b"")])),
]


def values(located: Located) -> list[Any]:
    return [
        {-1: "absent", -2: None}.get(length, (kind, located.data[start : start + length].tobytes()))
        for start, length, kind in zip(
            located.start.tolist(), located.length.tolist(), located.kind.tolist(), strict=True
        )
    ]


EXPECTED: dict[str, list[Any]] = {
    "a": [(Kind.STRING, b"3"), "absent", None, "absent", (Kind.RAW, b"")],
    "b": [(Kind.UINT16, b"\x02\x00"), "absent", "absent", (Kind.UINT16, b"\x05\x00"), "absent"],
    "ab": ["absent", "absent", "absent", (Kind.STRING, b"x"), "absent"],
    "grüße": ["absent", "absent", "absent", (Kind.STRING, b"y"), "absent"],
    "none": ["absent"] * 5,
}


def test_the_last_value_of_each_key(half: str) -> None:
    found = locate(headers_array(ROWS), list(EXPECTED))
    assert {key: values(located) for key, located in found.items()} == EXPECTED


@pytest.mark.parametrize("start", [0, 7, 90])
def test_many_keys_are_found_as_few_are(start: int) -> None:
    """Above a number of keys another way is taken, which looks at each entry once."""
    rng = np.random.default_rng(20261126)
    names = [f"name-{number}" for number in range(30)] + ["grüße", ""]
    rows = [
        list(
            Headers([(names[at], None if at % 7 == 0 else str(at)) for at in rng.integers(0, 32, rng.integers(0, 40))])
        )
        for _ in range(100)
    ]
    headers = headers_array(rows).slice(start)
    keys = [*names, "absent", names[3]]
    found = locate(headers, keys)
    assert list(found) == keys[:-1]
    assert {key: values(found[key]) for key in found} == {key: values(locate(headers, [key])[key]) for key in found}


@pytest.mark.parametrize(("start", "length"), [(0, 5), (1, 3), (3, 2), (2, 0), (5, 0)])
def test_slices_of_a_batch(half: str, start: int, length: int) -> None:
    found = locate(headers_array(ROWS).slice(start, length), list(EXPECTED))
    for key, located in found.items():
        assert values(located) == EXPECTED[key][start : start + length]


def test_batches_without_any_header(half: str) -> None:
    for column in (headers_array([]), headers_array([[], []]), headers_array([None])):
        assert values(locate(column, ["a"])["a"]) == ["absent"] * len(column)


def test_the_column_as_other_writers_spell_it(half: str) -> None:
    other = pa.large_list(pa.field("element", pa.struct([(field.name, field.type) for field in HEADER_TYPE])))
    column: Any = headers_array(ROWS).cast(other)
    assert values(locate(column, ["a"])["a"]) == EXPECTED["a"]


def test_a_header_escaped_in_its_key_is_found_by_its_text(half: str) -> None:
    column = headers_array([[Header("\\xff", Kind.RAW, b"1")]])
    assert values(locate(column, ["\\xff"])["\\xff"]) == [(Kind.RAW, b"1")]


def test_columns_are_typed_as_headers_are() -> None:
    columns: list[pa.Array[Any]] = [
        pa.array([b"12", None, b"x"]), pa.array(["12", "", None]), pa.array([True, None, False]),
        pa.array([1, None, -1], pa.int8()), pa.array([1.5, None, 2.0]), pa.array([1, 2, None], pa.decimal128(38, 0)),
    ]  # fmt: skip
    texts = [["12", None, "x"], ["12", "", None], ["true", None, "false"], ["1", None, "-1"], ["1.5", None, "2"]]
    for column, expected in zip(columns, [*texts, ["1", "2", None]], strict=True):
        for start in (0, 1, 3):
            part = to_located(column.slice(start))
            assert convert_column(part, pa.string())[0].to_pylist() == expected[start:]


def batch() -> pa.RecordBatch:
    rows = [
        {
            "offset": at, "state": 1, "timestamp": at, "id": None, "checksum": None, "key": b"k", "payload": b"p",
            "headers": [one._asdict() for one in row],
        }
        for at, row in enumerate(ROWS)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def test_assembled_columns_come_in_the_order_asked_with_their_bad_rows() -> None:
    projection = parse_columns("b tinyint, topic, offset, a int, partition")
    decoded = to_decoded(batch(), projection.header_keys)
    made = assemble(decoded, projection, {"topic": "t", "partition": 3})
    assert made.batch.schema == projection.schema
    assert made.batch.to_pydict() == {
        "b": [2, None, None, 5, None],
        "topic": ["t"] * 5,
        "offset": [0, 1, 2, 3, 4],
        "a": [3, None, None, None, None],
        "partition": [3] * 5,
    }
    assert {name: flags.to_pylist() for name, flags in made.bad.items()} == {"a": [False] * 4 + [True]}
    assert made.bad_count == 1


def test_what_was_not_decoded_is_named() -> None:
    decoded = Decoded(0, {}, {})
    for columns, says in (("offset", "message field 'offset'"), ("a string", "header 'a'"), ("topic", "'topic'")):
        with pytest.raises(LocalError, match=says):
            assemble(decoded, parse_columns(columns))
    with pytest.raises(LocalError, match="'headers'"):
        to_decoded(batch().select(["offset"]), ["a"])


def test_located_arrays_may_be_views_that_skip() -> None:
    """A dialect may hand over strided views; the kernels take copies of these."""
    region = np.arange(8, dtype=np.uint8)
    numbers = np.zeros((3, 2), np.int64)
    numbers[:, 1] = 1
    located = Located(region, numbers[:, 0], numbers[:, 1], np.full((3, 2), Kind.UINT8, np.int8)[:, 0])
    assert convert_column(located, pa.int32())[0].to_pylist() == [0, 0, 0]
    assert HEADERS_TYPE.value_type == HEADER_TYPE

"""Typed columns become headers of the kind their type declares."""

from __future__ import annotations

import random
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lading import read_arrow, write_arrow
from lading.client import fallback
from lading.client.header_columns import (
    KERNEL_MODULE,
    ColumnHeader,
    check_kind,
    header_names,
    headers_of,
    parse_column_header,
    split_column_headers,
)
from lading.kernels import engine
from lading.model.batch import HEADERS_TYPE
from lading.model.errors import LocalError, SettingError
from lading.model.kinds import Kind
from tests.client.memory import MemoryTransport

NOON = datetime(2024, 2, 29, 12, 0, 0, 250_000, UTC)
CASES: list[tuple[pa.DataType, Any, Kind, bytes]] = [
    (pa.bool_(), True, Kind.BOOL, b"\x01"),
    (pa.int8(), -2, Kind.INT8, struct.pack("<b", -2)),
    (pa.int16(), -300, Kind.INT16, struct.pack("<h", -300)),
    (pa.int32(), -70_000, Kind.INT32, struct.pack("<i", -70_000)),
    (pa.int64(), -(1 << 40), Kind.INT64, struct.pack("<q", -(1 << 40))),
    (pa.uint8(), 255, Kind.UINT8, struct.pack("<B", 255)),
    (pa.uint16(), 65_535, Kind.UINT16, struct.pack("<H", 65_535)),
    (pa.uint32(), 1 << 31, Kind.UINT32, struct.pack("<I", 1 << 31)),
    (pa.uint64(), (1 << 64) - 1, Kind.UINT64, struct.pack("<Q", (1 << 64) - 1)),
    (pa.float32(), 1.5, Kind.FLOAT32, struct.pack("<f", 1.5)),
    (pa.float64(), float("inf"), Kind.FLOAT64, struct.pack("<d", float("inf"))),
    (pa.decimal128(38, 0), Decimal(-(1 << 90)), Kind.INT128, (-(1 << 90)).to_bytes(16, "little", signed=True)),
    (pa.decimal128(10, 2), Decimal("-1.50"), Kind.STRING, b"-1.50"),
    (pa.string(), "é", Kind.STRING, "é".encode()),
    (pa.large_string(), "x", Kind.STRING, b"x"),
    (pa.dictionary(pa.int8(), pa.string()), "UA", Kind.STRING, b"UA"),
    (pa.binary(), b"\xff", Kind.RAW, b"\xff"),
    (pa.binary(3), b"abc", Kind.RAW, b"abc"),
    (pa.timestamp("ns", "Europe/Berlin"), NOON, Kind.STRING, b"2024-02-29T12:00:00.250000Z"),
    (pa.timestamp("s"), datetime(2024, 2, 29, 12), Kind.STRING, b"2024-02-29T12:00:00.000000"),
    (pa.date32(), date(2024, 2, 29), Kind.STRING, b"2024-02-29"),
]


@pytest.mark.parametrize(("type_", "value", "kind", "data"), CASES, ids=[str(case[0]) for case in CASES])
def test_each_type_has_its_kind(type_: pa.DataType, value: Any, kind: Kind, data: bytes) -> None:
    batch = pa.RecordBatch.from_pydict({"before": [1, 2, 3], "h": pa.array([None, value, value], type_)}).slice(1)
    made = headers_of(batch, {"h": "h"}, "null").to_pylist()
    assert made == [[{"key": "h", "kind": int(kind), "value": data}]] * 2


def test_nulls_become_null_headers_or_none() -> None:
    batch = pa.RecordBatch.from_pydict({"a": pa.array([1, None], pa.int8()), "b": [None, "x"]})
    columns = header_names(["a", "b"])
    a, b = {"key": "a", "kind": 4, "value": b"\x01"}, {"key": "b", "kind": 2, "value": b"x"}
    assert headers_of(batch, columns, "absent").to_pylist() == [[a], [b]]
    assert headers_of(batch, columns, "null").to_pylist() == [[a, b | {"value": None}], [a | {"value": None}, b]]


def test_kernel_and_twin_make_the_same_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    texts = [rng.choice([None, "", "UA", "é" * rng.randrange(40)]) for _ in range(700)]
    numbers = [rng.choice([None, 0, -1, 1 << 30]) for _ in texts]
    table = pa.RecordBatch.from_pydict({"t": texts, "n": pa.array(numbers, pa.int32()), "u": texts[::-1]})
    columns = header_names(["n", "t", "u"])
    want = [
        [
            ("n", Kind.INT32, None if number is None else struct.pack("<i", number)),
            *((key, Kind.STRING, None if text is None else text.encode()) for key, text in (("t", one), ("u", other))),
        ]
        for number, one, other in zip(numbers, texts, texts[::-1], strict=True)
    ]

    def told(made: Any) -> list[Any]:
        made.validate(full=True)
        return [[tuple(header.values()) for header in row] for row in made.to_pylist()]

    for half in (engine.load(KERNEL_MODULE), fallback):
        monkeypatch.setattr(engine, "select", lambda *_, half=half: half)
        for first, count in ((0, 700), (13, 500), (3, 0)):
            part, rows = table.slice(first, count), want[first : first + count]
            assert told(headers_of(part, columns, "null")) == rows
            kept = [[header for header in row if header[2] is not None] for row in rows]
            assert told(headers_of(part, columns, "absent")) == kept


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("carrier", ColumnHeader("carrier", "carrier")),
        (" delay:uint16 ", ColumnHeader("delay", "delay", Kind.UINT16)),
        ("tenant:uint64 from tenant_id", ColumnHeader("tenant", "tenant_id", Kind.UINT64)),
        ("trace-id from trace", ColumnHeader("trace-id", "trace")),
        ("delay:foo", ColumnHeader("delay:foo", "delay:foo")),
        ('"a, b":int8 from "x"', ColumnHeader("a, b", "x", Kind.INT8)),
        ('"n:uint8"', ColumnHeader("n:uint8", "n:uint8")),
        ("`a from b`", ColumnHeader("a from b", "a from b")),
        ("`a``b` from `c``d`", ColumnHeader("a`b", "c`d")),
        ('"a""b" from "c""d"', ColumnHeader('a"b', 'c"d')),
    ],
)
def test_a_header_is_declared_with_kind_and_column(text: str, header: ColumnHeader) -> None:
    assert parse_column_header(text) == header


def test_declarations_are_split_outside_of_quotes() -> None:
    assert split_column_headers('carrier, delay:uint16,, "a, b" from x ') == (
        "carrier", "delay:uint16", '"a, b" from x',
    )  # fmt: skip


def test_a_word_that_is_nearly_a_kind_is_refused() -> None:
    with pytest.raises(SettingError, match=r"'unt16' is not a header kind \(did you mean 'uint16'\?\)"):
        parse_column_header("delay:unt16")


@pytest.mark.parametrize(
    ("type_", "value", "kind", "data"),
    [
        (pa.int32(), 65_535, Kind.UINT16, b"\xff\xff"),
        (pa.int64(), 7, Kind.UINT64, struct.pack("<Q", 7)),
        (pa.decimal128(20, 0), Decimal((1 << 64) - 1), Kind.UINT64, b"\xff" * 8),
        (pa.decimal128(38, 0), Decimal(1 << 90), Kind.UINT128, (1 << 90).to_bytes(16, "little")),
        (pa.int64(), -5, Kind.INT128, (-5).to_bytes(16, "little", signed=True)),
        (pa.string(), "12", Kind.UINT8, b"\x0c"),
        (pa.float64(), 1.5, Kind.FLOAT32, struct.pack("<f", 1.5)),
        (pa.int32(), 12, Kind.STRING, b"12"),
        (pa.timestamp("us", "UTC"), NOON, Kind.STRING, b"2024-02-29T12:00:00.250000Z"),
        (pa.string(), "UA", Kind.RAW, b"UA"),
    ],
)
def test_a_declared_kind_is_written(type_: pa.DataType, value: Any, kind: Kind, data: bytes) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([value, None], type_)], ["c"])
    check_kind("c", type_, kind)
    made = headers_of(batch, {"h": "c"}, "null", {"h": kind}).to_pylist()
    assert made == [[{"key": "h", "kind": int(kind), "value": value}] for value in (data, None)]


@pytest.mark.parametrize(
    ("type_", "value", "kind"),
    [
        (pa.int32(), 65_536, Kind.UINT16),
        (pa.int32(), -1, Kind.UINT64),
        (pa.float64(), 1.5, Kind.UINT8),
        (pa.decimal128(38, 0), Decimal(-1), Kind.UINT128),
        (pa.string(), "UA", Kind.UINT8),
    ],
)
def test_a_value_that_is_none_of_its_kind_is_refused(type_: pa.DataType, value: Any, kind: Kind) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([value], type_)], ["c"])
    with pytest.raises(LocalError, match=f"column 'c' cannot be written as {kind.word}"):
        headers_of(batch, {"h": "c"}, "null", {"h": kind})


@pytest.mark.parametrize(
    ("type_", "kind"), [(pa.int32(), Kind.RAW), (pa.int32(), Kind.BOOL), (pa.date32(), Kind.UINT128)]
)
def test_a_type_that_has_no_form_of_a_kind_is_refused_before_anything_is_sent(type_: pa.DataType, kind: Kind) -> None:
    with pytest.raises(LocalError, match=r"column 'c' is .* and cannot be written as"):
        check_kind("c", type_, kind)


def test_an_empty_list_of_header_columns_means_no_headers() -> None:
    transport = MemoryTransport(t=1)
    table = pa.table({"payload": [b"a", b"b"], "headers": pa.nulls(2, HEADERS_TYPE)})
    assert write_arrow(table, transport, "t", headers=[]) == 2
    assert read_arrow(transport, "t").column("headers").to_pylist() == [[], []]
    with pytest.raises(LocalError, match="no columns selected"):
        write_arrow(pa.table({"a": [1]}), transport, "t", headers=[])
    with pytest.raises(LocalError, match="the payload is called value: pass payload='value'"):
        write_arrow(pa.table({"value": [b"x"]}), "lading://127.0.0.1:1", "t")


def test_a_mapping_names_headers_differently() -> None:
    batch = pa.RecordBatch.from_pydict({"code": ["UA"]})
    assert headers_of(batch, header_names({"carrier": "code"}), "null").to_pylist()[0][0]["key"] == "carrier"


def test_a_type_without_a_kind_is_named() -> None:
    batch = pa.RecordBatch.from_pydict({"stops": [["ORD"]]})
    with pytest.raises(LocalError, match=r"'stops' is list.*no header"):
        headers_of(batch, {"stops": "stops"}, "null")


def test_a_first_argument_that_is_not_a_table_is_named() -> None:
    """read_arrow takes the URL first, and hands go on so."""
    for first, kind in (("lading://127.0.0.1:1", "str"), ([{"payload": b"x"}], "list")):
        with pytest.raises(LocalError, match=f"first argument is a {kind}, .* write_arrow.table, url, topic"):
            write_arrow(first, "orders", "t")  # type: ignore[arg-type]

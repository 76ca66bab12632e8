"""Columns become JSON payloads: Python's parser and columns of the payload read back every value exactly."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lading import read_arrow, testing, write_arrow
from lading.client.header_columns import split_column_headers
from lading.client.payload_columns import (
    check_payload_columns,
    encode_json_payloads,
    parse_payload_columns,
)
from lading.columns.assemble import assemble
from lading.columns.contract import PayloadColumn, Projection
from lading.model.errors import LocalError, SettingError
from lading.model.run import Decoded

DECIMAL = pa.decimal128(38, 9)
ITEM = pa.struct([("sku", pa.string()), ("n", pa.int64()), ("price", pa.decimal128(10, 2))])
TYPES: list[pa.DataType] = [
    pa.string(), pa.bool_(), pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(38, 0), DECIMAL,
    pa.date32(),
    pa.timestamp("us", tz="UTC"), pa.list_(pa.field("element", pa.string())), pa.map_(pa.string(), pa.int64()),
    ITEM, pa.list_(pa.field("element", ITEM)), pa.map_(pa.string(), pa.list_(pa.field("element", pa.float64()))),
]  # fmt: skip
TEXTS = ["", "a", 'say "x"', "back\\slash", "line\n\ttab\x00\x1f", "é\u2028\U0001f600", "{}", "null", "[1,2]"]


def value_of(type_: Any) -> Any:
    if random.random() < 0.15:
        return None
    if pa.types.is_string(type_):
        return random.choice(TEXTS)
    if pa.types.is_boolean(type_):
        return random.random() < 0.5
    if pa.types.is_integer(type_):
        most = 1 << (type_.bit_width - 1)
        return random.choice([-most, most - 1, 0, random.randrange(-most, most)])
    if pa.types.is_floating(type_):
        value = random.choice([0.0, -0.0, 1e300, 5e-324, 0.1, 1e22, 123456.789, -1.5])
        return value if type_ == pa.float64() else random.choice([0.5, -0.0, 2.0**20, 1.5])
    if pa.types.is_decimal(type_):
        digits = random.randrange(-(10**38) + 1, 10**38) if random.random() < 0.5 else random.randrange(-999, 999)
        return Decimal(digits if type_.precision == 38 else digits % 10**8).scaleb(-type_.scale)
    if pa.types.is_date(type_):
        return date(2026, 1, 1) + timedelta(random.randrange(-9999, 9999))
    if pa.types.is_timestamp(type_):
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=random.randrange(-(10**16), 10**16))
    if pa.types.is_map(type_):
        return [(key, value_of(type_.item_type)) for key in random.sample(TEXTS, random.randrange(3))]
    if pa.types.is_list(type_):
        return [value_of(type_.value_type) for _ in range(random.randrange(4))]
    return {field.name: value_of(field.type) for field in type_}


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        pairs = bool(value) and isinstance(value[0], tuple)
        return {key: plain(one) for key, one in value} if pairs else [plain(one) for one in value]
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, date) else value


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("nulls", ["null", "absent"])
def test_what_is_written_is_read_back(type_: pa.DataType, nulls: Any) -> None:
    random.seed(str(type_))
    column = pa.array([value_of(type_) for _ in range(60)], type_)
    batch = pa.record_batch({"left out": pa.array(range(60)), "v": column}).slice(7, 40)
    payloads = encode_json_payloads(batch, {("deep", "v"): "v", ("a.b",): "left out"}, nulls)
    values = batch.column("v").to_pylist()
    to_number: Any = Decimal if "decimal" in str(type_) else float
    for payload, value, row in zip(payloads.to_pylist(), values, range(7, 47), strict=True):
        document = json.loads(payload or b"", parse_float=to_number)
        wanted = {} if value is None and nulls == "absent" else {"v": plain(value)}
        if isinstance(value, list) and not value:
            wanted = {"v": document["deep"]["v"]}
            assert not document["deep"]["v"]
        assert document == {"deep": wanted, "a.b": row}
    projection = Projection(payload=(PayloadColumn("v", ("deep", "v"), type_),))
    made = assemble(Decoded(40, {"payload": payloads}, {}), projection)
    assert made.bad == {}
    assert made.batch.column("v").to_pylist() == values


def test_columns_are_named_by_paths() -> None:
    text = 'order_id, order.amount from amount, order."unit price" from "a,b"'
    assert parse_payload_columns(split_column_headers(text)) == {
        ("order_id",): "order_id", ("order", "amount"): "amount", ("order", "unit price"): "a,b",
    }  # fmt: skip
    assert parse_payload_columns({"payload.order.amount": "a", "unit price": "b"}) == {
        ("order", "amount"): "a", ("unit price",): "b",
    }  # fmt: skip
    assert parse_payload_columns(['x from "my""col"', "y from `a``b`", '"unit price"', '"say ""x"""']) == {
        ("x",): 'my"col', ("y",): "a`b", ("unit price",): "unit price", ('say "x"',): 'say "x"',
    }  # fmt: skip
    with pytest.raises(SettingError, match=r"payload\.a is a column, and payload\.a\.b is inside of it; rename"):
        parse_payload_columns(["a", "a.b"])
    with pytest.raises(SettingError, match=r"payload\.a is named twice"):
        parse_payload_columns(["a", "payload.a"])


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (pa.array([1.0, float("nan")]), "'v' has the value nan; JSON has no such number. Write null"),
        (pa.array([b"\xff"]), "'v' has bytes that are not UTF-8; JSON has no form for them. Encode"),
        (pa.array([[(b"\xff", 1)]], pa.map_(pa.binary(), pa.int8())), "'v' has bytes that are not UTF-8"),
        (pa.array([10**13], pa.timestamp("s")), "'v' has a time that microseconds cannot hold; write null instead"),
        (pa.array([timedelta(1)]), r"'v' is duration\[us\]; JSON has no form for that. Cast it"),
        (pa.array([[[timedelta(1)]]]), "'v' is "),
    ],
)
def test_values_that_json_has_no_form_for(values: Any, sentence: str) -> None:
    with pytest.raises(LocalError, match=sentence):
        encode_json_payloads(pa.record_batch({"v": values}), {("v",): "v"})
    with pytest.raises(LocalError, match="'x' does not exist; the table has v"):
        check_payload_columns(pa.schema([("v", pa.int8())]), {("x",): "x"})


def test_write_arrow_sends_them() -> None:
    table = pa.table(
        {
            "tenant": ["acme", "b"], "order_id": ["A-1", None], "key": [b"k", None],
            "amount": pa.array([Decimal("12.50"), Decimal("9999999999999999.99")], pa.decimal128(18, 2)),
            "big": [9007199254740993, -(1 << 63)],
            "items": pa.array([[{"sku": "s", "n": 1, "price": Decimal("0.10")}], []], pa.list_(ITEM)),
        }
    )  # fmt: skip
    columns = "tenant string, order_id string from payload, amount decimal(18,2) from payload.order.amount"
    columns += ", big bigint from payload"
    with testing.broker() as broker:
        named = {"order_id": "order_id", "order.amount": "amount", "big": "big"}
        assert (
            write_arrow(table, broker.url, "named", headers=["tenant"], payload_format="json", payload_columns=named)
            == 2
        )
        assert (
            read_arrow(broker.url, "named", columns).to_pydict()
            == table.select(["tenant", "order_id", "amount", "big"]).to_pydict()
        )
        # all columns that are no part of the message otherwise
        write_arrow(table, broker.url, "rest", headers=["tenant"], payload_format="json", nulls="absent")
        payloads = read_arrow(broker.url, "rest", "key, payload")
        assert payloads.column("payload").to_pylist() == [
            b'{"order_id":"A-1","amount":12.50,"big":9007199254740993,"items":[{"sku":"s","n":1,"price":0.10}]}',
            b'{"amount":9999999999999999.99,"big":-9223372036854775808,"items":[]}',
        ]
        assert payloads.column("key").to_pylist() == [b"k", None]
        for options, sentence in (
            ({"payload_format": "arvo"}, "payload_format is 'arvo'; it takes json, avro, protobuf"),
            ({"payload_format": "avro"}, "payload_format 'avro' needs a schema; pass schema, a file or a subject"),
            (
                {"payload_format": "json", "schema": "x.avsc"},
                "schema is for payloads with a schema; pass payload_format",
            ),
            ({"payload_format": "json", "payload": "big"}, "payload and payload_format both make the payload"),
            ({"payload_columns": ["big"]}, "payload_columns needs a format; pass payload_format='json'"),
        ):
            with pytest.raises(SettingError, match=sentence):
                write_arrow(table, broker.url, "named", headers=["tenant"], **options)

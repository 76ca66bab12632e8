"""Values of payloads as columns: typed as headers are, nested types, tombstones, and with a real Kafka producer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from kafka import KafkaProducer

from lading import Producer, read_arrow, testing
from lading.columns.assemble import Assembled, assemble
from lading.columns.contract import TYPES, Encoding, parse_columns, parse_value_type, value_type_word
from lading.columns.locate import to_located
from lading.columns.typed import convert_column
from lading.model.errors import LocalError, SettingError
from lading.model.run import Decoded
from lading.tables.ingest import IngestSettings, ingest

from ..tables.direct import DirectExecutor


def read(columns: str, payloads: list[bytes | None]) -> Assembled:
    held: dict[str, pa.Array[Any]] = {
        "offset": pa.array(range(len(payloads))),
        "payload": pa.array(payloads, pa.binary()),
    }
    made = assemble(Decoded(len(payloads), held, {}), parse_columns(columns))
    made.batch.validate(full=True)
    return made


VALUES = [
    "1", "-7", "1.0", "1e3", "2.5", "1.5e-3", "0.1", "12.30", "9223372036854775807", "9223372036854775808", "1e400",
    "123456789012345678901234567890",
    "true", "false", "null", '""', '"12"', '"1.0"', '"true"', '"2024-05-01"', '"2024-05-01T12:30:00Z"', '"café"',
    '"a\\nb"', '"\\u00e9\\ud83d\\ude00"',
    '"\\ud800"', "[1, 2]", '{"a": [null]}', '"nan"', "-0", "-0.0", "1700000000000000", "1.0E+2", "19844",
]  # fmt: skip


@pytest.mark.parametrize("word", [*TYPES, "decimal(10,2)"])
def test_a_header_and_a_value_of_a_payload_with_one_text_give_one_value(half: str, word: str) -> None:
    type_ = parse_value_type(word)
    made = read(f"v {word} from payload", [f'{{"v": {value}}}'.encode() for value in VALUES])
    header, bad = convert_column(to_located(pa.array([value.encode() for value in VALUES])), type_, Encoding.JSON)
    assert made.batch.column("v").equals(header) or str(made.batch.column("v")) == str(header)
    flags = made.bad.get("v")
    assert (None if flags is None else flags.to_pylist()) == (None if bad is None else bad.to_pylist())


def test_arrays_structs_and_maps_are_built_of_what_is_found(half: str) -> None:
    payloads: list[bytes | None] = [
        b'{"o":{"tags":["a",null,"b\\n"],"m":{"k":1,"j":2,"k":3},"items":[{"sku":"s","q":1.0},{"q":null}]}}',
        b'{"o":{"tags":[],"m":{},"items":[null]}}',
        b'{"o":{"tags":"no","m":[1],"items":[{"q":"x"}]}}',
        b'{"o":null}',
        b'{"o":{"tags":["\\ud800"],"m":{"a":{}},"items":[1]}}',
        b'{"o":5}',
        None,
        b'{"o":',
    ]
    made = read(
        "tags array<string> from payload.o.tags, m map<string,int> from payload.o.m, payload.o.tags json, "
        "items array<struct<sku:string,q:int>> from payload.o.items, o struct<tags: array<string>> from payload",
        payloads,
    )
    bad = {name: [row for row, wrong in enumerate(flags.to_pylist()) if wrong] for name, flags in made.bad.items()}
    assert made.batch.column("tags").to_pylist() == [["a", None, "b\n"], [], None, None, None, None, None, None]
    assert made.batch.column("m").to_pylist() == [[("j", 2), ("k", 3)], [], None, None, None, None, None, None]
    assert made.batch.column("items").to_pylist() == [
        [{"sku": "s", "q": 1}, {"sku": None, "q": None}], [None], None, None, None, None, None, None,
    ]  # fmt: skip
    assert made.batch.column("o").to_pylist()[:3] == [{"tags": ["a", None, "b\n"]}, {"tags": []}, None]
    assert made.batch.column("payload.o.tags").to_pylist()[:3] == ['["a",null,"b\\n"]', "[]", '"no"']
    wrong = [2, 4, 5, 7]
    assert bad == {"tags": wrong, "m": wrong, "items": wrong, "o": wrong, "payload.o.tags": [5, 7]}


def test_a_required_column_does_not_refuse_a_tombstone() -> None:
    projection = parse_columns("a int required from payload")
    payloads = pa.array([b'{"a":1}', None, b'{"b":1}'], pa.binary())
    batch = assemble(Decoded(3, {"payload": payloads}, {}), projection).batch
    projection.require_values(batch.slice(0, 2), str, payloads.slice(0, 2))
    with pytest.raises(LocalError, match=r"^2: the column 'a' is required, and payload.a is absent, null or cannot"):
        projection.require_values(batch, str, payloads)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("no string, no int from payload", r'`header_no string from "no"` or `payload_no int from payload.no`'),
        ("payload.a", r"'payload.a' has no type; for example `payload.a string from payload.a`"),
        ("a int json from payload", r"'json' is not a keyword of a payload column.*`a int required from payload.a`"),
        ("a array<strng> from payload", r"unknown column type 'strng' \(did you mean 'string'\?\)"),
        ("a map<int,int> from payload", r"map<string,type>, whose keys are strings"),
        ("a array<string from payload", r"the bracket < at character 8 is not closed"),
        ("a struct<string> from payload, b int", r"'string' is not a field of a struct; write it name:type"),
        ("offset int from payload.o", r"'offset' is a field of every message; .*`my_offset … from payload.o`"),
        ("a array<int>", r"unknown column type 'array<int>'"),
    ],
)
def test_columns_that_cannot_be_are_refused(columns: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        parse_columns(columns)


def test_types_are_read_and_written() -> None:
    word = "map<string,array<struct<a:decimal(10,2),`b c`:struct<d:timestamp>>>>"
    assert value_type_word(parse_value_type(word)) == word
    assert parse_value_type("STRUCT< a INT , b : array < string > >") == pa.struct(
        [("a", pa.int32()), pa.field("b", pa.list_(pa.field("element", pa.string())))]
    )


ORDERS = [
    {"order_id": f"A-{number}", "order": {"amount": f"{number}.50", "lines": [{"sku": "x", "n": number}]}}
    for number in range(50)
]
COLUMNS = (
    "offset, tenant string, order_id string required from payload, amount decimal(10,2) from payload.order.amount, "
    "lines array<struct<sku:string,n:int>> from payload.order.lines"
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    """A topic that a Kafka client wrote, with a broken payload and a tombstone in between."""
    with testing.broker(tmp_path_factory.mktemp("payloads") / "data") as running:
        producer = KafkaProducer(bootstrap_servers=running.endpoints["kafka"])
        for number, order in enumerate(ORDERS):
            value = None if number == 20 else b'{"order_id": "A-' if number == 30 else json.dumps(order).encode()
            producer.send("orders", value, key=b"k", headers=[("tenant", b"acme")], partition=0)
        producer.flush(timeout=30)
        producer.close()
        yield running


def expected() -> list[dict[str, Any]]:
    return [
        {
            "offset": number, "tenant": "acme",
            "order_id": None if number in (20, 30) else f"A-{number}",
            "amount": None if number in (20, 30) else Decimal(f"{number}.50"),
            "lines": None if number in (20, 30) else [{"sku": "x", "n": number}],
        }
        for number in range(50)
    ]  # fmt: skip


def test_headers_and_payloads_of_a_kafka_client_are_one_table(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    columns = COLUMNS.replace(" required", "")
    assert read_arrow(broker.url, "orders", columns).to_pylist() == expected()
    kept = read_arrow(broker.url, "orders", columns, where="tenant = 'acme' and offset >= 49")
    assert kept.to_pylist() == expected()[49:]
    with pytest.raises(LocalError, match=r"offset 30: the column 'order_id' is required, and payload.order_id is abs"):
        read_arrow(broker.url, "orders", COLUMNS)
    report = ingest(DirectExecutor(), broker.url, "orders", tmp_path / "table", IngestSettings(columns=columns))
    assert (report.rows, report.bad_values) == (50, 3)
    assert ds.dataset(tmp_path / "table").to_table().sort_by("offset").to_pylist() == expected()
    settings = IngestSettings(columns=columns, on_bad_value="fail")
    with pytest.raises(LocalError, match=r"offset 30: the payload ends too early \(byte 16\); on_bad_value=null"):
        ingest(DirectExecutor(), broker.url, "orders", tmp_path / "other", settings)


def test_a_value_that_does_not_fit_is_named_by_its_path(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    with Producer(broker.url) as producer:
        producer.send("odd", b'{"n": 1.5}', partition=0)
    settings = IngestSettings(columns="n int from payload", on_bad_value="fail")
    with pytest.raises(LocalError, match=r"offset 0: payload.n has a value that is no int; on_bad_value=null"):
        ingest(DirectExecutor(), broker.url, "odd", tmp_path / "odd", settings)

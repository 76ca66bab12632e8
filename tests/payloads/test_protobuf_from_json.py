"""JSON as messages of Protobuf: the bytes that Google's library makes of it, and sentences for what does not fit."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from lading import read_arrow, testing, write_arrow
from lading.cli.main import main
from lading.client.payload_columns import encode_payloads
from lading.model.errors import LocalError
from lading.payloads.form import find_message
from lading.payloads.protobuf_from_json import encode_json
from lading.registry.client import RegistryAddress, RegistryClient
from lading.registry.payload_encoder import find_writer_schema
from lading.schemas.protobuf import parse_protobuf
from tests.interop import wheels

from .test_protobuf import KINDS

TEXTS = [
    {}, {"i": -5, "si": -1, "u": 4294967295, "l": "-9223372036854775808", "sl": -3, "ul": "18446744073709551615"},
    {"f32": 7, "f64": "8", "s32": -9, "s64": -10, "f": 0.1, "d": -1.5, "b": True, "s": "é\u0000", "r": "/wA="},
    {"f": "NaN", "d": "-Infinity"}, {"i": 0, "s": "", "b": False, "r": "", "d": 0, "o": 0}, {"d": -0.0},
    {"e": "CASH"}, {"e": 1}, {"e": 7}, {"at": "2026-01-31T12:00:00.5Z"}, {"at": "1969-12-31T23:59:59.000000001+01:00"},
    {"took": "1.5s"}, {"took": "-0.000000001s"}, {"w": "5"}, {"w": 0}, {"ws": "x"},
    {"any": {"k": [True, None, 1.5, "t", {"in": {}}]}}, {"m": {"7": {"i": 1, "m": {"8": {}}}}}, {"o": None, "i": None},
    {"i": 1.0}, {"i": "12"}, {"l": 1e3}, {"s": "\u0000"},
]  # fmt: skip
MISFITS = [
    ('{"i": 2147483648}', "i is 2147483648, which is not a int32"), ('{"i": 1.5}', "i is 1.5, which is not a int32"),
    ('{"x": 1}', "x is not a field of k.All; it has i"), ('{"e": "X"}', 'e is "X", which is not one of NONE'),
    ('{"m": {"a": {}}}', 'm.a is "a", which is not a int32'), ('{"m": [1]}', "m is [1], which is not an object"),
    ('{"at": "soon"}', 'at is "soon", which is not a time such as'), ('{"took": "5"}', 'took is "5", which is not a'),
    ('{"m": {"1": {"b": 1}}}', "m.1.b is 1, which is not a bool"), ('{"r": "%"}', 'r is "%", which is not Base64'),
    ('{"f": 1e39}', "f is 1E+39, which is not a float"), (f'{{"f": {(1 << 128) - (1 << 103) - 1}}}', "is not a float"),
    ('{"at": "0001-01-01T00:00:00+10:00"}', "which is not a time such as"),
    ("[]", "the payload is [], which is not an object"),
    ('{"s": "\\ud800"}', "s is not a text of Unicode"), ("{", "not JSON"), ('{"f": NaN}', "NaN is not a number"),
]  # fmt: skip


def test_json_becomes_the_bytes_that_googles_library_makes() -> None:
    schema = parse_protobuf(KINDS)
    message = find_message(schema, "")
    assert message is not None
    found = [encode_json(message, json.dumps(text).encode()).hex() for text in TEXTS]
    assert found[1].startswith("08fbffffffffffffffff01")
    try:
        python = wheels.install("confluent-kafka", "2.16.1", "3.11", extras="avro,json,protobuf,schemaregistry")
    except wheels.Unavailable as reason:
        pytest.skip(str(reason))
    script = Path(__file__).with_name("read_with_protobuf.py")
    done = subprocess.run(
        [str(python), str(script), schema.format_text("serialized"), "k.All", "write"],
        input="".join(json.dumps(text) + "\n" for text in TEXTS), capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert found == json.loads(done.stdout)


@pytest.mark.parametrize(("text", "sentence"), MISFITS)
def test_what_does_not_fit_is_named_by_its_path(text: str, sentence: str) -> None:
    message = find_message(parse_protobuf(KINDS), "")
    assert message is not None
    with pytest.raises(LocalError) as raised:
        encode_json(message, text.encode())
    assert sentence in str(raised.value)


ORDER = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
message Other { int32 x = 1; }
message Order { string id = 1; optional double amount = 2; repeated string tags = 3; bytes raw = 4; In in = 5;
  google.protobuf.Timestamp at = 6; map<string, int32> m = 7; message In { int64 n = 1; } }
"""
AVRO = """{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"amount","type":["null",
{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}]},{"name":"raw","type":"bytes"},
{"name":"at","type":{"type":"long","logicalType":"timestamp-micros"}},{"name":"in","type":{"type":"record","name":"In",
"fields":[{"name":"n","type":"long"}]}}]}"""


def test_tables_are_written_by_a_schema_and_read_as_they_were(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    table = pa.table(
        {
            "order": ["a", "b"], "amount": pa.array([1.5, None], pa.float64()),
            "tags": pa.array([["x"], []], pa.list_(pa.field("element", pa.string()))),
            "raw": pa.array([b"\xff\x00", b""], pa.binary()), "n": pa.array([1 << 40, 0], pa.int64()),
            "at": pa.array([moment, moment], pa.timestamp("us", "UTC")),
        }
    )  # fmt: skip
    file = tmp_path / "order.proto"
    file.write_text(ORDER)
    columns = (
        "order string from payload.id, amount double from payload, tags array<string> from payload, "
        "raw binary from payload, n bigint from payload.in.n, at timestamp from payload"
    )
    members = {"id": "order", "amount": "amount", "tags": "tags", "raw": "raw", "in.n": "n", "at": "at"}
    with testing.broker() as broker:
        url = f"http://{broker.endpoints['schema_registry']}"
        by_file = {"format": "protobuf", "schema": str(file), "message": "Order"}
        by_id = {"format": "protobuf", "registry": url, "registry_cache": str(tmp_path)}
        write_arrow(
            table, broker.url, "bare", payload_format="protobuf", schema=str(file), message="Order",
            payload_columns=members,
        )  # fmt: skip
        assert read_arrow(broker.url, "bare", columns, payload=by_file) == table
        write_arrow(
            table, broker.url, "framed", payload_format="protobuf", schema=str(file), message="shop.Order",
            registry=url, subject="orders", payload_columns=members,
        )  # fmt: skip
        assert read_arrow(broker.url, "framed", columns, payload=by_id) == table
        client = RegistryClient(RegistryAddress(url))
        assert client.versions("orders") == [1]
        # by the subject, whose schema is there
        write_arrow(
            table, broker.url, "again", payload_format="protobuf", schema="orders", message="Order", registry=url,
            payload_columns=members,
        )  # fmt: skip
        assert read_arrow(broker.url, "again", columns, payload=by_id) == table
        avro = table.drop_columns(["tags"]).set_column(
            1, "amount", pa.array([Decimal("1.50"), None], pa.decimal128(10, 2))
        )
        write_arrow(
            avro, broker.url, "avro", payload_format="avro", schema=AVRO, registry=url,
            payload_columns={path: name for path, name in members.items() if name != "tags"},
        )  # fmt: skip
        columns = columns.replace("amount double", "amount decimal(10,2)").replace(
            "tags array<string> from payload, ", ""
        )
        settings = {"format": "schema", "registry": url, "registry_cache": str(tmp_path)}
        assert read_arrow(broker.url, "avro", columns, payload=settings) == avro
        with pytest.raises(LocalError, match=r"row 0 of 2: payload: n is not a field of shop.Order; it has id, amount"):
            write_arrow(
                table, broker.url, "bare", payload_format="protobuf", schema=str(file), message="Order",
                payload_columns=["n"],
            )  # fmt: skip


BYTES = """syntax = "proto3"; message A { repeated bytes r = 1; map<string, bytes> m = 2; B b = 3; bytes d = 4;
  message B { bytes x = 1; } }"""


def test_bytes_inside_of_lists_maps_and_structs_are_written_as_they_are() -> None:
    message = find_message(parse_protobuf(BYTES), "")
    assert message is not None
    held = b"abcd\xff"
    rows = pa.record_batch(
        {
            "r": pa.array([[held], None], pa.list_(pa.binary())),
            "m": pa.array([[("k", held)], None], pa.map_(pa.string(), pa.large_binary())),
            "b": pa.array([{"x": held}, None], pa.struct([("x", pa.binary())])),
            "d": pa.array([held, None]).dictionary_encode(),
        }
    )
    expected = {"r": b"\x0a\x05" + held, "m": b"\x12\x0a\x0a\x01k\x12\x05" + held, "b": b"\x1a\x07\x0a\x05" + held}
    expected["d"] = b"\x22\x05" + held
    for name, payload in expected.items():
        made = encode_payloads(rows, {(name,): name}, "null", "protobuf", lambda text: encode_json(message, text))
        assert made.to_pylist() == [payload, b""]
    latin = encode_payloads(rows, {("r",): "r"}, "null", "avro", lambda text: text)
    assert json.loads(latin[0].as_py()) == {"r": ["abcdÿ"]}


def test_a_mask_is_a_text_of_paths() -> None:
    message = find_message(parse_protobuf('syntax = "proto3"; message A { google.protobuf.FieldMask m = 1; }'), "")
    assert message is not None
    # as protoc --encode writes paths: "a_b" paths: "c.d"
    assert encode_json(message, b'{"m": "aB,c.d"}') == b"\x0a\x0a\x0a\x03a_b\x0a\x03c.d"
    assert encode_json(message, b'{"m": ""}') == b"\x0a\x00"
    with pytest.raises(LocalError, match="which is not a text of paths"):
        encode_json(message, b'{"m": ["a"]}')


def test_a_message_of_an_imported_file_is_not_written_by_an_id(tmp_path: Path) -> None:
    (tmp_path / "city.proto").write_text('syntax = "proto3"; package geo; message City { string name = 1; }')
    file = tmp_path / "trip.proto"
    file.write_text('syntax = "proto3"; import "city.proto"; message Trip { geo.City to = 1; }')
    encode = find_writer_schema(str(file), "trips", message="geo.City").make_encoder()
    assert encode(b'{"name": "Rome"}') == b"\x0a\x04Rome"
    with pytest.raises(LocalError, match=r"the message geo\.City is of an imported file.*; name the subject of that"):
        find_writer_schema(str(file), "trips", message="geo.City", registry="http://127.0.0.1:9")


def test_the_command_sends_by_a_file_of_protobuf(tmp_path: Path) -> None:
    file = tmp_path / "order.proto"
    file.write_text(ORDER)
    with testing.broker() as broker:
        words = ["--schema", str(file), "--schema-message", "Order", "--server", broker.url]
        with pytest.raises(SystemExit) as left:
            main(["message", "send", "orders", '{"id": "a", "in": {"n": "7"}}', *words])
        assert not left.value.code
        payload = {"format": "protobuf", "schema": str(file), "message": "Order"}
        found = read_arrow(broker.url, "orders", "k string from payload.id, n int from payload.in.n", payload=payload)
        assert found.to_pylist() == [{"k": "a", "n": 7}]

"""Columns straight from a schema: the contract takes them, and they read what is encoded by the schema."""

from __future__ import annotations

import json
import time
from datetime import date
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from lading import Producer, testing
from lading.cli.main import main
from lading.client.bulk import read_arrow
from lading.columns.assemble import assemble
from lading.columns.contract import FIELD_TYPES, Projection
from lading.model.errors import LocalError
from lading.model.run import Decoded
from lading.payloads.avro_from_json import encode_json
from lading.payloads.form import PayloadForm, SchemaText, find_message
from lading.payloads.paths import write_path
from lading.pipeline.settings import load_contract
from lading.registry.client import RegistryAddress, RegistryClient
from lading.schemas.avro import parse_avro
from lading.schemas.json_schema import parse_json_schema
from lading.schemas.protobuf import parse_protobuf
from lading.tables.schema_columns import (
    COLUMNS_MAX,
    FieldSchema,
    fetch_field_schema,
    find_field_schema,
    find_type_word,
    list_schema_columns,
    read_field_schema,
    write_schema_section,
)

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": ["null", "int"]}],
}
ORDER = {
    "type": "record", "name": "Order",
    "fields": [
        {"name": "order_id", "type": "string"}, {"name": "offset", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}}, {"name": "score", "type": ["null", "double"]},
        {"name": "order", "type": {"type": "record", "name": "Inner", "fields": [
            {"name": "amount", "type": DECIMAL}, {"name": "order_id", "type": "bytes"}]}},
        {"name": "maybe", "type": ["null", "Inner"]}, {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "tags", "type": {"type": "map", "values": "boolean"}}, {"name": "either", "type": ["int", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "next", "type": ["null", "Order"]},
    ],
}  # fmt: skip
TEXT = {
    "order_id": "A", "offset": 7, "at": "2026-01-31T12:00:00Z", "day": "2026-01-31", "score": None,
    "order": {"amount": 12.5, "order_id": "x"}, "maybe": None, "lines": [{"sku": "s", "n": None}], "tags": {"t": True},
    "either": "e", "kind": "B", "next": None,
}  # fmt: skip


def test_the_columns_of_a_schema_read_what_it_encodes(tmp_path: Path) -> None:
    schema = parse_avro(json.dumps(ORDER))
    columns = list_schema_columns(FieldSchema(schema.root, "avro"), {name.lower() for name in FIELD_TYPES})
    assert [(one.name, one.text, one.word, one.required) for one in columns] == [
        ("order_id", "payload.order_id", "string", True), ("payload_offset", "payload.offset", "bigint", True),
        ("at", "payload.at", "timestamp", True), ("day", "payload.day", "date", True),
        ("score", "payload.score", "double", False), ("amount", "payload.order.amount", "decimal(10,2)", True),
        ("payload_order_order_id", "payload.order.order_id", "binary", True),
        ("payload_maybe_amount", "payload.maybe.amount", "decimal(10,2)", False),
        ("payload_maybe_order_id", "payload.maybe.order_id", "binary", False),
        ("lines", "payload.lines", "array<struct<sku:string,n:int>>", True),
        ("tags", "payload.tags", "map<string,boolean>", True), ("either", "payload.either", "json", True),
        ("kind", "payload.kind", "string", True), ("next", "payload.next", "json", False),
    ]  # fmt: skip
    payload = encode_json(schema, json.dumps(TEXT).encode())
    form = PayloadForm("avro", SchemaText("AVRO", json.dumps(ORDER)))
    payloads = pa.array([payload], pa.binary())
    made = assemble(Decoded(1, {"payload": payloads}, {}), Projection(payload=tuple(columns), form=form))
    assert made.bad == {}
    for column in columns:
        assert made.batch.column(column.name).null_count == (not column.required), column.name


PROTOBUF = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Other { int32 x = 1; }
message Order { string order_id = 1; Inner in = 2; google.protobuf.Timestamp at = 3; optional uint64 n = 4;
  repeated Inner lines = 5; map<int32, Inner> m = 6; Order next = 7; google.protobuf.Int32Value w = 8;
  oneof o { bool b = 9; }
  message Inner { double amount = 1; Kind kind = 2; } enum Kind { A = 0; } }
"""


def test_the_columns_of_a_message_read_it(tmp_path: Path) -> None:
    file = tmp_path / "order.proto"
    file.write_text(PROTOBUF)
    schema = read_field_schema(file, "Order")
    columns = list_schema_columns(schema, set())
    assert [(one.name, one.text, one.word, one.required) for one in columns] == [
        ("order_id", "payload.order_id", "string", True), ("amount", "payload.in.amount", "double", False),
        ("kind", "payload.in.kind", "string", False), ("at", "payload.at", "timestamp", False),
        ("n", "payload.n", "decimal(20,0)", False),
        ("lines", "payload.lines", "array<struct<amount:double,kind:string>>", True),
        ("m", "payload.m", "map<string,struct<amount:double,kind:string>>", True),
        ("next", "payload.next", "json", False), ("w", "payload.w", "int", False), ("b", "payload.b", "boolean", False),
    ]  # fmt: skip
    form = PayloadForm("protobuf", SchemaText("PROTOBUF", PROTOBUF), message="Order")
    made = assemble(
        Decoded(1, {"payload": pa.array([b"\x12\x00"], pa.binary())}, {}), Projection(payload=tuple(columns), form=form)
    )
    assert made.bad == {}
    assert made.batch.column("kind").to_pylist() == ["A"]
    before, _ = write_schema_section(schema, {"schema": "order.proto"}, set(), "Order")
    assert before[:4] == ["[payload]", 'format = "protobuf"', 'schema = "order.proto"', 'message = "Order"']


def test_types_that_refer_to_each_other_do_not_grow_without_bound() -> None:
    names = [f"T{number}" for number in range(12)]
    # each has all others, once as lists and once as single ones: 12! ways through them
    for label, word in (("repeated", "json"), ("", "int")):
        members = " ".join(f"{label} {name} f{at} = {at + 2};" for at, name in enumerate(names))
        text = 'syntax = "proto3"; ' + " ".join(f"message {name} {{ int32 x = 1; {members} }}" for name in names)
        message = find_message(parse_protobuf(text), "")
        assert message is not None
        schema = FieldSchema(message, "protobuf")
        started_s = time.process_time()
        columns = list_schema_columns(schema, set())
        # one column's type is looked through as far as its bound: 0.1 s, where eight types took 1.1 and twelve no end
        assert time.process_time() - started_s < 10
        assert len(columns) <= COLUMNS_MAX and max(len(column.word) for column in columns) < 1_000
        assert find_type_word([schema], ("f1",) if label else ("f1", "f2", "x")) == word
        assert find_type_word([schema], ("f1", "z")) is None


def test_records_that_refer_to_each_other_do_not_grow_without_bound() -> None:
    names = [f"T{number}" for number in range(12)]
    for items, word in ((True, "json"), (False, "int")):
        # the first has each other one in full once, and names afterwards
        fields: list[dict[str, object]] = [{"name": "x", "type": "int"}]
        refer = [{"type": "array", "items": name} if items else ["null", name] for name in names]
        members = [*fields, *({"name": f"f{at}", "type": type_} for at, type_ in enumerate(refer))]
        document: object = "T11"
        for name in reversed(names):
            inner = [{"name": "inner", "type": ["null", document]}] if name != "T11" else []
            document = {"type": "record", "name": name, "fields": [*inner, *members]}
        schema = FieldSchema(parse_avro(json.dumps(document)).root, "avro")
        columns = list_schema_columns(schema, set())
        assert len(columns) <= COLUMNS_MAX and max(len(column.word) for column in columns) < 20_000
        assert find_type_word([schema], ("f1",) if items else ("f1", "f2", "x")) == word


def test_infer_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    payload = encode_json(parse_avro(file.read_text()), json.dumps(TEXT).encode())
    monkeypatch.chdir(tmp_path)
    with testing.broker() as broker:
        with Producer(broker.url) as producer:
            producer.send("orders", payload, headers={"tenant": "acme", "amount": "1"})
        with pytest.raises(SystemExit) as left:
            main(["contract", "infer", "orders", "--schema", "order.avsc", "--from", broker.url])
        assert not left.value.code
        said = capsys.readouterr()
        assert "not JSON objects" not in said.err
        # a contract reads files beside it, wherever it was inferred
        contract = tmp_path / "other" / "orders.toml"
        contract.parent.mkdir()
        contract.write_text(
            f'[source]\nfrom = "{broker.url}"\ntopic = "orders"\n[good]\nto = "parquet:./good"\n{said.out}'
        )
        loaded = load_contract(contract)
        assert (loaded.form.format, len(loaded.payload), len(loaded.headers)) == ("avro", 14, 2)
        with pytest.raises(SystemExit) as left:
            main(["contract", "infer", "orders", "--against", str(contract), "--from", broker.url])
        assert not left.value.code, capsys.readouterr()
    file.write_text('"string"')
    with pytest.raises(LocalError, match="a string has no fields; name the schema of a record"):
        read_field_schema(file)


def test_fields_beyond_the_most_are_noted() -> None:
    for fields, notes in ((1_000, 0), (1_001, 1)):
        listed = [{"name": f"f{number}", "type": "int"} for number in range(fields)]
        schema = parse_avro(json.dumps({"type": "record", "name": "r", "fields": listed}))
        _, lines = write_schema_section(FieldSchema(schema.root, "avro"), {"schema": "r.avsc"}, set())
        assert (len(lines), lines.count("# only the first 1,000 fields are listed")) == (1_000 + notes, notes)


def test_infer_takes_the_schema_of_a_registry_and_reports_a_new_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "old", "type": "int"}]}
    second = {"type": "record", "name": "R", "fields": [
        {"name": "id", "type": "long"}, {"name": "city", "type": ["null", "string"], "default": None}]}  # fmt: skip
    with testing.broker(tmp_path / "data") as running:
        url = f"http://{running.endpoints['schema_registry']}"
        registry = RegistryClient(RegistryAddress(url))
        schema_id = registry.register("inferred-value", "AVRO", json.dumps(first))
        with Producer(running.url) as producer:
            payload = encode_json(parse_avro(json.dumps(first)), b'{"id": 7, "old": 1}')
            producer.send("inferred", b"\0" + schema_id.to_bytes(4, "big") + payload)

        def infer(*words: str) -> tuple[int, str]:
            with pytest.raises(SystemExit) as left:
                main(["contract", "infer", "inferred", "--from", running.url, *words])
            return int(left.value.code or 0), capsys.readouterr().out

        for words in (("--registry", url), ("--registry", url, "--schema", str(schema_id))):
            code, text = infer(*words)
            assert not code and f'registry = "{url}"' in text and 'old = "int required from payload"' in text
        file = tmp_path / "contract.toml"
        file.write_text(text)
        assert infer("--against", str(file))[0] == 0
        registry.register("inferred-value", "AVRO", json.dumps(second))
        code, text = infer("--against", str(file), "--output", "json")
        assert code == 1
        found = {(row["header"], row["kind"]): row["sentence"] for row in map(json.loads, text.splitlines())}
        assert found["payload.city", "new in schema"] == (
            "is not declared, and version 2 of inferred-value has it, as string"
        )
        assert found["payload.old", "not in schema"].startswith("is declared, and version 2 of inferred-value does not")
        with pytest.raises(LocalError, match=r"'nothing-value': registry .* does not have it; name a subject or an id"):
            fetch_field_schema(url, "nothing-value")


JSON_ORDER = {
    "$defs": {
        "line": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}},
        "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}},
    },
    "type": "object",
    "properties": {
        "order_id": {"type": "string"}, "amount": {"type": ["number", "null"]}, "count": {"type": "integer"},
        "paid": {"anyOf": [{"type": "null"}, {"type": "boolean"}]}, "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"}, "state": {"enum": ["new", "sent", None]},
        "grade": {"enum": [1, "a"]},
        "buyer": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}, "tags": {"type": "array"}, "any": {},
        "limits": {"type": "object", "additionalProperties": {"type": "integer"}}, "tree": {"$ref": "#/$defs/node"},
        "either": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
        "both": {"allOf": [{"properties": {"x": {"type": "number"}}}, {"properties": {"y": {}}, "required": ["x"]}]},
    },
    "required": ["order_id", "amount", "buyer", "both"],
}  # fmt: skip


def test_the_columns_of_a_json_schema_read_what_it_describes(tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_text(json.dumps(JSON_ORDER))
    fields = {write_path(path): (word, required) for path, word, required in read_field_schema(file).list_fields()}
    assert fields == {
        "payload.order_id": ("string", True), "payload.amount": ("double", False), "payload.count": ("bigint", False),
        "payload.paid": ("boolean", False), "payload.at": ("timestamp", False), "payload.day": ("date", False),
        "payload.state": ("string", False), "payload.grade": ("json", False), "payload.buyer.name": ("string", True),
        "payload.lines": ("array<struct<sku:string,n:bigint>>", False), "payload.tags": ("json", False),
        "payload.any": ("json", False), "payload.limits": ("map<string,bigint>", False),
        "payload.tree.next": ("json", False), "payload.either": ("json", False), "payload.both.x": ("double", True),
        "payload.both.y": ("json", False),
    }  # fmt: skip
    document: dict[str, object] = {
        "order_id": "a", "amount": None, "count": 2, "paid": True, "at": "2026-01-31T12:00:00Z", "day": "2026-01-31",
        "state": "new", "grade": 1, "buyer": {"name": "b"}, "lines": [{"sku": "s", "n": 1}], "tags": ["t"],
        "any": {"z": 1}, "limits": {"l": 3}, "tree": {"next": {}}, "either": "e", "both": {"x": 1.5, "y": [2]},
    }  # fmt: skip
    columns = list_schema_columns(read_field_schema(file), {name.lower() for name in FIELD_TYPES})
    with testing.broker() as broker:
        with Producer(broker.url) as producer:
            producer.send("orders", json.dumps(document).encode())
        text = ", ".join(f"{column.name} {column.word} from {column.text}" for column in columns)
        (row,) = read_arrow(broker.url, "orders", columns=text).to_pylist()
    assert (row["count"], row["day"], row["name"]) == (2, date(2026, 1, 31), "b")
    assert (row["lines"], row["limits"], row["x"]) == ([{"sku": "s", "n": 1}], [("l", 3)], 1.5)
    assert [json.loads(row[name]) for name in ("grade", "tags", "any", "either", "y")] == [1, ["t"], {"z": 1}, "e", [2]]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ({"type": "string"}, None), (True, None), ({"type": "object"}, None), ({"$ref": "#"}, None),
        ({"allOf": [{"$ref": "#"}, {"properties": {"a": {"type": "null"}}}]}, ["payload.a"]),
        ({"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, None),
        ({"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}}, ["payload.a"]),
        ({"properties": {"a": {"anyOf": []}, "b": False}}, ["payload.a", "payload.b"]),
    ],
)  # fmt: skip
def test_a_json_schema_without_properties_has_no_fields(text: object, paths: list[str] | None) -> None:
    found = find_field_schema(parse_json_schema(json.dumps(text)), None)
    assert paths == (None if found is None else [write_path(path) for path, _, _ in found.list_fields()])


def test_json_schemas_that_refer_to_each_other_do_not_grow_without_bound() -> None:
    names = [f"t{number}" for number in range(12)]
    properties = {name: {"$ref": f"#/$defs/{name}"} for name in names}
    schema = {"$defs": {name: {"type": "object", "properties": properties} for name in names}, "properties": properties}
    found = find_field_schema(parse_json_schema(json.dumps(schema)), None)
    assert found is not None
    listed = list(islice(found.list_fields(), COLUMNS_MAX))
    assert len(listed) == COLUMNS_MAX and max(len(word) for _, word, _ in listed) < 100_000


def test_infer_takes_the_message_that_a_topic_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = 'syntax = "proto3"; message Line { string sku = 1; } message Order { string order_id = 1; }'
    with testing.broker(tmp_path / "data") as running:
        url = f"http://{running.endpoints['schema_registry']}"
        schema_id = RegistryClient(RegistryAddress(url)).register("shop-value", "PROTOBUF", text)
        with Producer(running.url) as producer:
            # the second message of the file: one index, 1, as zigzag numbers
            producer.send("shop", b"\0" + schema_id.to_bytes(4, "big") + b"\x02\x02" + b"\x0a\x03A-1")
        with pytest.raises(SystemExit) as left:
            main(["contract", "infer", "shop", "--registry", url, "--from", running.url])
        said = capsys.readouterr().out
        assert not left.value.code and 'order_id = "string required from payload"' in said and "sku" not in said
        (tmp_path / "shop.toml").write_text(said)
        with pytest.raises(SystemExit) as left:
            main(["contract", "infer", "shop", "--against", str(tmp_path / "shop.toml"), "--from", running.url])
        assert not left.value.code, capsys.readouterr().out
        with pytest.raises(SystemExit) as left:
            main(["profile", "shop", "--registry", url, "--from", running.url, "--output", "json"])
        assert not left.value.code
        profile = json.loads(capsys.readouterr().out)
        (member,) = profile["payload"]["members"]
        assert (member["path"], member["example_values"]) == ("payload.order_id", ["A-1"])
        assert 'order_id = "string required from payload"' in profile["contract"]
        # payloads that name no schema are JSON, with a registry too
        with Producer(running.url) as producer:
            producer.send("plain", b'{"city": "Ulm"}')
        with pytest.raises(SystemExit) as left:
            main(["profile", "plain", "--registry", url, "--from", running.url, "--output", "json"])
        assert 'city = "string required from payload"' in json.loads(capsys.readouterr().out)["contract"]

"""Columns of keys, and of the schemas that payloads and keys name: beside those of payloads, with a real registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from lading import Producer, read_arrow, testing
from lading.columns.assemble import Assembled, assemble
from lading.columns.contract import parse_columns, write_header_source
from lading.columns.locate import to_located
from lading.model.errors import SettingError
from lading.model.run import Decoded
from lading.payloads.avro_from_json import encode_json
from lading.payloads.form import PayloadForm
from lading.pipeline.contract import drift, profile_topic
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.settings import PipelineSettings, load_contract
from lading.registry.payload_form import parse_payload_form
from lading.schemas.avro import parse_avro
from lading.tables.ingest import IngestSettings, ingest

from ..pipeline.direct import Driver
from ..tables.direct import DirectExecutor

KEY = '{"type":"record","name":"Key","fields":[{"name":"id","type":"long"},{"name":"shop","type":"string"}]}'
VALUE = '{"type":"record","name":"Order","fields":[{"name":"total","type":"long"}]}'


def read(columns: str, form: PayloadForm, rows: list[dict[str, bytes | None]]) -> Assembled:
    held = {name: pa.array([row.get(name) for row in rows], pa.binary()) for name in ("key", "payload")}
    projection = parse_columns(columns, form)
    ids: dict[str, pa.Array[Any]] = {
        name: pa.array([row.get(name) for row in rows], pa.binary()) for name in projection.header_keys
    }
    assert set(projection.message_fields) <= held.keys()
    return assemble(Decoded(len(rows), held, {name: to_located(one) for name, one in ids.items()}), projection)


def test_members_of_keys_are_columns_of_their_own() -> None:
    columns = "a int from payload, k int from key.order.id, n string from key.n, key.order struct<id:int>"
    rows: list[dict[str, bytes | None]] = [
        {"key": b'{"order": {"id": 5}, "n": "x"}', "payload": b'{"a": 1}'}, {"key": b"text", "payload": b'{"a": 2}'},
        {"key": b'{"n": 1}', "payload": b"{"}, {"key": None, "payload": None},
    ]  # fmt: skip
    made = read(columns, parse_payload_form({"format": "json"}), rows)
    assert made.batch.to_pylist() == [
        {"a": 1, "k": 5, "n": "x", "key.order": {"id": 5}}, {"a": 2, "k": None, "n": None, "key.order": None},
        {"a": None, "k": None, "n": "1", "key.order": None}, {"a": None, "k": None, "n": None, "key.order": None},
    ]  # fmt: skip
    # a key that cannot be read leaves the payload alone, and the other way round
    assert {name: flags.to_pylist() for name, flags in made.bad.items()} == {
        "a": [False, False, True, False],
        **{name: [False, True, False, False] for name in ("k", "n", "key.order")},
    }
    # a header may be called key
    made = read("k string from key", parse_payload_form({"format": "json"}), [{"key": b"header"}])
    assert made.batch.column("k").to_pylist() == ["header"]


def test_ids_are_read_from_headers_and_before_values() -> None:
    guid = UUID(int=5)
    rows: list[dict[str, bytes | None]] = [
        {"payload": b"\x00\x00\x00\x00\x07x", "key": b"\x01" + guid.bytes + b"x"}, {"payload": b"{}", "key": None},
        {"payload": b"x", "__value_schema_id": b"\x01" + guid.bytes, "__key_schema_id": b"\x00\x00\x00\x00\x09"},
    ]  # fmt: skip
    columns = 's string from schema("value"), i int from schema("value").id, g string from schema("value").guid, '
    columns += 'k struct<id:bigint,guid:string,subject:string> from schema("key"), j json from schema("key")'
    made = read(columns, parse_payload_form({"format": "json"}), rows)
    assert made.bad == {}
    key = {"id": None, "guid": str(guid), "subject": None}
    assert made.batch.to_pylist() == [
        {"s": "7", "i": 7, "g": None, "k": key, "j": json.dumps({"guid": str(guid)})},
        {"s": None, "i": None, "g": None, "k": None, "j": None},
        {"s": str(guid), "i": None, "g": str(guid), "k": {**key, "id": 9, "guid": None}, "j": '{"id": 9}'},
    ]  # fmt: skip


def test_wrong_settings_and_sources_are_refused() -> None:
    with pytest.raises(SettingError, match=r"key.format is 'avor' \(did you mean 'avro'\?\)"):
        parse_payload_form({"format": "json", "key.format": "avor"})
    with pytest.raises(SettingError, match=r"key.format 'avro': payloads do not say their fields"):
        parse_payload_form({"key.format": "avro"})
    # a header that is called like one of these is in quotes
    for name in ("key.x", 'schema("value")', 'schema("key").id'):
        columns = parse_columns(f"c string from {write_header_source(name)}")
        assert columns.headers[0].header == name
        assert [column.text for column in parse_columns(f"c int from {name}").payload] == [name]
    assert write_header_source("key") == "key"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    with testing.broker(tmp_path_factory.mktemp("keys") / "data") as running:
        yield running


def test_a_registry_names_subject_and_version(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    registry = f"http://{broker.endpoints['schema_registry']}"
    topic, url = "orders_by_key", broker.url
    documents = {}
    with httpx.Client(base_url=registry) as client:
        # the schema of the payload is that of another topic too, so that its id alone does not say the subject
        for subject, text in (("other_orders-value", VALUE), (f"{topic}-value", VALUE), (f"{topic}-key", KEY)):
            documents[subject] = client.post(f"/subjects/{subject}/versions", json={"schema": text}).json()
    value_id, key_id = documents[f"{topic}-value"]["id"], documents[f"{topic}-key"]["id"]
    key = b"\0" + key_id.to_bytes(4, "big") + encode_json(parse_avro(KEY), b'{"id": 7, "shop": "Rome"}')
    payload = encode_json(parse_avro(VALUE), b'{"total": 12}')
    guid = UUID(documents[f"{topic}-value"]["guid"])
    with Producer(url) as producer:
        producer.send(topic, b"\0" + value_id.to_bytes(4, "big") + payload, key=key)
        producer.send(topic, payload, key=b"plain", headers={"__value_schema_id": b"\1" + guid.bytes})
    columns = 'total int from payload, k bigint from key.id, subject string from schema("value").subject, '
    columns += 'version int from schema("value").version, i int from schema("value").id, '
    columns += 'of_key string from schema("key").subject'
    form = {"format": "schema", "registry": registry, "registry_cache": str(tmp_path / "cache"), "key.format": "schema"}
    expected = [
        {"total": 12, "k": 7, "subject": f"{topic}-value", "version": 1, "i": value_id, "of_key": f"{topic}-key"},
        {"total": 12, "k": None, "subject": f"{topic}-value", "version": 1, "i": value_id, "of_key": None},
    ]
    assert read_arrow(url, topic, columns, payload=form).to_pylist() == expected
    ingest(DirectExecutor(), url, topic, tmp_path / "table", IngestSettings(columns=columns, payload=form))
    rows = ds.dataset(tmp_path / "table", exclude_invalid_files=True).to_table().select(list(expected[0])).to_pylist()
    assert sorted(rows, key=str) == sorted(expected, key=str)


CONTRACT = """
[source]
from = "{url}"
topic = "orders_with_keys"

[key]
format = "avro"
schema = "key.avsc"

[headers]
order_id = "bigint required from key.id"
shop = {{ type = "string", from = "key.shop", values = ["Rome", "Oslo"] }}
schema_id = 'int from schema("value").id'
amount = "int from payload"

[quality]
max_failure_ratio = 1

[good]
to = "parquet:./good"
"""


def test_a_contract_declares_columns_of_keys(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "key.avsc").write_text(KEY)
    file = tmp_path / "orders.toml"
    file.write_text(CONTRACT.format(url=broker.url))
    schema = parse_avro(KEY)
    with Producer(broker.url) as producer:
        for key in (b'{"id": 1, "shop": "Rome"}', b'{"id": 2, "shop": "Bonn"}'):
            producer.send("orders_with_keys", b'{"amount": 3}', key=encode_json(schema, key))
        producer.send("orders_with_keys", b'{"amount": 3}', key=b"\xff")
        producer.send("orders_with_keys", b'{"amount": 3}')
        producer.send("orders_with_keys", None, key=encode_json(schema, b'{"id": 4, "shop": "Oslo"}'))
    Driver(file).run()
    good = ds.dataset(tmp_path / "good", exclude_invalid_files=True).to_table()
    assert sorted(good.select(["order_id", "shop", "amount"]).to_pylist(), key=str) == [
        {"order_id": 1, "shop": "Rome", "amount": 3}, {"order_id": 4, "shop": "Oslo", "amount": None},
    ]  # fmt: skip
    bad = Quarantine(PipelineSettings.load(file)).rows()
    assert sorted((row["reason"], row["header"]) for row in bad) == [
        ("payload_value", "key.id"), ("payload_value", "key.id"), ("value_not_allowed", "key.shop"),
    ]  # fmt: skip
    contract = load_contract(file)
    assert contract.form.key is not None and contract.form.key.format == "avro"
    found = drift(profile_topic(broker.url, "orders_with_keys", contract=contract), contract)
    assert {(one.header, one.kind): one.messages for one in found} == {
        ("key.id", "missing"): 1, ("key.shop", "value_not_allowed"): 1, ('schema("value").id', "never seen"): 0,
    }  # fmt: skip

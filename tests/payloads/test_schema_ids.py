"""Payloads that name their schema: ids before them and in headers, many in one batch, a registry that is away."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from lading import Producer, read_arrow, testing
from lading.columns.assemble import Assembled, assemble, to_decoded
from lading.columns.contract import parse_columns
from lading.filter.parse import parse
from lading.model.batch import SCHEMA
from lading.model.errors import Unreachable
from lading.payloads.split import SplitValues
from lading.payloads.walk import walk_json
from lading.pipeline.settings import PipelineSettings
from lading.registry.client import RegistryAddress, RegistryClient
from lading.registry.payload_form import parse_payload_form
from lading.tables.ingest import IngestSettings, ingest
from tests.interop import wheels

from ..tables.direct import DirectExecutor

FIRST = '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"amount","type":"int"}]}'
SECOND = (
    '{"type":"record","name":"Order","fields":[{"name":"note","type":["null","string"],"default":null},'
    '{"name":"id","type":"string"},{"name":"total","type":"long"}]}'
)
READER = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},'
    '{"name":"amount","type":"long","aliases":["total"]},{"name":"note","type":"string","default":"no"},'
    '{"name":"tags","type":{"type":"array","items":"string"},"default":["none"]},'
    '{"name":"in","type":{"type":"record","name":"In","fields":[{"name":"x","type":"int"}]},"default":{"x":7}}]}'
)
MEMBERS = '{"type":"object"}'
NUMBER = '"int"'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    with testing.broker(tmp_path_factory.mktemp("ids") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def ids(broker: testing.BrokerProcess) -> list[int]:
    """The ids of FIRST, SECOND, MEMBERS and NUMBER."""
    client = RegistryClient(RegistryAddress(registry_of(broker)))
    kinds = (("AVRO", FIRST), ("AVRO", SECOND), ("JSON", MEMBERS), ("AVRO", NUMBER))
    return [client.register(f"ids-{at}", kind, text) for at, (kind, text) in enumerate(kinds)]


def registry_of(broker: testing.BrokerProcess) -> str:
    return f"http://{broker.endpoints['schema_registry']}"


def frame(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def batch_of(payloads: Sequence[bytes | None], headers: dict[int, bytes | None] | None = None) -> pa.RecordBatch:
    rows = [
        {
            **dict.fromkeys(SCHEMA.names), "offset": row, "state": 0, "timestamp": 0, "payload": payload,
            "headers": [
                {"key": "__value_schema_id", "kind": 1, "value": (headers or {})[row]}
            ] if row in (headers or {}) else [],
        }
        for row, payload in enumerate(payloads)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([field.with_nullable(True) for field in SCHEMA]))


def read(columns: str, settings: dict[str, str], batch: pa.RecordBatch) -> Assembled:
    projection = parse_columns(columns, parse_payload_form(settings))
    made = assemble(to_decoded(batch, projection.header_keys), projection)
    made.batch.validate(full=True)
    return made


def test_each_payload_is_read_by_the_schema_that_it_names(
    broker: testing.BrokerProcess, ids: list[int], tmp_path: Path
) -> None:
    first, second, members, number = ids
    settings = {"format": "schema", "registry": registry_of(broker), "registry_cache": str(tmp_path)}
    payloads = [
        frame(first, b"\x02a\x02"), frame(second, b"\x02\x04hi\x02b\x04"), frame(members, b'{"id":"c","amount":3}'),
        None, frame(999_999, b"\x02a\x02"), b"\x02a\x02", frame(number, b"\x02"), frame(first, b"\x02a"),
        frame(members, b'{"id":'), frame(first, b"\x02d\x08"),
    ]  # fmt: skip
    columns = "key_ string from payload.id, amount bigint from payload, note string from payload"
    made = read(columns, settings, batch_of(payloads))
    assert [row["key_"] for row in made.batch.to_pylist()] == ["a", "b", "c", *[None] * 6, "d"]
    assert [row["amount"] for row in made.batch.to_pylist()] == [1, None, 3, *[None] * 6, 4]
    assert made.batch.column("note").to_pylist()[:3] == [None, "hi", None]
    assert made.walked is not None
    assert [made.walked.describe(row) for row in range(4, 9)] == [
        "has a schema, id 999999, that does not exist in the registry",
        "does not begin with the id of a schema (byte 0)",
        "has a schema in which payload.amount does not lead to a value",
        "ends too early (byte 7)",
        "ends too early (byte 11)",
    ]
    mismatch = read(columns, {**settings, "format": "avro"}, batch_of([payloads[2]]))
    assert mismatch.walked is not None
    assert (
        mismatch.walked.describe(0) == f"has a schema, id {members}, that is of JSON, and payloads are declared as avro"
    )


def test_a_readers_schema_adds_other_names_and_defaults(
    broker: testing.BrokerProcess, ids: list[int], tmp_path: Path
) -> None:
    settings = {"format": "avro", "schema": READER, "registry": registry_of(broker), "registry_cache": str(tmp_path)}
    columns = (
        "key_ string from payload.id, amount int from payload, note string from payload, "
        "tags array<string> from payload, x int from payload.in.x"
    )
    batch = batch_of(
        [frame(ids[0], b"\x02a\x02"), frame(ids[1], b"\x00\x02b\x04"), frame(ids[1], b"\x02\x04hi\x02c\x06")]
    )
    assert read(columns, settings, batch).batch.to_pylist() == [
        {"key_": "a", "amount": 1, "note": "no", "tags": ["none"], "x": 7},
        {"key_": "b", "amount": 2, "note": None, "tags": ["none"], "x": 7},
        {"key_": "c", "amount": 3, "note": "hi", "tags": ["none"], "x": 7},
    ]


def test_ids_in_headers_count_before_those_of_payloads(
    broker: testing.BrokerProcess, ids: list[int], tmp_path: Path
) -> None:
    url = registry_of(broker)
    import httpx

    versions = [httpx.get(f"{url}/subjects/ids-{at}/versions/1").json() for at in range(2)]
    guids = [bytes.fromhex(version["guid"].replace("-", "")) for version in versions]
    settings = {"format": "schema", "registry": url, "registry_cache": str(tmp_path)}
    batch = batch_of(
        [
            b"\x02a\x02",
            b"\x00\x02b\x04",
            frame(ids[0], b"\x02c\x06"),
            b"\x01" + guids[0] + b"\x02d\x08",
            b"\x02e\x0a",
            b"",
        ],
        {0: b"\x01" + guids[0], 1: b"\x01" + guids[1], 2: None, 4: frame(ids[0], b""), 5: b"\x01" + bytes(16)},
    )
    made = read("key_ string from payload.id", settings, batch)
    assert [row["key_"] for row in made.batch.to_pylist()] == ["a", "b", "c", "d", "e", None]
    assert made.walked is not None
    assert made.walked.describe(5).startswith("has a schema, GUID 00000000-0000-0000-0000-000000000000, that does not")
    condition = parse("payload.id >= 'b'", form=parse_payload_form(settings))
    assert condition.selects(batch).to_pylist() == [False, True, True, True, True, False]


def test_a_registry_that_is_away_is_an_error_and_schemas_on_disk_are_enough(tmp_path: Path) -> None:
    columns = "key_ string from payload.id"
    with testing.broker() as running:
        settings = {"format": "schema", "registry": registry_of(running), "registry_cache": str(tmp_path)}
        known = RegistryClient(RegistryAddress(settings["registry"])).register("s", "AVRO", FIRST)
        batch = batch_of([frame(known, b"\x02a\x02")])
        assert read(columns, settings, batch).batch.to_pylist() == [{"key_": "a"}]
    assert read(columns, settings, batch).batch.to_pylist() == [{"key_": "a"}]
    with pytest.raises(Unreachable, match="cannot be reached"):
        read(columns, {**settings, "registry_cache": str(tmp_path / "other")}, batch)


def test_confluents_serialisers_write_payloads_that_become_a_table(
    broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    """With the id before the payload and in the header; read by schema file and by id."""
    try:
        python = wheels.install("confluent-kafka", "2.16.1", "3.11", extras="avro,json,protobuf,schemaregistry")
    except wheels.Unavailable as reason:
        pytest.skip(str(reason))
    url = registry_of(broker)
    script = str(Path(__file__).with_name("write_with_confluent.py"))
    subprocess.run([str(python), script, broker.endpoints["kafka"], url], check=True, timeout=60)
    columns = (
        "offset, name string from payload, amount decimal(10,2) from payload.order.amount, "
        "tags array<string> from payload.order.tags"
    )
    expected = [
        {"offset": row, "name": f"n{row}", "amount": Decimal(row * 125) / 100, "tags": ["a", "b"][: row % 3]}
        for row in range(20)
    ]
    cache = {"registry": url, "registry_cache": str(tmp_path / "schemas")}
    by_id = {"format": "schema", **cache}
    (tmp_path / "order.proto").write_text(
        'syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";\n'
        "message Order { string amount = 1; repeated string tags = 2; }\n"
        "message Named { string name = 1; Order order = 2; google.protobuf.Timestamp at = 3; }"
    )
    of_file = {"format": "protobuf", "schema": str(tmp_path / "order.proto"), "message": "Named"}
    for topic in ("protobuf_prefix", "protobuf_header"):
        for settings in (by_id, {"format": "protobuf", **cache}, of_file, {**of_file, **cache}):
            assert read_arrow(broker.url, topic, columns, payload=settings).to_pylist() == expected
        moments = read_arrow(broker.url, topic, "at timestamp from payload", payload=by_id)["at"]
        assert moments.to_pylist() == [datetime.fromtimestamp(row / 1000, UTC) for row in range(20)]
        kept = read_arrow(broker.url, topic, columns, where="payload.order.amount >= 20", payload=by_id)
        assert kept.to_pylist() == expected[16:]
        report = ingest(
            DirectExecutor(), broker.url, topic, tmp_path / topic, IngestSettings(columns=columns, payload=by_id)
        )
        assert (report.rows, report.bad_values) == (20, 0)
        assert ds.dataset(tmp_path / topic).to_table().sort_by("offset").to_pylist() == expected
    for topic in ("avro_prefix", "avro_header"):
        assert read_arrow(broker.url, topic, columns, payload=by_id).to_pylist() == expected
        kept = read_arrow(broker.url, topic, columns, where="payload.order.amount >= 20", payload=by_id)
        assert kept.to_pylist() == expected[16:]
        offsets = read_arrow(broker.url, topic, "offset", where="payload.order.amount >= 20", payload=by_id)
        assert offsets.to_pylist() == [{"offset": row} for row in range(16, 20)]
        file = tmp_path / "order.avsc"
        file.write_bytes((Path(__file__).with_name("order.avsc")).read_bytes())
        by_file = {"format": "avro", "schema": str(file)}
        assert read_arrow(broker.url, topic, columns, payload=by_file).to_pylist() == expected
        table = tmp_path / topic
        report = ingest(
            DirectExecutor(), broker.url, topic, table, IngestSettings(columns=columns, payload=by_file)
        )  # fmt: skip
        assert (report.rows, report.bad_values) == (20, 0)
        assert ds.dataset(table).to_table().sort_by("offset").to_pylist() == expected


def test_a_pipeline_takes_unknown_and_other_schemas_to_quarantine_by_their_reasons(
    broker: testing.BrokerProcess, ids: list[int], tmp_path: Path
) -> None:
    from lading.pipeline.classification import classify_messages
    from lading.pipeline.plan import Plan

    file = tmp_path / "orders.toml"
    (tmp_path / "reader.avsc").write_text(READER)
    file.write_text(f"""
        [source]
        from = "{broker.url}"
        topic = "any"
        [payload]
        format = "avro"
        schema = "reader.avsc"
        registry = "{registry_of(broker)}"
        registry_cache = "{tmp_path}"
        [headers]
        key_ = "string required from payload.id"
        amount = {{ type = "int", from = "payload.amount", min = 2 }}
        [good]
        to = "parquet:{tmp_path}/good"
        [[route]]
        where = "payload.note = 'hi'"
        to = "parquet:{tmp_path}/hi"
    """)
    settings = PipelineSettings.load(file)
    # tasks elsewhere get the schema, and not the name of a file
    (tmp_path / "reader.avsc").unlink()
    plan = Plan.of(PipelineSettings(settings.raw, settings.base, settings.name))
    batch = batch_of([
        frame(ids[0], b"\x02a\x04"), frame(ids[1], b"\x02\x04hi\x02c\x06"), frame(999_999, b""), frame(ids[2], b"{}"),
        frame(ids[0], b"\x02"), frame(ids[0], b"\x02a\x02"), None,
    ])  # fmt: skip
    place: dict[str, str | int] = {"stream": "", "topic": "any", "partition": 0}
    found = classify_messages(plan, to_decoded(batch, plan.keys), place)
    reasons: list[Any] = [plan.failures[at].reason if at >= 0 else None for at in found.failure.tolist()]
    assert reasons == [None, None, "schema_unknown", "schema_mismatch", "payload_malformed", "out_of_range", None]
    assert [plan.destinations[at].name if at >= 0 else "" for at in found.destination.tolist()] == [
        "good", "route 1", "", "", "", "", "good",
    ]  # fmt: skip
    assert found.details[2] == "the payload has a schema, id 999999, that does not exist in the registry"


def test_a_contract_takes_a_message_of_a_file_with_those_that_it_imports(tmp_path: Path) -> None:
    from lading.pipeline.classification import classify_messages
    from lading.pipeline.plan import Plan

    (tmp_path / "in.proto").write_text('syntax = "proto3"; message In { int32 n = 1; }')
    (tmp_path / "order.proto").write_text(
        'syntax = "proto3"; import "in.proto"; message Other {} message Order { string id = 1; In in = 2; }'
    )
    file = tmp_path / "orders.toml"
    file.write_text(f"""
        [source]
        from = "lading://127.0.0.1:1"
        topic = "any"
        [payload]
        format = "protobuf"
        schema = "order.proto"
        message = "Order"
        prefix = "none"
        [headers]
        key_ = "string required from payload.id"
        n = {{ type = "int", from = "payload.in.n", min = 2 }}
        [good]
        to = "parquet:{tmp_path}/good"
    """)
    settings = PipelineSettings.load(file)
    # tasks elsewhere have no such files
    for name in ("in.proto", "order.proto"):
        (tmp_path / name).unlink()
    plan = Plan.of(PipelineSettings(settings.raw, settings.base, settings.name))
    batch = batch_of([b"\x0a\x01a\x12\x02\x08\x05", b"\x12\x02\x08\x01", b"\x0a\x01a\x12\x05", None, b""])
    place: dict[str, str | int] = {"stream": "", "topic": "any", "partition": 0}
    found = classify_messages(plan, to_decoded(batch, plan.keys), place)
    reasons = [plan.failures[at].reason if at >= 0 else None for at in found.failure.tolist()]
    assert reasons == [None, "out_of_range", "payload_malformed", None, None]
    assert found.details[2] == "the payload ends too early (byte 5)"


def test_a_producer_of_lading_sends_what_is_read_by_id(
    broker: testing.BrokerProcess, ids: list[int], tmp_path: Path
) -> None:
    with Producer(broker.url) as producer:
        producer.send("own", frame(ids[0], b"\x02a\x02"), partition=0)
    settings = {"format": "schema", "registry": registry_of(broker), "registry_cache": str(tmp_path)}
    assert read_arrow(broker.url, "own", "k string from payload.id", payload=settings).to_pylist() == [{"k": "a"}]


def test_texts_of_many_schemas_share_the_bytes_of_their_payloads() -> None:
    payloads = [b'{"v": [1]}', b'{"v": "x"}', b'{"v": 2}']
    found = walk_json(pa.array(payloads, pa.binary()), [("v",)]).values["v",]
    parts = tuple((np.array([row]), found.take(np.array([2 - row]))) for row in range(3))
    texts = SplitValues(3, parts).locate_text()
    assert len(texts.data) == sum(map(len, payloads))
    held = texts.data.tobytes()
    spans = zip(texts.start.tolist(), texts.length.tolist(), strict=True)
    assert [held[start : start + length] for start, length in spans] == [b"2", b'"x"', b"[1]"]

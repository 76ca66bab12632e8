"""Payload columns in a pipeline: one list with headers, quarantine with byte and path, tombstones, constraints."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lading import Producer, testing
from lading.client.outgoing import complete
from lading.model.batch import HEADERS_TYPE
from lading.model.errors import SettingError
from lading.model.kinds import Kind
from lading.pipeline.odcs import to_odcs
from lading.pipeline.plan import Plan
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.settings import PipelineSettings
from lading.registry.client import RegistryAddress, RegistryClient

from .conftest import Place
from .direct import Driver
from .flights import table

CONTRACT = """
[source]
from = "{url}"
topic = "{topic}"

[payload]
format = "json"

[headers]
tenant = "string required"
order_id = "string required from payload"
amount = {{ type = "decimal(10,2)", from = "payload.order.amount", min = 0 }}
tags = "array<string> from payload.order.tags"
quoted = "int from \\"payload.q\\""

[quality]
max_failure_ratio = 1

[good]
to = "parquet:./good"
"""
MESSAGES: list[tuple[str, bytes | None]] = [
    ("good", b'{"order_id":"A","order":{"amount":12.5,"tags":["x"]}}'),
    ("payload_malformed|the payload ends too early (byte 15)", b'{"order_id":"A"'),
    ("good", None),
    ("payload_malformed|the payload is empty (byte 0)", b""),
    ("payload_value payload.order_id|payload.order_id is required, and the payload does not have it", b"{}"),
    ("payload_value payload.order_id|payload.order_id is required and is null", b'{"order_id":null}'),
    (
        "payload_value payload.order.amount|payload.order.amount has a value that is no decimal(10,2)",
        b'{"order_id":"B","order":{"amount":1.005}}',
    ),
    (
        "out_of_range payload.order.amount|payload.order.amount has a value that is not at least 0.00",
        b'{"order_id":"B","order":{"amount":-1}}',
    ),
    (
        "payload_value payload.order.tags|payload.order.tags has a value that is no array<string>",
        b'{"order_id":"B","order":{"tags":{}}}',
    ),
    ("good", b'{"order_id":7}'),
]


def test_each_message_goes_to_its_table_or_to_quarantine_with_byte_and_path(place: Place) -> None:
    topic, count = f"{place.topic}-orders", len(MESSAGES)
    place.transport.create_topic(topic, 1)
    rows = [
        [
            {"key": "tenant", "kind": int(Kind.STRING), "value": b"acme"},
            {"key": "payload.q", "kind": int(Kind.STRING), "value": b"%d" % row},
        ]
        for row in range(count)
    ]
    payloads = pa.array([payload for _, payload in MESSAGES], pa.binary())
    sent = complete(count, {"headers": pa.array(rows, HEADERS_TYPE), "payload": payloads})
    place.transport.send(topic, 0, sent)
    file = place.base / "orders.toml"
    file.write_text(CONTRACT.format(url=place.url, topic=topic))
    counts = Driver(file).run()
    fates = [fate for fate, _ in MESSAGES]
    assert (counts["good"], counts["quarantined"]) == (fates.count("good"), count - fates.count("good"))
    good: Any = table(place.base / "good")
    assert good.select(["offset", "tenant", "order_id", "amount", "tags", "quoted"]).to_pylist() == [
        {"offset": 0, "tenant": "acme", "order_id": "A", "amount": Decimal("12.50"), "tags": ["x"], "quoted": 0},
        {"offset": 2, "tenant": "acme", "order_id": None, "amount": None, "tags": None, "quoted": 2},
        {"offset": 9, "tenant": "acme", "order_id": "7", "amount": None, "tags": None, "quoted": 9},
    ]
    rows_found = Quarantine(PipelineSettings.load(file)).rows()
    found = {
        int(row["message"].rpartition("/")[2]): f"{row['reason']} {row['header'] or ''}".strip() + f"|{row['detail']}"
        for row in rows_found
    }
    assert found == {row: fate for row, fate in enumerate(fates) if fate != "good"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('a = { type = "int", from = "payload.a", encoding = "be" }', "'encoding' is not a key of a column of the pay"),
        ('a = { type = "map<string,int>", from = "payload", min = 1 }', "single values and array<string>, and this is"),
        ('a = "int json from payload"', "'json' is not a keyword of a payload column"),
        ('payload = { type = "int", from = "payload.a" }', "'payload' is a field of every message; name the column of"),
        ('A = "int"\na = "int from payload"', "headers.A and headers.a differ only in case"),
    ],
)
def test_declarations_that_cannot_be_are_refused(place: Place, line: str, message: str) -> None:
    file = place.base / "wrong.toml"
    file.write_text(
        f'[source]\nfrom = "{place.url}"\ntopic = "{place.topic}"\n[headers]\n{line}\n[good]\nto = "parquet:./good"\n'
    )
    with pytest.raises(SettingError, match=message):
        Plan.of(PipelineSettings.load(file))


def test_the_contract_is_exported_with_its_columns_of_the_payload(place: Place) -> None:
    file = place.base / "orders.toml"
    file.write_text(CONTRACT.format(url=place.url, topic=place.topic))
    (schema,) = to_odcs(PipelineSettings.load(file), "1.0.0")["schema"]
    found = {one["name"]: (one["physicalName"], one["logicalType"], one["required"]) for one in schema["properties"]}
    assert found["order_id"] == ("payload.order_id", "string", True)
    assert found["amount"] == ("payload.order.amount", "number", False)
    assert found["tags"] == ("payload.order.tags", "array", False)


AVRO = '{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}'
BY_ID = """
[source]
from = "{url}"
topic = "{topic}"

[payload]
format = "schema"
registry = "{registry}"
registry_cache = "cache"

[headers]
n = "int required from payload"

[quality]
max_failure_ratio = 1

[good]
to = "parquet:./good"
"""


def test_a_message_of_an_unknown_schema_is_redriven_after_its_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a registry is asked again after a while
    monkeypatch.setattr("lading.registry.client.MISSING_S", 0.0)
    with testing.broker(tmp_path / "data") as running:
        registry = RegistryClient(RegistryAddress(f"http://{running.endpoints['schema_registry']}"))
        known = registry.register("first", "AVRO", AVRO)
        later = known + 1
        with Producer(running.url) as producer:
            for schema_id in (known, later, 1 << 20):
                producer.send("redriven_ids", b"\0" + schema_id.to_bytes(4, "big") + b"\x0e", partition=0)
        file = tmp_path / "orders.toml"
        address = f"http://{running.endpoints['schema_registry']}"
        file.write_text(BY_ID.format(url=running.url, topic="redriven_ids", registry=address))
        Driver(file).run()
        quarantine = Quarantine(PipelineSettings.load(file))
        found = {row["message"]: (row["reason"], row["detail"]) for row in quarantine.rows()}
        assert found == {
            f"redriven_ids/0/{at + 1}": (
                "schema_unknown", f"the payload has a schema, id {one}, that does not exist in the registry"
            )
            for at, one in enumerate((later, 1 << 20))
        }  # fmt: skip
        assert registry.register("second", "AVRO", AVRO.replace('"R"', '"S"')) == later
        done = quarantine.redrive(reasons=["schema_unknown"])
        assert (done.sent, done.problems) == (2, ())
        Driver(file).run()
        good: Any = table(tmp_path / "good")
        assert good.column("n").to_pylist() == [7, 7]
        # the other one came back to quarantine, and is redriven a limited number of times
        waiting = [row for row in quarantine.rows() if row["status"] == "waiting"]
        assert [(row["reason"], row["replays"]) for row in waiting] == [("schema_unknown", 1)]

"""Payloads in lists, decoded by the format of the topic's contract, or by the schemas that they name."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from lading import Producer, testing
from lading.console.masks import Masks, MaskSection
from lading.console.payload_forms import TopicForms
from lading.console.settings import ConsoleSettings
from lading.console.source import ConsoleSource
from lading.pipeline.settings import PipelineSettings
from lading.registry.client import RegistryAddress, RegistryClient

from .conftest import TestClient, client

SCHEMA = json.dumps(
    {
        "type": "record", "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}],
    }
)  # fmt: skip
# Avro: a long as zigzag, a text after twice its length
ORDER = b"\x0e\x08Rome"
SHOWN = {"id": 7, "city": "Rome"}


@pytest.fixture
def contract(broker: testing.BrokerProcess, tmp_path: Path) -> Path:
    """A pipeline whose contract gives the payloads of ``plain`` a schema, and one message that does not fit it."""
    (tmp_path / "order.avsc").write_text(SCHEMA)
    file = tmp_path / "orders.toml"
    file.write_text(
        f"[source]\nfrom = {broker.url!r}\ntopic = 'plain'\n[payload]\nformat = 'avro'\nschema = 'order.avsc'\n"
        "[headers]\ncity = 'string from payload.city'\n[good]\nto = 'parquet:good'\n"
    )
    with Producer(broker.url) as producer:
        producer.send("plain", ORDER)
        producer.send("plain", b"\x0e\x80")
        producer.send("plain", None)
    return file


def list_payloads(page: TestClient, topic: str) -> list[tuple[Any, Any]]:
    lines = page.get("/api/messages", params={"topic": topic, "at": "earliest", "count": 3}).text.splitlines()
    messages = [one for line in lines for one in json.loads(line).get("messages", ())]
    return [(one["decoded"], one["payload"]) for one in messages]


def test_a_list_shows_payloads_by_the_format_of_the_contract(
    broker: testing.BrokerProcess, listener: socket.socket, contract: Path, tmp_path: Path
) -> None:
    page = client(ConsoleSettings(broker.url, pipelines=(contract,), state=tmp_path), listener)
    (first, broken, empty) = list_payloads(page, "plain")
    assert first[0] == "AVRO of the contract" and json.loads(first[1]["text"]) == SHOWN
    assert broken[0] is None and broken[1]["text"] == "0e80" and empty == (None, None)
    whole = page.get("/api/message", params={"topic": "plain", "partition": 0, "offset": 0}).json()["decoded"]
    assert (whole["schema"], whole["url"], json.loads(whole["text"])) == ("AVRO of the contract", None, SHOWN)
    whole = page.get("/api/message", params={"topic": "plain", "partition": 0, "offset": 1}).json()["decoded"]
    assert whole["text"] is None and whole["problem"].startswith("the payload ")
    # another topic has no contract, and neither has this one without the pipeline
    assert list_payloads(page, "flights")[0][0] is None
    assert list_payloads(client(ConsoleSettings(broker.url, state=tmp_path), listener), "plain")[0][0] is None
    masks = Masks((MaskSection(payload=("payload.city",)),))
    page = client(ConsoleSettings(broker.url, pipelines=(contract,), state=tmp_path, masks=masks), listener)
    (first, broken, _) = list_payloads(page, "plain")
    assert json.loads(first[1]["text"]) == {"id": 7, "city": "masked"}
    assert broken == (None, {"text": "", "form": "masked", "bytes": None, "cut": False})


def test_a_file_is_read_again_after_a_change_only(
    broker: testing.BrokerProcess, contract: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, loaded = PipelineSettings.load, []

    def count_load(file: Path) -> PipelineSettings:
        loaded.append(file)
        return load(file)

    monkeypatch.setattr(PipelineSettings, "load", count_load)
    source = ConsoleSource(broker.url)
    forms = TopicForms(source, (contract,))
    with source.lend() as transport:
        plain, other = transport.topic("plain"), transport.topic("flights")
    assert [forms.of(other).has_schema for _ in range(5)] == [False] * 5
    assert loaded == [contract]
    contract.write_text(contract.read_text().replace("topic = 'plain'", "topic = 'flights'"))
    assert forms.of(other).has_schema and not forms.of(plain).has_schema
    # a file of the schema may change without the pipeline's
    (contract.parent / "order.avsc").write_text("[")
    assert not forms.of(other).has_schema
    contract.unlink()
    assert not forms.of(other).has_schema
    source.close()


def test_a_list_shows_payloads_by_the_schemas_that_they_name(
    broker: testing.BrokerProcess, listener: socket.socket, tmp_path: Path
) -> None:
    url = f"http://{broker.endpoints['schema_registry']}"
    number = RegistryClient(RegistryAddress(url)).register("named-value", "AVRO", SCHEMA)
    with Producer(broker.url) as producer:
        producer.send("named", b"\0" + number.to_bytes(4, "big") + ORDER)
        producer.send("named", b'{"id": 7}')
    page = client(ConsoleSettings(broker.url, registry=url, state=tmp_path), listener)
    named, plain = list_payloads(page, "named")
    assert named[0] == f"AVRO id {number}" and json.loads(named[1]["text"]) == SHOWN
    assert plain[0] is None and plain[1]["text"] == '{"id": 7}'
    # a registry that is away leaves the bytes
    with socket.create_server(("127.0.0.1", 0)) as taken:
        away = f"http://127.0.0.1:{taken.getsockname()[1]}"
    page = client(ConsoleSettings(broker.url, registry=away, state=tmp_path), listener)
    assert [one[0] for one in list_payloads(page, "named")] == [None, None]

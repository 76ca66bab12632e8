"""Masked headers, keys and payload fields: on no page, in no file, and not to be found by searching."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading import Producer, testing, u32
from lading.console.brokers_file import load_brokers
from lading.console.masks import Masks, MaskSection, mask_json
from lading.console.settings import ConsoleSettings
from lading.model.errors import SettingError
from lading.registry.client import RegistryAddress, RegistryClient

from .conftest import TestClient, client, run_pipeline

SECRET = "4111-1111-1111-1111"
PIN = 20_482_913
MASK = MaskSection(
    headers=("card", "pin", "__connect.errors.exception.message"),
    payload=("payload.card.number", 'payload."odd name"', "payload.carrier"), key=True,
)  # fmt: skip


@pytest.fixture(scope="module")
def masked_topic(broker: testing.BrokerProcess) -> Iterator[str]:
    document = {"id": 1, "card": {"number": SECRET, "brand": "x"}, "odd name": SECRET}
    several = {"card": [{"number": SECRET}, {"number": [SECRET]}], "n": 1.10}
    with Producer(broker.url) as producer:
        for payload in (
            json.dumps(document), json.dumps(several), f'{{"card": {{"number": 1, "number": "{SECRET}"}}}}',
            f"{SECRET} is no JSON", None, json.dumps({"card": SECRET[:4], "pad": SECRET and "y" * 90_000}),
        ):  # fmt: skip
            headers: Any = [
                ("card", SECRET),
                ("site", "eu"),
                ("card", SECRET.encode()),
                ("pin", u32(PIN)),
                ("card", None),
            ]
            producer.send("masked", payload, key=SECRET.encode(), headers=headers, partition=0)
        headers = [
            ("__connect.errors.topic", "masked"), ("__connect.errors.exception.message", f"cannot read {SECRET}"),
            ("__connect.errors.partition", "0"), ("__connect.errors.offset", "1"),
            ("__connect.errors.exception.class.name", "Of"), ("card", SECRET), ("pin", u32(PIN)),
        ]  # fmt: skip
        producer.send("masked-dead", json.dumps(document), key=SECRET.encode(), headers=headers)
    yield "masked"


@pytest.fixture
def page(broker: testing.BrokerProcess, listener: socket.socket, masked_topic: str, tmp_path: Path) -> TestClient:
    settings = ConsoleSettings(
        broker.url, state=tmp_path, masks=Masks((MASK,)), registry=f"http://{broker.endpoints['schema_registry']}"
    )
    return client(settings, listener)


def leaks(text: str) -> list[str]:
    """Return the forms in which a masked value is in a response."""
    import base64

    forms = [SECRET, SECRET.encode().hex(), str(PIN), PIN.to_bytes(4, "little").hex()]
    parts = [base64.b64encode(SECRET.encode()).decode(), base64.b64encode(PIN.to_bytes(4, "little")).decode()]
    # inside of longer bytes base64 begins at another bit
    parts += [base64.b64encode(b"x" * pad + SECRET.encode() + b"xx").decode()[4:-8] for pad in (1, 2)]
    return [form for form in forms + parts if form in text]


def documents(page: TestClient, path: str, **values: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in page.get(path, params=values).text.splitlines()]


def test_no_page_has_a_masked_value(page: TestClient) -> None:
    columns = ["card", "pin", "payload.card.number", "payload.card", "payload.odd name", 'payload."odd name"', "key"]
    texts = {
        "list": page.get("/api/messages", params={"topic": "masked", "column": columns}).text,
        "dead": page.get("/api/dead-letters", params={"topic": "masked-dead"}).text,
        "profile": page.get("/api/profile", params={"topic": "masked"}).text,
        "topics": page.get("/api/topics").text + page.get("/api/topic", params={"topic": "masked"}).text,
        "dead whole": page.get("/api/message", params={"topic": "masked-dead", "partition": 0, "offset": 0}).text,
    }
    for offset in range(6):
        params = {"topic": "masked", "partition": 0, "offset": offset}
        texts[f"message {offset}"] = page.get("/api/message", params=params).text
    assert {name: found for name, text in texts.items() if (found := leaks(text))} == {}
    assert {name for name, text in texts.items() if "masked" not in text} == set()


def test_what_is_not_masked_is_shown_as_it_was(page: TestClient) -> None:
    (found,) = [
        one["messages"] for one in documents(page, "/api/messages", topic="masked", at="earliest") if "messages" in one
    ]
    first = found[0]
    assert first["headers"] == [
        ["card", "string", None, None, "masked"], ["site", "string", "eu", 2, "text"],
        ["card", "raw", None, None, "masked"], ["pin", "uint32", None, None, "masked"],
        ["card", "raw", None, None, "masked"],
    ]  # fmt: skip
    assert first["key"]["form"] == "masked"
    assert first["payload"]["text"] == '{"id":1,"card":{"number":"masked","brand":"x"},"odd name":"masked"}'
    # numbers stay as they were written, and a field inside a list is masked in each object
    assert found[1]["payload"]["text"] == '{"card":[{"number":"masked"},{"number":"masked"}],"n":1.1}'
    assert found[2]["payload"]["text"] == '{"card":{"number":"masked","number":"masked"}}'
    # nothing says where fields are in what is not JSON
    assert [one["payload"] and one["payload"]["form"] for one in found[3:]] == ["masked", None, "masked"]
    whole = page.get("/api/message", params={"topic": "masked", "partition": 0, "offset": 0}).json()
    assert whole["masked"] == {"key": True, "payload": "fields", "checksum": whole["masked"]["checksum"]}
    assert whole["checksum"] is None and whole["json"]["checksum"] is None and whole["json"]["key"] is None
    assert [one.get("masked", False) for one in whole["headers"]] == [True, False, True, True, True]


@pytest.mark.parametrize(
    ("where", "named"),
    [
        (f"card = '{SECRET}'", "header 'card'"),
        ("pin > 5", "header 'pin'"),
        ("site = 'eu' AND NOT (header('pin') BETWEEN 1 AND 9)", "header 'pin'"),
        ("any(card) LIKE '4%'", "header 'card'"),
        ("CAST(pin AS string) LIKE '2%'", "header 'pin'"),
        ("present(card)", "header 'card'"),
        ("site = card", "header 'card'"),
        ("payload.card.number = '1'", "the field payload.card.number"),
        ("payload.card = '1'", "the field payload.card"),
        ("payload.card.number.x IS NULL", "the field payload.card.number.x"),
        ('payload."odd name" IS NULL', 'the field payload."odd name"'),
        (f"payload LIKE '%{SECRET}%'", "the field payload"),
        ("checksum = 1", "the field checksum"),
        (f"key = '{SECRET}'", "the field key"),
    ],
)
def test_a_masked_field_cannot_be_searched(page: TestClient, where: str, named: str) -> None:
    sentence = f"{named} is masked in this console and cannot be searched; leave it out of the filter"
    for path in ("/api/messages", "/api/count", "/api/tail", "/api/profile"):
        assert documents(page, path, topic="masked", where=where)[-1]["error"] == sentence, path
    refused = page.post("/api/states", json={"topic": "masked", "where": where, "state": "poisoned", "dry_run": True})
    assert (refused.status_code, refused.json()["error"]) == (400, sentence)
    assert documents(page, "/api/dead-letters", topic="masked-dead", where=where)[-1]["error"] == sentence
    refused = page.post("/api/dead-letters/redrive", json={"topic": "masked-dead", "where": where})
    assert (refused.status_code, refused.json()["error"]) == (400, sentence)


def test_other_fields_can_be_searched(page: TestClient) -> None:
    for where, count in (("site = 'eu' AND offset < 3", 3), ("payload.card.brand = 'x'", 1), ("payload.id = 1", 1)):
        assert documents(page, "/api/count", topic="masked", where=where)[-1]["found"] == count, where
    # reasons of dead letters are read from a masked header
    found = documents(page, "/api/dead-letters", topic="masked-dead", where="reason LIKE '%4%'")
    assert "is masked in this console" in found[-1]["error"]


def test_masked_letters_are_not_sent_to_a_topic_that_shows_them(
    broker: testing.BrokerProcess, listener: socket.socket, masked_topic: str, tmp_path: Path
) -> None:
    narrow = MASK.model_copy(update={"topics": ("masked*",)})
    page = client(ConsoleSettings(broker.url, state=tmp_path, masks=Masks((narrow,))), listener)
    refused = page.post("/api/dead-letters/redrive", json={"topic": "masked-dead", "to": "open"})
    assert refused.status_code == 400 and "not masked there; choose another topic" in refused.json()["error"]
    assert page.post("/api/dead-letters/redrive", json={"topic": "masked-dead", "to": "masked-more"}).status_code == 200
    # topics that no pattern covers are shown whole
    assert "UA" in page.get("/api/messages", params={"topic": "flights"}).text


def test_the_quarantine_is_masked(broker: testing.BrokerProcess, listener: socket.socket, tmp_path: Path) -> None:
    file = run_pipeline(broker.url, tmp_path)
    mask = MaskSection(headers=("carrier",), payload=("payload.n",), topics=("flights",))
    page = client(ConsoleSettings(broker.url, pipelines=(file,), state=tmp_path, masks=Masks((mask,))), listener)
    found = page.get("/api/quarantine", params={"pipeline": str(file)}).json()
    assert found["rows"] and {one["detail"] for one in found["rows"]} <= {"masked", None, ""}
    shown = page.get("/api/quarantined", params={"pipeline": str(file), "message": found["rows"][0]["message"]}).json()
    assert json.loads(__import__("base64").b64decode(shown["message"]["payload"]))["n"] == "masked"
    assert shown["message"]["headers"][0] == {
        "key": "carrier", "kind": "string", "kind_number": 2, "text": None, "value": None, "masked": True,
    }  # fmt: skip
    refused = page.get("/api/quarantine", params={"pipeline": str(file), "where": "carrier = 'AA'"})
    assert refused.status_code == 400 and "header 'carrier' is masked" in refused.json()["error"]
    refused = page.post("/api/quarantine/redrive", json={"pipeline": str(file), "where": "carrier = 'AA'"})
    assert refused.status_code == 400 and "header 'carrier' is masked" in refused.json()["error"]


def test_a_decoded_payload_is_masked(page: TestClient, broker: testing.BrokerProcess) -> None:
    schema = {
        "type": "record", "name": "Pay",
        "fields": [{"name": "card", "type": {"type": "record", "name": "Card", "fields": [
            {"name": "number", "type": "string"}, {"name": "brand", "type": "string"}]}}],
    }  # fmt: skip
    registry = RegistryClient(RegistryAddress(f"http://{broker.endpoints['schema_registry']}"))
    number = registry.register("pays-value", "AVRO", json.dumps(schema))
    # Avro writes a text after twice its length
    data = bytes([2 * len(SECRET)]) + SECRET.encode() + b"\x02x"
    with Producer(broker.url) as producer:
        producer.send("pays", b"\0" + number.to_bytes(4, "big") + data)
    text = page.get("/api/message", params={"topic": "pays", "partition": 0, "offset": 0}).text
    assert leaks(text) == []
    assert json.loads(json.loads(text)["decoded"]["text"]) == {"card": {"number": "masked", "brand": "x"}}
    assert json.loads(text)["masked"]["payload"] == "all"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[mask]]", "mask.0: a mask names headers, payload fields or key = true"),
        ("[[mask]]\nheader = ['a']", "unknown key mask.0.header; did you mean headers?"),
        (
            "[[mask]]\npayload = ['card.number']",
            "mask.0: 'card.number' is not a field of payloads; write it as",
        ),
        ("[[mask]]\npayload = ['key.a']", "'key.a' is not a field of payloads"),
        ("[[mask]]\nkey = true\nbrokers = ['b']", "mask.brokers has 'b', which is not a broker of this file"),
    ],
)
def test_a_wrong_mask_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "brokers.toml"
    file.write_text(f"[broker.a]\nfrom = 'lading://a'\n{text}\n")
    with pytest.raises(SettingError, match=re.escape(sentence)):
        load_brokers(file)


def test_masks_are_those_of_a_broker_and_a_topic(tmp_path: Path) -> None:
    file = tmp_path / "brokers.toml"
    file.write_text(
        "[broker.a]\nfrom = 'lading://a'\n[broker.b]\nfrom = 'lading://b'\n[[mask]]\nheaders = ['x']\n"
        "[[mask]]\nheaders = ['y']\ntopics = ['orders-*']\nbrokers = ['b']\n"
    )
    first, second = load_brokers(file)
    assert first.masks.of("orders-eu").headers == {"x"}
    assert second.masks.of("orders-eu").headers == {"x", "y"} and second.masks.of("orders").headers == {"x"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=12,
)


def hide(value: Any, path: tuple[str, ...]) -> Any:
    """Mask a path in the plainest way."""
    if isinstance(value, list):
        return [hide(one, path) for one in value]
    if isinstance(value, dict):
        return {
            name: one if name != path[0] else "masked" if len(path) == 1 else hide(one, path[1:])
            for name, one in value.items()
        }
    return value


@given(JSON, st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map(tuple))
def test_masked_json_is_the_document_without_the_path(document: Any, path: tuple[str, ...]) -> None:
    masked = mask_json(json.dumps(document), [path])
    assert masked is not None and json.loads(masked) == hide(document, path)


def test_hostile_json_is_masked_whole() -> None:
    assert mask_json("[" * 100_000, [("a",)]) is None
    assert mask_json('{"a":' * 5_000 + "1" + "}" * 5_000, [("b",)]) is None
    assert mask_json(b"\xff\xfe", [("a",)]) is None
    assert mask_json('{"a": 1} {"a": 2}', [("a",)]) is None
    assert (
        mask_json('{"\\u0061": 1, "b": "\\ud800", "c": 1.10e5}', [("a",)]) == '{"a":"masked","b":"\\ud800","c":1.10e5}'
    )
    assert mask_json('{"a": NaN}'.encode("utf-16"), [("b",)]) == '{"a":NaN}'

"""Messages between NSQ clients and those of the other protocols: headers typed, and whole again by carrier."""

from __future__ import annotations

import json
from typing import Any

import pytest

import lading
from lading import Producer, testing, u16
from tests.endpoints.nsq_client import NsqClient, pub

HEADERS: list[tuple[str, Any]] = [
    ("carrier", "UA"),
    ("delay", u16(12)),
    ("via", None),
    ("raw", b"\xff"),
    ("carrier", "AA"),
]


def urls(broker: testing.BrokerProcess) -> dict[str, str]:
    return {"lading": broker.url, "kafka": f"kafka://{broker.endpoints['kafka']}"}


@pytest.mark.parametrize("protocol", ["lading", "kafka"])
def test_what_others_write_nsq_reads_and_gives_back(broker: testing.BrokerProcess, protocol: str) -> None:
    topic = f"across-{protocol}"
    with Producer(urls(broker)[protocol]) as producer:
        producer.send(topic, b"hello", key=b"N14228", headers=HEADERS)
        producer.send(topic, b"", headers=[("carrier", "DL")])
        producer.send(topic, b"plain", headers=[("carrier", "AA")])
    client = NsqClient(broker.endpoints["nsqd_tcp"], extend_support=True)
    assert client.ask(f"SUB {topic} ch\n".encode()) == b"OK"
    client.send(b"RDY 10\n")
    found = client.messages(3)
    client.fin(*found)
    shown = [{name: value for name, value in json.loads(each.ext).items() if "lading" not in name} for each in found]
    assert shown == [{"carrier": "AA", "delay": 12, "via": None, "raw": "/w=="}, {"carrier": "DL"}, {"carrier": "AA"}]
    assert [each.body for each in found] == [b"hello", b"\0", b"plain"]
    # an NSQ client gives the bytes that it got to another topic: nothing was lost on the way
    for each in found:
        assert client.ask(pub(f"{topic}-back", each.body, each.ext)) == b"OK"
    client.close()
    columns = ["key", "headers", "payload"]
    before = lading.read_arrow(broker.url, topic).select(columns).to_pylist()
    assert lading.read_arrow(broker.url, f"{topic}-back").select(columns).to_pylist() == before
    assert len(before[0]["headers"]) == len(HEADERS)


def test_what_nsq_writes_others_read_typed(broker: testing.BrokerProcess) -> None:
    client = NsqClient(broker.endpoints["nsqd_tcp"])
    ext = b'{"carrier":"UA","delay":12,"share":1.5,"ok":true,"none":null,"deep":{"a":[1]}}'
    assert client.ask(pub("typed", b"x", ext)) == b"OK"
    assert client.ask(pub("typed", b"y")) == b"OK"
    client.close()
    columns = "offset, carrier string, delay int, share double, ok boolean, none string, deep string"
    assert lading.read_arrow(broker.url, "typed", columns=columns).to_pylist() == [
        {"offset": 0, "carrier": "UA", "delay": 12, "share": 1.5, "ok": True, "none": None, "deep": '{"a":[1]}'},
        {"offset": 1, "carrier": None, "delay": None, "share": None, "ok": None, "none": None, "deep": None},
    ]
    (first, second) = lading.read_arrow(urls(broker)["kafka"], "typed").select(["headers", "payload"]).to_pylist()
    assert [(header["key"], header["kind"]) for header in first["headers"]] == [
        ("carrier", 2), ("delay", 7), ("share", 15), ("ok", 3), ("none", 1), ("deep", 2), ("lading-json", 1),
    ]  # fmt: skip
    assert (first["payload"], second["headers"], second["payload"]) == (b"x", [], b"y")


@pytest.mark.parametrize("through", ["lading", "kafka"])
def test_json_of_nsq_is_json_again_behind_another_protocol(broker: testing.BrokerProcess, through: str) -> None:
    """Read from NSQ's topic, written by another client, read by NSQ: nested values are not text."""
    topic = f"nested-{through}"
    client = NsqClient(broker.endpoints["nsqd_tcp"], extend_support=True)
    document = {"deep": {"a": [1, {}]}, "text": '{"a":1}', "list": [], "large": 1 << 70, "a": "b"}
    assert client.ask(pub(topic, b"x", json.dumps(document).encode())) == b"OK"
    url = urls(broker)[through]
    ((message),) = lading.read_arrow(url, topic).to_pylist()
    with Producer(url) as producer:
        headers = [lading.Header(each["key"], each["kind"], each["value"]) for each in message["headers"]]
        producer.send(f"{topic}-back", message["payload"], headers=headers)
    assert client.ask(f"SUB {topic}-back ch\n".encode()) == b"OK"
    client.send(b"RDY 10\n")
    (found,) = client.messages(1)
    client.fin(found)
    client.close()
    assert {name: value for name, value in json.loads(found.ext).items() if "lading" not in name} == document

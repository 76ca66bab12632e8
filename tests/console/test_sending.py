"""Sending through the console: a dry run tells all that the message will be, and refuses what cannot be sent."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from lading import testing
from lading.client.consumer import Consumer
from lading.transports.lading.transport import LadingTransport

from .conftest import TestClient


def test_what_is_sent_is_what_the_dry_run_showed(page: TestClient, broker: testing.BrokerProcess) -> None:
    headers = [
        {"key": "n", "kind": "int128", "value": "-1"}, {"key": "n", "kind": "string", "value": None},
        {"key": "b", "kind": "raw", "value": {"base64": "AP8="}},
    ]  # fmt: skip
    document = {"topic": "sent-here", "message": {"key": None, "headers": headers, "payload": {"base64": "/w=="}}}
    assert page.post("/api/send", json=document | {"dry_run": True}).json()["headers"] == [
        ["n", 8, "ff" * 16], ["n", 2, None], ["b", 1, "00ff"],
    ]  # fmt: skip
    assert page.post("/api/send", json=document).json()["sent"] == 1
    with Consumer(broker.url, "sent-here", timeout_s=0) as consumer:
        (message,) = list(consumer)
    assert message.payload == b"\xff"
    assert [tuple(one) for one in message.headers] == [("n", 8, b"\xff" * 16), ("n", 2, None), ("b", 1, b"\x00\xff")]


@pytest.mark.parametrize(
    ("document", "said"),
    [({}, "field 'topic'"), ({"topic": "flights"}, "a message is an object"),
     ({"topic": "flights", "message": {"headers": [{"key": "n", "kind": "uint8", "value": "256"}]}}, "does not fit"),
     ({"topic": "flights", "partition": 7, "message": {}}, "partition"), ([], "not a JSON object")],
)  # fmt: skip
def test_what_cannot_be_sent_is_a_sentence(page: TestClient, document: Any, said: str) -> None:
    for given in [document, *([document | {"dry_run": True}] if isinstance(document, dict) else [])]:
        answer = page.post("/api/send", json=given)
        assert (answer.status_code, said in answer.json()["error"]) == (400, True), answer.text


@pytest.mark.parametrize(("payload", "size"), [("", 0), (None, None), ("grüße", 7), ({"base64": ""}, 0)])
def test_a_dry_run_tells_the_size_of_the_payload(page: TestClient, payload: Any, size: int | None) -> None:
    document = {"topic": "flights", "message": {"payload": payload}, "dry_run": True}
    assert page.post("/api/send", json=document).json()["payload_bytes"] == size


def test_a_dry_run_tells_of_a_topic_that_it_would_create(page: TestClient, broker: testing.BrokerProcess) -> None:
    document = {"topic": "not-yet", "message": {"payload": "x"}, "dry_run": True}
    assert page.post("/api/send", json=document).json()["creates_topic"]
    answer = page.post("/api/send", json=document | {"partition": 1})
    assert (answer.status_code, "partitions 0 to 0, not 1" in answer.json()["error"]) == (400, True), answer.text
    with closing(LadingTransport(broker.url)) as admin:
        assert "not-yet" not in [meta.name for meta in admin.topics()]
    assert page.post("/api/send", json=document | {"topic": "flights"}).json()["creates_topic"] is False

"""Polls over HTTP that may wait, since protocol 0.12: paths and parameters as the crate 0.11.1-edge.9 has them."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lading.testing import BrokerProcess
from tests.endpoints.test_iggy_http_logins import log_in

PATH = "/streams/Deferred/topics/t/messages/deferred"


def query(**changed: Any) -> dict[str, Any]:
    poll = {"consumer_id": "7", "partition_id": 0, "kind": "offset", "value": 0, "count": 10, "auto_commit": "false"}
    return {**poll, "wait_us": 0, "min_count": 1, "max_bytes": 1 << 20, "request_timeout_us": 30_000_000, **changed}


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{broker.endpoints['iggy_http']}", timeout=10) as client:
        client.headers["authorization"] = f"Bearer {log_in(client, '0.11.1-edge.9')['access_token']['token']}"
        assert client.post("/streams", json={"name": "Deferred"}).status_code == 200
        assert client.post("/streams/Deferred/topics", json={"name": "t", "partitions_count": 2}).status_code == 200
        yield client
        assert client.delete("/streams/Deferred").status_code == 204


def send(http: httpx.Client, *payloads: bytes) -> None:
    messages = [{"id": 0, "payload": base64.b64encode(payload).decode()} for payload in payloads]
    number = base64.b64encode(bytes(4)).decode()
    body = {"partitioning": {"kind": "partition_id", "value": number}, "messages": messages}
    assert http.post("/streams/Deferred/topics/t/messages", json=body).status_code == 201


def payloads_of(answer: httpx.Response) -> list[bytes]:
    assert answer.status_code == 200, answer.text
    document = answer.json()
    assert document["count"] == len(document["messages"])
    return [base64.b64decode(message["payload"]) for message in document["messages"]]


def test_what_is_there_is_given_at_once(http: httpx.Client) -> None:
    send(http, b"a", b"b")
    began_s = time.monotonic()
    assert payloads_of(http.get(PATH, params=query(wait_us=400_000))) == [b"a", b"b"]
    assert time.monotonic() - began_s < 0.4
    assert payloads_of(http.get(PATH, params=query(value=1))) == [b"b"]


def test_a_poll_waits_for_the_first_message(http: httpx.Client) -> None:
    sender = threading.Timer(0.1, send, (http, b"late"))
    sender.start()
    assert payloads_of(http.get(PATH, params=query(wait_us=490_000))) == [b"late"]
    sender.join()


def test_a_wait_ends(http: httpx.Client) -> None:
    for wait_us in (100_000, 60_000_000):
        began_s = time.monotonic()
        assert payloads_of(http.get(PATH, params=query(wait_us=wait_us))) == []
        assert 0.1 <= time.monotonic() - began_s < 5


def test_bytes_bound_it_but_for_a_first_message_that_is_longer(http: httpx.Client) -> None:
    send(http, bytes(3000))
    send(http, bytes(2000))
    assert [len(one) for one in payloads_of(http.get(PATH, params=query(max_bytes=1)))] == [3000]
    assert len(payloads_of(http.get(PATH, params=query()))) == 2


def test_a_post_stores_its_offset(http: httpx.Client) -> None:
    send(http, b"a", b"b", b"c")
    read = query(kind="next", count=2, auto_commit="true")
    assert payloads_of(http.post(PATH, params=read)) == [b"a", b"b"]
    assert payloads_of(http.post(PATH, params=read)) == [b"c"]
    assert payloads_of(http.post(PATH, params=read)) == []


def test_bad_parameters(http: httpx.Client) -> None:
    few = http.get(PATH, params=query(count=2, min_count=3))
    assert (few.status_code, few.json()["id"]) == (400, 4009)
    for name, value in (("wait_us", "-1"), ("max_bytes", "many"), ("min_count", 1 << 32), ("misspelt", "1")):
        bad = http.get(PATH, params=query(**{name: value}))
        assert bad.status_code == 400 and name in bad.text, (name, bad.text)
    assert http.get(PATH.replace("topics/t", "topics/none"), params=query()).status_code == 404
    # releases before have no such poll
    early = httpx.Client(base_url=http.base_url)
    early.headers["authorization"] = f"Bearer {log_in(early, '0.8.0')['access_token']['token']}"
    assert early.get(PATH, params=query()).json()["code"] == "feature_unavailable"

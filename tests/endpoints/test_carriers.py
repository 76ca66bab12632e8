"""What plain clients see of messages that our producers sent: text they can decode, no carrier where it is off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest

import lading
from lading import Producer, testing, u16
from tests.endpoints import kafka_python
from tests.endpoints.nsq_client import NsqClient

_numbers = count(1)
HEADERS: list[Any] = [("carrier", "UA"), ("delay", u16(12)), ("via", None)]


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker() as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"carried-{next(_numbers)}"


def urls(broker: testing.BrokerProcess) -> dict[str, str]:
    ends = broker.endpoints
    return {"lading": broker.url, "iggy": f"iggy://{ends['iggy_tcp']}", "kafka": f"kafka://{ends['kafka']}",
            "nsq": f"nsq://{ends['nsqd_tcp']}"}  # fmt: skip


def seen_by_kafka(broker: testing.BrokerProcess, topic: str, messages: int) -> list[list[tuple[str, bytes | None]]]:
    """The headers of messages as kafka-python hands them out."""
    with kafka_python.subscribed(broker, topic) as consumer:
        return [list(kafka_python.next_record(broker, consumer).headers) for _ in range(messages)]


def metric(broker: testing.BrokerProcess, endpoint: str) -> float:
    lines = httpx.get(f"http://{broker.endpoints['admin']}/metrics").text.splitlines()
    name = f'lading_uncarried_messages_total{{endpoint="{endpoint}"}} '
    return next((float(line.removeprefix(name)) for line in lines if line.startswith(name)), 0.0)


@pytest.mark.parametrize("scheme", ["lading", "kafka", "iggy", "nsq"])
def test_a_consumer_that_decodes_headers_as_text_gets_every_message(
    broker: testing.BrokerProcess, topic: str, scheme: str
) -> None:
    with Producer(urls(broker)[scheme]) as producer:
        producer.send(topic, b"plain")
        producer.send(topic, b"typed", headers=HEADERS)
    plain, typed = seen_by_kafka(broker, topic, 2)
    decoded = [[(key, None if value is None else value.decode()) for key, value in row] for row in (plain, typed)]
    shown = [("carrier", "UA"), ("delay", "\x0c\x00"), ("via", None)]
    if scheme in ("lading", "kafka"):
        assert decoded[0] == [], "there is nothing to carry"
        assert decoded[1][:-1] == shown
    assert all(value is None or value.isprintable() for key, value in decoded[1] if key == "lading-carrier")
    # and nothing was lost by it
    back = lading.read_arrow(urls(broker)["kafka"], topic, columns="headers").to_pylist()[1]["headers"]
    assert [(header["key"], header["kind"]) for header in back] == [("carrier", 2), ("delay", 10), ("via", 1)]


def test_nested_json_of_nsq_is_text_for_kafka_too(broker: testing.BrokerProcess, topic: str) -> None:
    client = NsqClient(broker.endpoints["nsqd_tcp"], extend_support=True)
    ext = json.dumps({"deep": {"a": [1]}}).encode()
    body = len(ext).to_bytes(2, "big") + ext + b"x"
    client.ask(b"PUB_EXT %s\n" % topic.encode() + len(body).to_bytes(4, "big") + body)
    client.close()
    ((deep, mark, carrier),) = seen_by_kafka(broker, topic, 1)
    assert deep == ("deep", b'{"a": [1]}')
    for key, value in (mark, carrier):
        assert value is not None
        assert value.decode().isprintable(), key


def test_a_topic_without_carriers(broker: testing.BrokerProcess, topic: str) -> None:
    with Producer(broker.url) as producer:
        producer.send(topic, b"typed", headers=HEADERS)
    (with_one,) = seen_by_kafka(broker, topic, 1)
    assert with_one[-1][0] == "lading-carrier"
    admin = f"http://{broker.endpoints['admin']}/topics/default/{topic}/settings"
    before = metric(broker, "kafka")
    assert httpx.put(admin, json={"carrier": "off"}).is_success
    (without,) = seen_by_kafka(broker, topic, 1)
    assert without == with_one[:-1]
    assert metric(broker, "kafka") > before
    (native,) = lading.read_arrow(broker.url, topic, columns="headers").to_pylist()
    assert [header["kind"] for header in native["headers"]] == [2, 10, 1], "the log has lost nothing"
    refused = httpx.put(admin, json={"carrier": "maybe"})
    assert refused.status_code == 400
    assert "on or off" in refused.text


def test_endpoints_without_carriers() -> None:
    off = {f"endpoints.{name}.carrier": False for name in ("kafka", "iggy_tcp", "iggy_http", "nsqd_tcp")}
    with testing.broker(settings=off) as broker:
        with Producer(broker.url) as producer:
            producer.send("t", b"typed", key=b"k", headers=HEADERS)
        (kafka,) = seen_by_kafka(broker, "t", 1)
        assert [key for key, _ in kafka] == ["carrier", "delay", "via"]
        (iggy,) = lading.read_arrow(urls(broker)["iggy"], "t").to_pylist()
        assert [header["key"] for header in iggy["headers"]] == ["carrier", "delay"]
        assert iggy["key"] is None
        polled = httpx.get(
            f"http://{broker.endpoints['iggy_http']}/streams/default/topics/t/messages",
            params={"consumer_id": 1, "partition_id": 1, "strategy": "offset", "value": 0, "count": 1},
        )
        assert "lading-carrier" not in polled.text
        client = NsqClient(broker.endpoints["nsqd_tcp"], extend_support=True)
        client.ask(b"SUB t ch\n")
        client.send(b"RDY 1\n")
        (found,) = client.messages(1)
        client.fin(found)
        client.close()
        assert json.loads(found.ext) == {"carrier": "UA", "delay": 12, "via": None}
        assert [metric(broker, name) for name in ("kafka", "iggy_tcp", "nsqd_tcp")] == [1, 1, 1]
        settings = f"http://{broker.endpoints['admin']}/topics/default/t/settings"
        assert httpx.put(settings, json={"carrier": "on"}).is_success
        (again,) = seen_by_kafka(broker, "t", 1)
        assert again[-1][0] == "lading-carrier", "the topic goes before the endpoint"


def test_a_message_without_an_id_has_none_over_iggy(broker: testing.BrokerProcess, topic: str) -> None:
    with Producer(broker.url) as producer:
        producer.send(topic, b"x")
    ids = lading.read_arrow(urls(broker)["iggy"], topic, columns="id").column("id").to_pylist()
    assert ids == [None]

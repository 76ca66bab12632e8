"""The console over a cluster of Apache Kafka: what it tells, and what only a broker of Lading can."""

from __future__ import annotations

import socket

from lading.client.consumer import Consumer
from lading.client.producer import Producer
from lading.console.settings import ConsoleSettings
from tests.interop.kafka_broker import RunningKafka

from .conftest import client
from .test_console import ask, documents, messages, offsets


def test_topics_messages_and_dead_letters_of_kafka(kafka: RunningKafka, listener: socket.socket) -> None:
    topic = "console.flights"
    with Producer(kafka.url, create_topics=True) as producer:
        for number in range(30):
            headers = [("carrier", b"UA" if number % 2 else b"\xff"), ("via", None), ("via", b"")]
            producer.send(topic, b"payload %d" % number, key=b"k", headers=headers)
    page = client(ConsoleSettings(kafka.url), listener)
    (row,) = [row for row in ask(page, "/api/topics")["topics"] if row["name"] == topic]
    assert (row["messages"], row["lag"], row["size_bytes"]) == (30, None, None)
    assert ask(page, "/api/topic", topic=topic)["groups"] == []
    with Consumer(kafka.url, topic, group="console.readers") as consumer:
        assert len(consumer.poll(12, timeout_s=20)) == 12
        consumer.commit()
        # the pages share what was asked for a moment ago
        other = client(ConsoleSettings(kafka.url), listener)
        (group,) = ask(other, "/api/topic", topic=topic)["groups"]
        assert (group["group"], group["protocol"], group["state"], group["lag"]) == (
            "console.readers", "kafka", "Stable", 18,
        )  # fmt: skip
        assert group["partitions"] == [{"topic": topic, "partition": 0, "position": 12, "end": 30, "lag": 18}]
        assert len(group["members"]) == 1
        (row,) = [row for row in ask(other, "/api/topics")["topics"] if row["name"] == topic]
        assert row["lag"] == 18
    found = documents(page, "/api/messages", topic=topic, where="carrier = 'UA'", count=5)
    assert offsets(found) == [29, 27, 25, 23, 21]
    assert messages(found)[0]["headers"] == [
        ["carrier", "raw", "UA", 2, "text"], ["via", "raw", None, None, "null"], ["via", "raw", "", 0, "text"],
    ]  # fmt: skip
    whole = ask(page, "/api/message", topic=topic, partition=0, offset=0)
    assert (whole["headers"][0]["value"], whole["headers"][1]["value"]) == ("/w==", None)
    assert documents(page, "/api/count", topic=topic, where="carrier = 'UA'")[-1]["found"] == 15
    assert (
        page.get("/api/about").json() | {"can_mark": False, "can_send": True, "is_broker": False}
        == page.get("/api/about").json()
    )

"""KIP-82 over Apache's broker and ours: who sees and adds headers on the way out and in, beside another client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from lading import Consumer, Headers, Producer, raw
from lading.client.interceptors import ConsumerInterceptor, Outgoing, ProducerInterceptor
from lading.client.serdes import from_json, to_json
from lading.model.errors import HeadersSealed
from lading.model.message import Message
from tests.interop import kafka_broker
from tests.interop.kafka_clients import made, producer, read_all

# kafka.protocol reads its schemas in a way that importlib.resources wants no more
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.parametrize("kafka", ["apache", "lading"], indirect=True),
]


class Stamp(ProducerInterceptor):
    """Adds a header, and hears of each message."""

    def __init__(self) -> None:
        self.heard: list[tuple[list[str], int | None]] = []

    def on_send(self, message: Outgoing) -> Outgoing:
        message.headers.add("stamp", b"1")
        return message

    def on_acknowledgement(self, message: Outgoing, offset: int | None, error: Exception | None) -> None:
        assert error is None and message.headers.sealed
        self.heard.append((message.headers.keys(), offset))


class Trace(ConsumerInterceptor):
    """Adds a header to what was read, and hears of positions."""

    def __init__(self) -> None:
        self.stored: list[Mapping[tuple[str, int], int]] = []

    def on_consume(self, messages: Sequence[Message]) -> Sequence[Message]:
        for message in messages:
            message.headers.add("seen", True)
        return messages

    def on_commit(self, positions: Mapping[tuple[str, int], int]) -> None:
        self.stored.append(dict(positions))


def key_out(topic: str, headers: Headers, key: Any) -> bytes | None:
    headers.add("key-type", b"text")
    return str(key).encode()


def value_out(topic: str, headers: Headers, value: Any) -> bytes | None:
    # serialisers come after interceptors, the value's after the key's
    assert headers.keys()[-2:] == ["stamp", "key-type"]
    headers.add("content-type", f"json for {topic}".encode())
    return to_json(topic, headers, value)


def value_in(topic: str, headers: Headers, data: bytes | None) -> Any:
    assert headers["content-type"] == f"json for {topic}".encode()
    headers.remove("content-type")
    return from_json(topic, headers, data)


def test_interceptors_and_serialisers_of_both_sides(kafka: kafka_broker.RunningKafka) -> None:
    topic = made(kafka)
    stamp, trace = Stamp(), Trace()
    given = Headers([("via", raw(b"ORD")), ("via", None), ("empty", b"")])
    with Producer(kafka.url, interceptors=[stamp], key_serializer=key_out, value_serializer=value_out) as sender:
        sender.send(topic, {"tail": "N1"}, key=7, headers=given)
        assert given.sealed
        with pytest.raises(HeadersSealed):
            given.add("late", b"")
        # what is sealed can be sent again: it is copied, unlike in Java's client
        sender.send(topic, {"tail": "N2"}, key=8, headers=[header for header in given if header.key == "via"])
    want = [("via", b"ORD"), ("via", None), ("empty", b""), ("stamp", b"1"), ("key-type", b"text")]
    first, second = read_all(kafka, topic, 2)
    assert first.headers() == [*want, ("content-type", f"json for {topic}".encode())]
    assert [name for name, _ in second.headers()] == ["via", "via", "stamp", "key-type", "content-type"]
    assert (first.key(), first.value()) == (b"7", b'{"tail":"N1"}')
    assert [offset for _, offset in stamp.heard] == [0, 1]
    with Consumer(
        kafka.url, topic, group=f"kip-{topic}", timeout_s=2, value_deserializer=value_in, interceptors=[trace]
    ) as consumer:
        got = [next(consumer), next(consumer)]
    payloads: list[Any] = [message.payload for message in got]
    assert payloads == [{"tail": "N1"}, {"tail": "N2"}]
    # the deserialiser took one away, the interceptor added one; headers that were read can be changed
    assert [header.key for header in got[0].headers] == ["via", "via", "empty", "stamp", "key-type", "seen"]
    assert got[0].headers.add("mine", 1)["mine"] == 1
    assert trace.stored == [{(topic, 0): 2}]


def test_headers_of_another_client_go_on_unchanged(kafka: kafka_broker.RunningKafka) -> None:
    source, target = made(kafka), made(kafka)
    headers: Any = [("b", b"\x00\xff"), ("a", None), ("b", b""), ("", b"no name"), ("\u00fc", "\u00fc".encode())]
    sender = producer(kafka)
    sender.produce(source, value=b"x", headers=headers)
    sender.flush(30)
    with Producer(kafka.url) as onward, Consumer(kafka.url, source, timeout_s=0) as consumer:
        for message in consumer:
            onward.send(target, message.payload, headers=iter(message.headers))
    (found,) = read_all(kafka, target, 1)
    assert found.headers() == headers

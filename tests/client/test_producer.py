"""Producer: batching, partitions, sealing, interceptors, serialisers, and what happens when sending fails."""

from __future__ import annotations

import json
import logging
import threading
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from lading import Consumer, Headers, Producer, u16
from lading.client.interceptors import Outgoing, ProducerInterceptor
from lading.client.partitioning import partition_of
from lading.client.serdes import to_json
from lading.model.errors import HeadersSealed, LimitExceeded, LocalError, Reason, Refusal, SettingError, Unreachable
from lading.model.message import Message
from lading.model.protocol import Capabilities
from lading.transports.interface import SendResult
from tests.client.memory import MemoryTransport


def messages(transport: MemoryTransport, topic: str = "t") -> list[Message]:
    transport.failures.clear()
    return list(Consumer(transport, topic, timeout_s=0, states="all"))


def test_a_batch_goes_when_it_is_full_and_at_the_end() -> None:
    transport = MemoryTransport(t=1)
    with Producer(transport, batch_count=10) as producer:
        for number in range(25):
            producer.send("t", b"%d" % number)
        assert (transport.sends, producer.unsent) == (2, 5)
    assert transport.sends == 3
    assert transport.closed
    assert [message.payload for message in messages(transport)] == [b"%d" % number for number in range(25)]


def test_a_batch_goes_when_it_has_enough_bytes() -> None:
    transport = MemoryTransport(t=1)
    with Producer(transport, batch_bytes=1000) as producer:
        for _ in range(10):
            producer.send("t", b"x" * 300)
    assert 3 <= transport.sends <= 5


def test_flush_acknowledges_everything() -> None:
    transport = MemoryTransport(t=2)
    producer = Producer(transport)
    for _ in range(4):
        producer.send("t", "text")
    producer.flush()
    assert producer.unsent == 0
    assert [part.end for part in transport.held["t"]] == [2, 2]
    producer.close()
    producer.close()
    with pytest.raises(LocalError, match="closed"):
        producer.send("t", b"")


def test_linger_sends_what_has_waited() -> None:
    transport = MemoryTransport(t=1)
    with Producer(transport, linger_ms=5) as producer:
        producer.send("t", b"x")
        deadline = time.monotonic() + 10
        while producer.unsent and time.monotonic() < deadline:
            time.sleep(0.005)
        assert producer.unsent == 0


def test_an_error_of_the_timer_is_raised_by_the_next_call() -> None:
    transport = MemoryTransport(t=1)
    transport.failures.append(Unreachable("gone"))
    producer = Producer(transport, linger_ms=5)
    producer.send("t", b"x")
    deadline = time.monotonic() + 10
    while not transport.sends and time.monotonic() < deadline:
        time.sleep(0.005)
    with pytest.raises(Unreachable, match="gone"):
        producer.send("t", b"y")
    producer.close()
    assert [message.payload for message in messages(transport)] == [b"x"]


def test_flush_raises_what_refuses_a_batch_that_is_on_its_way() -> None:
    is_sending, may_fail = threading.Event(), threading.Event()

    class Transport(MemoryTransport):
        def send(self, *arguments: Any, **options: Any) -> SendResult:
            is_sending.set()
            may_fail.wait(10)
            return super().send(*arguments, **options)

    transport = Transport(t=1)
    transport.failures.append(LimitExceeded("too large"))
    producer = Producer(transport, linger_ms=1)
    producer.send("t", b"x")
    assert is_sending.wait(10)
    # by then flush waits for the thread that sends by time
    release = threading.Timer(0.2, may_fail.set)
    release.start()
    with pytest.raises(LimitExceeded, match="too large"):
        producer.flush()
    release.join()
    producer.close()


def test_keys_choose_as_kafka_does_and_others_take_turns() -> None:
    transport = MemoryTransport(t=3)
    with Producer(transport) as producer:
        for number in range(6):
            producer.send("t", b"", key=f"k{number}")
        for _ in range(6):
            producer.send("t", b"turn")
    for message in messages(transport):
        if message.key is not None:
            assert message.partition == partition_of(message.key, 3)
    turns = [message.partition for message in messages(transport) if message.key is None]
    assert sorted(turns) == [0, 0, 1, 1, 2, 2]


def test_headers_are_sealed_when_sent_and_writable_when_not() -> None:
    transport = MemoryTransport(t=1)
    transport.capabilities = Capabilities(value_bytes_max=3)
    with Producer(transport, strict=True) as producer:
        headers = Headers([("a", "four")])
        with pytest.raises(LimitExceeded, match=r"'a'.*4 bytes.*3"):
            producer.send("t", b"", headers=headers)
        headers.remove("a").add("a", "two")
        producer.send("t", b"", headers=headers)
        with pytest.raises(HeadersSealed):
            headers.add("b", 1)
    assert [message.headers.items() for message in messages(transport)] == [[("a", "two")]]


def test_a_full_batch_that_cannot_go_takes_no_further_message() -> None:
    transport = MemoryTransport(t=1)
    producer = Producer(transport, batch_count=1)
    first, second = Headers([("n", 1)]), Headers([("n", 2)])
    producer.send("t", b"1", headers=first)
    transport.failures.append(Unreachable("gone"))
    with pytest.raises(Unreachable):
        producer.send("t", b"2", headers=second)
    assert first.sealed
    assert not second.sealed
    assert producer.unsent == 1
    producer.send("t", b"2", headers=second)
    producer.close()
    assert [message.payload for message in messages(transport)] == [b"1", b"2"]


def test_an_iterable_of_headers_passes_unchanged() -> None:
    transport = MemoryTransport(t=1, u=1)
    pairs: list[Any] = [("via", "ORD"), ("delay", u16(3)), ("via", None), ("raw", b"")]
    with Producer(transport) as producer:
        producer.send("t", b"x", headers=pairs)
    (received,) = messages(transport)
    sealed = Headers(received.headers).seal()
    with Producer(transport) as producer:
        producer.send("u", b"x", headers=sealed)
        producer.send("u", b"x", headers=iter(received.headers))
    assert [message.headers for message in messages(transport, "u")] == [received.headers] * 2
    assert received.headers.get_all("via") == ["ORD", None]


class Stamp(ProducerInterceptor):
    """Adds a header; hears what became of the message."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, int | None, Exception | None]] = []
        self.closed = False

    def on_send(self, message: Outgoing) -> Outgoing:
        message.headers.add("stamp", 1)
        return message

    def on_acknowledgement(self, message: Outgoing, offset: int | None, error: Exception | None) -> None:
        self.heard.append((message.payload, offset, error))

    def close(self) -> None:
        self.closed = True


class Broken(ProducerInterceptor):
    """Fails at everything."""

    def on_send(self, message: Outgoing) -> Outgoing:
        raise RuntimeError("broken interceptor")

    def on_acknowledgement(self, message: Outgoing, offset: int | None, error: Exception | None) -> None:
        raise RuntimeError("broken interceptor")

    def close(self) -> None:
        raise RuntimeError("broken interceptor")


def test_interceptors_add_headers_and_a_broken_one_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    transport, before, after = MemoryTransport(t=1), Stamp(), Stamp()
    with caplog.at_level(logging.WARNING), Producer(transport, interceptors=[before, Broken(), after]) as producer:
        producer.send("t", b"x")
        # a sealed Headers object is copied, so that it can be sent again although interceptors add to it
        producer.send("t", b"y", headers=Headers([("a", 1)]).seal())
    assert [message.headers.keys() for message in messages(transport)] == [["stamp"], ["a", "stamp"]]
    assert [message.headers.get_all("stamp") for message in messages(transport)] == [[1, 1], [1, 1]]
    assert before.heard == after.heard == [(b"x", 0, None), (b"y", 1, None)]
    assert after.closed
    assert "Broken.on_send" in caplog.text


def test_serialisers_see_and_add_headers() -> None:
    transport = MemoryTransport(t=1)

    def value(topic: str, headers: Headers, value: Any) -> bytes | None:
        headers.add("content-type", f"json for {topic}")
        return to_json(topic, headers, value)

    with Producer(transport, value_serializer=value, key_serializer=to_json) as producer:
        producer.send("t", {"a": [1, "ü"]}, key=5)
    (message,) = messages(transport)
    assert json.loads(message.payload or b"") == {"a": [1, "ü"]}
    assert (message.key, message.headers["content-type"]) == (b"5", "json for t")


@pytest.mark.parametrize(("payload", "words"), [(5, "int"), ({"a": 1}, "dict")])
def test_other_values_need_a_serialiser(payload: Any, words: str) -> None:
    headers = Headers()
    with Producer(MemoryTransport(t=1)) as producer:
        with pytest.raises(LocalError, match=words):
            producer.send("t", payload, headers=headers)
        assert not headers.sealed
        assert producer.unsent == 0


def test_what_time_may_mend_is_kept_and_sent_by_the_next_flush() -> None:
    transport = MemoryTransport(t=1)
    transport.failures += [Unreachable("gone"), Refusal(Reason.DISK_FULL, "the disk is full")]
    producer = Producer(transport)
    producer.send("t", b"1")
    with pytest.raises(Unreachable):
        producer.flush()
    producer.send("t", b"2")
    with pytest.raises(Refusal):
        producer.flush()
    assert producer.unsent == 2
    producer.close()
    assert [message.payload for message in messages(transport)] == [b"1", b"2"]


def test_what_cannot_be_mended_is_given_up_with_the_count() -> None:
    transport, hears = MemoryTransport(t=1), Stamp()
    transport.failures.append(Refusal(Reason.HEADERS_TOO_LARGE, "too large"))
    producer = Producer(transport, interceptors=[hears])
    producer.send("t", b"1")
    with pytest.raises(Refusal) as raised:
        producer.flush()
    assert raised.value.__notes__ == ["1 messages for topic 't', partition 0, were not sent"]
    assert hears.heard == [(b"1", None, raised.value)]
    producer.send("t", b"2")
    producer.close()
    assert [message.payload for message in messages(transport)] == [b"2"]


def test_the_error_of_a_block_is_not_hidden_by_a_failed_flush(caplog: pytest.LogCaptureFixture) -> None:
    transport = MemoryTransport(t=1)
    transport.failures.append(Unreachable("gone"))
    with pytest.raises(ValueError, match="mine"), Producer(transport) as producer:
        producer.send("t", b"1")
        raise ValueError("mine")
    assert "1 messages were not sent" in caplog.text


def test_a_missing_topic_is_created_unless_told_otherwise() -> None:
    transport = MemoryTransport(flights=1)
    with Producer(transport, partitions=3) as producer:
        producer.send("new", b"x")
    assert len(transport.held["new"]) == 3
    with Producer(transport, create_topics=False) as producer, pytest.raises(LocalError, match="'flights'"):
        producer.send("fligths", b"x")


def test_timestamps() -> None:
    transport = MemoryTransport(t=1)
    noon = datetime(2024, 1, 1, 12, 0, 0, 5, UTC)
    with Producer(transport) as producer:
        producer.send("t", b"", timestamp=noon)
        producer.send("t", b"", timestamp=7)
        with pytest.raises(LocalError, match="time zone"):
            producer.send("t", b"", timestamp=noon.replace(tzinfo=None))
        with pytest.raises(LocalError, match="1970"):
            producer.send("t", b"", timestamp=-1)
    first, second = messages(transport)
    assert first.timestamp == noon
    assert second.timestamp_us == 7


def test_batches_go_by_key_by_turns_and_after_what_was_gathered() -> None:
    transport = MemoryTransport(t=3)
    keys = [b"k%d" % (row % 5) for row in range(50)] + [None] * 50
    batch = pa.record_batch({"key": pa.array(keys, pa.binary()), "payload": [b"%d" % row for row in range(100)]})
    with Producer(transport, batch_count=10) as producer:
        producer.send("t", b"-1", partition=1)
        producer.send_batch("t", batch)
        assert producer.unsent == 0
        assert [part.end for part in transport.held["t"]] != [0, 0, 0]
    found = messages(transport)
    assert len(found) == 101
    for message in found:
        if message.key is not None:
            assert message.partition == partition_of(message.key, 3)
    free = {int(message.payload or b""): message.partition for message in found if message.key is None}
    turns = [free[number] for number in range(50, 100, 10)]
    assert all(free[number] == turns[(number - 50) // 10] for number in range(50, 100))
    assert set(turns) == {0, 1, 2}
    assert next(message.payload for message in found if message.partition == 1) == b"-1"


@pytest.mark.parametrize("options", [{"batch_count": 0}, {"batch_bytes": 0}, {"compression": "zip"}, {"partitions": 0}])
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(options))):
        Producer(MemoryTransport(), **options)


@pytest.mark.parametrize(
    ("id_", "stored"),
    [
        (b"0123456789abcdef", b"0123456789abcdef"),
        (UUID("00112233-4455-6677-8899-aabbccddeeff"), bytes.fromhex("00112233445566778899aabbccddeeff")),
        # Iggy's clients write a u128, little-endian
        (258, b"\x02\x01" + bytes(14)),
        ((1 << 128) - 1, b"\xff" * 16),
    ],
)
def test_a_message_has_the_id_that_it_was_sent_with(id_: bytes | int | UUID, stored: bytes) -> None:
    transport = MemoryTransport(t=1)
    with Producer(transport) as producer:
        producer.send("t", b"without")
        producer.send("t", b"with", id=id_)
    ids = {message.payload: message.id for message in Consumer(transport, "t", timeout_s=0)}
    assert ids[b"with"] == stored
    assert ids[b"without"] != stored


@pytest.mark.parametrize("id_", [b"short", "0123456789abcdef", -1, 1 << 128, 1.5, True])
def test_other_ids_are_refused(id_: Any) -> None:
    with Producer(MemoryTransport(t=1)) as producer, pytest.raises(SettingError, match="id is 16 bytes, a UUID or"):
        producer.send("t", b"x", id=id_)

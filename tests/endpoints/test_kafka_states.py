"""What Kafka consumers get of marked messages where a topic shows them: all, each with its state in a header."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import httpx
import pytest

from lading import Consumer, Producer, testing, u16
from tests.endpoints.kafka_frames import KafkaFrames, batch, fetch, one_batch, record
from tests.endpoints.test_kafka_visibility import batches, fetched, hide, send

_names = count(1)
POISONED = ("lading-state", b"poisoned")
Shown = list[tuple[int, bytes | None, list[tuple[str, bytes | None]]]]


@pytest.fixture
def url(broker: testing.BrokerProcess) -> str:
    return f"http://{broker.endpoints['admin']}"


@pytest.fixture
def kafka(broker: testing.BrokerProcess) -> Iterator[KafkaFrames]:
    frames = KafkaFrames(broker.endpoints["kafka"])
    yield frames
    frames.close()


@pytest.fixture
def shown(kafka: KafkaFrames, url: str) -> str:
    """A topic that shows its marked messages to Kafka readers."""
    topic = f"shown-{next(_names)}"
    kafka.ask("Metadata", 4, topics=[{"name": topic}], allow_auto_topic_creation=True)
    show(url, topic, "shown")
    return topic


def show(url: str, topic: str, word: str | None) -> None:
    httpx.put(f"{url}/topics/default/{topic}/settings", json={"kafka_states": word}).raise_for_status()


def rows(kafka: KafkaFrames, topic: str, offset: int = 0) -> Shown:
    return [
        (one.offset, one.value, list(one.headers)) for held in batches(kafka, topic, offset) for one in held.records
    ]


def with_headers(*values: bytes, headers: list[tuple[bytes, bytes | None]], **fields: object) -> bytes:
    data = b"".join(record(number, value, b"k", headers) for number, value in enumerate(values))
    return batch(data, len(values), **fields)  # type: ignore[arg-type]


def test_marked_records_come_with_their_state(kafka: KafkaFrames, shown: str, url: str) -> None:
    send(kafka, shown, with_headers(b"0", b"1", b"2", b"3", headers=[(b"h", b"x"), (b"h", None)]))
    own: list[tuple[str, bytes | None]] = [("h", b"x"), ("h", None)]
    assert rows(kafka, shown) == [(n, b"%d" % n, own) for n in range(4)]
    hide(url, shown, 1, 3)
    assert rows(kafka, shown) == [(n, b"%d" % n, [*own, POISONED] if n in (1, 2) else own) for n in range(4)]
    assert [row[0] for row in rows(kafka, shown, 2)] == [2, 3]
    for word in ("hidden", None):
        show(url, shown, word)
        assert [row[0] for row in rows(kafka, shown)] == [0, 3]


def test_ranges_without_marks_go_as_they_lie(kafka: KafkaFrames, shown: str, url: str) -> None:
    for first in (0, 2, 4):
        send(kafka, shown, one_batch(b"%d" % first, b"%d" % (first + 1)))
    before = fetched(kafka, shown)
    hide(url, shown, 2, 4)
    after = fetched(kafka, shown)
    size = len(before) // 3
    assert (after[:size], after[-size:]) == (before[:size], before[-size:])
    assert after[size:-size] != before[size:-size]
    assert fetched(kafka, shown, 4) == before[-size:]


def test_what_the_batch_says_of_itself_stays(kafka: KafkaFrames, shown: str, url: str) -> None:
    answer = kafka.ask("InitProducerId", 2, transactional_id=None, transaction_timeout_ms=60_000)
    producer = (answer.producer_id, answer.producer_epoch, 0)
    send(kafka, shown, one_batch(b"0", b"1", b"2", producer=producer))
    hide(url, shown, 0, 2)
    found = batches(kafka, shown)
    assert [(one.base_offset, one.end_offset, one.producer_id) for one in found] == [
        (0, 2, producer[0]), (2, 3, producer[0]),
    ]  # fmt: skip
    row = kafka.ask("Fetch", 12, **fetch(shown, 0, committed=0)).responses[0].partitions[0]
    assert bytes(row.records) == fetched(kafka, shown)


def test_a_header_of_that_name_is_ours_in_a_marked_message(kafka: KafkaFrames, shown: str, url: str) -> None:
    headers: list[tuple[bytes, bytes | None]] = [(b"lading-state", b"forged"), (b"h", b"x")]
    send(kafka, shown, with_headers(b"0", b"1", headers=headers))
    hide(url, shown, 1, 2)
    theirs = [("lading-state", b"forged"), ("h", b"x")]
    assert rows(kafka, shown) == [(0, b"0", theirs), (1, b"1", [("h", b"x"), POISONED])]
    state = {"first": 1, "end": 2, "state": "available"}
    httpx.put(f"{url}/topics/default/{shown}/0/states", json=state).raise_for_status()
    assert rows(kafka, shown) == [(0, b"0", theirs), (1, b"1", theirs)]


def test_messages_of_other_protocols_too(
    kafka: KafkaFrames, shown: str, url: str, broker: testing.BrokerProcess
) -> None:
    native = f"lading://{broker.endpoints['admin']}"
    with Producer(native) as producer:
        for number in range(3):
            producer.send(shown, b"%d" % number, headers=[("tail", "N1"), ("delay", u16(number))])
    hide(url, shown, 1, 2)
    seen = rows(kafka, shown)
    assert [row[:2] for row in seen] == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert [row[2].count(POISONED) for row in seen] == [0, 1, 0]
    assert [dict(row[2])["tail"] for row in seen] == [b"N1"] * 3
    # our own transport takes it for a header like any other, and makes the kinds again
    with Consumer(f"kafka://{broker.endpoints['kafka']}", shown, start="earliest", timeout_s=0) as consumer:
        headers = [message.headers for message in consumer]
    assert [one["delay"] for one in headers] == [0, 1, 2]
    assert ["lading-state" in one for one in headers] == [False, True, False]


def test_only_two_words_are_taken(kafka: KafkaFrames, shown: str, url: str) -> None:
    answer = httpx.put(f"{url}/topics/default/{shown}/settings", json={"kafka_states": True})
    assert (answer.status_code, "takes shown or hidden" in answer.text) == (400, True)

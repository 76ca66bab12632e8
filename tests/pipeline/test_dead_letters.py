"""Dead letters of others: their headers as their documents have them, and messages that go back as they were.

Names and forms of values: Kafka's DeadLetterQueueReporter (Connect), KIP-1034, KIP-1191 (UTF-8 texts), Spring Kafka's
DeadLetterPublishingRecoverer, which writes numbers as four and eight bytes, big-endian, with the constants of
KafkaHeaders and RetryTopicHeaders; Redpanda Connect's pages of the output fallback and the input redpanda.
"""

from __future__ import annotations

import itertools
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lading import Consumer, Producer, testing
from lading.model.batch import SCHEMA
from lading.model.errors import FilterError, LocalError
from lading.model.kinds import Kind
from lading.pipeline.dead_letter_redrive import ForeignDeadLetters
from lading.pipeline.dead_letters import recognize, strip
from lading.pipeline.ledger import Ledger
from lading.transports.lading.transport import LadingTransport
from tests.topic_limits import limit_messages

_numbers = itertools.count()
OWN: list[tuple[str, Any]] = [("carrier", b"UA"), ("via", b"ORD"), ("via", None), ("empty", b"")]
CONNECT = [
    ("__connect.errors.topic", b"orders"), ("__connect.errors.partition", b"1"), ("__connect.errors.offset", b"7"),
    ("__connect.errors.connector.name", b"sink"), ("__connect.errors.task.id", b"0"),
    ("__connect.errors.stage", b"VALUE_CONVERTER"), ("__connect.errors.class.name", b"org.JsonConverter"),
    ("__connect.errors.exception.class.name", b"org.DataException"),
    ("__connect.errors.exception.message", b"no JSON"), ("__connect.errors.exception.stacktrace", b"at org..."),
]  # fmt: skip
STREAMS = [
    ("__streams.errors.exception", b"java.lang.IllegalState"), ("__streams.errors.stacktrace", b"at ..."),
    ("__streams.errors.message", b"broken"), ("__streams.errors.topic", b"orders"),
    ("__streams.errors.partition", b"0"), ("__streams.errors.offset", b"1"),
]  # fmt: skip
SHARE = [
    ("__dlq.errors.topic", b"orders"), ("__dlq.errors.partition", b"0"), ("__dlq.errors.offset", b"0"),
    ("__dlq.errors.group", b"workers"), ("__dlq.errors.delivery.count", b"5"), ("__dlq.errors.message", b"too often"),
]  # fmt: skip
SPRING = [
    ("kafka_dlt-original-topic", b"orders"), ("kafka_dlt-original-partition", struct.pack(">i", 1)),
    ("kafka_dlt-original-offset", struct.pack(">q", 8)),
    ("kafka_dlt-original-timestamp", struct.pack(">q", 1_700_000_000_000)),
    ("kafka_dlt-original-timestamp-type", b"CreateTime"), ("kafka_dlt-original-consumer-group", b"billing"),
    ("kafka_dlt-exception-fqcn", b"org.ListenerExecutionFailedException"),
    ("kafka_dlt-exception-message", b"Listener failed"), ("kafka_dlt-key-exception-fqcn", b"x"),
]  # fmt: skip
RETRIED = [
    ("kafka_original-topic", b"orders"), ("kafka_original-partition", struct.pack(">i", 1)),
    ("kafka_original-offset", struct.pack(">q", 9)), ("kafka_original-timestamp", struct.pack(">q", 1_700_000_000_001)),
    ("kafka_original-timestamp-type", b"CreateTime"), ("kafka_dlt-original-consumer-group", b"billing"),
    ("kafka_exception-fqcn", b"org.ListenerExecutionFailedException"), ("kafka_exception-cause-fqcn", b"x"),
    ("kafka_exception-message", b"Timed out"), ("kafka_exception-stacktrace", b"at ..."),
    ("retry_topic-original-timestamp", struct.pack(">q", 1_700_000_000_001)[2:]),
    ("retry_topic-attempts", struct.pack(">i", 2)), ("retry_topic-backoff-timestamp", b"\x01\x8b"),
    ("retry_topic-attempts", struct.pack(">i", 3)),
]  # fmt: skip
REDPANDA = [
    ("kafka_key", b"key"), ("kafka_topic", b"orders"), ("kafka_partition", b"1"), ("kafka_offset", b"10"),
    ("kafka_lag", b"0"), ("kafka_timestamp_ms", b"1700000000002"), ("kafka_timestamp_unix", b"1700000000"),
    ("kafka_tombstone_message", b"false"), ("fallback_error", b"dial tcp: connection refused"),
]  # fmt: skip
LETTERS: list[tuple[list[tuple[str, Any]], bytes | None]] = [
    (OWN + CONNECT, b"seven"), (OWN + STREAMS, b"one"), (OWN + SHARE, None), (OWN + SPRING, b"eight"),
    (OWN, b"no letter"),
]  # fmt: skip


@dataclass(frozen=True)
class DeadLetterPlace:
    url: str
    orders: str
    state: Path

    @property
    def topic(self) -> str:
        return f"{self.orders}-letters"

    def letters(self) -> ForeignDeadLetters:
        return ForeignDeadLetters(self.url, self.topic, self.state)

    def origin(self) -> list[Any]:
        """What has arrived in the topic of the originals, after the one that was in it."""
        with Consumer(self.url, self.orders, start="earliest", timeout_s=0) as consumer:
            return [message for message in consumer if message.payload != b"zero"]

    def send(self, payload: bytes | None, headers: list[tuple[str, Any]], key: bytes | None = None) -> None:
        """Send a dead letter of the topic ``orders``."""
        own = [(name, self.orders.encode() if value == b"orders" else value) for name, value in headers]
        with Producer(self.url) as producer:
            producer.send(self.topic, payload, partition=0, key=key, headers=own)


@pytest.fixture(params=["lading", "kafka"])
def place(request: pytest.FixtureRequest, served: testing.BrokerProcess, tmp_path: Path) -> DeadLetterPlace:
    url = served.url if request.param == "lading" else f"kafka://{served.endpoints['kafka']}"
    made = DeadLetterPlace(url, f"orders{next(_numbers)}", tmp_path / "state")
    transport = LadingTransport(served.url)
    transport.create_topic(made.orders, 2)
    transport.create_topic(made.topic, 1)
    transport.close()
    with Producer(url) as producer:
        producer.send(made.orders, b"zero", partition=0, key=b"k0", headers=[("whole", b"yes")])
    for headers, payload in LETTERS:
        made.send(payload, headers, b"key")
    return made


def test_columns_and_redrive(place: DeadLetterPlace) -> None:
    rows = list(place.letters().rows())
    assert [tuple(row.values()) for row in rows] == [
        (f"{place.topic}/0/0", "Kafka Connect", place.orders, 1, 7, "no JSON", "org.DataException", "sink", None, None),
        (f"{place.topic}/0/1", "Kafka Streams", place.orders, 0, 1, "broken", "java.lang.IllegalState", None, None,
         None),
        (f"{place.topic}/0/2", "share group", place.orders, 0, 0, "too often", None, "workers", 5, None),
        (f"{place.topic}/0/3", "Spring", place.orders, 1, 8, "Listener failed", "org.ListenerExecutionFailedException",
         "billing", None, 1_700_000_000_000),
    ]  # fmt: skip
    where = "origin_partition = 1 AND (exception LIKE 'org.Data%' OR deliveries > 3) AND carrier = 'UA'"
    assert [row["message"] for row in place.letters().rows(where)] == [f"{place.topic}/0/0"]
    with pytest.raises(FilterError):
        list(place.letters().rows("origin_partition = 'x'"))
    planned = place.letters().redrive(dry_run=True)
    assert (planned.sent, planned.strangers, planned.already) == (4, 1, 0)
    assert not place.state.exists() and place.origin() == []
    assert place.letters().redrive(where).sent == 1
    (first,) = place.origin()
    assert (first.partition, first.key, first.payload) == (1, b"key", b"seven")
    headers = [(key, value) for key, _, value in first.headers]
    assert headers == [*OWN, ("lading-replays", b"1")]
    done = place.letters().redrive(limit=2, max_replays=0)
    assert (done.sent, done.already, done.strangers, done.gone) == (2, 1, 1, 0)
    done = place.letters().redrive(max_replays=0)
    assert (done.sent, done.already) == (1, 3)
    assert place.letters().redrive().sent == 0
    found = {message.payload: message for message in place.origin()}
    assert len(place.origin()) == 3 and found.keys() == {b"seven", b"one", b"eight"}
    assert [(key, value) for key, _, value in found[b"one"].headers] == OWN
    assert (found[b"eight"].partition, found[b"eight"].timestamp_us) == (1, 1_700_000_000_000_000)
    # what a share group left out was read where it still is
    with Consumer(place.url, place.orders, start="earliest", timeout_s=0) as consumer:
        zeros = [message for message in consumer if message.payload == b"zero"]
    assert [(one.partition, one.key, [(key, value) for key, _, value in one.headers]) for one in zeros] == [
        (0, b"k0", [("whole", b"yes")])
    ] * 2


def test_what_fails_again_is_left_after_the_cap(place: DeadLetterPlace) -> None:
    again = [("lading-replays", b"3"), *CONNECT]
    place.send(b"again", again)
    done = place.letters().redrive("origin_offset = 7")
    assert (done.sent, done.parked) == (1, 1)
    assert place.letters().redrive("origin_offset = 7", max_replays=4).sent == 1


def test_an_interrupted_redrive_is_finished_once(place: DeadLetterPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends after the messages were sent, before that is noted: Lading's broker knows the key, and Kafka's
    protocol has the transaction that was decided last."""

    class Ended(BaseException):
        pass

    def end(*_: Any) -> None:
        raise Ended

    with monkeypatch.context() as context, pytest.raises(Ended):
        context.setattr(Ledger, "mark_done", end)
        place.letters().redrive("origin_offset = 7")
    done = place.letters().redrive("origin_offset = 7")
    assert (done.resumed, done.sent, done.already) == (1, 0, 1)
    assert [message.payload for message in place.origin()] == [b"seven"]


def test_a_deleted_original_is_told(place: DeadLetterPlace) -> None:
    lost = [(key, b"99" if key.endswith("offset") else value) for key, value in SHARE]
    place.send(None, lost)
    done = place.letters().redrive("origin_offset = 99")
    assert (done.sent, done.gone) == (0, 1)
    with pytest.raises(LocalError, match="is a queue"):
        ForeignDeadLetters("nsq://127.0.0.1:4161", "letters", place.state)


@pytest.mark.parametrize("place", ["lading"], indirect=True)
def test_spring_retry_topics_and_redpanda_connect(place: DeadLetterPlace) -> None:
    own = [*OWN, ("kafka_keys", b"ours")]
    place.send(b"nine", own + RETRIED, b"key")
    place.send(b"ten", own + REDPANDA)
    place.send(b"read by Connect and well", own + REDPANDA[:-1])
    rows = [list(row.values())[1:] for row in place.letters().rows("origin_offset >= 9")]
    assert rows == [
        ["Spring retry topics", place.orders, 1, 9, "Timed out", "org.ListenerExecutionFailedException", "billing",
         None, 1_700_000_000_001],
        ["Redpanda Connect", place.orders, 1, 10, "dial tcp: connection refused", None, None, None, 1_700_000_000_002],
    ]  # fmt: skip
    assert place.letters().redrive("origin_offset >= 9", max_replays=0).sent == 2
    found = place.origin()
    assert [(one.partition, one.key, one.payload, one.timestamp_us % 1_000_000_000) for one in found] == [
        (1, b"key", b"nine", 1_000), (1, b"key", b"ten", 2_000),
    ]  # fmt: skip
    assert [[(key, value) for key, _, value in one.headers] for one in found] == [own, own]


ODD: list[list[tuple[str, Any]]] = [
    [("__connect.errors.topic", b"")], [("__connect.errors.topic", b"..")], [("__connect.errors.topic", b"a/b?c#d%e")],
    [("__connect.errors.topic", b"x" * 300)], [("__connect.errors.topic", b"gone"), ("__connect.errors.offset", b"-1")],
    [("__dlq.errors.topic", b""), ("__dlq.errors.partition", b"-3"), ("__dlq.errors.offset", b"-9")],
]  # fmt: skip


@pytest.mark.turns(2)
def test_letters_of_an_odd_origin_hold_up_no_others(place: DeadLetterPlace) -> None:
    """They came before the others in one batch, and each stopped every redrive from then on."""
    for headers in ODD:
        place.send(None, headers)
        place.send(b"good", [*CONNECT[:2], ("__connect.errors.offset", b"7")])
    planned = place.letters().redrive(dry_run=True)
    done = place.letters().redrive()
    assert (done.sent, done.refused + done.gone) == (4 + len(ODD), len(ODD))
    # the dry run said so before; one whose original is gone has no topic either
    assert (planned.sent, planned.refused) == (done.sent, done.refused + done.gone)
    assert set(planned.problems) == set(done.problems)
    assert done.problems and all(problem for problem in done.problems)
    assert sum(message.payload == b"good" for message in place.origin()) == len(ODD)
    # those wait, and are sent where --to says
    assert place.letters().redrive(to=place.orders).sent == done.refused


def test_an_origin_time_that_no_message_can_have_counts_as_absent(place: DeadLetterPlace) -> None:
    for origin_ms in (-(1 << 63), (1 << 63) - 1, 1 << 62):
        time = ("kafka_dlt-original-timestamp", struct.pack(">q", origin_ms))
        place.send(b"odd time", [("kafka_dlt-original-topic", place.orders.encode()), time])
    place.letters().redrive()
    times_us = [message.timestamp_us for message in place.origin() if message.payload == b"odd time"]
    assert len(times_us) == 3 and min(times_us) > 1_600_000_000_000_000


def test_a_step_that_an_earlier_release_left_open_is_given_up(place: DeadLetterPlace) -> None:
    letters = place.letters()
    ledger = letters._open_ledger(create=True)
    assert ledger is not None
    with ledger.lock():
        ledger.begin(place.url, "", [(place.topic, 0, 0, 0)])
    assert letters.redrive().sent == 4
    assert all(entry.done for entry in ledger.entries())


def test_a_letter_above_the_limit_of_its_topic(place: DeadLetterPlace, served: testing.BrokerProcess) -> None:
    """The others are sent, and what to do about it is said each time; a redrive of nothing else is an error."""
    noise = Random(17).randbytes(100_000)
    place.send(noise, OWN + CONNECT)
    limit_messages(served.endpoints["kafka"], place.orders, 10_000)
    letters = ForeignDeadLetters(place.url, place.topic, place.state)
    kafka = f"kafka://{served.endpoints['kafka']}"
    said = r"max\.message\.bytes\).*raise that limit.*; or leave out .* --where"
    done = letters.redrive(server=kafka)
    assert (done.sent, done.refused, len(place.origin())) == (4, 1, 3)
    assert len(done.problems) == 1 and re.search(said, done.problems[0])
    with pytest.raises(LocalError, match=said):
        letters.redrive(server=kafka)
    limit_messages(served.endpoints["kafka"], place.orders, 1_000_000)
    done = letters.redrive(server=kafka)
    assert (done.sent, done.already) == (1, 4)
    assert sorted(len(message.payload or b"") for message in place.origin()) == [3, 5, 5, 100_000]


OTHERS: dict[str, tuple[list[tuple[str, Any]], dict[str, Any]]] = {
    "Spring Cloud Stream": (
        [("x-original-topic", b"orders"), ("x-original-partition", struct.pack(">i", 1)),
         ("x-original-offset", struct.pack(">q", 7)), ("x-original-timestamp", struct.pack(">q", 1_700_000_000_000)),
         ("x-original-timestamp-type", b"CreateTime"), ("x-exception-fqcn", b"java.lang.IllegalStateException"),
         ("x-exception-message", b"no"), ("x-exception-stacktrace", b"at x")],
        {"origin_topic": "orders", "origin_partition": 1, "origin_offset": 7, "reason": "no",
         "exception": "java.lang.IllegalStateException", "origin_timestamp_ms": 1_700_000_000_000},
    ),
    "SmallRye": (
        [("dead-letter-topic", b"orders"), ("dead-letter-partition", b"1"), ("dead-letter-offset", b"7"),
         ("dead-letter-reason", b"no"), ("dead-letter-exception-class-name", b"java.lang.IllegalStateException"),
         ("dead-letter-cause", b"x"), ("dead-letter-cause-class-name", b"y")],
        {"origin_topic": "orders", "origin_partition": 1, "origin_offset": 7, "reason": "no",
         "exception": "java.lang.IllegalStateException"},
    ),
    "Karafka": (
        [("source_topic", b"orders"), ("source_partition", b"1"), ("source_offset", b"7"),
         ("source_consumer_group", b"app"), ("source_attempts", b"3"), ("source_trace_id", b"x")],
        {"origin_topic": "orders", "origin_partition": 1, "origin_offset": 7, "origin_group": "app", "deliveries": 3},
    ),
    "Karafka before 2.5": (
        [("original_topic", b"orders"), ("original_partition", b"1"), ("original_offset", b"7"),
         ("original_consumer_group", b"app"), ("original_attempts", b"3")],
        {"origin_topic": "orders", "origin_partition": 1, "origin_offset": 7, "origin_group": "app", "deliveries": 3},
    ),
    "Watermill": (
        [("reason_poisoned", b"no"), ("topic_poisoned", b"orders"), ("handler_poisoned", b"h"),
         ("subscriber_poisoned", b"kafka.Subscriber")],
        {"origin_topic": "orders", "reason": "no", "origin_group": "h"},
    ),
    "MassTransit": (
        [("MT-Reason", b"fault"), ("MT-Fault-ExceptionType", b"System.Exception"), ("MT-Fault-Message", b"no"),
         ("MT-Fault-InputAddress", b"loopback://localhost/kafka/orders"), ("MT-Fault-RetryCount", b"3")],
        {"origin_topic": "orders", "reason": "no", "exception": "System.Exception"},
    ),
    "Wolverine": (
        [("exception-type", b"System.Exception"), ("exception-message", b"no"), ("exception-stack", b"at x"),
         ("failed-at", b"1700000000000")],
        {"reason": "no", "exception": "System.Exception"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_frameworks_are_recognised(name: str) -> None:
    written, values = OTHERS[name]
    alike = [
        ("exception-type", b"x"),
        ("source_topic", b"y"),
        ("original_topic", b"y"),
        ("x-request-id", b"1"),
        ("MT-Activity-Id", b"z"),
    ]
    headers = _arrow_headers([OWN + written, OWN + alike])
    letter, other = recognize(headers).to_pylist()
    assert {column: value for column, value in letter.items() if value is not None} == {"convention": name, **values}
    assert set(other.values()) == {None}
    restored: list[Any] = strip(headers, pa.array([name, None])).to_pylist()
    assert [header["key"] for header in restored[0]] == [key for key, _ in OWN]
    assert len(restored[1]) == len(OWN) + len(alike)


def _arrow_headers(lists: list[list[tuple[str, Any]]]) -> pa.Array[Any]:
    rows = [[{"key": key, "kind": int(Kind.RAW), "value": value} for key, value in entries] for entries in lists]
    made: pa.Array[Any] = pa.array(rows, SCHEMA.field("headers").type)
    return made

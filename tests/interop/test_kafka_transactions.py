"""Decisions about transactions on Apache's broker and ours: whatever dies when, each work is there once or not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import lading
from lading.model.errors import DataLoss, LocalError, RemoteError
from lading.transports.kafka import transactions
from lading.transports.kafka.transactions import KafkaDecision
from lading.transports.kafka.transport import KafkaTransport
from lading.transports.transactions import PreparedTransaction
from tests.interop import kafka_broker
from tests.interop.kafka_clients import made, read_all

# kafka.protocol reads its schemas in a way that importlib.resources wants no more
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.parametrize("kafka", ["apache", "lading"], indirect=True),
]

TASKS = 3


@pytest.fixture
def transport(kafka: kafka_broker.RunningKafka) -> Iterator[KafkaTransport]:
    """Our client."""
    opened = KafkaTransport(kafka.url)
    yield opened
    opened.close()


def decision(transport: KafkaTransport, topic: str, timeout_s: float | None = None) -> Any:
    return transport.decision(f"sink-{topic}", topic, timeout_s=timeout_s)


def send(made_by: Any, topic: str, work: str) -> list[PreparedTransaction]:
    """What all tasks of some work prepare: ten messages each, over both partitions."""
    found = []
    for task in range(TASKS):
        transaction = made_by.begin(task)
        texts = [b"%s %d.%d" % (work.encode(), task, at) for at in range(10)]
        halves = [pa.RecordBatch.from_pydict({"payload": texts[at::2]}) for at in range(2)]
        assert transaction.send_all(topic, enumerate(halves), compression="lz4") == len(texts)
        found.append(transaction.prepare())
    return found


def there(kafka: kafka_broker.RunningKafka, topic: str) -> list[str]:
    """Works of the messages that can be read, each with how often."""
    payloads = lading.read_arrow(kafka.url, topic).column("payload").to_pylist()
    assert len(payloads) == len(set(payloads))
    works = [(payload or b"").decode().split()[0] for payload in payloads]
    assert all(works.count(work) == TASKS * 10 for work in works)
    return sorted(set(works))


@pytest.mark.turns(2)
def test_what_is_decided_is_there_once(kafka: kafka_broker.RunningKafka, transport: KafkaTransport) -> None:
    topic = made(kafka, 2)
    ours = decision(transport, topic)
    assert ours.last_decided() is None
    prepared = send(ours, topic, "a")
    assert there(kafka, topic) == []
    ours.decide("a", prepared)
    assert there(kafka, topic) == ["a"] and ours.last_decided() == "a"
    # a repeat changes nothing, also when everything was sent again; it is aborted by the next transactions
    ours.decide("a", send(ours, topic, "a"))
    ours.withdraw("a", prepared)
    assert send(ours, topic, "b") and there(kafka, topic) == ["a"]
    ours.decide("b", send(ours, topic, "b"))
    # withdrawn work is not there, and holds nobody up
    ours.withdraw("c", send(ours, topic, "c"))
    assert there(kafka, topic) == ["a", "b"]
    found = {message.value() for message in read_all(kafka, topic, 2 * TASKS * 10)}
    assert len(found) == 2 * TASKS * 10


@pytest.mark.parametrize("step", [0, 1, TASKS, 1 + 2 * TASKS])
@pytest.mark.turns(3)
def test_a_crash_in_the_commit(
    kafka: kafka_broker.RunningKafka, transport: KafkaTransport, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The driver dies before it stored the decision, before each commit, before it marks them done."""
    topic = made(kafka, 2)
    ours = decision(transport, topic)
    ours.decide("a", send(ours, topic, "a"))
    prepared = send(ours, topic, "b")
    steps: list[str] = []

    def dies(what: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            if len(steps) == step:
                raise KeyboardInterrupt
            steps.append(what.__name__)
            return what(*arguments, **named)

        return call

    with monkeypatch.context() as faulty:
        faulty.setattr(transactions, "end", dies(transactions.end))
        faulty.setattr(KafkaDecision, "_write", dies(KafkaDecision._write))
        with pytest.raises(KeyboardInterrupt):
            ours.decide("b", prepared)
    # another process does the same work again
    again = decision(transport, topic)
    if again.last_decided() != "b":
        assert step == 0
        again.decide("b", send(again, topic, "b"))
    again.decide("b", prepared)
    assert there(kafka, topic) == ["a", "b"]
    again.decide("c", send(again, topic, "c"))
    assert there(kafka, topic) == ["a", "b", "c"]


def test_a_task_that_is_tried_again_shuts_out_the_first_try(
    kafka: kafka_broker.RunningKafka, transport: KafkaTransport
) -> None:
    topic = made(kafka, 2)
    ours = decision(transport, topic)
    first = ours.begin(0)
    rows = pa.RecordBatch.from_pydict({"payload": [b"first"]})
    first.send(topic, 0, rows, compression=None)
    second = ours.begin(0)
    with pytest.raises(RemoteError, match=r"FENCED|EPOCH"):
        first.send(topic, 0, rows, compression=None)
    second.send(topic, 0, pa.RecordBatch.from_pydict({"payload": [b"second"]}), compression=None)
    ours.decide("a", [second.prepare()])
    assert lading.read_arrow(kafka.url, topic).column("payload").to_pylist() == [b"second"]


@pytest.mark.turns(2)
def test_a_transaction_that_timed_out_after_the_decision_is_told(
    kafka: kafka_broker.RunningKafka, transport: KafkaTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = made(kafka, 2)
    ours = decision(transport, topic, 1.0)
    prepared = send(ours, topic, "a")
    with monkeypatch.context() as faulty, pytest.raises(KeyboardInterrupt):
        faulty.setattr(transactions, "end", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        ours.decide("a", prepared)
    until = time.monotonic() + 30
    with pytest.raises(DataLoss, match="was decided, but transaction"):
        while time.monotonic() < until:
            # only a commit that comes too late is refused
            time.sleep(1.5)
            if lading.read_arrow(kafka.url, topic, columns="offset").num_rows == 0 and _aborted(kafka, topic):
                ours.last_decided()


def _aborted(kafka: kafka_broker.RunningKafka, topic: str) -> bool:
    """Whether the cluster has ended the transactions: then a reader's end lies behind their messages."""
    reader = KafkaTransport(kafka.url)
    try:
        return all(part.end_offset > 0 for part in reader.topic(topic).partitions)
    finally:
        reader.close()


def test_too_many_tasks_for_one_decision(kafka: kafka_broker.RunningKafka, transport: KafkaTransport) -> None:
    topic = made(kafka)
    with pytest.raises(LocalError, match="coalesce the frame"):
        decision(transport, topic).decide("a", [PreparedTransaction(f"sink-{topic}-{at}", at, 0) for at in range(400)])

"""Work that a process sends, does not finish and sends again in its next life: it is in the topic once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from lading import read_arrow, testing
from lading.client.delivery import (
    CommitProtocol,
    DeliveryTarget,
    SentByTask,
    Task,
    choose_commit_protocol,
    send_once,
)
from lading.transports.fitting import fill_missing_columns
from lading.transports.lading.transport import LadingTransport
from lading.transports.open import open_transport

PAYLOADS = [b"%d" % number for number in range(100)]
NUMBERS = itertools.count()
ENDS = ("death", "abort", "commit, answer lost")
"""What becomes of the first life after it has sent."""


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker() as running:
        yield running


@pytest.fixture
def topic(broker: testing.BrokerProcess) -> str:
    name = f"work_{next(NUMBERS)}"
    transport = open_transport(broker.url)
    transport.create_topic(name, 2)
    transport.close()
    return name


def parts() -> Iterator[tuple[int, pa.RecordBatch]]:
    for partition in range(2):
        rows = pa.record_batch({"payload": pa.array(PAYLOADS[partition::2], pa.binary())})
        yield partition, fill_missing_columns(rows)


def read_payloads(url: str, topic: str) -> list[bytes]:
    found: Any = read_arrow(url, topic, "payload").column(0)
    return sorted(found.to_pylist())


class Life:
    """A process that does the work ``q/7`` in two tasks, with connections of its own."""

    def __init__(self, url: str, topic: str, work: str = "q/7") -> None:
        self.transport = open_transport(url)
        assert isinstance(self.transport, LadingTransport)
        self.protocol: CommitProtocol = choose_commit_protocol(self.transport, DeliveryTarget(url, topic, "test/"))
        self.work, self.sent = f"{topic}/{work}", list[SentByTask]()

    def send(self) -> None:
        for number, part in enumerate(parts()):
            self.sent.append(self.protocol.write(iter([part]), Task(self.work, number)))

    def finish(self) -> None:
        self.protocol.commit(self.work, self.sent)
        self.transport.close()


@pytest.mark.parametrize("end", ENDS)
def test_work_that_is_sent_again_by_the_next_life_is_there_once(
    broker: testing.BrokerProcess, topic: str, end: str
) -> None:
    first = Life(broker.url, topic)
    first.send()
    if end == "abort":
        first.protocol.abort(first.work, first.sent)
    elif end.startswith("commit"):
        first.protocol.commit(first.work, first.sent)
    first.transport.close()
    second = Life(broker.url, topic)
    second.send()
    second.finish()
    assert read_payloads(broker.url, topic) == sorted(PAYLOADS)


def test_attempts_that_overlap_are_there_once(broker: testing.BrokerProcess, topic: str) -> None:
    """A driver that everybody takes for dead, and is not."""
    lives = [Life(broker.url, topic) for _ in range(3)]
    for life in lives:
        life.send()
    lives[1].finish()
    for life in (lives[0], lives[2]):
        # the key is known: what they sent is aborted, and nothing is committed
        life.finish()
    assert read_payloads(broker.url, topic) == sorted(PAYLOADS)


def test_no_writer_id_is_used_twice(broker: testing.BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    make_writer = LadingTransport.writer

    def noting(self: LadingTransport, *arguments: object, **named: object) -> object:
        writer = make_writer(self, *arguments, **named)  # type: ignore[arg-type]
        seen.append(writer.writer_id)
        return writer

    monkeypatch.setattr(LadingTransport, "writer", noting)
    for _ in range(2):
        life = Life(broker.url, topic)
        life.send()
        life.transport.close()
        assert isinstance(life.transport, LadingTransport)
        send_once(open_transport(broker.url), DeliveryTarget(broker.url, topic, ""), f"{topic}/key", parts())
    assert len(seen) == len(set(seen)) >= 8

"""Work that a process sends, does not finish and sends again in its next life: it is in the topic once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading import read_arrow, testing
from lading.client.delivery import (
    CommitProtocol,
    DeliveryTarget,
    SentByTask,
    Task,
    choose_commit_protocol,
    send_accepted,
    send_once,
)
from lading.model.batch import HEADERS_TYPE
from lading.model.errors import Reason, Refusal
from lading.transports.fitting import MessageRefused, fill_missing_columns
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


@pytest.mark.turns(3)
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


class _PickyServer:
    """Takes numbers that are not divisible by seven; says at which row it stopped, or takes one message at a time."""

    def __init__(self, *, names_rows: bool) -> None:
        self.taken: list[tuple[int, int]] = []
        self.sends = 0
        self._names_rows = names_rows

    def send(self, partition: int, batch: pa.RecordBatch) -> None:
        self.sends += 1
        for row, offset in enumerate(np.asarray(batch.column("offset")).tolist()):
            if offset % 7 == 0:
                if self._names_rows:
                    raise MessageRefused("divisible by seven", partition=partition, row=row)
                raise Refusal(Reason.PAYLOAD_TOO_LARGE, "divisible by seven")
            self.taken.append((partition, offset))


@pytest.mark.parametrize(("names_rows", "sends"), [(True, 6), (False, 40)])
def test_what_a_server_refuses_is_left_out_and_all_else_is_sent_once(names_rows: bool, sends: int) -> None:
    server = _PickyServer(names_rows=names_rows)
    refused: list[tuple[int, int, str]] = []
    parts = [(part, pa.record_batch({"offset": np.arange(low, low + 20)})) for part, low in ((0, 1), (1, 30))]
    count = send_accepted(
        server.send,
        iter(parts),
        lambda part, message, error: refused.append((part, message.column("offset")[0].as_py(), str(error))),
        names_rows=names_rows,
    )
    assert refused == [
        (part, offset, "divisible by seven") for part, offset in ((0, 7), (0, 14), (1, 35), (1, 42), (1, 49))
    ]
    expected = [(0, offset) for offset in range(1, 21)] + [(1, offset) for offset in range(30, 50)]
    assert server.taken == [each for each in expected if each[1] % 7]
    assert (count, server.sends) == (len(server.taken), sends)


def test_a_sender_who_is_refused_loses_no_message() -> None:
    def refuse(partition: int, batch: pa.RecordBatch) -> None:
        raise Refusal(Reason.UNAUTHORIZED)

    parts = [(0, pa.record_batch({"offset": [1, 2]}))]
    with pytest.raises(Refusal):
        send_accepted(refuse, iter(parts), lambda *_: pytest.fail("left out"), names_rows=False)


@pytest.mark.parametrize("what", ["payload", "key", "headers"])
def test_a_reader_that_keeps_one_of_each_mark_loses_nothing_to_another_order(
    broker: testing.BrokerProcess, what: str
) -> None:
    """The second attempt has its messages in another order: the first number is another message then."""
    topic, sent = f"order_{what}", {what: ["a", "b", "c"]}
    for order, count in (((0, 1, 2), 1), ((1, 2, 0), 3), ((1, 2, 0), 3)):
        values = {name: np.take(texts, order[:count]).tolist() for name, texts in sent.items()}
        rows = {
            "payload": pa.array(values.get("payload", ["x"] * count), pa.binary()),
            "key": pa.array(values.get("key", [None] * count), pa.binary()),
            "headers": pa.array(
                [[{"key": "h", "kind": 2, "value": text}] for text in values.get("headers", ["y"] * count)],
                HEADERS_TYPE,
            ),
        }
        transport = open_transport(f"iggy://{broker.endpoints['iggy_tcp']}")
        if count == 1:
            transport.create_topic(topic, 1)
        protocol = choose_commit_protocol(transport, DeliveryTarget("iggy", topic, "", dedupe_header="mark"))
        protocol.write(iter([(0, fill_missing_columns(pa.record_batch(rows)))]), Task("work", 0))
        transport.close()
    columns = {"payload": "payload", "key": "key", "headers": "h string"}
    found = read_arrow(broker.url, topic, f'{columns[what]}, mark string from "mark"').to_pylist()
    kept: dict[str, str] = {}
    for row in found:
        value = next(row[name] for name in row if name != "mark")
        kept.setdefault(row["mark"], value.decode() if isinstance(value, bytes) else value)
    assert sorted(kept.values()) == ["a", "a", "b", "c"]
    assert len(found) == 7

"""A batch of ``kafka://`` whose response is lost and whose repetition is refused: its numbers go to no other batch.

The cluster may have it. A cluster knows a batch by producer, number and count alone, so that another batch under the
same numbers would be taken for it, and vanish.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pyarrow as pa
import pytest

from lading import read_arrow
from lading.broker.core.access.rights import Right
from lading.dialects.kafka import errors
from lading.dialects.kafka.commands import ProduceResponse
from lading.model.errors import LadingError, LocalError, RemoteError
from lading.testing import BrokerProcess
from lading.transports.kafka.cluster import KafkaCluster, Retriable, kafka_error
from lading.transports.kafka.socket import KafkaSecurity, KafkaSocket
from lading.transports.kafka.transactions import KafkaTransaction, end
from lading.transports.kafka.transport import KafkaTransport
from lading.transports.kafka.writer import KafkaWriter
from lading.transports.open import open_transport
from tests.endpoints.identity import PASSWORDS, broker_with_users, rule
from tests.endpoints.test_http_users import client

WRITES = {"user": "ann", "kind": "topic", "pattern": "literal", "name": "orders", "operation": "write"}
Started = tuple[BrokerProcess, httpx.Client]


def make_batch(number: int) -> pa.RecordBatch:
    return pa.record_batch({"payload": pa.array([b"%d" % number], pa.binary())})


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    rules = [rule("ann", Right.WRITE, "orders"), rule("ann", Right.READ, "orders")]
    with broker_with_users(tmp_path / "data", rules) as (running, tokens):
        root = client(running, bearer=tokens["root"])
        assert root.post("/topics/default/orders", json={}).status_code == 201
        yield running, root


@pytest.mark.parametrize("is_repeated", [False, True])
def test_numbers_of_a_batch_that_may_be_there_go_to_no_other(
    started: Started, monkeypatch: pytest.MonkeyPatch, is_repeated: bool
) -> None:
    running, root = started
    receive = KafkaSocket.receive_produce
    lost: list[Any] = []

    def lose_first(socket: KafkaSocket) -> Any:
        response = receive(socket)
        if not lost:
            # the user may not write when the batch is sent again
            lost.append(response)
            assert root.post("/rules", json={"delete": [WRITES]}).status_code == 204
            raise ConnectionResetError("the response is lost")
        return response

    url = f"kafka://{running.endpoints['kafka']}"
    login: dict[str, Any] = {"username": "ann", "password": PASSWORDS["ann"]}
    batches = [make_batch(number) for number in range(3)]
    transport = open_transport(url, **login)
    transport.send("orders", 0, batches[0])
    monkeypatch.setattr(KafkaSocket, "receive_produce", lose_first)
    with pytest.raises(RemoteError, match="TOPIC_AUTHORIZATION_FAILED"):
        transport.send("orders", 0, batches[1])
    assert root.post("/rules", json={"add": [WRITES]}).status_code == 204
    for batch in batches[1:] if is_repeated else batches[2:]:
        transport.send("orders", 0, batch)
    transport.close()
    found = read_arrow(url, "orders", "payload", **login)
    assert found.column(0).to_pylist() == [b"0", b"1", b"2"]


class ScriptedLeader:
    """A leader that responds with the next error codes, and notes (base sequence, count) of each batch."""

    def __init__(self, codes: list[int]) -> None:
        self._codes = iter(codes)
        self.received: list[tuple[int, ...]] = []

    def send_produce(self, topic: str, partition: int, batch: memoryview, **_how: Any) -> None:
        # both are at the end of the header of a record batch of version 2
        self.received.append(struct.unpack_from(">ii", batch, 53))

    def receive_produce(self) -> ProduceResponse:
        return ProduceResponse(next(self._codes), 0, None)

    def close(self) -> None:
        return None


class ScriptedCluster(KafkaCluster):
    """A cluster with one leader, which is missing at the second look."""

    def __init__(self, leader: ScriptedLeader) -> None:
        super().__init__([("127.0.0.1", 1)], KafkaSecurity(), timeout_s=1, retries=0)
        self._scripted = leader
        self._looks = 0

    def ask(self, api: str, **fields: Any) -> Any:
        return SimpleNamespace(error_code=0, producer_id=7, producer_epoch=0)

    def leader(self, topic: str, partition: int) -> Any:
        self._looks += 1
        if self._looks == 2:
            raise Retriable(kafka_error("no leader", errors.LEADER_NOT_AVAILABLE))
        return self._scripted


def test_a_batch_that_is_sent_again_goes_on_after_its_confirmed_rows() -> None:
    """The leader went between the refusal of a part and its repetition: the rows before it were sent twice."""
    leader = ScriptedLeader([errors.NONE, errors.MESSAGE_TOO_LARGE, errors.NONE])
    writer = KafkaWriter(ScriptedCluster(leader))
    large = pa.record_batch({"payload": pa.array([bytes(700_000), bytes(700_000)], pa.binary())})
    with pytest.raises(RemoteError, match="LEADER_NOT_AVAILABLE"):
        writer.send("orders", 0, large, strict=False, compression=None)
    writer.send("orders", 0, large, strict=False, compression=None)
    assert leader.received == [(0, 1), (1, 1), (1, 1)]


@pytest.mark.parametrize("by", ["send", "send_all"])
def test_a_transaction_takes_no_batch_after_one_that_may_be_in_it(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """It would have the first one's numbers, be acknowledged as its repetition, and be missing after the commit."""
    topic = f"unsure.{by}"
    transport = open_transport(f"kafka://{broker.endpoints['kafka']}", retries=0)
    assert isinstance(transport, KafkaTransport)
    transport.create_topic(topic)
    transaction = KafkaTransaction(transport._cluster, topic, 60)
    first, second = (make_batch(number) for number in range(2))
    receive = KafkaSocket.receive_produce

    def lose(socket: KafkaSocket) -> Any:
        receive(socket)
        raise ConnectionResetError("the response is lost")

    def send(batch: pa.RecordBatch) -> None:
        if by == "send":
            transaction.send(topic, 0, batch)
        else:
            transaction.send_all(topic, [(0, batch)])

    with monkeypatch.context() as lossy:
        lossy.setattr(KafkaSocket, "receive_produce", lose)
        with pytest.raises(LadingError):
            send(first)
    with pytest.raises(LocalError, match=f"transaction '{topic}': an earlier batch failed"):
        send(second)
    transaction.abort()
    # another one of the same name has all of it
    again = KafkaTransaction(transport._cluster, topic, 60)
    for batch in (first, second):
        again.send(topic, 0, batch)
    prepared = again.prepare()
    assert prepared is not None
    end(transport._cluster, prepared, committed=True)
    transport.close()
    assert read_arrow(broker.url, topic, "payload").column(0).to_pylist() == [b"0", b"1"]

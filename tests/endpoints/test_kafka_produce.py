"""Produce by its one way: heads that are known, answers of every version, and what happens if a step fails."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lading.dialects.kafka.versions import PRODUCE, PRODUCE_LOW, SERVED
from lading.endpoints.kafka.produce import ProduceHandler
from tests.endpoints.kafka_frames import message, one_batch, produce, request_frame
from tests.house.scripted import ScriptedConnection
from tests.house.test_hot_path import connected

VERSIONS = range(PRODUCE_LOW, SERVED[PRODUCE].high + 1)
NOT_FOUND, UNKNOWN_ID = 3, 100
IDS_FROM = 13


def framed(version: int, correlation: int, **fields: Any) -> bytes:
    frame = request_frame("Produce", version, correlation, **fields)
    return struct.pack(">i", len(frame)) + frame


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ScriptedConnection]:
    with connected(tmp_path, "kafka", "os") as client:
        topic = {"name": "topic", "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        frame = request_frame("CreateTopics", 4, 7, topics=[topic], timeout_ms=1000, validate_only=False)
        assert client.ask(struct.pack(">i", len(frame)) + frame)
        yield client


def decoded(data: bytes, version: int) -> Any:
    assert struct.unpack_from(">i", data)[0] == len(data) - 4
    return message("ProduceResponse").decode(data[4:], version=version, header=True)


def find_id(client: ScriptedConnection) -> UUID:
    """The id of the topic, as Metadata has it."""
    frame = request_frame("Metadata", 12, 8, topics=[{"name": "topic", "topic_id": None}])
    answer = message("MetadataResponse").decode(
        client.ask(struct.pack(">i", len(frame)) + frame)[4:], version=12, header=True
    )
    return UUID(str(answer.topics[0].topic_id))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_head_that_is_known_is_answered_as_one_that_is_new(client: ScriptedConnection, version: int) -> None:
    answers = []
    name = find_id(client) if version >= IDS_FROM else "topic"
    for number in range(3):
        request = framed(version, number, **produce(name, one_batch(b"x"), partition=1))
        answers.append(client.ask(request))
        answer = decoded(answers[-1], version)
        (topic,) = answer.responses
        (row,) = topic.partition_responses
        shown = topic.topic_id if version >= IDS_FROM else topic.name
        assert (shown, row.index, row.error_code, row.base_offset) == (name, 1, 0, number)
        # all but correlation and offset is the same; the time behind the offset is -1
        answers[-1] = answers[-1][8:].replace(struct.pack(">qq", number, -1), struct.pack(">qq", 0, -1))
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_of_many_batches_has_one_answer(client: ScriptedConnection, version: int) -> None:
    parts = [{"index": index, "records": one_batch(b"x")} for index in (0, 1, 7)]
    field = "topic_id" if version >= IDS_FROM else "name"
    names = [find_id(client), UUID(int=1), UUID(int=2)] if version >= IDS_FROM else ["topic", "", "nowhere"]
    rows = [{field: name, "partition_data": data} for name, data in zip(names, (parts, [], parts[:1]), strict=True)]
    request = framed(version, 5, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=rows)
    answer = decoded(client.ask(request), version)
    told = [[(row.index, row.error_code) for row in one.partition_responses] for one in answer.responses]
    assert [getattr(one, field) for one in answer.responses] == names
    missing = UNKNOWN_ID if version >= IDS_FROM else NOT_FOUND
    assert told == [[(0, 0), (1, 0), (7, NOT_FOUND)], [], [(0, missing)]]


def test_a_head_that_is_known_means_no_topic_that_is_gone(client: ScriptedConnection) -> None:
    request = framed(9, 5, **produce("topic", one_batch(b"x")))
    for _ in range(2):
        assert decoded(client.ask(request), 9).responses[0].partition_responses[0].error_code == 0
    frame = request_frame("DeleteTopics", 4, 6, topic_names=["topic"], timeout_ms=1000)
    assert client.ask(struct.pack(">i", len(frame)) + frame)
    assert decoded(client.ask(request), 9).responses[0].partition_responses[0].error_code == NOT_FOUND


@pytest.mark.parametrize("known", [False, True])
def test_a_step_that_fails_closes_the_connection_behind_earlier_answers(
    client: ScriptedConnection, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = framed(9, 5, **produce("topic", one_batch(b"x")))
    if known:
        assert client.ask(request)

    def fail(*arguments: object) -> None:
        raise RuntimeError("a fault of the broker's own")

    monkeypatch.setattr(ProduceHandler, "_append", fail)
    assert client.ask(request) == b""
    assert "close" in client.transport.events


TRANSACTION_ABORTABLE, INVALID_PRODUCER_EPOCH = 120, 47


def talk(client: ScriptedConnection, name: str, version: int, **fields: Any) -> Any:
    frame = request_frame(name, version, 9, **fields)
    data = client.ask(struct.pack(">i", len(frame)) + frame)
    return message(f"{name}Response").decode(data[4:], version=version, header=True)


def send_transactional(client: ScriptedConnection, version: int, producer: tuple[int, int, int]) -> int:
    """The error of one transactional batch, sent by the topic's id."""
    data = one_batch(b"x", attributes=16, producer=producer)
    fields = produce(find_id(client) if version >= IDS_FROM else "topic", data, transaction="writer")
    answer = decoded(client.ask(framed(version, 5, **fields)), version)
    return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("version", [11, 12, 13])
def test_transactions_of_kip_890(client: ScriptedConnection, version: int) -> None:
    """KIP-890: from Produce 12 on the broker begins the transaction; EndTxn 5 gives the next one a new epoch."""
    begun = talk(client, "InitProducerId", 5, transactional_id="writer", transaction_timeout_ms=60_000)
    who = {"transactional_id": "writer", "producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    code = send_transactional(client, version, (begun.producer_id, begun.producer_epoch, 0))
    if version == 11:
        assert code == TRANSACTION_ABORTABLE
        return
    assert code == 0
    ended = talk(client, "EndTxn", 5, **who, committed=True)
    next_epoch = begun.producer_epoch + 1
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, begun.producer_id, next_epoch)
    # its response was lost: the same again
    again = talk(client, "EndTxn", 5, **who, committed=True)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, begun.producer_id, next_epoch)
    # a batch of the transaction before that arrives late
    assert send_transactional(client, version, (begun.producer_id, begun.producer_epoch, 1)) == INVALID_PRODUCER_EPOCH
    assert send_transactional(client, version, (begun.producer_id, next_epoch, 0)) == 0
    who["producer_epoch"] = next_epoch
    assert talk(client, "EndTxn", 5, **who, committed=False).producer_epoch == next_epoch + 1


def test_positions_of_a_transaction_begin_it(client: ScriptedConnection) -> None:
    begun = talk(client, "InitProducerId", 5, transactional_id="writer", transaction_timeout_ms=60_000)
    who = {"transactional_id": "writer", "producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    place = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"name": "topic", "partitions": [place]}]
    group = {"group_id": "g", "generation_id": -1, "member_id": "", "group_instance_id": None}
    for version, code in ((3, 48), (4, TRANSACTION_ABORTABLE), (5, 0)):
        answer = talk(client, "TxnOffsetCommit", version, **who, **group, topics=topics)
        assert answer.topics[0].partitions[0].error_code == code, version
    ended = talk(client, "EndTxn", 5, **who, committed=True)
    assert (ended.error_code, ended.producer_epoch) == (0, begun.producer_epoch + 1)
    topic_id = find_id(client)
    asked = [{"group_id": "g", "topics": [{"topic_id": topic_id, "partition_indexes": [0, 1]}]}]
    (found,) = talk(client, "OffsetFetch", 10, groups=asked, require_stable=True).groups[0].topics
    assert (found.topic_id, [row.committed_offset for row in found.partitions]) == (topic_id, [3, -1])


def test_positions_of_topics_by_id(client: ScriptedConnection) -> None:
    """OffsetCommit and OffsetFetch 10 (KIP-848): ids in both directions, UNKNOWN_TOPIC_ID for one that is gone."""
    ids = [find_id(client), UUID(int=5)]
    place = {"partition_index": 1, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": "m"}
    topics = [{"topic_id": one, "partitions": [place]} for one in ids]
    group = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    answer = talk(client, "OffsetCommit", 10, **group, topics=topics)
    codes = [(one.topic_id, one.partitions[0].error_code) for one in answer.topics]
    assert codes == [(ids[0], 0), (ids[1], UNKNOWN_ID)]
    asked = [{"topic_id": one, "partition_indexes": [1]} for one in ids]
    rows = talk(client, "OffsetFetch", 10, groups=[{"group_id": "g", "topics": asked}]).groups[0].topics
    found = [(one.topic_id, *(getattr(one.partitions[0], name) for name in ("committed_offset", "error_code")))
             for one in rows]  # fmt: skip
    assert found == [(ids[0], 7, 0), (ids[1], -1, UNKNOWN_ID)]
    rows = talk(client, "OffsetFetch", 10, groups=[{"group_id": "g", "topics": None}]).groups[0].topics
    assert [(one.topic_id, one.partitions[0].committed_offset) for one in rows] == [(ids[0], 7)]

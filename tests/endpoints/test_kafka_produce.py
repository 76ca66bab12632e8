"""Produce by its one way: heads that are known, answers of every version, and what happens if a step fails."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lading.dialects.kafka.versions import PRODUCE, PRODUCE_LOW, SERVED
from lading.endpoints.kafka.produce import ProduceHandler
from tests.endpoints.kafka_frames import message, one_batch, produce, request_frame
from tests.house.scripted import ScriptedConnection
from tests.house.test_hot_path import connected

VERSIONS = range(PRODUCE_LOW, SERVED[PRODUCE].high + 1)
NOT_FOUND = 3


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


@pytest.mark.parametrize("version", VERSIONS)
def test_a_head_that_is_known_is_answered_as_one_that_is_new(client: ScriptedConnection, version: int) -> None:
    answers = []
    for number in range(3):
        request = framed(version, number, **produce("topic", one_batch(b"x"), partition=1))
        answers.append(client.ask(request))
        answer = decoded(answers[-1], version)
        (topic,) = answer.responses
        (row,) = topic.partition_responses
        assert (topic.name, row.index, row.error_code, row.base_offset) == ("topic", 1, 0, number)
        # all but correlation and offset is the same; the time behind the offset is -1
        answers[-1] = answers[-1][8:].replace(struct.pack(">qq", number, -1), struct.pack(">qq", 0, -1))
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_of_many_batches_has_one_answer(client: ScriptedConnection, version: int) -> None:
    parts = [{"index": index, "records": one_batch(b"x")} for index in (0, 1, 7)]
    rows = [{"name": "topic", "partition_data": parts}, {"name": "", "partition_data": []}]
    rows.append({"name": "nowhere", "partition_data": parts[:1]})
    request = framed(version, 5, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=rows)
    answer = decoded(client.ask(request), version)
    told = [(one.name, [(row.index, row.error_code) for row in one.partition_responses]) for one in answer.responses]
    assert told == [("topic", [(0, 0), (1, 0), (7, NOT_FOUND)]), ("", []), ("nowhere", [(0, NOT_FOUND)])]


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

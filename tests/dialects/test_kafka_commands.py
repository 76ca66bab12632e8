"""Fetch and Produce by hand: against the frames of other clients, another implementation, and mutations."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lading.dialects.kafka import commands, errors, fetch, fetch_by_id, layout
from lading.dialects.kafka.messages import read_batches, visible
from lading.dialects.kafka.requests import parse_request_header
from lading.dialects.kafka.schemas import message
from lading.model.errors import MalformedMessage
from tests.dialects.kafka import batch, record

# kafka.protocol reads its schemas in a way that importlib.resources wants no more
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

FRAMES = json.loads((Path(__file__).parents[1] / "vectors" / "kafka_frames.json").read_text())["frames"]
ANSWERS = {frame["client"]: bytes.fromhex(frame["response_hex"]) for frame in FRAMES}
TRANSACTIONS = ANSWERS["aiokafka 0.14.0"]


def test_answers_that_other_clients_took() -> None:
    for client, last_stable_offset, first, bases in (
        ("aiokafka 0.14.0", 10, 0, range(10)),
        ("kafkajs 2.2.4", 2, 0, range(2)),
    ):
        data = ANSWERS[client]
        answer = commands.parse_fetch(memoryview(data))
        assert (answer.error, answer.high_watermark, answer.last_stable_offset) == (
            0,
            last_stable_offset,
            last_stable_offset,
        )
        assert (answer.first_offset, list(answer.aborted)) == (first, [])
        found = read_batches(np.frombuffer(data, np.uint8), answer.start, answer.end)
        assert found.reason == 0 and found.table[:, layout.BASE].tolist() == list(bases)


def test_aborted_and_control_batches_are_not_visible() -> None:
    answer = commands.parse_fetch(memoryview(TRANSACTIONS))
    table = read_batches(np.frombuffer(TRANSACTIONS, np.uint8), answer.start, answer.end).table
    shown = [table[visible(table, aborted), layout.BASE].tolist() for aborted in ([], [(1002, 8)], [(1002, 6)])]
    # offsets 7 and 9 are the commit and abort markers of producer 1002
    assert shown == [[0, 1, 2, 3, 4, 5, 6, 8], [0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 8]]


def test_requests_are_what_another_implementation_reads() -> None:
    from kafka.protocol.consumer import FetchRequest
    from kafka.protocol.producer import ProduceRequest

    frame = commands.encode_fetch(7, "lading", "topic", 3, 1 << 40, max_bytes=1 << 20, wait_ms=500)
    asked: Any = FetchRequest.decode(frame, version=commands.FETCH_VERSION, header=True, framed=True)
    (topic,) = asked.topics
    (part,) = topic.partitions
    assert (asked.header.correlation_id, asked.header.client_id, topic.topic) == (7, "lading", "topic")
    assert (asked.max_wait_ms, asked.min_bytes, asked.max_bytes, asked.isolation_level) == (500, 1, 1 << 20, 1)
    assert (part.partition, part.fetch_offset, part.partition_max_bytes) == (3, 1 << 40, 1 << 20)
    assert asked.session_epoch == -1
    data = batch([record(0)])
    frame = commands.encode_produce(8, "lading", "töpic", 3, len(data), timeout_ms=1000) + data
    sent: Any = ProduceRequest.decode(frame, version=commands.PRODUCE_VERSION, header=True, framed=True)
    (row,) = sent.topic_data
    assert (sent.acks, sent.timeout_ms, row.name, sent.transactional_id) == (-1, 1000, "töpic", None)
    assert (row.partition_data[0].index, bytes(row.partition_data[0].records)) == (3, data)


def produced(error: int, message: str | None) -> bytes:
    """An answer to Produce, by another implementation."""
    from kafka.protocol.producer import ProduceResponse as Answer

    topic = Answer.TopicProduceResponse
    part = topic.PartitionProduceResponse(
        index=0, error_code=error, base_offset=41, log_append_time_ms=-1, log_start_offset=0, error_message=message,
        record_errors=[
            topic.PartitionProduceResponse.BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="odd")
        ],
    )  # fmt: skip
    answer = Answer(
        version=commands.PRODUCE_VERSION, responses=[topic(name="t", partition_responses=[part])], throttle_time_ms=0
    )
    answer.with_header(correlation_id=5)
    return bytes(answer.encode(header=True))


def test_what_a_broker_says_of_a_batch() -> None:
    assert commands.parse_produce(memoryview(produced(0, None))) == commands.ProduceResponse(0, 41, "odd")
    refused = commands.parse_produce(memoryview(produced(errors.MESSAGE_TOO_LARGE, "too large")))
    assert (refused.error, refused.message) == (10, "too large")


def test_mutated_answers_are_read_or_malformed(full: bool) -> None:
    dice = random.Random(3)
    pool = [(commands.parse_fetch, data) for data in ANSWERS.values()]
    whole = [*pool, (commands.parse_produce, produced(2, "why"))]
    refused = 0
    for _ in range(50_000 if full else 3_000):
        parse, data = dice.choice(whole)
        changed = bytearray(data[: dice.choice((len(data), dice.randrange(len(data))))])
        for _ in range(dice.randint(1, 4)):
            if changed:
                changed[dice.randrange(min(len(changed), 90))] = dice.choice((0, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        try:
            parse(memoryview(bytes(changed)))
        except MalformedMessage:
            refused += 1
    assert refused


def test_rare_answers_that_are_none_are_malformed() -> None:
    for api, version in (("Metadata", 12), ("ListOffsets", 7), ("CreateTopics", 7), ("ApiVersions", 0)):
        for data in (b"", b"\0" * 5):
            with pytest.raises(MalformedMessage):
                commands.parse_library_response(api, version, memoryview(data))


def test_every_reason_has_a_named_code() -> None:
    assert set(errors.REASON_OF) | errors.RETRIABLE <= set(errors.NAMES)
    assert errors.name_of(3) == "UNKNOWN_TOPIC_OR_PARTITION (3)" and errors.name_of(12345) == "error (12345)"


@pytest.mark.parametrize("aborted", [(), ((7, 5), (8, 1 << 40))])
def test_fetch_by_id_is_what_a_server_understands(aborted: tuple[tuple[int, int], ...]) -> None:
    topic_id = bytes(range(16))
    how = {"leader_epoch": 4, "max_bytes": 1 << 20, "wait_ms": 500}
    frame = memoryview(fetch_by_id.encode_fetch_by_id(7, "lading", topic_id, 3, 1 << 40, **how))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    request = fetch.parse_fetch_request(frame[4:], parse_request_header(frame[4:]))
    assert (request.version, request.by_id, request.committed, request.wait_ms) == (13, True, True, 500)
    assert request.topics == [(topic_id, [fetch.FetchPartition(3, 1 << 40, 4, 1 << 20)])]
    told = message("consumer", "FetchRequest").decode(bytes(frame[4:]), version=13, header=True)
    assert told.topics[0].topic_id.bytes == topic_id
    assert told.topics[0].partitions[0].fetch_offset == 1 << 40
    part = fetch.FetchedPartition(3, 0, 90, 80, 5, [b"batches"], 7, aborted)
    answer = memoryview(b"".join(fetch.fetch_answer(request, [(topic_id, [part])])))[4:]
    read = fetch_by_id.parse_fetch_by_id(answer)
    assert (read.error, read.high_watermark, read.last_stable_offset, read.first_offset) == (0, 90, 80, 5)
    assert tuple(read.aborted) == aborted
    assert bytes(answer[read.start : read.end]) == b"batches"
    for end in range(len(answer) - 2):
        try:
            fetch_by_id.parse_fetch_by_id(answer[:end])
        except MalformedMessage:
            continue

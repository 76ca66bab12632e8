"""Share groups (KIP-932) as clients see them: raw requests, confluent-kafka's share consumer, and a client of NSQ."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lading import testing
from lading.dialects.carrier import Carried, carry
from lading.dialects.kafka import layout
from lading.dialects.kafka.batch_slicing import slice_holding
from lading.dialects.kafka.errors import (
    GROUP_NOT_EMPTY,
    GROUP_NOT_FOUND,
    INVALID_RECORD_STATE,
    INVALID_REQUEST,
    INVALID_SHARE_SESSION_EPOCH,
    NONE,
    SHARE_SESSION_NOT_FOUND,
    UNKNOWN_MEMBER,
    UNKNOWN_TOPIC_ID,
)
from lading.dialects.kafka.messages import read_batches
from lading.dialects.kafka.protocol import RECORDS
from lading.endpoints.kafka.share_fetch import list_parts
from lading.model.errors import MalformedMessage
from tests.broker.channel_room import Reader, put
from tests.broker.room import NOW, opened, topic_of
from tests.endpoints import kafka_frames
from tests.endpoints.kafka_frames import KafkaFrames, batch, record
from tests.endpoints.nsq_client import NsqClient

TIMEOUT_S = 40.0
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def create(address: str, topic: str, count: int = 0, partitions_count: int = 1) -> UUID:
    """Create a topic with messages "0" to "count - 1" in its first partition; return its id."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions_count)])[topic].result(20)
    produce(address, topic, 0, count)
    frames = KafkaFrames(address)
    (found,) = frames.ask(
        "Metadata", 12, topics=[{"topic_id": None, "name": topic}], allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    ).topics  # fmt: skip
    frames.close()
    return UUID(str(found.topic_id))


def produce(address: str, topic: str, first: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": address})
    for number in range(first, end):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(TIMEOUT_S) == 0


class Member:
    """A member of a share group by raw requests; it reads partition 0 of one topic."""

    def __init__(self, address: str, group: str, topic: UUID, name: str = "m") -> None:
        self.frames = KafkaFrames(address)
        self.group, self.topic, self.name = group, topic, name
        self.epoch = 0

    def beat(self, epoch: int, *names: str) -> Any:
        fields = {"subscribed_topic_names": list(names)} if names else {}
        return self.frames.ask(
            "ShareGroupHeartbeat", 1, group_id=self.group, member_id=self.name, member_epoch=epoch, **fields
        )

    def _topics(self, *acks: tuple[int, int, Sequence[int]]) -> list[Any]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": list(kinds)}
            for first, last, kinds in acks
        ]
        return [{"topic_id": self.topic, "partitions": [{"partition_index": 0, "acknowledgement_batches": batches}]}]

    def fetch_raw(self, *acks: tuple[int, int, Sequence[int]], epoch: int, topics: Any = None, **more: Any) -> Any:
        fields = {
            "group_id": self.group, "member_id": self.name, "share_session_epoch": epoch, "max_wait_ms": 0,
            "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500, "share_acquire_mode": 1,
            "is_renew_ack": False, "topics": self._topics(*acks) if topics is None else topics,
            "forgotten_topics_data": [],
        }  # fmt: skip
        return self.frames.ask("ShareFetch", 2, **fields | more)

    def fetch(self, *acks: tuple[int, int, Sequence[int]], **more: Any) -> list[tuple[int, int, int]]:
        """Fetch within the session; return the ranges that were acquired: first, last, delivery count."""
        got = self.fetch_raw(*acks, epoch=self.epoch, **more)
        assert got.error_code == NONE, got
        self.epoch += 1
        rows = [row for topic in got.responses for row in topic.partitions]
        assert all(row.error_code == row.acknowledge_error_code == NONE for row in rows), got
        return [(one.first_offset, one.last_offset, one.delivery_count) for row in rows for one in row.acquired_records]

    def settle(self, *acks: tuple[int, int, Sequence[int]], epoch: int | None = None, renews: bool = False) -> Any:
        """Acknowledge within the session; return the code of the partition, or of the whole request."""
        got = self.frames.ask(
            "ShareAcknowledge", 2, group_id=self.group, member_id=self.name, is_renew_ack=renews,
            share_session_epoch=self.epoch if epoch is None else epoch, topics=self._topics(*acks),
        )  # fmt: skip
        if got.error_code:
            return got.error_code
        self.epoch += 1
        return got.responses[0].partitions[0].error_code

    def close(self) -> None:
        self.frames.close()


def configure(address: str, group: str, **values: str) -> None:
    """Set configs of a group, ``share.`` left out."""
    frames = KafkaFrames(address)
    configs = [
        {"name": f"share.{name.replace('_', '.')}", "config_operation": 0, "value": value}
        for name, value in values.items()
    ]
    resource = {"resource_type": 32, "resource_name": group, "configs": configs}
    got = frames.ask("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)
    assert got.responses[0].error_code == NONE, got
    frames.close()


@pytest.fixture
def kafka(broker: testing.BrokerProcess) -> str:
    return broker.endpoints["kafka"]


def test_a_member_joins_and_is_assigned_and_leaves(kafka: str) -> None:
    topic = create(kafka, "shared-members", partitions_count=3)
    one, two = Member(kafka, "members", topic, "one"), Member(kafka, "members", topic, "two")
    joined = one.beat(0, "shared-members")
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (NONE, "one", 1)
    assert [(str(row.topic_id), row.partitions) for row in joined.assignment.topic_partitions] == [
        (str(topic), [0, 1, 2])
    ]
    assert one.beat(1).assignment is None
    second = two.beat(0, "shared-members")
    shares = [one.beat(1).assignment, second.assignment]
    assert sorted(number for share in shares for number in share.topic_partitions[0].partitions) == [0, 1, 2]
    assert two.beat(9).error_code == 110
    assert Member(kafka, "members", topic, "three").beat(4).error_code == UNKNOWN_MEMBER
    assert Member(kafka, "nobody", topic).beat(4).error_code == GROUP_NOT_FOUND
    described = one.frames.ask("ShareGroupDescribe", 1, group_ids=["members"], include_authorized_operations=False)
    assert [member.member_id for member in described.groups[0].members] == ["one", "two"]
    listed = one.frames.ask("ListGroups", 5, states_filter=[], types_filter=["share"])
    assert [(group.group_id, group.group_type, group.group_state) for group in listed.groups] == [
        ("members", "share", "Stable")
    ]
    assert one.beat(-1).member_epoch == two.beat(-1).member_epoch == -1
    listed = one.frames.ask("ListGroups", 5, states_filter=["Empty"], types_filter=["share"])
    assert [group.group_id for group in listed.groups] == ["members"]
    for member in (one, two):
        member.close()


def test_messages_are_accepted_released_rejected_and_delivered_as_often_as_allowed(kafka: str) -> None:
    topic = create(kafka, "shared-kinds", 10)
    configure(kafka, "kinds", auto_offset_reset="earliest", delivery_count_limit="2")
    member = Member(kafka, "kinds", topic)
    assert member.fetch(max_records=4) == [(0, 3, 1)]
    # one of each kind: the second comes again, and no more after that
    assert member.settle((0, 3, [ACCEPT, RELEASE, REJECT, ACCEPT])) == NONE
    assert member.settle((0, 0, [ACCEPT])) == NONE, "before the first one that is not done"
    assert member.fetch(max_records=3) == [(1, 1, 2), (4, 5, 1)]
    assert member.settle((1, 1, [RELEASE])) == NONE
    assert member.fetch((4, 5, [ACCEPT])) == [(6, 9, 1)]
    assert member.settle((6, 9, [ACCEPT])) == NONE
    assert member.fetch() == []
    member.close()


def put_batch(address: str, topic: str, count: int) -> None:
    """Produce messages as one record batch."""
    frames = KafkaFrames(address)
    records = b"".join(record(number, b"x") for number in range(count))
    written = frames.ask("Produce", 9, **kafka_frames.produce(topic, batch(records, count)))
    assert written.responses[0].partition_responses[0].error_code == NONE
    frames.close()


def test_a_most_of_records_is_strict_or_takes_batches_whole(kafka: str) -> None:
    """By the mode of the request (KIP-1206, from whose example the numbers are): 1 is record_limit."""
    topic = create(kafka, "shared-ranges")
    for _ in range(3):
        put_batch(kafka, "shared-ranges", 5)
    configure(kafka, "ranges", auto_offset_reset="earliest")
    member = Member(kafka, "ranges", topic)
    assert member.fetch(max_records=6, share_acquire_mode=0) == [(0, 9, 1)]
    assert member.fetch(max_records=3, batch_size=2, share_acquire_mode=1) == [(10, 12, 1)]
    assert member.fetch(max_records=1, batch_size=1, share_acquire_mode=0) == [(13, 13, 1), (14, 14, 1)]
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(member.fetch, max_records=1, max_wait_ms=20_000, share_acquire_mode=0)
        put_batch(kafka, "shared-ranges", 5)
        assert waiting.result(30) == [(15, 19, 1)]
    member.close()


def test_whole_batches_end_at_the_most_of_locks(kafka: str) -> None:
    topic = create(kafka, "shared-locked")
    put_batch(kafka, "shared-locked", 150)
    configure(kafka, "locked", auto_offset_reset="earliest", partition_max_record_locks="100")
    member = Member(kafka, "locked", topic)
    assert member.fetch(max_records=1, share_acquire_mode=0) == [(0, 99, 1)]
    member.close()


def test_wrong_sessions_and_acknowledgements_get_the_errors_of_the_protocol(kafka: str) -> None:
    topic = create(kafka, "shared-errors", 6)
    configure(kafka, "errors", auto_offset_reset="earliest")
    one, two = Member(kafka, "errors", topic, "one"), Member(kafka, "errors", topic, "two")
    assert one.fetch_raw(epoch=3).error_code == SHARE_SESSION_NOT_FOUND
    assert one.fetch_raw((0, 0, [ACCEPT]), epoch=0).error_code == INVALID_REQUEST
    assert one.fetch_raw(epoch=0, member_id="x" * 37).error_code == INVALID_REQUEST
    assert one.fetch(max_records=3) == [(0, 2, 1)]
    assert one.settle((0, 0, [ACCEPT]), epoch=7) == INVALID_SHARE_SESSION_EPOCH
    assert one.settle((0, 0, [ACCEPT]), epoch=0) == INVALID_SHARE_SESSION_EPOCH
    assert two.settle((0, 0, [ACCEPT]), epoch=1) == SHARE_SESSION_NOT_FOUND
    assert two.fetch(max_records=1) == [(3, 3, 1)]
    assert two.settle((0, 0, [ACCEPT])) == INVALID_RECORD_STATE, "of another member"
    assert two.settle((3, 4, [ACCEPT])) == INVALID_REQUEST, "never delivered"
    assert two.settle((0, 1 << 62, [ACCEPT])) == INVALID_REQUEST
    assert two.settle((3, 3, [9])) == INVALID_REQUEST
    assert two.settle((3, 3, [RENEW])) == INVALID_REQUEST, "without the field that says so"
    assert two.settle((3, 2, [ACCEPT])) == INVALID_REQUEST
    assert two.settle((3, 3, [])) == INVALID_REQUEST
    # all or none
    assert one.settle((0, 1, [ACCEPT]), (3, 3, [ACCEPT])) == INVALID_RECORD_STATE
    assert one.settle((0, 2, [ACCEPT, ACCEPT, ACCEPT])) == NONE
    assert one.settle((1, 1, [ACCEPT])) == NONE, "before the first one that is not done"
    assert two.settle((3, 3, [RENEW]), renews=True) == NONE
    assert two.settle((3, 3, [ACCEPT])) == NONE
    missing = [{"topic_id": UUID(int=5), "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}]
    got = one.fetch_raw(epoch=one.epoch, topics=missing)
    # what is there is delivered next to the error
    codes = {str(row.topic_id): row.partitions[0].error_code for row in got.responses}
    assert codes == {str(UUID(int=5)): UNKNOWN_TOPIC_ID, str(topic): NONE}
    for member in (one, two):
        member.close()


def test_a_closed_session_and_a_lost_connection_give_messages_back(kafka: str) -> None:
    topic = create(kafka, "shared-closing", 4)
    configure(kafka, "closing", auto_offset_reset="earliest")
    one, two = Member(kafka, "closing", topic, "one"), Member(kafka, "closing", topic, "two")
    assert one.fetch(max_records=2) == [(0, 1, 1)]
    assert one.fetch_raw((0, 0, [ACCEPT]), epoch=-1).error_code == NONE
    assert one.settle((1, 1, [ACCEPT])) == SHARE_SESSION_NOT_FOUND
    assert two.fetch(max_records=2)[0][:2] == (1, 2)
    two.close()
    three = Member(kafka, "closing", topic, "three")
    assert three.fetch(max_wait_ms=20_000)[0][0] == 1
    for member in (one, three):
        member.close()


def test_a_fetch_waits_for_messages(kafka: str) -> None:
    topic = create(kafka, "shared-waiting")
    member = Member(kafka, "waiting", topic)
    # latest: the queue begins when it is first read
    assert member.fetch() == []
    frame = member.frames.request(
        "ShareFetch", 2, group_id="waiting", member_id="m", share_session_epoch=1, max_wait_ms=30_000, min_bytes=1,
        max_bytes=1 << 20, max_records=500, batch_size=500, share_acquire_mode=0, is_renew_ack=False, topics=[],
        forgotten_topics_data=[],
    )  # fmt: skip
    member.frames.send(frame)
    produce(kafka, "shared-waiting", 0, 1)
    assert b"0" in member.frames.answer()
    member.close()


def test_a_message_that_cannot_be_converted_holds_up_no_other(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = topic_of(broker).partition(0)
    put(broker, partition, *[b"x"] * 8)
    reader = Reader().subscribe(broker.channels.open(partition.topic, "g"), ready=8)
    broker.channels.pump(NOW)

    def fit(batch: pa.RecordBatch) -> Carried:
        if 5 in batch.column("offset").to_pylist():
            raise MalformedMessage("message 5 is damaged")
        return carry(batch, RECORDS)

    parts, unreadable = list_parts(fit, slice_holding, [(reader.deliveries[0].page, np.arange(8))])
    assert unreadable.tolist() == [5]
    tables = [read_batches(np.frombuffer(part, np.uint8), 0, len(part)).table for part in parts]
    assert [int(row[layout.COUNT]) for table in tables for row in table] == [4, 1, 2]
    broker.stop()


def test_a_share_group_and_a_channel_of_one_name_are_one_queue(broker: testing.BrokerProcess, kafka: str) -> None:
    topic = create(kafka, "shared-queue", 6)
    configure(kafka, "queue", auto_offset_reset="earliest")
    member = Member(kafka, "queue", topic)
    assert member.fetch(max_records=3) == [(0, 2, 1)]
    client = NsqClient(broker.endpoints["nsqd_tcp"])
    assert client.ask(b"SUB shared-queue queue\n") == b"OK"
    client.send(b"RDY 10\n")
    offsets = []
    for _ in range(3):
        message = client.message()
        offsets.append(int(message.body))
        client.fin(message)
    assert offsets == [3, 4, 5]
    # what a member of the group gives back goes to the client of NSQ, which counts one delivery more
    assert member.settle((0, 2, [ACCEPT, RELEASE, ACCEPT])) == NONE
    message = client.message()
    assert (int(message.body), message.attempts) == (1, 2)
    client.close()
    member.close()


def test_a_queue_outlasts_a_kill(tmp_path: Path) -> None:
    with testing.broker(tmp_path) as running:
        topic = create(running.endpoints["kafka"], "shared-kill", 10)
        configure(running.endpoints["kafka"], "kill", auto_offset_reset="earliest")
        member = Member(running.endpoints["kafka"], "kill", topic)
        assert member.beat(0, "shared-kill").error_code == NONE
        assert member.fetch(max_records=6) == [(0, 5, 1)]
        assert member.settle((0, 0, [ACCEPT]), (2, 4, [ACCEPT, RELEASE, REJECT])) == NONE
        running.kill()
    with testing.broker(tmp_path) as running:
        address = running.endpoints["kafka"]
        member = Member(address, "kill", topic)
        listed = member.frames.ask("ListGroups", 5, states_filter=[], types_filter=["share"])
        assert [(group.group_id, group.group_state) for group in listed.groups] == [("kill", "Empty")]
        got = member.fetch(max_records=100)
        offsets = [offset for first, last, _ in got for offset in range(first, last + 1)]
        assert offsets == [1, 3, 5, 6, 7, 8, 9]
        assert {first: attempts for first, _, attempts in got}[3] == 2
        member.close()


def test_offsets_are_described_altered_and_deleted_without_members(kafka: str) -> None:
    topic = create(kafka, "shared-offsets", 8)
    configure(kafka, "offsets", auto_offset_reset="earliest")
    member = Member(kafka, "offsets", topic)
    assert member.beat(0, "shared-offsets").error_code == NONE
    assert member.fetch(max_records=5) == [(0, 4, 1)]
    assert member.settle((0, 1, [ACCEPT])) == NONE

    def describe() -> Any:
        got = member.frames.ask("DescribeShareGroupOffsets", 1, groups=[{"group_id": "offsets", "topics": None}])
        return [
            (row.topic_name, one.partition_index, one.start_offset, one.lag)
            for row in got.groups[0].topics
            for one in row.partitions
        ]

    def alter(offset: int) -> Any:
        rows = [{"topic_name": "shared-offsets", "partitions": [{"partition_index": 0, "start_offset": offset}]}]
        got = member.frames.ask("AlterShareGroupOffsets", 0, group_id="offsets", topics=rows)
        return got.error_code or got.responses[0].partitions[0].error_code

    def delete() -> Any:
        rows = [{"topic_name": "shared-offsets"}]
        got = member.frames.ask("DeleteShareGroupOffsets", 0, group_id="offsets", topics=rows)
        return got.error_code or got.responses[0].error_code

    assert describe() == [("shared-offsets", 0, 2, 6)]
    assert alter(5) == delete() == GROUP_NOT_EMPTY
    assert member.fetch_raw(epoch=-1, topics=[]).error_code == NONE
    assert member.beat(-1).error_code == NONE
    assert alter(5) == NONE
    assert describe() == [("shared-offsets", 0, 5, 3)]
    assert delete() == NONE
    assert describe() == []
    got = member.frames.ask("DeleteGroups", 2, groups_names=["offsets"])
    assert got.results[0].error_code == NONE
    listed = member.frames.ask("ListGroups", 5, states_filter=[], types_filter=["share"])
    assert "offsets" not in [group.group_id for group in listed.groups]
    member.close()


@contextmanager
def sharing(address: str, group: str, topic: str) -> Iterator[ShareConsumer]:
    consumer = ShareConsumer({"bootstrap.servers": address, "group.id": group})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def test_two_share_consumers_of_confluent_kafka_drain_a_topic(kafka: str) -> None:
    create(kafka, "shared-confluent", 200)
    configure(kafka, "confluent", auto_offset_reset="earliest")
    values: list[bytes] = []
    with sharing(kafka, "confluent", "shared-confluent") as one, sharing(kafka, "confluent", "shared-confluent") as two:
        until = time.monotonic() + TIMEOUT_S
        while len(values) < 200 and time.monotonic() < until:
            for consumer in (one, two):
                for message in consumer.poll(0.2):
                    assert message.error() is None, message.error()
                    values.append(message.value())  # type: ignore[arg-type]
        for consumer in (one, two):
            consumer.commit_sync(10)
    assert sorted(map(int, values)) == list(range(200))

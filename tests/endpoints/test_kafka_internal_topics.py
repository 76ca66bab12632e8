"""Kafka's internal topics, as far as clients see them: listed, described, read as empty logs, changed by none.

Codes and rows are those of Apache Kafka 4.3.1, which lets clients grow and delete internal topics and change their
configs. 3 is UNKNOWN_TOPIC_OR_PARTITION, 17 INVALID_TOPIC_EXCEPTION, 29 TOPIC_AUTHORIZATION_FAILED, 36
TOPIC_ALREADY_EXISTS.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import lading
from lading import testing
from lading.broker.core.access.rights import ResourceKind, Right
from tests.endpoints.identity import PASSWORDS, broker_with_users, rule
from tests.endpoints.kafka_frames import KafkaFrames, one_batch, produce

OFFSETS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"
BOTH = (OFFSETS, TRANSACTIONS)


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaFrames]:
    """A connection to a broker that has one topic, one group and one transactional id."""
    with testing.broker() as running:
        frames = KafkaFrames(running.endpoints["kafka"])
        assert list_internal(frames) == {}
        asked = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        frames.ask("CreateTopics", 7, topics=[asked], timeout_ms=1000, validate_only=False)
        assert commit(frames, "t", 0) == 0
        assert list_internal(frames) == {"t": False, OFFSETS: True}
        frames.ask("InitProducerId", 3, transactional_id="x", transaction_timeout_ms=60_000)
        yield frames
        frames.close()


def list_internal(kafka: KafkaFrames, version: int = 12) -> dict[str, bool]:
    """Whether each topic is internal."""
    rows = kafka.ask("Metadata", version, topics=None, allow_auto_topic_creation=False).topics
    return {row.name: row.is_internal for row in rows}


def commit(kafka: KafkaFrames, topic: str, offset: int) -> int:
    position = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
    answer = kafka.ask(
        "OffsetCommit", 8, group_id="g", generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
        topics=[{"name": topic, "partitions": [{**position, "committed_metadata": ""}]}],
    )  # fmt: skip
    code: int = answer.topics[0].partitions[0].error_code
    return code


@pytest.mark.parametrize("version", [1, 5, 9, 12])
def test_metadata_lists_internal_topics_once_they_are_used(kafka: KafkaFrames, version: int) -> None:
    assert list_internal(kafka, version) == {"t": False, OFFSETS: True, TRANSACTIONS: True}


def test_internal_topics_are_named_by_name_and_by_id(kafka: KafkaFrames) -> None:
    asked = [{"name": name, "topic_id": None} for name in BOTH]
    rows = kafka.ask("Metadata", 12, topics=asked, allow_auto_topic_creation=True).topics
    assert [(row.error_code, row.name, row.is_internal, len(row.partitions)) for row in rows] == [
        (0, name, True, 1) for name in BOTH
    ]
    by_id = [{"name": None, "topic_id": row.topic_id} for row in rows]
    found = kafka.ask("Metadata", 12, topics=by_id, allow_auto_topic_creation=True).topics
    assert [(row.error_code, row.name) for row in found] == [(0, name) for name in BOTH]
    described = kafka.ask(
        "DescribeTopicPartitions", 0, topics=[{"name": name} for name in BOTH], response_partition_limit=9, cursor=None
    ).topics
    assert [(row.error_code, row.name, row.is_internal, len(row.partitions)) for row in described] == [
        (0, name, True, 1) for name in BOTH
    ]


@pytest.mark.parametrize("time_ms, offset", [(-1, 0), (-2, 0), (-3, -1), (-4, 0), (-5, -1), (5, -1)])
def test_internal_topics_begin_and_end_at_0(kafka: KafkaFrames, time_ms: int, offset: int) -> None:
    part = {"partition_index": 0, "timestamp": time_ms, "current_leader_epoch": -1}
    asked = [{"name": name, "partitions": [part]} for name in BOTH]
    told = kafka.ask("ListOffsets", 9, replica_id=-1, isolation_level=1, topics=asked, timeout_ms=100)
    rows = [one.partitions[0] for one in told.topics]
    assert [(one.error_code, one.offset, one.timestamp) for one in rows] == [(0, offset, -1)] * 2


def test_leader_epochs_of_internal_topics_end_at_0(kafka: KafkaFrames) -> None:
    part = {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}
    asked = [{"topic": name, "partitions": [part]} for name in BOTH]
    told = kafka.ask("OffsetForLeaderEpoch", 4, replica_id=-1, topics=asked)
    rows = [one.partitions[0] for one in told.topics]
    assert [(one.error_code, one.leader_epoch, one.end_offset) for one in rows] == [(0, 0, 0)] * 2


def fetch(kafka: KafkaFrames, version: int, topics: list[dict[str, Any]], wait_ms: int) -> list[Any]:
    answer = kafka.ask(
        "Fetch", version, replica_id=-1, max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, isolation_level=1,
        session_id=0, session_epoch=-1, topics=topics, forgotten_topics_data=[], rack_id="",
    )  # fmt: skip
    return [row.partitions[0] for row in answer.responses]


@pytest.mark.parametrize("version", [11, 16])
def test_a_fetch_of_internal_topics_waits_as_at_empty_ones(kafka: KafkaFrames, version: int) -> None:
    asked = [{"name": name, "topic_id": None} for name in BOTH]
    rows = kafka.ask("Metadata", 12, topics=asked, allow_auto_topic_creation=False).topics
    part = {
        "partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": 0,
        "last_fetched_epoch": -1, "log_start_offset": -1,
    }  # fmt: skip
    names = [{"topic_id": row.topic_id} if version >= 13 else {"topic": row.name} for row in rows]
    began = time.monotonic()
    found = fetch(kafka, version, [{**name, "partitions": [part]} for name in names], wait_ms=150)
    assert time.monotonic() - began >= 0.15
    assert [(one.error_code, one.high_watermark, one.last_stable_offset, one.log_start_offset) for one in found] == [
        (0, 0, 0, 0)
    ] * 2
    assert not any(one.records for one in found)
    behind = [{**names[0], "partitions": [{**part, "fetch_offset": 5}]}]
    assert [one.error_code for one in fetch(kafka, version, behind, wait_ms=10_000)] == [1]


def test_internal_topics_have_the_configs_of_apache_kafka(kafka: KafkaFrames) -> None:
    asked = [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in BOTH]
    told = kafka.ask("DescribeConfigs", 4, resources=asked, include_synonyms=False, include_documentation=False)
    values = [{one.name: one.value for one in row.configs} for row in told.results]
    wanted = ("cleanup.policy", "compression.type", "segment.bytes")
    assert [[each[name] for name in wanted] for each in values] == [
        ["compact", "producer", "104857600"],
        ["compact", "uncompressed", "104857600"],
    ]
    resources = kafka.ask("ListConfigResources", 1, resource_types=[2]).config_resources
    assert {row.resource_name for row in resources} == {"t", *BOTH}


def test_the_state_of_share_groups_is_kept_for_ever(kafka: KafkaFrames) -> None:
    asked = [{"resource_type": 2, "resource_name": SHARES, "configuration_keys": None}]
    [told] = kafka.ask(
        "DescribeConfigs", 4, resources=asked, include_synonyms=False, include_documentation=False
    ).results
    values = {one.name: one.value for one in told.configs}
    wanted = ("cleanup.policy", "retention.ms", "compression.type", "segment.bytes")
    assert [values[name] for name in wanted] == ["delete", "-1", "producer", "104857600"]


@pytest.mark.parametrize("topics", [None, [{"topic": name, "partitions": [0]} for name in BOTH]])
def test_directories_have_internal_topics(kafka: KafkaFrames, topics: Any) -> None:
    [told] = kafka.ask("DescribeLogDirs", 4, topics=topics).results
    sizes = {row.name: [(one.partition_index, one.partition_size) for one in row.partitions] for row in told.topics}
    assert {name: sizes[name] for name in BOTH} == {name: [(0, 0)] for name in BOTH}


def delete_offsets(
    kafka: KafkaFrames, group: str, topics: dict[str, list[int]]
) -> tuple[int, dict[tuple[str, int], int]]:
    """The error of an OffsetDelete, and that of each partition."""
    rows = [
        {"name": name, "partitions": [{"partition_index": number} for number in numbers]}
        for name, numbers in topics.items()
    ]
    answer = kafka.ask("OffsetDelete", 0, group_id=group, topics=rows)
    codes = {(row.name, one.partition_index): one.error_code for row in answer.topics for one in row.partitions}
    return answer.error_code, codes


def test_positions_in_internal_topics_are_deleted_if_these_are_listed() -> None:
    with testing.broker() as running:
        frames = KafkaFrames(running.endpoints["kafka"])
        asked = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        frames.ask("CreateTopics", 7, topics=[asked], timeout_ms=1000, validate_only=False)
        assert commit(frames, "t", 0) == commit(frames, OFFSETS, 0) == 0
        topics = {OFFSETS: [0, 77], TRANSACTIONS: [0], SHARES: [0], "missing": [0], "t": [0, 9]}
        assert delete_offsets(frames, "g", topics) == (
            0,
            {
                (OFFSETS, 0): 0, (OFFSETS, 77): 3, (TRANSACTIONS, 0): 3, (SHARES, 0): 3, ("missing", 0): 3,
                ("t", 0): 0, ("t", 9): 3,
            },
        )  # fmt: skip
        # a question whether there is something to delete creates nothing
        assert list_internal(frames) == {"t": False, OFFSETS: True}
        frames.close()


def join_share_group(kafka: KafkaFrames, group: str, names: list[str]) -> Any:
    fields = {"group_id": group, "member_id": "m", "member_epoch": 0, "rack_id": None}
    return kafka.ask("ShareGroupHeartbeat", 1, **fields, subscribed_topic_names=names)


def describe_share_offsets(kafka: KafkaFrames, group: str) -> dict[str, list[tuple[int, int, int]]]:
    """By topic that a share group reads, the start, lag and error of each partition."""
    [told] = kafka.ask("DescribeShareGroupOffsets", 1, groups=[{"group_id": group, "topics": None}]).groups
    assert told.error_code == 0
    return {
        row.topic_name: [(one.start_offset, one.lag, one.error_code) for one in row.partitions] for row in told.topics
    }


def test_share_groups_read_internal_topics_as_empty_ones() -> None:
    """Subscribed, fetched, reset, deleted and left, as a share group does with Apache Kafka 4.3.1."""
    with testing.broker() as running:
        frames = KafkaFrames(running.endpoints["kafka"])
        asked = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        frames.ask("CreateTopics", 7, topics=[asked], timeout_ms=1000, validate_only=False)
        names = [OFFSETS, SHARES, "t"]
        joined = join_share_group(frames, "s", names)
        assert joined.error_code == 0
        assert list_internal(frames) == {"t": False, OFFSETS: True, SHARES: True}
        rows = frames.ask("Metadata", 12, topics=None, allow_auto_topic_creation=False).topics
        ids = {row.name: row.topic_id for row in rows}
        assigned = {one.topic_id: one.partitions for one in joined.assignment.topic_partitions}
        assert assigned == {ids[name]: [0] for name in names}
        [told] = frames.ask("ShareGroupDescribe", 1, group_ids=["s"], include_authorized_operations=False).groups
        assert {one.topic_name for one in told.members[0].assignment.topic_partitions} == {*names}
        assert describe_share_offsets(frames, "s") == {name: [(-1, -1, 0)] for name in names}
        part = {"partition_index": 0, "acknowledgement_batches": []}
        wanted = {
            "group_id": "s", "member_id": "m", "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20,
            "max_records": 500, "batch_size": 500, "forgotten_topics_data": [],
        }  # fmt: skip
        topics = [{"topic_id": ids[name], "partitions": [part]} for name in names]
        fetched = frames.ask("ShareFetch", 1, **wanted, share_session_epoch=0, topics=topics)
        assert fetched.error_code == 0
        assert {row.topic_id: row.partitions[0].error_code for row in fetched.responses} == {
            ids[name]: 0 for name in names
        }
        assert not any(row.partitions[0].records for row in fetched.responses)
        assert frames.ask("ShareFetch", 1, **wanted, share_session_epoch=1, topics=[]).error_code == 0
        # positions of share groups are not those of consumers
        assert delete_offsets(frames, "s", {OFFSETS: [0], "t": [0]}) == (69, {})
        left = frames.ask(
            "ShareGroupHeartbeat", 1, group_id="s", member_id="m", member_epoch=-1, rack_id=None,
            subscribed_topic_names=None,
        )  # fmt: skip
        assert left.error_code == 0
        # the session of the member that left is still open
        starts = [
            {"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 0}]}
            for name in (*names, "missing")
        ]
        altered = frames.ask("AlterShareGroupOffsets", 0, group_id="s", topics=starts)
        assert (altered.error_code, {row.topic_name: row.partitions[0].error_code for row in altered.responses}) == (
            0, {OFFSETS: 0, SHARES: 0, "t": 0, "missing": 3},
        )  # fmt: skip
        assert describe_share_offsets(frames, "s")["t"] == [(0, 0, 0)]
        deleted = frames.ask(
            "DeleteShareGroupOffsets", 0, group_id="s", topics=[{"topic_name": name} for name in (*names, "missing")]
        )
        assert (deleted.error_code, {row.topic_name: row.error_code for row in deleted.responses}) == (
            0, {OFFSETS: 0, SHARES: 0, "t": 0, "missing": 3},
        )  # fmt: skip
        assert describe_share_offsets(frames, "s") == {}
        frames.close()


def heartbeat(kafka: KafkaFrames, group: str, epoch: int, **more: Any) -> Any:
    """A member of a group of the newer protocol joins, or says that it lives."""
    fields = {
        "group_id": group, "member_id": "m", "member_epoch": epoch, "instance_id": None, "rack_id": None,
        "rebalance_timeout_ms": 10_000, "subscribed_topic_names": None, "subscribed_topic_regex": None,
        "server_assignor": None, "topic_partitions": [],
    }  # fmt: skip
    return kafka.ask("ConsumerGroupHeartbeat", 1, **fields | more)


@pytest.mark.parametrize(
    "subscription",
    [{"subscribed_topic_regex": "__consumer_.*", "subscribed_topic_names": []}, {"subscribed_topic_names": [OFFSETS]}],
)
def test_members_of_newer_groups_are_assigned_internal_topics(kafka: KafkaFrames, subscription: dict[str, Any]) -> None:
    group = f"newer_{len(subscription)}"
    joined = heartbeat(kafka, group, 0, **subscription)
    assert joined.error_code == 0
    [row] = kafka.ask(
        "Metadata", 12, topics=[{"name": OFFSETS, "topic_id": None}], allow_auto_topic_creation=True
    ).topics
    assert [(one.topic_id, one.partitions) for one in joined.assignment.topic_partitions] == [(row.topic_id, [0])]
    [told] = kafka.ask("ConsumerGroupDescribe", 1, group_ids=[group], include_authorized_operations=False).groups
    [member] = told.members
    assert [one.topic_name for one in member.assignment.topic_partitions] == [OFFSETS]
    assert heartbeat(kafka, group, -1).error_code == 0


@pytest.mark.parametrize("name", (*BOTH, SHARES))
def test_nothing_writes_to_internal_topics_or_changes_them(kafka: KafkaFrames, name: str) -> None:
    written = kafka.ask("Produce", 9, **produce(name, one_batch(b"x")))
    assert written.responses[0].partition_responses[0].error_code == 17
    row = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    created = kafka.ask("CreateTopics", 7, topics=[row], timeout_ms=1000, validate_only=False).topics
    assert [one.error_code for one in created] == [36]
    deleted = kafka.ask("DeleteTopics", 4, topic_names=[name], timeout_ms=1000).responses
    assert [one.error_code for one in deleted] == [17]
    [named] = kafka.ask("Metadata", 12, topics=[{"name": name, "topic_id": None}]).topics
    by_id = [{"name": None, "topic_id": named.topic_id}]
    assert [one.error_code for one in kafka.ask("DeleteTopics", 6, topics=by_id, timeout_ms=1000).responses] == [17]
    grown = kafka.ask(
        "CreatePartitions", 3, topics=[{"name": name, "count": 5, "assignments": None}], timeout_ms=1000,
        validate_only=False,
    ).results  # fmt: skip
    assert [one.error_code for one in grown] == [17]
    parts = [{"partition_index": 0, "offset": 0}]
    trimmed = kafka.ask("DeleteRecords", 2, topics=[{"name": name, "partitions": parts}], timeout_ms=1000).topics
    assert trimmed[0].partitions[0].error_code == 17
    configs = [{"name": "retention.ms", "config_operation": 0, "value": "100000"}]
    altered = kafka.ask(
        "IncrementalAlterConfigs", 1, validate_only=False,
        resources=[{"resource_type": 2, "resource_name": name, "configs": configs}],
    ).responses  # fmt: skip
    assert [one.error_code for one in altered] == [17]
    assert "internal" in altered[0].error_message
    init = kafka.ask("InitProducerId", 3, transactional_id="x", transaction_timeout_ms=60_000)
    added = kafka.ask(
        "AddPartitionsToTxn", 3, v3_and_below_transactional_id="x", v3_and_below_producer_id=init.producer_id,
        v3_and_below_producer_epoch=init.producer_epoch, v3_and_below_topics=[{"name": name, "partitions": [0]}],
    )  # fmt: skip
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 29
    assert list_internal(kafka).items() >= {"t": False, OFFSETS: True, TRANSACTIONS: True}.items()


def test_a_position_in_an_internal_topic_is_its_begin(kafka: KafkaFrames) -> None:
    """A consumer that commits where it is gets no error; there is nothing to be kept."""
    assert commit(kafka, OFFSETS, 0) == 0
    found = kafka.ask("OffsetFetch", 7, group_id="g", topics=None, require_stable=False).topics
    assert [one.name for one in found] == ["t"]


def test_other_protocols_do_not_know_internal_topics() -> None:
    with testing.broker() as running:
        frames = KafkaFrames(running.endpoints["kafka"])
        asked = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        frames.ask("CreateTopics", 7, topics=[asked], timeout_ms=1000, validate_only=False)
        assert list_internal(frames) == {"t": False}
        # Kafka creates one that a client names; franz-go's TestConsumeRegex relies on it
        frames.ask("Metadata", 12, topics=[{"name": OFFSETS, "topic_id": None}])
        assert list_internal(frames) == {"t": False, OFFSETS: True}
        with httpx.Client(timeout=20) as http:
            stats = http.get(f"http://{running.endpoints['nsqd_http']}/stats?format=json").json()
            assert [topic["topic_name"] for topic in stats["topics"]] == ["t"]
        for address in (running.url, f"kafka://{running.endpoints['kafka']}"):
            with lading.Admin(address) as admin:
                assert [topic.name for topic in admin.list_topics()] == ["t"]
        frames.close()


def test_an_internal_topic_is_listed_while_it_is_used() -> None:
    """A list itself is not a question for a name, after which the topic would stay."""
    with testing.broker() as running:
        frames = KafkaFrames(running.endpoints["kafka"])
        asked = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        frames.ask("CreateTopics", 7, topics=[asked], timeout_ms=1000, validate_only=False)
        assert commit(frames, "t", 0) == 0
        assert list_internal(frames) == {"t": False, OFFSETS: True}
        frames.ask("DeleteGroups", 2, groups_names=["g"])
        assert list_internal(frames) == {"t": False}
        frames.close()


def test_rights_apply_to_internal_topics(tmp_path: Path) -> None:
    rules = [
        rule("ann", Right.DESCRIBE, OFFSETS),
        rule("bob", Right.READ, OFFSETS),
        rule("ann", Right.READ, "g", kind=ResourceKind.GROUP),
        rule("ann", Right.READ, "t"),
    ]
    with broker_with_users(tmp_path / "data", rules) as (running, _):
        seen = {}
        for name in ("root", "ann", "bob"):
            frames = KafkaFrames(running.endpoints["kafka"])
            assert frames.ask("SaslHandshake", 1, mechanism="PLAIN").error_code == 0
            login = f"\0{name}\0{PASSWORDS[name]}".encode()
            assert frames.ask("SaslAuthenticate", 2, auth_bytes=login).error_code == 0
            if name == "root":
                row = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
                frames.ask("CreateTopics", 7, topics=[row], timeout_ms=1000, validate_only=False)
                assert commit(frames, "t", 0) == 0
                frames.ask("InitProducerId", 3, transactional_id="x", transaction_timeout_ms=60_000)
            part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
            fetched = fetch(frames, 11, [{"topic": each, "partitions": [part]} for each in BOTH], wait_ms=0)
            described = frames.ask("Metadata", 12, topics=[{"name": TRANSACTIONS, "topic_id": None}]).topics
            codes = [one.error_code for one in (*fetched, *described)]
            seen[name] = (list_internal(frames), codes)
            frames.close()
    assert seen == {
        "root": ({"t": False, OFFSETS: True, TRANSACTIONS: True}, [0, 0, 0]),
        "ann": ({"t": False, OFFSETS: True}, [29, 29, 29]),
        "bob": ({OFFSETS: True}, [0, 29, 29]),
    }

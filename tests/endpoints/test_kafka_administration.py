"""What administrators' clients ask for beside topics and messages, answered as Apache Kafka 4.3.1 does it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lading import testing
from lading.testing import BrokerProcess
from tests.endpoints.kafka_frames import KafkaFrames, one_batch

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS = range(3, 12)
IDEMPOTENT_WRITE = 12
OF_TOPIC = {READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS}
OF_GROUP = {READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS}
OF_CLUSTER = {CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE}
_names = count(1)


@pytest.fixture
def kafka(broker: BrokerProcess) -> Iterator[KafkaFrames]:
    frames = KafkaFrames(broker.endpoints["kafka"])
    yield frames
    frames.close()


@pytest.fixture
def topic(kafka: KafkaFrames) -> str:
    """A new topic of two partitions."""
    name = f"administered-{next(_names)}"
    asked = {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    made = kafka.ask("CreateTopics", 7, topics=[asked], timeout_ms=1000, validate_only=False)
    assert made.topics[0].error_code == 0
    return name


@pytest.mark.parametrize("version", range(8, 13))
def test_metadata_tells_authorized_operations_to_who_asks(kafka: KafkaFrames, topic: str, version: int) -> None:
    names = [topic, "absent", "bad name!"]
    asked = [{"name": name, "topic_id": None} for name in names]
    for of_topics in (False, True):
        for of_cluster in (False, True):
            told = kafka.ask(
                "Metadata", version, topics=asked, allow_auto_topic_creation=False,
                include_topic_authorized_operations=of_topics, include_cluster_authorized_operations=of_cluster,
            )  # fmt: skip
            assert [row.authorized_operations for row in told.topics] == [OF_TOPIC if of_topics else None] * 3
            if version <= 10:
                assert told.authorized_operations == (OF_CLUSTER if of_cluster else None)
    every = kafka.ask("Metadata", version, topics=None, include_topic_authorized_operations=True).topics
    assert {row.name: row.authorized_operations for row in every}[topic] == OF_TOPIC
    name = f"made-{next(_names)}"
    made = kafka.ask(
        "Metadata", version, topics=[{"name": name, "topic_id": None}], allow_auto_topic_creation=True,
        include_topic_authorized_operations=True,
    )  # fmt: skip
    assert [(row.error_code, row.authorized_operations) for row in made.topics] == [(0, OF_TOPIC)]


def test_the_other_descriptions_tell_authorized_operations(kafka: KafkaFrames, topic: str) -> None:
    asked = [{"name": name} for name in (topic, "absent")]
    rows = kafka.ask("DescribeTopicPartitions", 0, topics=asked, response_partition_limit=9, cursor=None).topics
    bits = sum(1 << one for one in OF_TOPIC)
    assert [row.topic_authorized_operations for row in rows] == [bits, bits]
    for version in (0, 1, 2):
        for asks, wanted in ((False, None), (True, OF_CLUSTER)):
            told = kafka.ask("DescribeCluster", version, include_cluster_authorized_operations=asks, endpoint_type=1)
            assert told.authorized_operations == wanted
    for version in range(3, 7):
        for asks, wanted in ((False, None), (True, OF_GROUP)):
            told = kafka.ask("DescribeGroups", version, groups=["absent", ""], include_authorized_operations=asks)
            # of a group that is an error nothing is told
            expected = [wanted if version < 6 else None] * 2
            assert [row.authorized_operations for row in told.groups] == expected


@pytest.mark.parametrize("version", range(6))
def test_who_leaves_a_group_that_does_not_exist_is_no_member(kafka: KafkaFrames, version: int) -> None:
    members = [{"member_id": "m", "group_instance_id": None}, {"member_id": "", "group_instance_id": "i"}]
    for group, code in (("absent", 25), ("", 24)):
        told = kafka.ask("LeaveGroup", version, group_id=group, member_id="m", members=members)
        if version < 3:
            assert told.error_code == code
        else:
            found = (told.error_code, [one.error_code for one in told.members])
            assert found == ((0, [25, 25]) if group else (24, []))


def test_the_name_of_a_group_is_checked_before_all_else_of_a_request(kafka: KafkaFrames, topic: str) -> None:
    """Apache Kafka's GroupCoordinatorService: isGroupIdNotEmpty comes first in each of these."""
    invalid = 24
    member = {"group_id": "", "member_id": "m", "group_instance_id": None}
    join = {
        "member_id": "", "session_timeout_ms": 0, "rebalance_timeout_ms": 0, "protocol_type": "consumer",
        "protocols": [],
    }  # fmt: skip
    assert kafka.ask("JoinGroup", 1, group_id="", **join).error_code == invalid
    # 26 is INVALID_SESSION_TIMEOUT
    assert kafka.ask("JoinGroup", 1, group_id="g", **join).error_code == 26
    assert kafka.ask("SyncGroup", 3, **member, generation_id=1, assignments=[]).error_code == invalid
    assert kafka.ask("Heartbeat", 3, **member, generation_id=1).error_code == invalid
    partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    rows = [{"name": topic, "partitions": [partition]}]
    ids = kafka.ask("InitProducerId", 3, transactional_id=f"{topic}-t", transaction_timeout_ms=60_000)
    producer = {"producer_id": ids.producer_id, "producer_epoch": ids.producer_epoch}
    told = kafka.ask(
        "TxnOffsetCommit", 3, transactional_id=f"{topic}-t", **producer, **member, generation_id=1, topics=rows
    )
    assert told.topics[0].partitions[0].error_code == invalid
    rows = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    assert kafka.ask("OffsetDelete", 0, group_id="", topics=rows).error_code == invalid


def test_a_group_without_a_name_keeps_positions(kafka: KafkaFrames, topic: str) -> None:
    """Apache Kafka's GroupCoordinatorService: OffsetCommit, OffsetFetch, DescribeGroups and DeleteGroups support it."""
    partition = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
    commit = {
        "group_id": "", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [partition]}],
    }  # fmt: skip
    (described,) = kafka.ask("DescribeGroups", 5, groups=[""], include_authorized_operations=False).groups
    assert (described.error_code, described.group_state) == (0, "Dead")
    asked = [{"name": topic, "partition_indexes": [0]}]
    fetched = kafka.ask("OffsetFetch", 7, group_id="", topics=asked, require_stable=False)
    assert (fetched.error_code, fetched.topics[0].partitions[0].committed_offset) == (0, -1)
    # 22 is ILLEGAL_GENERATION, as of any group that does not exist; 25 is UNKNOWN_MEMBER_ID
    member = commit | {"generation_id_or_member_epoch": 1, "member_id": "m"}
    assert kafka.ask("OffsetCommit", 8, **member).topics[0].partitions[0].error_code == 22
    assert kafka.ask("OffsetCommit", 8, **commit).topics[0].partitions[0].error_code == 0
    assert kafka.ask("OffsetCommit", 8, **member).topics[0].partitions[0].error_code == 25
    fetched = kafka.ask("OffsetFetch", 7, group_id="", topics=asked, require_stable=False)
    assert fetched.topics[0].partitions[0].committed_offset == 7
    (described,) = kafka.ask("DescribeGroups", 5, groups=[""], include_authorized_operations=False).groups
    assert (described.error_code, described.group_state) == (0, "Empty")
    assert "" in {one.group_id for one in kafka.ask("ListGroups", 4, states_filter=[]).groups}
    (deleted,) = kafka.ask("DeleteGroups", 2, groups_names=[""]).results
    assert deleted.error_code == 0
    fetched = kafka.ask("OffsetFetch", 7, group_id="", topics=asked, require_stable=False)
    assert fetched.topics[0].partitions[0].committed_offset == -1


@pytest.mark.parametrize("version", [0, 1])
def test_partitions_may_be_assigned_to_the_one_broker(kafka: KafkaFrames, topic: str, version: int) -> None:
    """Codes of Apache Kafka's ReplicationControlManager: 85 is NO_REASSIGNMENT_IN_PROGRESS."""
    wanted = {0: [1], 1: None, 9: [1]}
    rows = [{"partition_index": number, "replicas": replicas} for number, replicas in wanted.items()]
    asked = [{"name": topic, "partitions": rows}, {"name": "absent", "partitions": rows[:1]}]
    told = kafka.ask("AlterPartitionReassignments", version, timeout_ms=1000, topics=asked)
    codes = {row.name: {one.partition_index: one.error_code for one in row.partitions} for row in told.responses}
    assert (told.error_code, codes) == (0, {topic: {0: 0, 1: 85, 9: 3}, "absent": {0: 3}})
    for replicas in ([2], [1, 2], [], [1, 1]):
        asked = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": replicas}]}]
        told = kafka.ask("AlterPartitionReassignments", version, timeout_ms=1000, topics=asked)
        assert told.responses[0].partitions[0].error_code == 39


@pytest.mark.parametrize("version", [1, 2])
def test_partitions_stay_in_the_one_directory(
    kafka: KafkaFrames, broker: BrokerProcess, topic: str, version: int
) -> None:
    [described] = kafka.ask("DescribeLogDirs", 4, topics=None).results
    topics = [{"name": topic, "partitions": [0, 9]}]
    for path, codes in ((described.log_dir, [0, 3]), ("/elsewhere", [57, 57])):
        [row] = kafka.ask("AlterReplicaLogDirs", version, dirs=[{"path": path, "topics": topics}]).results
        assert (row.topic_name, [one.error_code for one in row.partitions]) == (topic, codes)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_one_broker_is_the_quorum(kafka: KafkaFrames, topic: str, version: int) -> None:
    asked = [
        {"topic_name": name, "partitions": [{"partition_index": number}]}
        for name, number in (("__cluster_metadata", 0), ("__cluster_metadata", 1), (topic, 0))
    ]
    told = kafka.ask("DescribeQuorum", version, topics=asked)
    assert told.error_code == 0
    [quorum, *others] = [row.partitions[0] for row in told.topics]
    assert (quorum.error_code, quorum.leader_id, [one.replica_id for one in quorum.current_voters]) == (0, 1, [1])
    assert [row.error_code for row in others] == [3, 3]
    if version == 2:
        assert [node.node_id for node in told.nodes] == [1]


def ended(kafka: KafkaFrames, topic: str, numbers: list[int], *who: int, commit: bool = False, version: int = 1) -> Any:
    """The codes by partition of a WriteTxnMarkers with one marker."""
    marker = {
        "producer_id": who[0], "producer_epoch": who[1], "transaction_result": commit, "coordinator_epoch": 0,
        "transaction_version": 0, "topics": [{"name": topic, "partition_indexes": numbers}],
    }  # fmt: skip
    [told] = kafka.ask("WriteTxnMarkers", version, markers=[marker]).markers
    assert (told.producer_id, [one.name for one in told.topics]) == (who[0], [topic])
    return {one.partition_index: one.error_code for one in told.topics[0].partitions}


@pytest.mark.parametrize("version", [1, 2])
def test_an_administrator_aborts_a_transaction(kafka: KafkaFrames, topic: str, version: int) -> None:
    name = f"{topic}-writer"

    def added() -> list[int]:
        answer = kafka.ask(
            "AddPartitionsToTxn", 3, v3_and_below_transactional_id=name, v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1], v3_and_below_topics=[{"name": topic, "partitions": [0, 1]}],
        )  # fmt: skip
        rows = answer.results_by_topic_v3_and_below[0].results_by_partition
        return [row.partition_error_code for row in rows]

    def sent(number: int) -> int:
        data = one_batch(b"x", attributes=0x10, producer=(*who, 0))
        rows = [{"name": topic, "partition_data": [{"index": number, "records": data}]}]
        answer = kafka.ask("Produce", 7, transactional_id=name, acks=-1, timeout_ms=5000, topic_data=rows)
        code: int = answer.responses[0].partition_responses[0].error_code
        return code

    def stable_end(number: int) -> int:
        part = {"partition_index": number, "timestamp": -1, "current_leader_epoch": -1}
        asked = [{"name": topic, "partitions": [part]}]
        answer = kafka.ask("ListOffsets", 7, replica_id=-1, isolation_level=1, topics=asked)
        end: int = answer.topics[0].partitions[0].offset
        return end

    init = kafka.ask("InitProducerId", 3, transactional_id=name, transaction_timeout_ms=60_000)
    who = (init.producer_id, init.producer_epoch)
    assert (added(), sent(0), sent(1), stable_end(0)) == ([0, 0], 0, 0, 0)
    assert ended(kafka, topic, [0], *who, commit=True, version=version) == {0: 48}
    assert ended(kafka, topic, [0, 1, 7], *who, version=version) == {0: 0, 1: 0, 7: 3}
    # the control records are there with the answer
    assert (stable_end(0), stable_end(1)) == (2, 2)
    committed = {"transactional_id": name, "producer_id": who[0], "producer_epoch": who[1], "committed": True}
    assert kafka.ask("EndTxn", 3, **committed).error_code == 90
    [state] = kafka.ask("DescribeTransactions", 0, transactional_ids=[name]).transaction_states
    assert (state.transaction_state, state.topics) == ("CompleteAbort", [])
    # nothing is open any more, or ever was
    for producer in (who, (who[0], who[1] + 1), (987_654, 0)):
        assert ended(kafka, topic, [1], *producer, version=version) == {1: 0}
    assert ended(kafka, "absent", [0], 1, 0, version=version) == {0: 3}
    assert ended(kafka, topic, [0], -1, 0, version=version) == {0: -1}
    assert ended(kafka, topic, [0], 1, -1, version=version) == {0: -1}
    assert stable_end(0) == 2


BROKER_RESOURCE, GROUP_RESOURCE = 4, 32


def test_a_topic_has_the_insync_replicas_of_its_cluster(kafka: KafkaFrames) -> None:
    """As Apache Kafka 4.3.1 describes a new topic: 3 is DYNAMIC_DEFAULT_BROKER_CONFIG, 5 DEFAULT_CONFIG."""
    asked = {"name": "insync", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    kafka.ask("CreateTopics", 7, topics=[asked], timeout_ms=1000, validate_only=False)
    wanted = {"resource_type": 2, "resource_name": "insync", "configuration_keys": ["min.insync.replicas"]}
    [told] = kafka.ask(
        "DescribeConfigs", 4, resources=[wanted], include_synonyms=True, include_documentation=False
    ).results
    [row] = told.configs
    assert (row.value, row.config_source) == ("1", 3)
    assert [(one.name, one.value, one.source) for one in row.synonyms] == [
        ("min.insync.replicas", "1", 3), ("min.insync.replicas", "1", 5),
    ]  # fmt: skip


SET, REMOVE, APPEND, SUBTRACT = range(4)
NO_ERROR, INVALID_CONFIG, INVALID_REQUEST = 0, 40, 42
# resource, its changes, and the error that Apache Kafka 4.3.1 returned for it
CONFIG_CHANGES: tuple[tuple[int, str, list[tuple[str, int, str | None]], int], ...] = (
    (BROKER_RESOURCE, "1", [("background.threads", SET, "9"), ("log.cleanup.policy", APPEND, "compact")], NO_ERROR),
    (BROKER_RESOURCE, "1", [("background.threads", SET, "0")], INVALID_REQUEST),
    (BROKER_RESOURCE, "1", [("background.threads", SET, "x")], INVALID_REQUEST),
    (BROKER_RESOURCE, "1", [("log.cleanup.policy", APPEND, "nonsense")], INVALID_REQUEST),
    (BROKER_RESOURCE, "1", [("background.threads", APPEND, "9")], INVALID_CONFIG),
    (BROKER_RESOURCE, "1", [("background.threads", SUBTRACT, "9")], INVALID_CONFIG),
    (BROKER_RESOURCE, "1", [("num.partitions", SET, "5")], INVALID_REQUEST),
    (BROKER_RESOURCE, "1", [("auto.create.topics.enable", SET, "false")], INVALID_REQUEST),
    (BROKER_RESOURCE, "1", [("sasl.kerberos.min.time.before.relogin", SET, "58000")], NO_ERROR),
    (BROKER_RESOURCE, "1", [("leader.replication.throttled.rate", SET, "5")], NO_ERROR),
    (GROUP_RESOURCE, "g", [("consumer.session.timeout.ms", SET, "50000")], NO_ERROR),
    (GROUP_RESOURCE, "g", [("consumer.session.timeout.ms", SET, "5")], INVALID_CONFIG),
    (GROUP_RESOURCE, "g", [("consumer.session.timeout.ms", SET, "x")], INVALID_CONFIG),
    (GROUP_RESOURCE, "g", [("consumer.session.timeout.ms", APPEND, "50000")], INVALID_CONFIG),
    (GROUP_RESOURCE, "g", [("no.such", SET, "1")], INVALID_CONFIG),
    (GROUP_RESOURCE, "g2", [("consumer.heartbeat.interval.ms", SET, "50000")], INVALID_CONFIG),
    (GROUP_RESOURCE, "g2", [("share.auto.offset.reset", SET, "earliest")], NO_ERROR),
    (GROUP_RESOURCE, "g2", [("share.auto.offset.reset", SET, "never")], INVALID_CONFIG),
    (GROUP_RESOURCE, "g2", [("share.auto.offset.reset", SET, "by_duration:P1W")], INVALID_CONFIG),
    (GROUP_RESOURCE, "g2", [("share.auto.offset.reset", SET, "by_duration:PT1H ")], NO_ERROR),
    (GROUP_RESOURCE, "g2", [("share.auto.offset.reset", SET, "earliest")], NO_ERROR),
    (GROUP_RESOURCE, "g2", [("share.delivery.count.limit", SET, " 3 ")], NO_ERROR),
    (GROUP_RESOURCE, "g2", [("share.delivery.count.limit", REMOVE, None)], NO_ERROR),
    # what Kafka does not have or has otherwise: another broker, configs with an effect here, retention switched off
    (BROKER_RESOURCE, "2", [("background.threads", SET, "9")], INVALID_REQUEST),
    (BROKER_RESOURCE, "1", [("log.retention.ms", SET, "60000")], INVALID_REQUEST),
    (BROKER_RESOURCE, "1", [("log.cleanup.policy", SET, "compact")], INVALID_REQUEST),
    (BROKER_RESOURCE, "1", [("no.such.config", SET, "9")], INVALID_REQUEST),
    (GROUP_RESOURCE, "", [("consumer.session.timeout.ms", SET, "50000")], INVALID_REQUEST),
)


def alter_one(kafka: KafkaFrames, kind: int, name: str, changes: list[tuple[str, int, str | None]]) -> int:
    configs = [{"name": key, "config_operation": what, "value": text} for key, what, text in changes]
    asked = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    (row,) = kafka.ask("IncrementalAlterConfigs", 1, resources=asked, validate_only=False).responses
    assert (row.resource_type, row.resource_name) == (kind, name)
    return int(row.error_code)


def described(kafka: KafkaFrames, kind: int, name: str) -> dict[str, tuple[str | None, int, list[tuple[str, int]]]]:
    """By name: the value, its source, and the names and sources of its synonyms."""
    asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
    (row,) = kafka.ask("DescribeConfigs", 4, resources=asked, include_synonyms=True).results
    return {
        config.name: (config.value, config.config_source, [(each.name, each.source) for each in config.synonyms])
        for config in row.configs
    }


def test_configs_of_the_broker_and_of_groups_are_kept_and_described(kafka: KafkaFrames) -> None:
    """The rows are those that Apache Kafka 4.3.1 showed; none of these configs has an effect."""
    try:
        for kind, name, changes, error in CONFIG_CHANGES:
            assert alter_one(kafka, kind, name, changes) == error, (name, changes)
        broker = described(kafka, BROKER_RESOURCE, "1")
        own, default = 2, 5
        assert broker["background.threads"] == (
            "9",
            own,
            [("background.threads", own), ("background.threads", default)],
        )
        assert broker["log.cleanup.policy"][:2] == ("delete,compact", own)
        assert broker["sasl.kerberos.min.time.before.relogin"][:2] == ("58000", own)
        assert broker["num.io.threads"] == ("8", default, [("num.io.threads", default)])
        name, of_group = "consumer.session.timeout.ms", 8
        assert described(kafka, GROUP_RESOURCE, "g")[name] == (
            "50000",
            of_group,
            [(name, of_group), (f"group.{name}", default)],
        )
        assert described(kafka, GROUP_RESOURCE, "never")[name] == ("45000", default, [(f"group.{name}", default)])
        listed = kafka.ask("ListConfigResources", 1, resource_types=[GROUP_RESOURCE]).config_resources
        assert {"g", "g2"} <= {row.resource_name for row in listed}
        # what is set for all brokers holds until the broker has its own
        assert (
            alter_one(kafka, BROKER_RESOURCE, "", [("num.io.threads", SET, "3"), ("background.threads", SET, "4")]) == 0
        )
        assert described(kafka, BROKER_RESOURCE, "1")["num.io.threads"][:2] == ("3", 3)
        assert described(kafka, BROKER_RESOURCE, "1")["background.threads"][:2] == ("9", own)
        assert set(described(kafka, BROKER_RESOURCE, "")) == {"num.io.threads", "background.threads"}
        # AlterConfigs replaces all of them
        configs = [{"name": "sasl.kerberos.min.time.before.relogin", "value": "59000"}]
        asked = [{"resource_type": BROKER_RESOURCE, "resource_name": "1", "configs": configs}]
        assert kafka.ask("AlterConfigs", 2, resources=asked, validate_only=True).responses[0].error_code == 0
        assert described(kafka, BROKER_RESOURCE, "1")["log.cleanup.policy"][1] == own
        assert kafka.ask("AlterConfigs", 2, resources=asked, validate_only=False).responses[0].error_code == 0
        broker = described(kafka, BROKER_RESOURCE, "1")
        assert broker["sasl.kerberos.min.time.before.relogin"][:2] == ("59000", own)
        assert broker["log.cleanup.policy"][:2] == ("delete", default)
    finally:
        for kind, name in (
            (BROKER_RESOURCE, "1"),
            (BROKER_RESOURCE, ""),
            (GROUP_RESOURCE, "g"),
            (GROUP_RESOURCE, "g2"),
        ):
            asked = [{"resource_type": kind, "resource_name": name, "configs": []}]
            assert kafka.ask("AlterConfigs", 2, resources=asked, validate_only=False).responses[0].error_code == 0
    assert described(kafka, GROUP_RESOURCE, "g")["consumer.session.timeout.ms"][1] == 5


def test_configs_of_groups_survive_a_restart(tmp_path: Path) -> None:
    for has_restarted in (False, True):
        with testing.broker(tmp_path / "data") as running:
            kafka = KafkaFrames(running.endpoints["kafka"])
            if not has_restarted:
                assert alter_one(kafka, GROUP_RESOURCE, "g", [("share.delivery.count.limit", SET, "7")]) == 0
                running.kill()
            else:
                assert described(kafka, GROUP_RESOURCE, "g")["share.delivery.count.limit"][:2] == ("7", 8)
            kafka.close()

"""Requests of administrators' tools, as kafka-python encodes them: one of each API that recorded frames do not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.endpoints.kafka_frames import KafkaFrames

TOPIC: Final = "t1"
_ACCESS: Final = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
_RULES: Final = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, **_ACCESS}
_RULE: Final = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:ann",
                "host": "*", "operation": 3, "permission_type": 3}  # fmt: skip
_PLACES: Final = [{"topic": TOPIC, "partitions": [0, 1]}]
_ASSIGNED: Final = [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [1]}]}]
_CONFIGS: Final = [{"name": "retention.ms", "value": "5000000"}, {"name": "min.cleanable.dirty.ratio", "value": "0.5"}]
_MARKER: Final = {"producer_id": 4, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0,
                  "transaction_version": 0, "topics": [{"name": TOPIC, "partition_indexes": [0, 1]}]}  # fmt: skip

ASKED: Final[tuple[tuple[str, int, dict[str, Any]], ...]] = (
    ("DescribeTopicPartitions", 0, {"topics": [{"name": TOPIC}], "response_partition_limit": 10, "cursor": None}),
    ("AlterConfigs", 0, {"resources": [{"resource_type": 2, "resource_name": TOPIC, "configs": _CONFIGS}]}),
    ("AlterConfigs", 2, {"resources": [{"resource_type": 2, "resource_name": TOPIC, "configs": _CONFIGS}]}),
    ("ListConfigResources", 1, {"resource_types": [2, 4, 32]}),
    ("DescribeLogDirs", 1, {"topics": None}),
    ("DescribeLogDirs", 4, {"topics": _PLACES}),
    ("ElectLeaders", 0, {"topic_partitions": None, "timeout_ms": 5}),
    ("ElectLeaders", 2, {"election_type": 0, "topic_partitions": _PLACES, "timeout_ms": 5}),
    ("AlterPartitionReassignments", 1, {"timeout_ms": 5, "topics": _ASSIGNED}),
    ("AlterReplicaLogDirs", 1, {"dirs": [{"path": "/d", "topics": [{"name": TOPIC, "partitions": [0]}]}]}),
    ("DescribeQuorum", 2, {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}),
    ("ListPartitionReassignments", 0, {"timeout_ms": 5, "topics": None}),
    ("DescribeAcls", 3, _RULES),
    ("CreateAcls", 2, {"creations": [_RULE]}),
    ("DeleteAcls", 2, {"filters": [_RULES]}),
    ("DescribeClientQuotas", 1, {"components": [{"entity_type": "user", "match_type": 2, "match": None}]}),
    ("DescribeUserScramCredentials", 0, {"users": [{"name": "ann"}]}),
    ("OffsetDelete", 0, {"group_id": "g", "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]}),
    ("ListTransactions", 1, {"state_filters": ["Ongoing"], "producer_id_filters": [4], "duration_filter": 5}),
    ("DescribeTransactions", 0, {"transactional_ids": ["a"]}),
    ("DescribeProducers", 0, {"topics": [{"name": TOPIC, "partition_indexes": [0, 1]}]}),
    ("WriteTxnMarkers", 1, {"markers": [_MARKER]}),
    ("WriteTxnMarkers", 2, {"markers": [_MARKER]}),
)


def frames(kafka: KafkaFrames) -> Iterator[dict[str, str]]:
    """In the form of the recorded ones; each is answered when it comes as it is."""
    for api, version, fields in ASKED:
        kafka.ask(api, version, **fields)
        yield {"client": "kafka-python", "api": api, "request_hex": kafka.request(api, version, **fields).hex()}

"""Kafka's APIs: the versions that our broker serves, as ApiVersions lists them, and those that our client uses."""

from __future__ import annotations

from typing import Final, NamedTuple


class Api(NamedTuple):
    """One API: its name, the versions that are served, the first with tagged fields, and the module of its codec.

    ``module`` is the part of ``kafka.protocol`` that has its messages, or a whole module name; None: our own code reads
    and writes them. ``asked`` are the lowest and highest version that our client can send; it uses the highest that the
    broker knows too. None: it never sends this API, or always in one version (Produce and Fetch).
    """

    name: str
    low: int
    high: int
    flexible: int
    module: str | None
    asked: tuple[int, int] | None = None


NEVER: Final = 1 << 15

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
SASL_HANDSHAKE, SASL_AUTHENTICATE, ALTER_SCRAM_CREDENTIALS = 17, 36, 51
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = range(8, 15)
DESCRIBE_GROUPS, LIST_GROUPS = 15, 16
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH = range(18, 24)
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT = range(24, 29)
DESCRIBE_CONFIGS, ALTER_CONFIGS, CREATE_PARTITIONS, DELETE_GROUPS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 37, 42, 44
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS = 29, 30, 31, 34, 35
ALTER_PARTITION_REASSIGNMENTS, DESCRIBE_QUORUM = 45, 55
ELECT_LEADERS, LIST_PARTITION_REASSIGNMENTS, OFFSET_DELETE, DESCRIBE_CLIENT_QUOTAS = 43, 46, 47, 48
ALTER_CLIENT_QUOTAS = 49
DESCRIBE_SCRAM_CREDENTIALS, DESCRIBE_CLUSTER, DESCRIBE_PRODUCERS = 50, 60, 61
DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, LIST_CONFIG_RESOURCES, DESCRIBE_TOPIC_PARTITIONS = 65, 66, 74, 75
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69
SHARE_GROUP_HEARTBEAT, SHARE_GROUP_DESCRIBE, SHARE_FETCH, SHARE_ACKNOWLEDGE = range(76, 80)
DESCRIBE_SHARE_GROUP_OFFSETS, ALTER_SHARE_GROUP_OFFSETS, DELETE_SHARE_GROUP_OFFSETS = 90, 91, 92
GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY = 71, 72

_LATER: Final = "lading.dialects.kafka.later_messages"
"""Messages that ``kafka.protocol`` lacks."""

SERVED: Final[dict[int, Api]] = {
    PRODUCE: Api("Produce", 0, 13, 9, None),
    FETCH: Api("Fetch", 4, 18, 12, None),
    LIST_OFFSETS: Api("ListOffsets", 1, 11, 6, "consumer.offsets", (2, 7)),
    METADATA: Api("Metadata", 0, 13, 9, "metadata.metadata", (5, 12)),
    OFFSET_COMMIT: Api("OffsetCommit", 2, 10, 8, "consumer.group", (2, 9)),
    OFFSET_FETCH: Api("OffsetFetch", 1, 10, 6, "consumer.group", (1, 7)),
    FIND_COORDINATOR: Api("FindCoordinator", 0, 6, 3, "metadata.find_coordinator", (1, 3)),
    JOIN_GROUP: Api("JoinGroup", 0, 9, 6, "consumer.group", (2, 9)),
    HEARTBEAT: Api("Heartbeat", 0, 4, 4, "consumer.group", (0, 4)),
    LEAVE_GROUP: Api("LeaveGroup", 0, 5, 4, "consumer.group", (0, 2)),
    SYNC_GROUP: Api("SyncGroup", 0, 5, 4, "consumer.group", (0, 4)),
    DESCRIBE_GROUPS: Api("DescribeGroups", 0, 6, 5, "admin.groups", (0, 5)),
    LIST_GROUPS: Api("ListGroups", 0, 5, 3, "admin.groups", (0, 4)),
    SASL_HANDSHAKE: Api("SaslHandshake", 0, 1, NEVER, "sasl", (1, 1)),
    API_VERSIONS: Api("ApiVersions", 0, 4, 3, "metadata.api_versions", (0, 0)),
    CREATE_TOPICS: Api("CreateTopics", 2, 7, 5, "admin.topics", (4, 7)),
    DELETE_TOPICS: Api("DeleteTopics", 1, 6, 4, "admin.topics", (1, 5)),
    DELETE_RECORDS: Api("DeleteRecords", 0, 2, 2, "admin.topics"),
    INIT_PRODUCER_ID: Api("InitProducerId", 0, 5, 2, "producer.transaction", (0, 4)),
    OFFSET_FOR_LEADER_EPOCH: Api("OffsetForLeaderEpoch", 2, 4, 4, "consumer.offsets", (2, 4)),
    ADD_PARTITIONS_TO_TXN: Api("AddPartitionsToTxn", 0, 5, 3, "producer.transaction", (0, 3)),
    ADD_OFFSETS_TO_TXN: Api("AddOffsetsToTxn", 0, 4, 3, "producer.transaction"),
    END_TXN: Api("EndTxn", 0, 5, 3, "producer.transaction", (0, 4)),
    WRITE_TXN_MARKERS: Api("WriteTxnMarkers", 1, 2, 1, "producer.transaction"),
    TXN_OFFSET_COMMIT: Api("TxnOffsetCommit", 0, 5, 3, "producer.transaction"),
    DESCRIBE_ACLS: Api("DescribeAcls", 1, 3, 2, "admin.acl"),
    CREATE_ACLS: Api("CreateAcls", 1, 3, 2, "admin.acl"),
    DELETE_ACLS: Api("DeleteAcls", 1, 3, 2, "admin.acl"),
    DESCRIBE_CONFIGS: Api("DescribeConfigs", 1, 4, 4, "admin.configs", (1, 4)),
    ALTER_CONFIGS: Api("AlterConfigs", 0, 2, 2, "admin.configs"),
    ALTER_REPLICA_LOG_DIRS: Api("AlterReplicaLogDirs", 1, 2, 2, "admin.cluster"),
    DESCRIBE_LOG_DIRS: Api("DescribeLogDirs", 1, 5, 2, "admin.cluster"),
    SASL_AUTHENTICATE: Api("SaslAuthenticate", 0, 2, 2, "sasl", (0, 2)),
    CREATE_PARTITIONS: Api("CreatePartitions", 0, 3, 2, "admin.topics", (0, 3)),
    DELETE_GROUPS: Api("DeleteGroups", 0, 2, 2, "admin.groups", (0, 2)),
    ELECT_LEADERS: Api("ElectLeaders", 0, 2, 2, "admin.topics"),
    INCREMENTAL_ALTER_CONFIGS: Api("IncrementalAlterConfigs", 0, 1, 1, "admin.configs", (0, 1)),
    ALTER_PARTITION_REASSIGNMENTS: Api("AlterPartitionReassignments", 0, 1, 0, "admin.topics"),
    LIST_PARTITION_REASSIGNMENTS: Api("ListPartitionReassignments", 0, 0, 0, "admin.topics"),
    OFFSET_DELETE: Api("OffsetDelete", 0, 0, NEVER, "consumer.group", (0, 0)),
    DESCRIBE_CLIENT_QUOTAS: Api("DescribeClientQuotas", 0, 1, 1, "admin.client_quotas"),
    ALTER_CLIENT_QUOTAS: Api("AlterClientQuotas", 0, 1, 1, "admin.client_quotas"),
    DESCRIBE_SCRAM_CREDENTIALS: Api("DescribeUserScramCredentials", 0, 0, 0, "admin.users"),
    ALTER_SCRAM_CREDENTIALS: Api("AlterUserScramCredentials", 0, 0, 0, "admin.users"),
    DESCRIBE_QUORUM: Api("DescribeQuorum", 0, 2, 0, "admin.cluster"),
    DESCRIBE_CLUSTER: Api("DescribeCluster", 0, 2, 0, "admin.cluster"),
    DESCRIBE_PRODUCERS: Api("DescribeProducers", 0, 0, 0, "admin.transactions"),
    DESCRIBE_TRANSACTIONS: Api("DescribeTransactions", 0, 0, 0, "admin.transactions"),
    LIST_TRANSACTIONS: Api("ListTransactions", 0, 2, 0, "admin.transactions"),
    CONSUMER_GROUP_HEARTBEAT: Api("ConsumerGroupHeartbeat", 0, 1, 0, _LATER, (1, 1)),
    CONSUMER_GROUP_DESCRIBE: Api("ConsumerGroupDescribe", 0, 1, 0, _LATER, (0, 1)),
    GET_TELEMETRY_SUBSCRIPTIONS: Api("GetTelemetrySubscriptions", 0, 0, 0, _LATER),
    PUSH_TELEMETRY: Api("PushTelemetry", 0, 0, 0, _LATER),
    LIST_CONFIG_RESOURCES: Api("ListConfigResources", 0, 1, 0, "admin.configs"),
    DESCRIBE_TOPIC_PARTITIONS: Api("DescribeTopicPartitions", 0, 0, 0, "admin.topics"),
    SHARE_GROUP_HEARTBEAT: Api("ShareGroupHeartbeat", 1, 1, 0, _LATER, (1, 1)),
    SHARE_GROUP_DESCRIBE: Api("ShareGroupDescribe", 1, 1, 0, _LATER),
    SHARE_FETCH: Api("ShareFetch", 1, 2, 0, _LATER, (2, 2)),
    SHARE_ACKNOWLEDGE: Api("ShareAcknowledge", 1, 2, 0, _LATER, (2, 2)),
    DESCRIBE_SHARE_GROUP_OFFSETS: Api("DescribeShareGroupOffsets", 0, 1, 0, _LATER),
    ALTER_SHARE_GROUP_OFFSETS: Api("AlterShareGroupOffsets", 0, 0, 0, _LATER),
    DELETE_SHARE_GROUP_OFFSETS: Api("DeleteShareGroupOffsets", 0, 0, 0, _LATER),
}
"""APIs by key; Produce is listed from 0 on although nothing below PRODUCE_LOW is accepted.

Old librdkafka sends uncompressed, or without headers, to a broker that does not list 0 and 3 (kafka.md 3.3).
"""

PRODUCE_LOW: Final = 3

"""Which messages a server of ours takes, in which versions: the table that ApiVersions answers (kafka.md 3)."""

from __future__ import annotations

from typing import Final, NamedTuple


class Served(NamedTuple):
    """One API: its name, the versions that are listed, the first with tagged fields, and where its codec is.

    ``module`` is the part of ``kafka.protocol`` that has its messages; None: they are read and written by hand.
    """

    name: str
    low: int
    high: int
    flexible: int
    module: str | None


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

SERVED: Final[dict[int, Served]] = {
    PRODUCE: Served("Produce", 0, 11, 9, None),
    FETCH: Served("Fetch", 4, 16, 12, None),
    LIST_OFFSETS: Served("ListOffsets", 1, 9, 6, "consumer.offsets"),
    METADATA: Served("Metadata", 0, 12, 9, "metadata.metadata"),
    OFFSET_COMMIT: Served("OffsetCommit", 2, 9, 8, "consumer.group"),
    OFFSET_FETCH: Served("OffsetFetch", 1, 9, 6, "consumer.group"),
    FIND_COORDINATOR: Served("FindCoordinator", 0, 6, 3, "metadata.find_coordinator"),
    JOIN_GROUP: Served("JoinGroup", 0, 9, 6, "consumer.group"),
    HEARTBEAT: Served("Heartbeat", 0, 4, 4, "consumer.group"),
    LEAVE_GROUP: Served("LeaveGroup", 0, 5, 4, "consumer.group"),
    SYNC_GROUP: Served("SyncGroup", 0, 5, 4, "consumer.group"),
    DESCRIBE_GROUPS: Served("DescribeGroups", 0, 6, 5, "admin.groups"),
    LIST_GROUPS: Served("ListGroups", 0, 5, 3, "admin.groups"),
    SASL_HANDSHAKE: Served("SaslHandshake", 0, 1, NEVER, "sasl"),
    API_VERSIONS: Served("ApiVersions", 0, 4, 3, "metadata.api_versions"),
    CREATE_TOPICS: Served("CreateTopics", 2, 7, 5, "admin.topics"),
    DELETE_TOPICS: Served("DeleteTopics", 1, 6, 4, "admin.topics"),
    DELETE_RECORDS: Served("DeleteRecords", 0, 2, 2, "admin.topics"),
    INIT_PRODUCER_ID: Served("InitProducerId", 0, 5, 2, "producer.transaction"),
    OFFSET_FOR_LEADER_EPOCH: Served("OffsetForLeaderEpoch", 2, 4, 4, "consumer.offsets"),
    ADD_PARTITIONS_TO_TXN: Served("AddPartitionsToTxn", 0, 3, 3, "producer.transaction"),
    ADD_OFFSETS_TO_TXN: Served("AddOffsetsToTxn", 0, 3, 3, "producer.transaction"),
    END_TXN: Served("EndTxn", 0, 3, 3, "producer.transaction"),
    WRITE_TXN_MARKERS: Served("WriteTxnMarkers", 1, 2, 1, "producer.transaction"),
    TXN_OFFSET_COMMIT: Served("TxnOffsetCommit", 0, 3, 3, "producer.transaction"),
    DESCRIBE_ACLS: Served("DescribeAcls", 1, 3, 2, "admin.acl"),
    CREATE_ACLS: Served("CreateAcls", 1, 3, 2, "admin.acl"),
    DELETE_ACLS: Served("DeleteAcls", 1, 3, 2, "admin.acl"),
    DESCRIBE_CONFIGS: Served("DescribeConfigs", 1, 4, 4, "admin.configs"),
    ALTER_CONFIGS: Served("AlterConfigs", 0, 2, 2, "admin.configs"),
    ALTER_REPLICA_LOG_DIRS: Served("AlterReplicaLogDirs", 1, 2, 2, "admin.cluster"),
    DESCRIBE_LOG_DIRS: Served("DescribeLogDirs", 1, 4, 2, "admin.cluster"),
    SASL_AUTHENTICATE: Served("SaslAuthenticate", 0, 2, 2, "sasl"),
    CREATE_PARTITIONS: Served("CreatePartitions", 0, 3, 2, "admin.topics"),
    DELETE_GROUPS: Served("DeleteGroups", 0, 2, 2, "admin.groups"),
    ELECT_LEADERS: Served("ElectLeaders", 0, 2, 2, "admin.topics"),
    INCREMENTAL_ALTER_CONFIGS: Served("IncrementalAlterConfigs", 0, 1, 1, "admin.configs"),
    ALTER_PARTITION_REASSIGNMENTS: Served("AlterPartitionReassignments", 0, 1, 0, "admin.topics"),
    LIST_PARTITION_REASSIGNMENTS: Served("ListPartitionReassignments", 0, 0, 0, "admin.topics"),
    OFFSET_DELETE: Served("OffsetDelete", 0, 0, NEVER, "consumer.group"),
    DESCRIBE_CLIENT_QUOTAS: Served("DescribeClientQuotas", 0, 1, 1, "admin.client_quotas"),
    ALTER_CLIENT_QUOTAS: Served("AlterClientQuotas", 0, 1, 1, "admin.client_quotas"),
    DESCRIBE_SCRAM_CREDENTIALS: Served("DescribeUserScramCredentials", 0, 0, 0, "admin.users"),
    ALTER_SCRAM_CREDENTIALS: Served("AlterUserScramCredentials", 0, 0, 0, "admin.users"),
    DESCRIBE_QUORUM: Served("DescribeQuorum", 0, 2, 0, "admin.cluster"),
    DESCRIBE_CLUSTER: Served("DescribeCluster", 0, 2, 0, "admin.cluster"),
    DESCRIBE_PRODUCERS: Served("DescribeProducers", 0, 0, 0, "admin.transactions"),
    DESCRIBE_TRANSACTIONS: Served("DescribeTransactions", 0, 0, 0, "admin.transactions"),
    LIST_TRANSACTIONS: Served("ListTransactions", 0, 1, 0, "admin.transactions"),
    LIST_CONFIG_RESOURCES: Served("ListConfigResources", 0, 1, 0, "admin.configs"),
    DESCRIBE_TOPIC_PARTITIONS: Served("DescribeTopicPartitions", 0, 0, 0, "admin.topics"),
}
"""By key; Produce is listed from 0 on although nothing below PRODUCE_LOW is taken.

Old librdkafka sends uncompressed, or without headers, to a broker that does not tell 0 and 3 (kafka.md 3.3).
"""

PRODUCE_LOW: Final = 3

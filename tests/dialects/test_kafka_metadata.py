"""The answer to Metadata as kafka-python reads it, in every version that is served."""

from __future__ import annotations

from uuid import UUID

import pytest

from lading.dialects.kafka.metadata import BrokerNode, TopicMetadata, metadata_answer
from lading.dialects.kafka.requests import encode_answer
from lading.dialects.kafka.schemas import message
from lading.dialects.kafka.versions import METADATA, SERVED

# kafka.protocol reads its schemas in a way that importlib.resources wants no more
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ID = bytes(range(16))
VERSIONS = range(SERVED[METADATA].low, SERVED[METADATA].high + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_client_reads(version: int) -> None:
    rows = [
        TopicMetadata(0, "flüge", ID, [1, 7, 300_000]),
        TopicMetadata(0, "empty", ID),
        TopicMetadata(3, "away", bytes(16)),
        TopicMetadata(0, "wide", ID, [1] * 200),
    ]
    frame = metadata_answer(version, 42, "lading", BrokerNode(1, "127.0.0.1", 9092), rows)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    told = message("metadata", "MetadataResponse").decode(frame[4:], version=version, header=True)
    assert told.header.correlation_id == 42
    assert [(row.node_id, row.host, row.port) for row in told.brokers] == [(1, "127.0.0.1", 9092)]
    assert [(row.error_code, row.name, len(row.partitions)) for row in told.topics] == [
        (0, "flüge", 3), (0, "empty", 0), (3, "away", 0), (0, "wide", 200),
    ]  # fmt: skip
    for number, part in enumerate(told.topics[0].partitions):
        assert (part.error_code, part.partition_index, part.leader_id) == (0, number, 1)
        assert (part.replica_nodes, part.isr_nodes, part.offline_replicas) == ([1], [1], [])
        assert part.leader_epoch == ([1, 7, 300_000][number] if version >= 7 else -1)
    if version >= 10:
        assert told.topics[0].topic_id == UUID(bytes=ID)
    if version >= 2:
        assert told.cluster_id == "lading"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_bytes_are_those_of_the_library(version: int) -> None:
    parts = [
        {
            "error_code": 0, "partition_index": number, "leader_id": 1, "leader_epoch": number + 5,
            "replica_nodes": [1], "isr_nodes": [1], "offline_replicas": [],
        }
        for number in range(300)
    ]  # fmt: skip
    topic = {"error_code": 0, "name": "t", "topic_id": UUID(bytes=ID), "is_internal": False, "partitions": parts}
    # a topic that was asked for by an id that nobody has
    unknown = {"error_code": 100, "name": None if version >= 12 else "", "topic_id": UUID(bytes=ID)}
    fields = {
        "brokers": [{"node_id": 1, "host": "h", "port": 5, "rack": None}], "cluster_id": "c", "controller_id": 1,
        "topics": [topic, unknown],
    }  # fmt: skip
    rows = [TopicMetadata(0, "t", ID, list(range(5, 305))), TopicMetadata(100, None, ID)]
    assert metadata_answer(version, 7, "c", BrokerNode(1, "h", 5), rows) == encode_answer(METADATA, version, 7, fields)

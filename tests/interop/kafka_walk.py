"""Every API in every version, as the same bytes to two brokers; their responses are compared field by field.

A step is one request in each version that is served. ``DIFFERENCES`` has each field that may differ, and why; what is
not in it must be equal.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from lading.dialects.kafka import versions as v
from lading.dialects.kafka.versions import PRODUCE_LOW, SERVED
from tests.endpoints.kafka_frames import KafkaFrames, message, one_batch

NOWHERE: Final = UUID(int=77)
NOBODY: Final = UUID(int=0)
SLEEP: Final = 0.05
WAIT_CODES: Final = frozenset({14, 15, 16, 51})
"""COORDINATOR_LOAD_IN_PROGRESS, …NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS: a real broker makes its
topics first, and ends a transaction on its own time."""

UNKNOWN_CODES: Final = WAIT_CODES | {3, 5, 6, 100}
"""A topic that was just created is not known everywhere in a real broker."""


@dataclass
class World:
    """One of the two brokers, and what it has named itself."""

    address: str
    prefix: str
    frames: KafkaFrames = field(init=False)
    topic_id: UUID = NOBODY
    producer: tuple[int, int] = (-1, -1)
    member: str = ""

    def __post_init__(self) -> None:
        self.frames = KafkaFrames(self.address)

    @property
    def topic(self) -> str:
        """A topic of two partitions, with three records in the first."""
        return f"{self.prefix}-walk"

    @property
    def missing(self) -> str:
        """A topic that does not exist."""
        return f"{self.prefix}-missing"

    def again(self) -> None:
        """Connect anew: the broker has closed."""
        self.frames.close()
        self.frames = KafkaFrames(self.address)


Fields = Mapping[str, Any]


class Step(NamedTuple):
    """A request: its API, what it shows, and its fields for a broker and a version."""

    key: int
    name: str
    fields: Callable[[World, int], Fields]
    low: int = 0
    """The first version of which it makes sense."""


def _records(world: World, topic: Any, **facts: Any) -> Fields:
    place = {"topic_id": topic} if isinstance(topic, UUID) else {"name": topic}
    transaction = facts.pop("transactional_id", None)
    rows = [{**place, "partition_data": [{"index": 1, "records": one_batch(b"x", **facts)}]}]
    return {"transactional_id": transaction, "acks": -1, "timeout_ms": 1000, "topic_data": rows}


def _named(version: int, first_by_id: int, name: str, topic_id: UUID) -> Any:
    return topic_id if version >= first_by_id else name


def _fetch(world: World, version: int, name: str, topic_id: UUID, offset: int = 0) -> Fields:
    place = {"topic_id": topic_id} if version >= 13 else {"topic": name}
    part = {"partition": 0, "fetch_offset": offset, "current_leader_epoch": -1, "partition_max_bytes": 1 << 20}
    return {
        "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": 0, "session_id": 0,
        "session_epoch": -1, "topics": [{**place, "partitions": [part]}],
    }  # fmt: skip


def _offsets(name: str, timestamp: int) -> Fields:
    parts = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp} for index in (0, 7)]
    return {"replica_id": -1, "isolation_level": 1, "topics": [{"name": name, "partitions": parts}], "timeout_ms": 1000}


def _offsets_of_topic(timestamp: int, world: World, version: int) -> Fields:
    return _offsets(world.topic, timestamp)


def _commit(world: World, version: int, name: str, topic_id: UUID) -> Fields:
    place = {"topic_id": topic_id} if version >= 10 else {"name": name}
    parts = [
        {"partition_index": index, "committed_offset": 2, "committed_leader_epoch": -1, "committed_metadata": "m"}
        for index in (0, 7)
    ]
    return {
        "group_id": f"{world.prefix}-alone", "generation_id_or_member_epoch": -1, "member_id": "",
        "group_instance_id": None, "retention_time_ms": -1, "topics": [{**place, "partitions": parts}],
    }  # fmt: skip


def _positions(world: World, version: int, group: str, *, is_all: bool = False) -> Fields:
    topics: Any = None
    if not is_all or version < 2:
        rows = [(world.topic, world.topic_id), (world.missing, NOWHERE)]
        topics = [
            {**({"topic_id": one} if version >= 10 else {"name": name}), "partition_indexes": [0, 7]}
            for name, one in rows
        ]
    asked = {"group_id": group, "topics": topics, "member_id": None, "member_epoch": -1}
    return {**asked, "groups": [asked], "require_stable": False}


def _member(world: World, group: str, **more: Any) -> Fields:
    return {
        "group_id": group, "generation_id": 3, "member_id": "nobody", "group_instance_id": None,
        "protocol_type": "consumer", "protocol_name": "range", "assignments": [],
        "members": [{"member_id": "nobody", "group_instance_id": None, "reason": None}], **more,
    }  # fmt: skip


def _join(world: World, version: int) -> Fields:
    return {
        "group_id": "", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": "",
        "group_instance_id": None, "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
        "reason": None,
    }  # fmt: skip


def _writer(world: World, **more: Any) -> Fields:
    identity = {"producer_id": world.producer[0], "producer_epoch": world.producer[1]}
    return {"transactional_id": f"{world.prefix}-writer", **identity, **more}


def _stranger(world: World, **more: Any) -> Fields:
    return {"transactional_id": f"{world.prefix}-stranger", "producer_id": 5, "producer_epoch": 3, **more}


def _additions(world: World, version: int, writer: Fields, *, only_look: bool = False) -> Fields:
    topics = [{"name": world.topic, "partitions": [0, 1]}]
    many = [{**writer, "verify_only": only_look, "topics": topics}]
    return {
        "transactions": many, "v3_and_below_transactional_id": writer["transactional_id"],
        "v3_and_below_producer_id": writer["producer_id"], "v3_and_below_producer_epoch": writer["producer_epoch"],
        "v3_and_below_topics": topics,
    }  # fmt: skip


def _transaction_positions(world: World, writer: Fields) -> Fields:
    place = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    return {
        **writer, "group_id": f"{world.prefix}-tx", "generation_id": -1, "member_id": "", "group_instance_id": None,
        "topics": [{"name": world.topic, "partitions": [place]}],
    }  # fmt: skip


def _resources(world: World, *, configs: Sequence[Fields] = ()) -> Fields:
    rows = [
        {"resource_type": 2, "resource_name": name, "configuration_keys": ["cleanup.policy", "retention.ms"],
         "configs": list(configs)}
        for name in (world.topic, world.missing)
    ]  # fmt: skip
    return {"resources": rows, "include_synonyms": False, "include_documentation": False, "validate_only": True}


def _new_topic(world: World, version: int, name: str, partitions: int) -> Fields:
    row = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [row], "timeout_ms": 5000, "validate_only": False}


def _deletions(world: World, version: int, name: str) -> Fields:
    return {"topics": [{"name": name, "topic_id": NOBODY}], "topic_names": [name], "timeout_ms": 5000}


def _additional(world: World, version: int) -> Fields:
    rows = [
        {"name": name, "count": count, "assignments": None} for name, count in ((world.topic, 1), (world.missing, 3))
    ]
    return {"topics": rows, "timeout_ms": 1000, "validate_only": True}


_FILTER: Final = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
_RULE: Final = {
    "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:a", "host": "*",
    "operation": 3, "permission_type": 3,
}  # fmt: skip

STEPS: Final[tuple[Step, ...]] = (
    Step(v.API_VERSIONS, "versions", lambda w, n: {"client_software_name": "walk", "client_software_version": "1"}),
    Step(v.METADATA, "a topic", lambda w, n: {
        "topics": [{"name": w.topic, "topic_id": NOBODY}], "allow_auto_topic_creation": False}),
    Step(v.METADATA, "a missing topic", lambda w, n: {
        "topics": [{"name": w.missing, "topic_id": NOBODY}], "allow_auto_topic_creation": False}, 4),
    Step(v.METADATA, "an invalid name", lambda w, n: {
        "topics": [{"name": "a b", "topic_id": NOBODY}], "allow_auto_topic_creation": False}),
    Step(v.FIND_COORDINATOR, "a group", lambda w, n: {
        "key": "g", "key_type": 0, "coordinator_keys": ["g", "h"]}),
    Step(v.FIND_COORDINATOR, "an unknown kind", lambda w, n: {
        "key": "g", "key_type": 9, "coordinator_keys": ["g"]}),
    Step(v.PRODUCE, "one record", lambda w, n: _records(w, _named(n, 13, w.topic, w.topic_id))),
    Step(v.PRODUCE, "to a missing topic", lambda w, n: _records(w, _named(n, 13, w.missing, NOWHERE))),
    Step(v.PRODUCE, "a bad checksum", lambda w, n: _records(w, _named(n, 13, w.topic, w.topic_id), crc=1)),
    Step(v.PRODUCE, "by a transaction that was not begun", lambda w, n: _records(
        w, _named(n, 13, w.topic, w.topic_id), attributes=16, producer=(5, 3, 0),
        transactional_id=f"{w.prefix}-stranger")),
    Step(v.FETCH, "three records", lambda w, n: _fetch(w, n, w.topic, w.topic_id)),
    Step(v.FETCH, "after the end", lambda w, n: _fetch(w, n, w.topic, w.topic_id, 1000)),
    Step(v.FETCH, "a missing topic", lambda w, n: _fetch(w, n, w.missing, NOWHERE)),
    *(Step(v.LIST_OFFSETS, f"of {name}", partial(_offsets_of_topic, at)) for name, at in (
        ("the end", -1), ("the start", -2), ("the latest time", -3), ("the local start", -4), ("the last tiered", -5),
        ("what waits for upload", -6), ("no such kind", -9), ("a time", 1), ("a time to come", 1 << 45))),
    Step(v.LIST_OFFSETS, "of a missing topic", lambda w, n: _offsets(w.missing, -1)),
    Step(v.OFFSET_FOR_LEADER_EPOCH, "an epoch to come", lambda w, n: {"replica_id": -1, "topics": [
        {"topic": name, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 1000}]}
        for name in (w.topic, w.missing)]}),
    Step(v.OFFSET_COMMIT, "alone", lambda w, n: _commit(w, n, w.topic, w.topic_id)),
    Step(v.OFFSET_COMMIT, "of a missing topic", lambda w, n: _commit(w, n, w.missing, NOWHERE)),
    Step(v.OFFSET_COMMIT, "of a member of no group", lambda w, n: {
        **_commit(w, n, w.topic, w.topic_id), "generation_id_or_member_epoch": 4, "member_id": "nobody"}),
    Step(v.OFFSET_FETCH, "positions", lambda w, n: _positions(w, n, f"{w.prefix}-alone")),
    Step(v.OFFSET_FETCH, "all positions", lambda w, n: _positions(w, n, f"{w.prefix}-alone", is_all=True)),
    Step(v.OFFSET_FETCH, "of no group", lambda w, n: _positions(w, n, f"{w.prefix}-no-group")),
    Step(v.OFFSET_DELETE, "of no group", lambda w, n: {
        "group_id": f"{w.prefix}-no-group", "topics": [{"name": w.topic, "partitions": [{"partition_index": 0}]}]}),
    Step(v.OFFSET_DELETE, "of partitions", lambda w, n: {
        "group_id": f"{w.prefix}-alone", "topics": [
            {"name": name, "partitions": [{"partition_index": 1}]} for name in (w.topic, w.missing)]}),
    Step(v.JOIN_GROUP, "without a name", _join),
    *(Step(key, "of no group", lambda w, n: _member(w, f"{w.prefix}-no-group"))
      for key in (v.SYNC_GROUP, v.HEARTBEAT, v.LEAVE_GROUP)),
    Step(v.DESCRIBE_GROUPS, "one without members, and none", lambda w, n: {
        "groups": [f"{w.prefix}-alone", f"{w.prefix}-no-group"], "include_authorized_operations": True}),
    Step(v.LIST_GROUPS, "in no such state", lambda w, n: {"states_filter": ["Lost"], "types_filter": ["classic"]}, 4),
    Step(v.DELETE_GROUPS, "none", lambda w, n: {"groups_names": [f"{w.prefix}-no-group", ""]}),
    Step(v.CONSUMER_GROUP_HEARTBEAT, "of a member of no group", lambda w, n: {
        "group_id": f"{w.prefix}-no-group", "member_id": "nobody", "member_epoch": 5, "instance_id": None,
        "rack_id": None, "rebalance_timeout_ms": -1, "subscribed_topic_names": None, "server_assignor": None,
        "subscribed_topic_regex": None, "topic_partitions": None}),
    Step(v.CONSUMER_GROUP_DESCRIBE, "none", lambda w, n: {
        "group_ids": [f"{w.prefix}-no-group", f"{w.prefix}-alone"], "include_authorized_operations": False}),
    Step(v.CREATE_TOPICS, "a new one", lambda w, n: _new_topic(w, n, f"{w.prefix}-new-{n}", 2)),
    Step(v.CREATE_TOPICS, "one that exists", lambda w, n: _new_topic(w, n, w.topic, 2)),
    Step(v.CREATE_TOPICS, "an invalid name", lambda w, n: _new_topic(w, n, "a b", 2)),
    Step(v.CREATE_TOPICS, "without partitions", lambda w, n: _new_topic(w, n, f"{w.prefix}-none", 0)),
    Step(v.DELETE_TOPICS, "one of those", lambda w, n: _deletions(w, n, f"{w.prefix}-new-{n + 1}")),
    Step(v.DELETE_TOPICS, "a missing one", lambda w, n: _deletions(w, n, w.missing)),
    Step(v.CREATE_PARTITIONS, "too few, of a missing one", _additional),
    Step(v.DELETE_RECORDS, "of a missing one, beyond the end", lambda w, n: {"timeout_ms": 1000, "topics": [
        {"name": name, "partitions": [{"partition_index": 0, "offset": 1000}]} for name in (w.topic, w.missing)]}),
    Step(v.DESCRIBE_CONFIGS, "two configs", lambda w, n: _resources(w)),
    Step(v.ALTER_CONFIGS, "an invalid value", lambda w, n: _resources(
        w, configs=[{"name": "retention.ms", "value": "many"}])),
    Step(v.INCREMENTAL_ALTER_CONFIGS, "an invalid value", lambda w, n: _resources(
        w, configs=[{"name": "retention.ms", "config_operation": 0, "value": "many"}])),
    Step(v.LIST_CONFIG_RESOURCES, "of topics", lambda w, n: {"resource_types": [99]}),
    Step(v.INIT_PRODUCER_ID, "an invalid time-out", lambda w, n: {
        "transactional_id": f"{w.prefix}-writer", "transaction_timeout_ms": 0, "producer_id": -1,
        "producer_epoch": -1}),
    Step(v.INIT_PRODUCER_ID, "an empty name", lambda w, n: {
        "transactional_id": "", "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}),
    Step(v.ADD_PARTITIONS_TO_TXN, "of a stranger", lambda w, n: _additions(w, n, _stranger(w))),
    Step(v.ADD_PARTITIONS_TO_TXN, "a look, before it was begun", lambda w, n: _additions(
        w, n, _stranger(w), only_look=True)),
    Step(v.ADD_OFFSETS_TO_TXN, "of a stranger", lambda w, n: _stranger(w, group_id="g")),
    Step(v.END_TXN, "of a stranger", lambda w, n: _stranger(w, committed=True)),
    Step(v.TXN_OFFSET_COMMIT, "of a stranger", lambda w, n: _transaction_positions(w, _stranger(w))),
    Step(v.END_TXN, "that was not begun", lambda w, n: _writer(w, committed=True)),
    Step(v.TXN_OFFSET_COMMIT, "that was not begun", lambda w, n: _transaction_positions(w, _writer(w))),
    Step(v.DESCRIBE_TRANSACTIONS, "of a stranger", lambda w, n: {"transactional_ids": [f"{w.prefix}-stranger"]}),
    Step(v.LIST_TRANSACTIONS, "in an unknown state", lambda w, n: {
        "state_filters": ["Lost"], "producer_id_filters": [], "duration_filter": -1,
        "transactional_id_pattern": "nobody.*"}),
    Step(v.LIST_TRANSACTIONS, "by an invalid pattern", lambda w, n: {
        "state_filters": ["Lost"], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": "("}),
    Step(v.DESCRIBE_PRODUCERS, "of a missing topic", lambda w, n: {
        "topics": [{"name": w.missing, "partition_indexes": [0]}]}),
    Step(v.WRITE_TXN_MARKERS, "of a missing topic", lambda w, n: {"markers": [{
        "producer_id": 1, "producer_epoch": 1, "transaction_result": True, "coordinator_epoch": 0,
        "transaction_version": 2, "topics": [{"name": w.missing, "partition_indexes": [0]}]}]}),
    Step(v.DESCRIBE_ACLS, "all", lambda w, n: _FILTER),
    Step(v.CREATE_ACLS, "one", lambda w, n: {"creations": [_RULE]}),
    Step(v.DELETE_ACLS, "all", lambda w, n: {"filters": [_FILTER]}),
    Step(v.DESCRIBE_LOG_DIRS, "of a missing topic", lambda w, n: {"topics": [{"topic": w.missing, "partitions": [0]}]}),
    Step(v.ALTER_REPLICA_LOG_DIRS, "an unknown one", lambda w, n: {"dirs": [
        {"path": "/nowhere", "topics": [{"name": w.topic, "partitions": [0]}]}]}),
    Step(v.ELECT_LEADERS, "where one leads", lambda w, n: {"election_type": 0, "timeout_ms": 5000, "topic_partitions": [
        {"topic": name, "partitions": [0]} for name in (w.topic, w.missing)]}),
    Step(v.ALTER_PARTITION_REASSIGNMENTS, "none to cancel, one to nowhere", lambda w, n: {
        "timeout_ms": 5000, "allow_replication_factor_change": True, "topics": [
            {"name": w.topic, "partitions": [{"partition_index": 0, "replicas": None}]},
            {"name": w.missing, "partitions": [{"partition_index": 0, "replicas": [1]}]}]}),
    Step(v.ALTER_PARTITION_REASSIGNMENTS, "to an unknown broker", lambda w, n: {
        "timeout_ms": 5000, "allow_replication_factor_change": True, "topics": [
            {"name": w.topic, "partitions": [{"partition_index": 0, "replicas": [7]}]}]}),
    Step(v.LIST_PARTITION_REASSIGNMENTS, "all", lambda w, n: {"timeout_ms": 5000, "topics": None}),
    Step(v.DESCRIBE_CLIENT_QUOTAS, "all", lambda w, n: {"components": [], "strict": False}),
    Step(v.ALTER_CLIENT_QUOTAS, "an unknown key", lambda w, n: {"validate_only": True, "entries": [{
        "entity": [{"entity_type": "user", "entity_name": "u"}],
        "ops": [{"key": "nothing", "value": 1.0, "remove": False}]}]}),
    Step(v.DESCRIBE_SCRAM_CREDENTIALS, "of a missing user", lambda w, n: {"users": [{"name": "nobody"}]}),
    Step(v.ALTER_SCRAM_CREDENTIALS, "of a missing user", lambda w, n: {
        "deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []}),
    Step(v.DESCRIBE_QUORUM, "of another topic", lambda w, n: {
        "topics": [{"topic_name": w.missing, "partitions": [{"partition_index": 0}]}]}),
    Step(v.DESCRIBE_CLUSTER, "the cluster", lambda w, n: {
        "include_cluster_authorized_operations": True, "endpoint_type": 1, "include_fenced_brokers": False}),
    Step(v.DESCRIBE_TOPIC_PARTITIONS, "a topic and a missing one", lambda w, n: {
        "topics": [{"name": w.topic}, {"name": w.missing}], "response_partition_limit": 1, "cursor": None}),
    Step(v.SASL_HANDSHAKE, "an unknown mechanism", lambda w, n: {"mechanism": "NONE"}),
)  # fmt: skip

CHOSEN, TEXT, DIRECTORY = "each broker chooses it", "words are those of the broker", "a path of the machine"
VOLATILE: Final[Mapping[str, str]] = {
    "error_message": TEXT, "batch_index_error_message": TEXT, "cluster_id": CHOSEN, "host": CHOSEN, "port": CHOSEN,
    "leader_epoch": "an epoch begins at each start that was not in order, from 1 on", "rack": CHOSEN,
    "finalized_features_epoch": CHOSEN, "log_dir": DIRECTORY, "total_bytes": DIRECTORY, "usable_bytes": DIRECTORY,
    "nodes": "the port of Apache Kafka's controller", "throttle_time_ms": CHOSEN,
    "mechanisms": "those that a listener has",
    "api_keys": "compared with not_served by tests/dialects/test_not_served.py",
    "supported_features": "levels of a version of each",
    "finalized_features": "levels of a version of each",
}  # fmt: skip
"""Fields that are not compared."""

CONFIGS: Final = "configs of topics that Lading has; retention is for ever unless a topic has one"
DIFFERENCES: Final[Mapping[tuple[str, str, str], str]] = {
    **{("CreateTopics", "a new one", f"topics.configs{name}"): CONFIGS for name in (
        "", ".name", ".value", ".read_only", ".config_source", ".is_sensitive")},
    ("DescribeConfigs", "two configs", "results.configs.value"): CONFIGS,
    **{(api, "an invalid value", "responses.error_code"): "a missing topic is told before an invalid value"
       for api in ("AlterConfigs", "IncrementalAlterConfigs")},
    **{("Fetch", step, "responses.partitions.aborted_transactions"): "null from version 11 on, before an empty list"
       for step in ("three records", "after the end", "a missing topic")},
    ("SaslHandshake", "an unknown mechanism", "error_code"): (
        "0: not taken, so that no client sends raw tokens; 1: each listener takes logins, Kafka's has none"),
}  # fmt: skip
"""By API, step and field, why a response differs from Apache Kafka's."""


def open_world(address: str, prefix: str) -> World:
    """Return a broker with a topic, three records and a producer that has begun nothing."""
    world = World(address, prefix)
    _ask_settled(world, "CreateTopics", 4, _new_topic(world, 4, world.topic, 2))
    named = {"topics": [{"name": world.topic, "topic_id": NOBODY}]}
    metadata = _ask_settled(world, "Metadata", 12, named, wait_codes=UNKNOWN_CODES)
    world.topic_id = metadata.topics[0].topic_id
    rows = [{"name": world.topic, "partition_data": [{"index": 0, "records": one_batch(b"a", b"b", b"c")}]}]
    fields: Fields = {"transactional_id": None, "acks": -1, "timeout_ms": 5000, "topic_data": rows}
    _ask_settled(world, "Produce", 9, fields, wait_codes=UNKNOWN_CODES)
    for kind, key in ((0, f"{prefix}-alone"), (1, f"{prefix}-writer")):
        _ask_settled(world, "FindCoordinator", 2, {"key": key, "key_type": kind})
    fields = {"transactional_id": f"{prefix}-writer", "transaction_timeout_ms": 60_000}
    made = _ask_settled(world, "InitProducerId", 4, {**fields, "producer_id": -1, "producer_epoch": -1})
    world.producer = made.producer_id, made.producer_epoch
    _ask_settled(world, "Heartbeat", 3, _member(world, f"{prefix}-no-group"))
    return world


def _ask(world: World, name: str, version: int, fields: Fields) -> Any:
    return world.frames.ask(name, version, **_select(message(f"{name}Request"), fields))


def _select(kind: Any, fields: Fields) -> dict[str, Any]:
    """The fields that a message has in any version: steps of several APIs share theirs."""
    selected: dict[str, Any] = {}
    for name, value in fields.items():
        if (known := kind.fields.get(name)) is None:
            continue
        if known.is_struct_array() and value is not None:
            value = [_select(getattr(kind, known.type_str), row) for row in value if isinstance(row, Mapping)]
        selected[name] = value
    return selected


def _ask_settled(world: World, name: str, version: int, fields: Fields, wait_codes: frozenset[int] = WAIT_CODES) -> Any:
    for _ in range(400):
        answer = _ask(world, name, version, fields)
        if not wait_codes & set(_codes(answer)):
            return answer
        time.sleep(SLEEP)
    raise AssertionError(f"{name} {version}: {answer}")


def _codes(answer: Any) -> Iterator[int]:
    for path, value in flatten(answer):
        if path.endswith("error_code"):
            yield value


def flatten(answer: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each field of a response with its path, without those in ``VOLATILE``."""
    for name, kind in type(answer).fields.items():
        if not kind.for_version_q(answer.version) or name in VOLATILE:
            continue
        value = getattr(answer, name)
        here = f"{path}{name}"
        if isinstance(value, list | tuple) and kind.is_struct_array():
            yield here, len(value)
            rows = sorted(value, key=lambda row: [str(part) for part in flatten(row)])
            for row in rows:
                yield from flatten(row, f"{here}.")
        elif kind.is_struct() and value is not None:
            yield from flatten(value, f"{here}.")
        elif isinstance(value, bytes | bytearray | memoryview):
            yield here, _without_epochs(bytes(value)).hex()
        elif isinstance(value, list | tuple):
            yield here, sorted(map(str, value))
        else:
            yield here, "<id>" if isinstance(value, UUID) and value not in (NOBODY, NOWHERE) else value


def _without_epochs(records: bytes) -> bytes:
    """Record batches with the epoch of their leader, which no checksum covers, set to zero."""
    out, at = bytearray(records), 0
    while at + 16 <= len(out):
        (size,) = struct.unpack_from(">i", out, at + 8)
        out[at + 12 : at + 16] = bytes(4)
        at += 12 + max(size, 4)
    return bytes(out)


def walk(world: World, step: Step, version: int) -> list[tuple[str, Any]] | str:
    """Return the fields of a response, or what came instead of one."""
    name = SERVED[step.key].name
    try:
        if step.key in (v.END_TXN, v.TXN_OFFSET_COMMIT, v.ADD_OFFSETS_TO_TXN):
            answer = _ask_settled(world, name, version, step.fields(world, version))
        else:
            answer = _ask(world, name, version, step.fields(world, version))
    except ConnectionError:
        world.again()
        return "closed"
    except TimeoutError:
        world.again()
        return "no response"
    if step.key == v.SASL_HANDSHAKE:
        # ours closes after version 0
        world.again()
    return [(path, value.replace(world.prefix, "<p>") if isinstance(value, str) else value)
            for path, value in flatten(answer)]  # fmt: skip


def list_versions(key: int) -> range:
    """The versions of an API that are walked."""
    low = PRODUCE_LOW if key == v.PRODUCE else SERVED[key].low
    return range(low, SERVED[key].high + 1)


class Difference(NamedTuple):
    """A field of a response that differs, in some versions of an API."""

    api: str
    versions: tuple[int, ...]
    step: str
    field: str
    ours: str
    theirs: str


def compare(ours: World, theirs: World) -> list[Difference]:
    """Return all that differs, each field once for equal values."""
    found: dict[tuple[str, str, str, str, str], list[int]] = {}
    for step in STEPS:
        for version in list_versions(step.key):
            if version < step.low:
                continue
            mine, other = walk(ours, step, version), walk(theirs, step, version)
            if mine == other:
                continue
            for field_name, left, right in _pairs(mine, other):
                found.setdefault((SERVED[step.key].name, step.name, field_name, str(left), str(right)), []).append(
                    version
                )
    return [Difference(api, tuple(numbers), *rest) for (api, *rest), numbers in found.items()]


def _pairs(ours: Any, theirs: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, str) or isinstance(theirs, str):
        yield (
            "response",
            ours if isinstance(ours, str) else "a response",
            theirs if isinstance(theirs, str) else "a response",
        )
        return
    if [path for path, _ in ours] != [path for path, _ in theirs]:
        left = {path: [value for at, value in ours if at == path] for path, _ in ours}
        right = {path: [value for at, value in theirs if at == path] for path, _ in theirs}
        for path in left.keys() | right.keys():
            if left.get(path) != right.get(path):
                yield path, left.get(path), right.get(path)
        return
    for (path, value), (_, other) in zip(ours, theirs, strict=True):
        if value != other:
            yield path, value, other

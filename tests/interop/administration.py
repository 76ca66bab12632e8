"""One conversation with a broker as administrators' tools hold it, in raw requests; what it answers as plain data.

What only a broker knows (its directories, sizes, the disk, the epochs of its coordinator) is left out.
"""

from __future__ import annotations

import struct
import time
from typing import Any

from lading.dialects.kafka import versions as v
from tests.interop.coordinator import TIMEOUT_S, Talk

TOPIC, BROKER, GROUP = 2, 4, 32
OF_TOPIC, DEFAULT = 1, 5
ANY, ALL = 1, {"operation": 1, "permission_type": 1}
MISSING = "no-such-topic"


def converse(address: str, topic: str, suffix: str) -> list[list[Any]]:
    """All of it; the topic has two empty partitions, groups and names end in ``suffix``."""
    talk = Talk(address, topic)
    group, name = f"g{suffix}", f"t{suffix}"
    try:
        talk.coordinated(group, 0)
        talk.coordinated(name, 1)
        _partitions(talk)
        _configs(talk)
        _replicas(talk)
        _security(talk)
        _positions(talk, group)
        _producers(talk, name)
    finally:
        talk.close()
    return talk.said


def _partitions(talk: Talk) -> None:
    asked: tuple[tuple[str, list[str], int, Any], ...] = (
        ("a topic and one that is missing", [talk.topic, MISSING], 100, None),
        ("one partition at a time", [talk.topic], 1, None),
        ("from a cursor on", [talk.topic], 1, {"topic_name": talk.topic, "partition_index": 1}),
        ("no partition at all", [talk.topic], 0, None),
    )
    for step, names, most, cursor in asked:
        got = talk.ask(
            v.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": one} for one in names], response_partition_limit=most,
            cursor=cursor,
        )  # fmt: skip
        rows = [
            [
                one.error_code, one.name, one.is_internal,
                [[p.error_code, p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes, p.offline_replicas,
                  p.eligible_leader_replicas, p.last_known_elr] for p in one.partitions],
            ]
            for one in got.topics
        ]  # fmt: skip
        next_ = got.next_cursor
        talk.note(f"partitions: {step}", rows, None if next_ is None else [next_.topic_name, next_.partition_index])


def _described(talk: Talk, *, synonyms: bool = True) -> Any:
    names = ["retention.ms", "max.message.bytes", "cleanup.policy"]
    asked = {"resource_type": TOPIC, "resource_name": talk.topic, "configuration_keys": names}
    return talk.ask(
        v.DESCRIBE_CONFIGS, 4, resources=[asked], include_synonyms=synonyms, include_documentation=False
    ).results[0]


def _told(talk: Talk, step: str, *, synonyms: bool = True) -> None:
    got = _described(talk, synonyms=synonyms)
    rows = [
        [
            one.name,
            one.value,
            one.config_source,
            one.config_type,
            [[s.name, s.value, s.source] for s in one.synonyms][:1],
        ]
        for one in got.configs
    ]
    # how long messages stay where nobody says it is one of our own settings
    talk.note(step, got.error_code, sorted(row for row in rows if (row[0], row[2]) != ("retention.ms", DEFAULT)))


def _configs(talk: Talk) -> None:
    def replace(step: str, kind: int, name: str, only_check: bool = False, **configs: str) -> None:
        rows = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        asked = [{"resource_type": kind, "resource_name": name, "configs": rows}]
        got = talk.ask(v.ALTER_CONFIGS, 1, resources=asked, validate_only=only_check).responses[0]
        talk.note(step, got.error_code, got.resource_type, got.resource_name)
        if got.error_code or only_check:
            return
        # the controller of a real cluster answers before the brokers have heard of it
        wanted = {row["name"]: row["value"] for row in rows}
        until = time.monotonic() + TIMEOUT_S
        while {one.name: one.value for one in _described(talk).configs if one.config_source == OF_TOPIC} != wanted:
            assert time.monotonic() < until, (step, wanted)
            time.sleep(0.02)

    _told(talk, "configs as they come")
    replace("configs replaced", TOPIC, talk.topic, retention_ms="100000", max_message_bytes="2000000")
    _told(talk, "configs after that")
    replace("configs replaced by one", TOPIC, talk.topic, retention_ms="200000")
    _told(talk, "the other is as it came")
    replace("configs that are only checked", TOPIC, talk.topic, True, retention_ms="300000")
    replace("a config that there is not", TOPIC, talk.topic, nonsense="1")
    replace("a value that cannot be", TOPIC, talk.topic, retention_ms="soon")
    replace("configs of a topic that is missing", TOPIC, MISSING, retention_ms="1")
    _told(talk, "configs without their other names", synonyms=False)
    replace("no configs at all", TOPIC, talk.topic)
    _told(talk, "configs at the end")
    for kind, name in ((GROUP, "nobody"), (BROKER, "")):
        asked = {"resource_type": kind, "resource_name": name, "configuration_keys": ["retention.ms"]}
        got = talk.ask(
            v.DESCRIBE_CONFIGS, 4, resources=[asked], include_synonyms=False, include_documentation=False
        ).results[0]
        talk.note(f"configs of {kind} {name!r}", got.error_code, len(got.configs))
    got = talk.ask(v.LIST_CONFIG_RESOURCES, 1, resource_types=[TOPIC, BROKER])
    rows = [[one.resource_type, one.resource_name] for one in got.config_resources]
    talk.note("what has configs", got.error_code, sorted(row for row in rows if row[1] in (talk.topic, "1")))
    got = talk.ask(v.LIST_CONFIG_RESOURCES, 0)
    talk.note("what of clients has configs", got.error_code, len(got.config_resources))


def _replicas(talk: Talk) -> None:
    for version in (1, 4):
        asked = [{"topic": talk.topic, "partitions": [1, 7]}, {"topic": MISSING, "partitions": [0]}]
        got = talk.ask(v.DESCRIBE_LOG_DIRS, version, topics=asked)
        rows = [
            [
                one.error_code, one.log_dir.startswith("/"), version < 4 or one.total_bytes > one.usable_bytes > 0,
                [[each.name, [[p.partition_index, p.partition_size, p.offset_lag, p.is_future_key]
                              for p in each.partitions]] for each in one.topics],
            ]
            for one in got.results
        ]  # fmt: skip
        talk.note(f"directories, version {version}", got.error_code, rows)
    for version in (0, 1, 2):
        asked = [{"topic": talk.topic, "partitions": [0]}, {"topic": MISSING, "partitions": [0]}]
        got = talk.ask(v.ELECT_LEADERS, version, election_type=0, topic_partitions=asked, timeout_ms=1000)
        rows = [[one.topic, [[p.partition_id, p.error_code] for p in one.partition_result]]
                for one in got.replica_election_results]  # fmt: skip
        talk.note(f"election, version {version}", got.error_code, sorted(rows))
    got = talk.ask(v.ELECT_LEADERS, 2, election_type=0, topic_partitions=None, timeout_ms=1000)
    had = [p.partition_id for one in got.replica_election_results for p in one.partition_result]
    talk.note("election of all", got.error_code, had)
    got = talk.ask(v.LIST_PARTITION_REASSIGNMENTS, 0, timeout_ms=1000, topics=None)
    talk.note("moving partitions", got.error_code, len(got.topics))


def _security(talk: Talk) -> None:
    one = {"resource_type": TOPIC, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:ann",
           "host": "*", "operation": 3, "permission_type": 3}  # fmt: skip
    every = {"resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY,
             "principal_filter": None, "host_filter": None, **ALL}  # fmt: skip
    for version in (1, 2, 3):
        got = talk.ask(v.DESCRIBE_ACLS, version, **every)
        talk.note(f"access rules, version {version}", got.error_code, len(got.resources))
        got = talk.ask(v.CREATE_ACLS, version, creations=[one, one])
        talk.note(f"new access rules, version {version}", [each.error_code for each in got.results])
        got = talk.ask(v.DELETE_ACLS, version, filters=[every])
        found = [[each.error_code, len(each.matching_acls)] for each in got.filter_results]
        talk.note(f"fewer access rules, version {version}", found)
    for version in (0, 1):
        parts = [{"entity_type": "user", "match_type": 2, "match": None}]
        got = talk.ask(v.DESCRIBE_CLIENT_QUOTAS, version, components=parts, strict=False)
        talk.note(f"quotas, version {version}", got.error_code, got.entries)
    for who in (None, [], [{"name": "ann"}]):
        got = talk.ask(v.DESCRIBE_SCRAM_CREDENTIALS, 0, users=who)
        rows = [[each.user, each.error_code, each.credential_infos] for each in got.results]
        talk.note(f"credentials of {who}", got.error_code, rows)


def _positions(talk: Talk, group: str) -> None:
    def delete(step: str, name: str, topic: str = talk.topic) -> None:
        parts = [{"partition_index": number} for number in (0, 1)]
        got = talk.ask(v.OFFSET_DELETE, 0, group_id=name, topics=[{"name": topic, "partitions": parts}])
        rows = [[one.name, [[p.partition_index, p.error_code] for p in one.partitions]] for one in got.topics]
        talk.note(step, got.error_code, rows)

    delete("positions of no group", f"{group}-none")
    talk.commit("a position", group, "", -1)
    delete("positions of a topic that is missing", group, MISSING)
    talk.fetch("it is still there", group, 7)
    delete("the position is deleted", group)
    talk.fetch("it is not there", group, 7)
    topic = talk.topic.encode()
    reads = (("range", struct.pack(f">hih{len(topic)}si", 0, 1, len(topic), topic, -1)),)
    named = talk.join("a member", group, protocols=reads)
    first = talk.join("by its name", group, named.member_id, protocols=reads)
    work = [{"member_id": first.member_id, "assignment": b"work"}]
    talk.sync("which leads", group, first.member_id, first.generation_id, assignments=work)
    talk.commit("its position", group, first.member_id, first.generation_id)
    delete("positions of a topic that it reads", group)
    delete("of a topic that is missing, beside members", group, MISSING)
    talk.fetch("stay", group, 7)
    talk.leave("it leaves", group, (first.member_id, None))
    delete("and its position goes", group)
    talk.fetch("now", group, 7)
    other = talk.join("a member that is no consumer", f"{group}-other", kind="connect")
    talk.join("by its own name", f"{group}-other", other.member_id, kind="connect")
    delete("positions of its group", f"{group}-other")


def _producers(talk: Talk, name: str) -> None:
    def look(step: str) -> None:
        got = talk.ask(v.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[name, f"{name}-none"])
        rows = [
            [
                one.error_code, one.transactional_id, one.transaction_state, one.transaction_timeout_ms,
                one.transaction_start_time_ms > 0, talk.named(one.producer_id if one.error_code == 0 else -1, "p"),
                one.producer_epoch,
                [[each.topic, each.partitions] for each in one.topics],
            ]
            for one in got.transaction_states
        ]  # fmt: skip
        talk.note(f"transaction {step}", [row if row[0] == 0 else row[:2] for row in rows])
        parts = [{"name": talk.topic, "partition_indexes": [0, 9]}]
        got = talk.ask(v.DESCRIBE_PRODUCERS, 0, topics=parts)
        found = [
            [p.partition_index, p.error_code,
             [[talk.named(one.producer_id, "p"), one.producer_epoch, one.last_sequence, one.current_txn_start_offset]
              for one in p.active_producers]]
            for p in got.topics[0].partitions
        ]  # fmt: skip
        talk.note(f"producers {step}", found)

    def named(step: str, version: int, **filters: Any) -> None:
        fields = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1} | filters
        got = talk.ask(v.LIST_TRANSACTIONS, version, **fields)
        rows = [[one.transactional_id, talk.named(one.producer_id, "p"), one.transaction_state]
                for one in got.transaction_states if one.transactional_id == name]  # fmt: skip
        talk.note(f"names {step}", got.error_code, got.unknown_state_filters, rows)

    who = talk.init("a name", name)
    look("before it begins")
    talk.add("its partition", name, who)
    talk.produce("its batch", who, 0, 3, name=name)
    look("while it is open")
    named("of all states", 0)
    named("that are open", 0, state_filters=["Ongoing"])
    named("that are empty", 0, state_filters=["Empty"])
    named("of a state that there is not", 0, state_filters=["Tired"])
    named("of its id", 1, producer_id_filters=[who[0]])
    named("of another id", 1, producer_id_filters=[who[0] + 1000])
    named("that are open for an hour", 1, duration_filter=3_600_000)
    talk.end("its abort", name, who, False)
    talk.settled(lambda: talk.ask(v.ADD_OFFSETS_TO_TXN, 3, transactional_id=name, producer_id=who[0],
                                  producer_epoch=who[1], group_id="g").error_code)  # fmt: skip
    talk.end("and that of the next, which has no batch", name, who, False)
    plain = talk.init("an id without a name", None)
    talk.produce("its own batch", plain, 0)
    parts = [{"name": talk.topic, "partition_indexes": [0]}]
    (found,) = talk.ask(v.DESCRIBE_PRODUCERS, 0, topics=parts).topics[0].partitions
    rows = [[talk.named(one.producer_id, "p"), one.producer_epoch, one.current_txn_start_offset]
            for one in found.active_producers]  # fmt: skip
    talk.note("producers at the end", sorted(rows))

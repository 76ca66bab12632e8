"""Kafka with users: logins, what strangers are answered, and what each right allows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka import admin as tools
from confluent_kafka.admin import AdminClient

from lading.broker.core.access.rights import ResourceKind, Right
from lading.dialects.kafka.versions import SERVED
from lading.endpoints.kafka.authorization import ASKED_ELSEWHERE, NEEDS
from lading.endpoints.kafka.session import BEFORE_LOGIN
from lading.testing import BrokerProcess
from tests.endpoints.identity import PASSWORDS, broker_with_users, rule
from tests.endpoints.kafka_frames import KafkaFrames, fetch, one_batch, produce
from tests.endpoints.test_http_users import client as http_client

kafka_tools: Any = tools
"""Its stubs miss half of it."""
Started = tuple[BrokerProcess, dict[str, str]]
RULES = [
    rule("ann", Right.WRITE, "orders"),
    rule("ann", Right.READ, "orders"),
    rule("ann", Right.READ, "g", kind=ResourceKind.GROUP),
    rule("bob", Right.CREATE, "new-*"),
]
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with broker_with_users(tmp_path_factory.mktemp("kafka") / "data", RULES) as found:
        root = http_client(found[0], basic="root")
        for name in ("orders", "secret"):
            assert root.post(f"/topics/default/{name}", json={}).status_code == 201
        yield found


def stranger(started: Started) -> KafkaFrames:
    return KafkaFrames(started[0].endpoints["kafka"])


def log_in(frames: KafkaFrames, name: str, password: str | None = None) -> Any:
    assert frames.ask("SaslHandshake", 1, mechanism="PLAIN").error_code == 0
    word = PASSWORDS[name] if password is None else password
    return frames.ask("SaslAuthenticate", 2, auth_bytes=f"\0{name}\0{word}".encode())


def as_user(started: Started, name: str) -> KafkaFrames:
    frames = stranger(started)
    assert log_in(frames, name).error_code == 0
    return frames


def settings(started: Started, name: str, mechanism: str, password: str | None = None) -> dict[str, Any]:
    return {
        "bootstrap.servers": started[0].endpoints["kafka"], "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism, "sasl.username": name,
        "sasl.password": PASSWORDS[name] if password is None else password,
    }  # fmt: skip


def test_every_api_says_what_it_needs() -> None:
    by_version = {"FindCoordinator", "OffsetCommit", "OffsetFetch", "DeleteTopics", "AddPartitionsToTxn"}
    told = NEEDS.keys() | ASKED_ELSEWHERE
    assert {one.name for key, one in SERVED.items() if key not in told} == {"Produce", "Fetch"} | by_version


def test_a_stranger_is_answered_nothing_but_a_login(started: Started) -> None:
    asked: dict[str, dict[str, Any]] = {
        "Metadata": {"topics": None}, "ListOffsets": {"replica_id": -1, "topics": []}, "ListGroups": {},
        "DescribeCluster": {}, "FindCoordinator": {"key": "g"}, "CreateTopics": {"topics": [], "timeout_ms": 1},
        "Produce": produce("orders", one_batch(b"x")), "Fetch": fetch("orders", 0),
    }  # fmt: skip
    for name, fields in asked.items():
        served = next(one for one in SERVED.values() if one.name == name)
        frames = stranger(started)
        assert frames.ask("ApiVersions", 3, client_software_name="x", client_software_version="1").error_code == 0
        frames.send(
            frames.request(name, max(served.low, 4 if name == "Fetch" else 3 if name == "Produce" else 0), **fields)
        )
        with pytest.raises(ConnectionError):
            frames.answer()
    assert len(BEFORE_LOGIN) == 3


def test_wrong_logins(started: Started) -> None:
    frames = stranger(started)
    answer = frames.ask("SaslHandshake", 1, mechanism="GSSAPI")
    assert (answer.error_code, answer.mechanisms) == (33, list(MECHANISMS))
    assert frames.ask("SaslAuthenticate", 2, auth_bytes=b"\0ann\0x").error_code == 34
    for name, password in (("ann", "wrong"), ("nobody", "wrong")):
        frames = stranger(started)
        answer = log_in(frames, name, password)
        assert (answer.error_code, answer.error_message) == (58, "wrong user name or password")
        with pytest.raises(ConnectionError):
            frames.ask("Metadata", 4, topics=None)
    for message in (b"", b"ann", b"root\0ann\0" + PASSWORDS["ann"].encode(), b"\0\xff\0x"):
        frames = stranger(started)
        frames.ask("SaslHandshake", 1, mechanism="PLAIN")
        assert frames.ask("SaslAuthenticate", 2, auth_bytes=message).error_code == 58
    # the last message of a SCRAM login that never began
    frames = stranger(started)
    frames.ask("SaslHandshake", 1, mechanism="SCRAM-SHA-256")
    assert frames.ask("SaslAuthenticate", 2, auth_bytes=b"c=biws,r=x,p=AAAA").error_code == 58


def test_an_access_token_is_a_password(started: Started) -> None:
    assert log_in(stranger(started), "ann", started[1]["ann"]).error_code == 0
    assert log_in(stranger(started), "bob", started[1]["ann"]).error_code == 58


def test_what_is_forbidden_looks_like_what_does_not_exist(started: Started) -> None:
    ann = as_user(started, "ann")
    rows = ann.ask("Metadata", 9, topics=[{"name": name} for name in ("orders", "secret", "absent")]).topics
    assert [row.error_code for row in rows] == [0, 29, 29]
    assert [row.name for row in ann.ask("Metadata", 9, topics=None).topics] == ["orders"]
    for name in ("secret", "absent"):
        answer = ann.ask("Produce", 7, **produce(name, one_batch(b"x")))
        assert answer.responses[0].partition_responses[0].error_code == 29
        assert ann.ask("Fetch", 4, **fetch(name, 0)).responses[0].partitions[0].error_code == 29
        asked = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        assert ann.ask("ListOffsets", 1, replica_id=-1, topics=asked).topics[0].partitions[0].error_code == 29
        answer = ann.ask("DeleteTopics", 1, topic_names=[name], timeout_ms=1)
        assert [row.error_code for row in answer.responses] == [29]
    answer = ann.ask("Produce", 7, **produce("orders", one_batch(b"x")))
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_what_is_denied_is_not_deleted_by_its_id(started: Started) -> None:
    """By an id the right on all topics was asked for alone, whatever a rule about that topic denied."""
    http = http_client(started[0], basic="root")
    topic_id = UUID(http.post("/topics/default/kept", json={}).json()["id"])
    rows = [
        {"user": "bob", "kind": "topic", "pattern": "any", "name": "*", "operation": "delete"},
        {"user": "bob", "kind": "topic", "pattern": "literal", "name": "kept", "operation": "all", "denies": True},
    ]
    assert http.post("/rules", json={"add": rows}).status_code == 204
    bob = stranger(started)
    assert log_in(bob, "bob").error_code == 0

    def delete(ident: UUID) -> Any:
        named = [{"name": None, "topic_id": ident}]
        (row,) = bob.ask("DeleteTopics", 6, topics=named, timeout_ms=1000).responses
        return row.name, row.error_code, row.error_message

    try:
        unknown_topic_id = 100
        assert delete(topic_id) == delete(uuid4())
        assert delete(topic_id)[:2] == (None, unknown_topic_id)
        assert http.get("/topics/default/kept").status_code == 200
        assert http.post("/rules", json={"delete": rows[1:]}).status_code == 204
        assert delete(topic_id)[:2] == ("kept", 0)
    finally:
        assert http.post("/rules", json={"delete": rows}).status_code == 204


def test_a_fetch_by_id_tells_a_missing_right_who_may_know_of_the_topic(started: Started) -> None:
    """As Kafka does (KafkaApis.handleFetchRequest): with 100, consumers would look for the topic again forever."""
    http_client(started[0], basic="root").post("/topics/default/seen", json={})
    http_client(started[0], basic="root").post(
        "/rules",
        json={"add": [{"user": "ann", "kind": "topic", "pattern": "literal", "name": "seen", "operation": "describe"}]},
    )
    rows = (
        as_user(started, "root")
        .ask("Metadata", 12, topics=[{"topic_id": UUID(int=0), "name": name} for name in ("seen", "secret")])
        .topics
    )
    ids = {row.name: row.topic_id for row in rows}
    ann = as_user(started, "ann")
    for topic_id, code in ((ids["seen"], 29), (ids["secret"], 100), (UUID(int=5), 100)):
        answer = ann.ask("Fetch", 13, **fetch(topic_id))
        assert answer.responses[0].partitions[0].error_code == code


def test_groups_and_transactions_have_rights_of_their_own(started: Started) -> None:
    ann = as_user(started, "ann")
    assert ann.ask("FindCoordinator", 1, key="g", key_type=0).error_code == 0
    assert ann.ask("FindCoordinator", 1, key="other", key_type=0).error_code == 30
    assert ann.ask("FindCoordinator", 1, key="t", key_type=1).error_code == 53
    assert ann.ask("Heartbeat", 0, group_id="other", generation_id=1, member_id="m").error_code == 30
    assert ann.ask("InitProducerId", 0, transactional_id="t", transaction_timeout_ms=1000).error_code == 53
    assert ann.ask("InitProducerId", 0, transactional_id=None, transaction_timeout_ms=1000).error_code == 0
    rows = ann.ask("DescribeGroups", 0, groups=["g", "other"]).groups
    assert {row.group_id: row.error_code for row in rows} == {"g": 0, "other": 30}
    places = [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    committed = ann.ask("OffsetCommit", 2, group_id="other", topics=places)
    assert committed.topics[0].partitions[0].error_code == 30
    assert ann.ask("DescribeLogDirs", 3, topics=None).error_code == 31
    marker = {
        "producer_id": 5, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0,
        "topics": [{"name": "orders", "partition_indexes": [0]}],
    }  # fmt: skip
    for user, code in ((ann, 31), (as_user(started, "root"), 0)):
        [row] = user.ask("WriteTxnMarkers", 1, markers=[marker]).markers
        assert (row.producer_id, row.topics[0].partitions[0].error_code) == (5, code)


def test_authorized_operations_are_those_of_the_rights(started: Started) -> None:
    read, write, create, delete, alter, describe, cluster_action, describe_configs, alter_configs = range(3, 12)
    ann, bob, root = (as_user(started, name) for name in ("ann", "bob", "root"))
    asked = [{"name": name} for name in ("orders", "new-0", "secret")]
    asks = {
        "allow_auto_topic_creation": False, "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }  # fmt: skip
    of_orders, of_new = {read, write, describe, describe_configs}, {create, describe, describe_configs}
    every = {read, write, create, delete, alter, describe, describe_configs, alter_configs}
    for user, expected in ((ann, [of_orders, None, None]), (bob, [None, of_new, None]), (root, [every] * 3)):
        told = user.ask("Metadata", 9, topics=asked, **asks)
        assert [row.authorized_operations for row in told.topics] == expected
        rows = user.ask("DescribeTopicPartitions", 0, topics=asked, response_partition_limit=9, cursor=None).topics
        bits = [row.topic_authorized_operations for row in sorted(rows, key=lambda row: str(row.name))]
        by_name = [expected[1], expected[0], expected[2]]
        assert bits == [-(1 << 31) if one is None else sum(1 << code for code in one) for one in by_name]
    groups = ann.ask("DescribeGroups", 5, groups=["g"], include_authorized_operations=True).groups
    assert [row.authorized_operations for row in groups] == [{read, describe, describe_configs}]
    of_cluster = {create, cluster_action, describe_configs, alter_configs, describe, alter, 12}
    for user, of_whole in ((ann, set()), (root, of_cluster)):
        assert user.ask("Metadata", 9, topics=asked, **asks).authorized_operations == of_whole
        told = user.ask("DescribeCluster", 1, include_cluster_authorized_operations=True, endpoint_type=1)
        assert told.authorized_operations == of_whole


def test_creating_needs_the_right_on_the_name(started: Started) -> None:
    bob = as_user(started, "bob")
    rows = bob.ask(
        "CreateTopics", 5, timeout_ms=1000, validate_only=False,
        topics=[{"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
                for name in ("new-1", "other")],
    ).topics  # fmt: skip
    assert {row.name: row.error_code for row in rows} == {"new-1": 0, "other": 29}
    made = bob.ask("Metadata", 9, topics=[{"name": "new-2"}, {"name": "old-2"}], allow_auto_topic_creation=True).topics
    assert {row.name: row.error_code for row in made} == {"new-2": 0, "old-2": 29}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka(started: Started, mechanism: str) -> None:
    producer = confluent_kafka.Producer(settings(started, "ann", mechanism))
    failed: list[Any] = []
    for topic in ("orders", "secret"):
        producer.produce(topic, mechanism.encode(), on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(20) == 0
    assert [error and error.name() for error in failed if error] == ["TOPIC_AUTHORIZATION_FAILED"]
    consumer = confluent_kafka.Consumer(
        {**settings(started, "ann", mechanism), "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    found = consumer.poll(20)
    assert found is not None and found.error() is None
    consumer.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_confluent_kafka_with_a_wrong_password(started: Started, mechanism: str) -> None:
    errors: list[str] = []
    wrong: dict[str, Any] = {**settings(started, "bob", mechanism, "wrong"), "log_level": 0}
    producer = confluent_kafka.Producer({**wrong, "error_cb": lambda error: errors.append(error.name())})
    for _ in range(100):
        producer.poll(0.1)
        if errors:
            break
    assert "_AUTHENTICATION" in errors


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(started: Started, mechanism: str) -> None:
    given = {
        "bootstrap_servers": started[0].endpoints["kafka"], "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism, "sasl_plain_username": "ann", "sasl_plain_password": PASSWORDS["ann"],
    }  # fmt: skip

    async def work() -> None:
        async with asyncio.timeout(30), aiokafka.AIOKafkaProducer(**given) as producer:
            await producer.send_and_wait("orders", b"aiokafka")

    asyncio.run(work())


def test_a_user_who_is_deleted_is_cut_off(started: Started) -> None:
    root = http_client(started[0], basic="root")
    assert root.post("/users/eve", json={"password": "eve's"}).status_code == 201
    row = {"user": "eve", "kind": "topic", "pattern": "literal", "name": "orders", "operation": "write"}
    assert root.post("/rules", json={"add": [row]}).status_code == 204
    eve = stranger(started)
    assert log_in(eve, "eve", "eve's").error_code == 0
    request = produce("orders", one_batch(b"x"))
    assert eve.ask("Produce", 7, **request).responses[0].partition_responses[0].error_code == 0
    # a route that is remembered is forgotten with the right
    assert root.post("/rules", json={"delete": [row]}).status_code == 204
    assert eve.ask("Produce", 7, **request).responses[0].partition_responses[0].error_code == 29
    assert root.delete("/users/eve").status_code == 204
    with pytest.raises(ConnectionError):
        eve.ask("Produce", 7, **request)


def admin(started: Started, name: str = "root", password: str | None = None) -> Any:
    return AdminClient({**settings(started, name, "SCRAM-SHA-256", password), "log_level": 0})


def binding(operation: Any, name: str = "acl-", kind: Any = kafka_tools.ResourceType.TOPIC) -> Any:
    prefixed = kafka_tools.ResourcePatternType.PREFIXED
    return kafka_tools.AclBinding(kind, name, prefixed, "User:ann", "*", operation, kafka_tools.AclPermissionType.ALLOW)


def any_rule(name: str | None, pattern: Any) -> Any:
    return kafka_tools.AclBindingFilter(
        kafka_tools.ResourceType.TOPIC,
        name,
        pattern,
        "User:ann",
        None,
        kafka_tools.AclOperation.ANY,
        kafka_tools.AclPermissionType.ANY,
    )


def test_rules_through_kafkas_own_api(started: Started) -> None:
    root, wanted = admin(started), binding(kafka_tools.AclOperation.READ)
    for future in root.create_acls([wanted]).values():
        future.result(20)
    rows = http_client(started[0], basic="root").get("/rules").json()
    assert {
        "user": "ann", "kind": "topic", "pattern": "prefix", "name": "acl-", "operation": "read", "denies": False
    } in rows  # fmt: skip
    assert wanted in root.describe_acls(any_rule("acl-7", kafka_tools.ResourcePatternType.MATCH)).result(20)
    assert root.describe_acls(any_rule("other", kafka_tools.ResourcePatternType.PREFIXED)).result(20) == []
    # what has no row of its own is refused: a rule never allows more than it says
    for future in root.create_acls([binding(kafka_tools.AclOperation.CLUSTER_ACTION)]).values():
        with pytest.raises(confluent_kafka.KafkaException, match="one broker"):
            future.result(20)
    ann = admin(started, "ann")
    for future in ann.create_acls([wanted]).values():
        with pytest.raises(confluent_kafka.KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
            future.result(20)
    (gone,) = root.delete_acls([any_rule("acl-", kafka_tools.ResourcePatternType.PREFIXED)]).values()
    assert gone.result(20) == [wanted]
    assert root.describe_acls(any_rule("acl-7", kafka_tools.ResourcePatternType.MATCH)).result(20) == []


def test_each_operation_of_kafka_allows_what_it_says(started: Started) -> None:
    """Rules on ``fine-OPERATION`` for ann, who tries everything with each of these topics."""
    operation, literal = kafka_tools.AclOperation, kafka_tools.ResourcePatternType.LITERAL
    allow, topic_kind = kafka_tools.AclPermissionType.ALLOW, kafka_tools.ResourceType.TOPIC
    http, root = http_client(started[0], basic="root"), admin(started)
    allowed = {
        "DELETE": {"delete", "records", "describe"}, "ALTER": {"partitions", "describe"}, "DESCRIBE": {"describe"},
        "ALTER_CONFIGS": {"set", "describe"}, "DESCRIBE_CONFIGS": {"describe"},
    }  # fmt: skip
    rules = []
    for name in allowed:
        assert http.post(f"/topics/default/fine-{name}", json={}).status_code == 201
        one = getattr(operation, name)
        rules.append(kafka_tools.AclBinding(topic_kind, f"fine-{name}", literal, "User:ann", "*", one, allow))
    for future in root.create_acls(rules).values():
        future.result(20)
    frames, found = as_user(started, "ann"), {}
    for name in allowed:
        topic = f"fine-{name}"
        config = {"resource_type": 2, "resource_name": topic}
        change = {"name": "retention.ms", "value": "5000000", "config_operation": 0}
        record = {"partition_index": 0, "offset": 0}
        asked = {
            "describe": frames.ask(
                "DescribeConfigs", 1, resources=[{**config, "configuration_keys": None}], include_synonyms=False
            ).results,
            "set": frames.ask(
                "IncrementalAlterConfigs", 0, resources=[{**config, "configs": [change]}], validate_only=False
            ).responses,
            "partitions": frames.ask(
                "CreatePartitions", 0, topics=[{"name": topic, "count": 2, "assignments": None}], timeout_ms=1000,
                validate_only=False,
            ).results,
            "records": frames.ask(
                "DeleteRecords", 0, topics=[{"name": topic, "partitions": [record]}], timeout_ms=1000
            ).topics[0].partitions,
            "delete": frames.ask("DeleteTopics", 1, topic_names=[topic], timeout_ms=1000).responses,
        }  # fmt: skip
        found[name] = {what for what, rows in asked.items() if rows[0].error_code == 0}
        assert {rows[0].error_code for rows in asked.values()} <= {0, 29}
    assert found == allowed
    # what lading calls administrate is several rows here, and who deletes one of them keeps the others
    row = {"user": "ann", "kind": "topic", "pattern": "literal", "name": "fine", "operation": "administrate"}
    assert http.post("/rules", json={"add": [row]}).status_code == 204
    shown = root.describe_acls(any_rule("fine", literal)).result(20)
    assert {one.operation.name for one in shown} == {"CREATE", "ALTER", "DELETE", "ALTER_CONFIGS"}
    one = kafka_tools.AclBindingFilter(
        topic_kind, "fine", literal, "User:ann", None, operation.DELETE, kafka_tools.AclPermissionType.ANY
    )
    (gone,) = root.delete_acls([one]).values()
    assert [each.operation.name for each in gone.result(20)] == ["DELETE"]
    kept = [each["operation"] for each in http.get("/rules").json() if each["name"] == "fine"]
    assert sorted(kept) == ["alter", "alter_configs", "create"]


def test_passwords_through_kafkas_own_api(started: Started) -> None:
    root = admin(started)
    info = kafka_tools.ScramCredentialInfo(kafka_tools.ScramMechanism.SCRAM_SHA_256, 4096)
    (done,) = root.alter_user_scram_credentials(
        [kafka_tools.UserScramCredentialUpsertion("sue", info, b"sue's")]
    ).values()
    done.result(20)
    (told,) = root.describe_user_scram_credentials(["sue"]).values()
    assert [(one.mechanism, one.iterations) for one in told.result(20).scram_credential_infos] == [
        (kafka_tools.ScramMechanism.SCRAM_SHA_256, 4096)
    ]
    # one password for all mechanisms and protocols
    assert log_in(stranger(started), "sue", "sue's").error_code == 0
    admin(started, "sue", "sue's").list_topics(timeout=20)
    sue = admin(started, "sue", "sue's")
    (denied,) = sue.alter_user_scram_credentials(
        [kafka_tools.UserScramCredentialUpsertion("root", info, b"mine")]
    ).values()
    with pytest.raises(confluent_kafka.KafkaException):
        denied.result(20)
    (gone,) = root.alter_user_scram_credentials(
        [kafka_tools.UserScramCredentialDeletion("sue", kafka_tools.ScramMechanism.SCRAM_SHA_256)]
    ).values()
    gone.result(20)
    assert log_in(stranger(started), "sue", "sue's").error_code == 58


@pytest.mark.parametrize("salt", [b"salt", b"s"], ids=["4 bytes", "1 byte"])
def test_a_password_may_have_any_salt(started: Started, salt: bytes) -> None:
    """Apache Kafka's ScramControlManager checks the number of iterations alone; suites of clients have short salts."""
    root, name = admin(started), f"salted-{len(salt)}"
    info = kafka_tools.ScramCredentialInfo(kafka_tools.ScramMechanism.SCRAM_SHA_256, 4096)
    wanted = [kafka_tools.UserScramCredentialUpsertion(name, info, b"sue's", salt)]
    (done,) = root.alter_user_scram_credentials(wanted).values()
    done.result(20)
    assert log_in(stranger(started), name, "sue's").error_code == 0
    admin(started, name, "sue's").list_topics(timeout=20)

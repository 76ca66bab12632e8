"""With users set up, no command of any protocol tells a stranger, or a user without rights, what there is.

Every request is sent twice: in a world in which what it names does not exist, and in one in which it does. The answers
are the same bytes. So nothing that a broker could tell of it, however little, stays unseen.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import httpx
import pytest

from lading.broker.broker import Broker
from lading.broker.core.access.rights import ResourceKind, Right
from lading.broker.core.settings import BrokerSettings
from lading.dialects.iggy.classic.releases import RELEASES
from lading.dialects.kafka.versions import SERVED
from lading.endpoints.admin import admin
from lading.endpoints.base.services import Services
from lading.endpoints.http_shared.routing import HttpRoute
from lading.endpoints.iggy.http import http as iggy_http
from lading.endpoints.nsq.lookupd import endpoint as nsqlookupd_http
from lading.endpoints.nsq.nsqd import http_endpoint as nsqd_http
from lading.endpoints.registry import endpoint as schema_registry
from lading.runtime.metrics import Metrics
from lading.settings.settings import Settings
from lading.testing import BrokerProcess
from tests.endpoints.current_frames import request
from tests.endpoints.every_request import (
    EVERY_API,
    HIDDEN,
    HTTP_OWN,
    IGGY_OWN,
    SECRET,
    SHARED,
    http_requests,
    iggy_classic_requests,
    iggy_current_requests,
    kafka_requests,
    nsq_commands,
)
from tests.endpoints.frames import Frames
from tests.endpoints.identity import PASSWORDS, broker_with_users, rule
from tests.endpoints.kafka_frames import KafkaFrames, one_batch, produce
from tests.endpoints.nsq_client import NsqClient, sized
from tests.endpoints.test_http_users import client as http_client
from tests.endpoints.test_iggy_current import Talk
from tests.endpoints.test_iggy_releases import short

RULES: Final = [
    # what the walker may see is in both worlds, and tells nothing of what it may not
    rule("bob", Right.DESCRIBE, "open"),
    rule("bob", Right.DESCRIBE, SHARED, kind=ResourceKind.GROUP),
    rule("bob", Right.DESCRIBE, SHARED, kind=ResourceKind.TRANSACTION),
]
WALKERS: Final = ("", "bob")
"""A stranger, and a user without rights on anything that is named."""
TOPIC_ID: Final = uuid4()
"""In place of the id of the topic, in the world that has none."""
FULL: Final = os.environ.get("LADING_TEST_FULL") == "1"
SOME_RELEASES: Final = (RELEASES[0], *RELEASES[2::4], RELEASES[-1])
"""One of each kind of command table; all of them answer by the same code."""
Answers = dict[str, object]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Answers, Answers]]:
    """All answers of a broker before and after there is something to be told."""
    path = tmp_path_factory.mktemp("worlds")
    routes = list_routes(path / "routes")
    with broker_with_users(path / "data", RULES, EVERY_API) as (running, tokens):
        root = http_client(running, basic="root")
        assert root.post("/topics/default/open", json={}).status_code == 201
        take_part(running, "open")
        before = walk(running, tokens, routes, TOPIC_ID)
        topic_id = create_secrets(running, root, tokens["root"])
        after = walk(running, tokens, routes, topic_id)
        yield before, after


def list_routes(path: Path) -> dict[str, list[HttpRoute]]:
    """The routes of every HTTP endpoint, from the tables that it has."""
    broker = Broker.open(path, BrokerSettings(durability="os"), now_us=1)
    with ThreadPoolExecutor(1) as workers:
        services = Services(broker, Settings(data=path), Metrics(), workers)
        faces: dict[str, Callable[[Services, str], Any]] = {
            "admin": admin.endpoint, "iggy_http": iggy_http.endpoint, "nsqd_http": nsqd_http.endpoint,
            "nsqlookupd_http": nsqlookupd_http.endpoint, "schema_registry": schema_registry.endpoint,
        }  # fmt: skip
        found = {name: endpoint(services, name).app.routes for name, endpoint in faces.items()}
    broker.stop()
    return found


def take_part(running: BrokerProcess, topic: str) -> None:
    """A position of the group, and a part of the transaction, that the walker may see."""
    kafka = log_in(KafkaFrames(running.endpoints["kafka"]), "root")
    place = {"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 0}]}
    committed = kafka.ask("OffsetCommit", 2, group_id=SHARED, topics=[place])
    assert committed.topics[0].partitions[0].error_code == 0
    (state,) = kafka.ask("DescribeTransactions", 0, transactional_ids=[SHARED]).transaction_states
    if state.error_code:
        state = kafka.ask("InitProducerId", 0, transactional_id=SHARED, transaction_timeout_ms=60_000)
    added = kafka.ask(
        "AddPartitionsToTxn", 0, v3_and_below_transactional_id=SHARED, v3_and_below_producer_id=state.producer_id,
        v3_and_below_producer_epoch=state.producer_epoch, v3_and_below_topics=[{"name": topic, "partitions": [0]}],
    )  # fmt: skip
    assert not added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    kafka.close()


def create_secrets(running: BrokerProcess, root: httpx.Client, token: str) -> UUID:
    """One of everything that has a name."""
    for stream in ("default", HIDDEN):
        root.post(f"/streams/{stream}", json={})
        made = root.post(f"/topics/{stream}/{SECRET}", json={})
        assert made.status_code == 201, made.text
    assert root.post(f"/users/{SECRET}", json={"password": "password"}).status_code == 201
    assert root.post(f"/users/{SECRET}/tokens/own", json={}).status_code == 201
    row = {"user": SECRET, "kind": "topic", "pattern": "literal", "name": SECRET, "operation": "read"}
    assert root.post("/rules", json={"add": [row]}).status_code == 204
    assert root.put(f"/quotas/{SECRET}", json={"producer_byte_rate": 1e9}).status_code == 200
    registry = http_client(running, "schema_registry", basic="root")
    assert registry.post(f"/subjects/{SECRET}/versions", json={"schema": '"string"'}).json()["id"] == 1
    nsqd = http_client(running, "nsqd_http", basic="root")
    assert nsqd.post(f"/channel/create?topic={SECRET}&channel=channel").status_code == 200
    assert nsqd.post(f"/pub?topic={SECRET}", content=b"x").text == "OK"
    kafka = log_in(KafkaFrames(running.endpoints["kafka"]), "root")
    assert (
        kafka.ask("Produce", 7, **produce(SECRET, one_batch(b"x"))).responses[0].partition_responses[0].error_code == 0
    )
    place = {"name": SECRET, "partitions": [{"partition_index": 0, "committed_offset": 1}]}
    assert kafka.ask("OffsetCommit", 2, group_id=SECRET, topics=[place]).topics[0].partitions[0].error_code == 0
    take_part(running, SECRET)
    assert kafka.ask("InitProducerId", 0, transactional_id=SECRET, transaction_timeout_ms=60_000).error_code == 0
    (topic,) = kafka.ask("Metadata", 12, topics=[{"name": SECRET}]).topics
    kafka.close()
    iggy = Frames(running.endpoints["iggy_tcp"])
    assert iggy.ask(44, short(token))[0] == 0
    for stream in ("default", HIDDEN):
        named = b"\2" + short(stream) + b"\2" + short(SECRET)
        assert iggy.ask(602, named + struct.pack("<I", 1) + short(SECRET))[0] == 0
    iggy.close()
    assert isinstance(topic.topic_id, UUID)
    return topic.topic_id


# -- the walks


def walk(running: BrokerProcess, tokens: dict[str, str], routes: dict[str, list[HttpRoute]], topic_id: UUID) -> Answers:
    """Every answer to every walker, by protocol, walker and request."""
    found: Answers = {}
    for walker in WALKERS:
        walks: dict[str, Iterator[tuple[str, object]]] = {
            "kafka": walk_kafka(running, walker, topic_id),
            "iggy": walk_iggy(running, walker),
            "nsq": walk_nsq(running, tokens.get(walker)),
            **{name: walk_http(running, name, own, tokens.get(walker)) for name, own in routes.items()},
        }
        for face, answers in walks.items():
            found |= {f"{face}, {walker or 'a stranger'}: {name}": answer for name, answer in answers}
    return found


def log_in(kafka: KafkaFrames, name: str) -> KafkaFrames:
    assert kafka.ask("SaslHandshake", 1, mechanism="PLAIN").error_code == 0
    secret = f"\0{name}\0{PASSWORDS[name]}".encode()
    assert kafka.ask("SaslAuthenticate", 2, auth_bytes=secret).error_code == 0
    return kafka


def walk_kafka(running: BrokerProcess, walker: str, topic_id: UUID) -> Iterator[tuple[str, bytes]]:
    kafka: KafkaFrames | None = None
    for name, frame in kafka_requests(topic_id, is_full=FULL):
        if kafka is None:
            kafka = KafkaFrames(running.endpoints["kafka"])
            if walker:
                log_in(kafka, walker)
        kafka.send(frame)
        try:
            answer = kafka.answer()
        except ConnectionError:
            kafka, answer = None, b"closed"
        yield name, answer.replace(topic_id.bytes, TOPIC_ID.bytes)
    if kafka is not None:
        kafka.close()


def iggy_login(name: str, version: bytes = b"0.10.0") -> bytes:
    told = struct.pack("<I", len(version)) + version
    return short(name) + short(PASSWORDS[name]) + told + struct.pack("<I", 0)


def walk_iggy(running: BrokerProcess, walker: str) -> Iterator[tuple[str, object]]:
    for release in RELEASES if FULL else SOME_RELEASES:
        if walker and not release.has_names:
            # nobody can log in by them
            continue
        classic = Frames(running.endpoints["iggy_tcp"])
        if walker:
            version = ".".join(map(str, (*release.version, 0)[:3])).encode() if release.version else b""
            assert classic.ask(38, iggy_login(walker, version))[0] == 0, release.name
        for name, code, payload in iggy_classic_requests(release):
            status, body = classic.ask(code, payload)
            yield name, (status, None if code in IGGY_OWN else body)
        classic.close()
    current = Talk(running.endpoints["iggy_tcp"])
    if walker:
        login = struct.pack("<I", 11 << 10) + short("sdk") + short("1") + short(walker) + short(PASSWORDS[walker])
        assert current.ask(1, login + bytes(4))[0] == 0
    for name, operation, code, body in iggy_current_requests():
        current.socket.sendall(request(operation, body, code=code))
        reply = current.read()
        is_own = code in IGGY_OWN or "create_personal_access_token" in name
        yield name, (reply[60], reply[216:220], None if is_own else reply[220:])
        if reply[60] == 13:
            current.socket.close()
            current = Talk(running.endpoints["iggy_tcp"])
    current.socket.close()


def walk_nsq(running: BrokerProcess, token: str | None) -> Iterator[tuple[str, object]]:
    for name, line in nsq_commands():
        nsqd = NsqClient(running.endpoints["nsqd_tcp"])
        if token is not None:
            nsqd.send(sized(b"AUTH\n", token.encode()))
            assert nsqd.frame()[0] == 0
        nsqd.send(line)
        # no command of that name ends the connection
        nsqd.send(b"UNKNOWN\n")
        answers: list[object] = []
        with suppress(ConnectionError, EOFError):
            while len(answers) < 3:
                answers += [nsqd.frame()]
        yield name, answers
        nsqd.close()


def walk_http(
    running: BrokerProcess, endpoint: str, routes: list[HttpRoute], token: str | None
) -> Iterator[tuple[str, object]]:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"http://{running.endpoints[endpoint]}", headers=headers, timeout=20) as face:
        if endpoint == "iggy_http" and token is not None:
            told = face.post("/personal-access-tokens/login", json={"token": token}).json()
            face.headers["authorization"] = f"Bearer {told['access_token']['token']}"
        for name, method, path, body in http_requests(routes, has_query=endpoint.startswith("nsq")):
            if "logout" in path or "login" in path or "refresh" in path:
                continue
            answer = face.request(method, path, json=body)
            is_own = name.split()[0] in HTTP_OWN
            yield f"{name} {method} {path}", (answer.status_code, None if is_own else answer.text)


# -- what they show


def differences(worlds: tuple[Answers, Answers], wanted: str) -> dict[str, tuple[object, object]]:
    before, after = worlds
    assert before.keys() == after.keys()
    return {
        name: (before[name], after[name]) for name in before if name.startswith(wanted) and before[name] != after[name]
    }


@pytest.mark.turns(2)
@pytest.mark.parametrize("face", ["kafka", "iggy", "nsq", "admin", "iggy_http", "nsqd_http", "nsqlookupd_http",
                                  "schema_registry"])  # fmt: skip
def test_what_exists_is_answered_as_what_does_not(worlds: tuple[Answers, Answers], face: str) -> None:
    assert sum(name.startswith(f"{face}, ") for name in worlds[0]) > 30
    found = differences(worlds, f"{face}, ")
    assert not found, f"{len(found)} answers differ: " + "\n".join(f"{name}: {told}" for name, told in found.items())


STRANGERS: Final[dict[str, Callable[[str, Any], bool]]] = {
    # what everybody is told before a login: which versions there are
    "kafka": lambda name, answer: answer == b"closed" or name.startswith("ApiVersions"),
    "iggy": lambda name, answer: answer[0] != 0 or " ping " in name,
    "nsq": lambda name, answer: name in ("IDENTIFY", "NOP") or answer[0][0] == 1,
    "admin": lambda name, answer: answer[0] == 401 or name.split()[0] in ("root", "health", "live", "ready"),
    "iggy_http": lambda name, answer: answer[0] == 401 or name.split()[0] in ("root", "ping"),
    "nsqd_http": lambda name, answer: answer[0] == 401 or name.split()[0] in ("root", "ping"),
    "nsqlookupd_http": lambda name, answer: answer[0] == 401 or name.split()[0] in ("root", "ping"),
    "schema_registry": lambda name, answer: answer[0] == 401,
}
"""What a stranger may be answered, by protocol."""


@pytest.mark.parametrize("face", STRANGERS)
def test_a_stranger_is_answered_nothing(worlds: tuple[Answers, Answers], face: str) -> None:
    walked = f"{face}, a stranger: "
    found = {name: told for name, told in worlds[1].items() if name.startswith(walked)}
    assert found
    allowed = STRANGERS[face]
    wrong = {name: told for name, told in found.items() if not allowed(name.removeprefix(walked), told)}
    assert not wrong


def test_a_user_without_rights_is_refused(worlds: tuple[Answers, Answers]) -> None:
    """A walk that only met malformed requests would find nothing."""
    refused: dict[str, Callable[[Any], bool]] = {
        "iggy, bob": lambda told: told[0] == 41 or told[1] == struct.pack("<I", 41),
        "admin, bob": lambda told: told[0] == 403,
        "iggy_http, bob": lambda told: told[0] == 403,
        "nsqd_http, bob": lambda told: told[0] == 403,
        "nsqlookupd_http, bob": lambda told: told[0] == 403,
        "schema_registry, bob": lambda told: told[0] == 403,
        "nsq, bob": lambda told: b"E_UNAUTHORIZED" in told[0][1],
    }
    for walked, is_refused in refused.items():
        found = [told for name, told in worlds[1].items() if name.startswith(walked)]
        assert sum(map(is_refused, found)) > len(found) / 3, walked


def test_every_api_of_kafka_is_offered_to_the_walker(worlds: tuple[Answers, Answers]) -> None:
    """A connection is closed at an API that is not offered: those of KIP-714 looked alike in both worlds.

    Versions whose layout has no place for what is sent (a topic by id, for instance) close it too, not all of them.
    """
    walked = "kafka, bob: "
    offered = {
        name.removeprefix(walked).split()[0]
        for name, told in worlds[1].items()
        if name.startswith(walked) and told != b"closed"
    }
    assert offered >= {served.name for served in SERVED.values()} - {"SaslHandshake", "SaslAuthenticate"}

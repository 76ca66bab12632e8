"""Every command of every protocol by every role: allowed or refused as the table of rights says, without effect then.

The table is in ``rights_grid.py``, by hand. Whole with LADING_TEST_FULL; otherwise users, rights and settings always,
and a sample of the rest.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import httpx
import pytest

from lading.dialects.iggy.classic.releases import RELEASES
from lading.dialects.iggy.current.operations import CANCEL, READS, REGISTER, WRITES
from lading.dialects.kafka.versions import SASL_AUTHENTICATE, SASL_HANDSHAKE, SERVED
from lading.dialects.nsq.commands import COMMANDS
from lading.testing import BrokerProcess
from tests.endpoints import every_request
from tests.endpoints.current_frames import request
from tests.endpoints.every_request import (
    HIDDEN,
    IGGY_LOGINS,
    SECRET,
    http_requests,
    iggy_classic_requests,
    iggy_current_requests,
    kafka_requests,
    nsq_commands,
)
from tests.endpoints.frames import Frames
from tests.endpoints.identity import PASSWORDS, broker_with_users
from tests.endpoints.kafka_frames import KafkaFrames, message
from tests.endpoints.names_twice import MINE, http_names_twice, kafka_rows_twice, shows_secret
from tests.endpoints.nsq_client import NsqClient, sized
from tests.endpoints.rights_grid import (
    ALIKE,
    FACES,
    KAFKA_BETWEEN_BROKERS,
    LOGIN,
    NAME_TARGET,
    OPEN,
    READ,
    ROLES,
    RULES,
    Needs,
    is_allowed,
)
from tests.endpoints.test_iggy_current import Talk
from tests.endpoints.test_nothing_leaks import list_routes, log_in

HTTP_FACES: Final = ("admin", "iggy_http", "nsqd_http", "nsqlookupd_http", "schema_registry")
KAFKA_REFUSALS: Final = frozenset({29, 30, 31, 53})
"""TOPIC, GROUP, CLUSTER and TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
UNKNOWN_TOPIC_ID: Final = 100
CODELESS: Final = frozenset(
    {
        ("ElectLeaders", "0"),
        ("OffsetFetch", "0"),
        ("OffsetFetch", "1"),
        *(("DescribeLogDirs", str(version)) for version in range(3)),
    }
)
"""Versions of APIs without a code for the whole request: refused by an empty response."""
ALWAYS: Final = re.compile(
    r"user|permission|password|token|rule|quota|acl|scram|config|mode|topic\.alter|topics$|nodes", re.I
)
"""Commands that could give rights, or name something else: none of them is left out of the sample."""
ANSWER_TIMEOUT_S: Final = 60
"""A new password costs two seconds of one core, and the whole grid sends it hundreds of times."""
SAMPLE: Final = 2
"""Other commands of each face and role in the ordinary run."""
SAMPLE_TWICE: Final = 12
"""Requests with two names of each face in the ordinary run."""
ALL_RIGHTS: Final = dict.fromkeys(
    ("manage_servers", "read_servers", "manage_users", "read_users", "manage_streams", "read_streams", "manage_topics",
     "read_topics", "poll_messages", "send_messages"), True,
)  # fmt: skip
BODIES: Final[dict[str, Any]] = {
    "topic.alter": {"attempts_max": 3}, "group.join": {"member": "m", "topics": [SECRET]},
    "group.heartbeat": {"member": "m"}, "group.leave": {"member": "m"}, "position.store": {"offset": 0},
    "group.reset": {"positions": [{"topic": SECRET, "partition": 0, "offset": 0}]},
    "group.filter": {"where": "a = 1"}, "group.filter.preview": {"where": "a = 1", "topics": [SECRET]},
    "transaction.commit": {"key": "k", "transactions": []}, "transaction.abort": {"transactions": []},
    "quota.set": {"producer_byte_rate": 1e12}, "states.set": {"state": "unavailable", "first": 0, "end": 1},
    "rules.change": {"add": [{"user": SECRET, "kind": "topic", "pattern": "any", "name": "*", "operation": "all"}]},
    "user.alter": {"password": "password"},
}  # fmt: skip
"""Bodies of admin that ask for what takes the rights, by the name of the route."""
UPDATED: Final = {"compression_algorithm": "none", "message_expiry": 0, "max_topic_size": 0}
IGGY_BODIES: Final[dict[str, Any]] = {
    "user.create": {"username": SECRET, "password": "password", "status": "active"},
    "user.update": {"username": None, "status": "active"},
    "user.permissions": {"permissions": {"global": ALL_RIGHTS, "streams": None}},
    "user.password": {"current_password": "password", "new_password": "password"},
    "personal_access_token.create": {"name": "own2", "expiry": 0}, "stream.create": {"name": "secret2"},
    "stream.update": {"name": "secret3"}, "topic.create": {**UPDATED, "name": SECRET, "partitions_count": 1},
    "topic.update": {**UPDATED, "name": SECRET}, "partitions.create": {"partitions_count": 1},
    "consumer_offset.store": {"consumer_id": 1, "partition_id": 0, "offset": 0},
    "group.create": {"name": "secret2"}, "states.set": {"state": "unavailable", "first": 0, "end": 1},
    "message.send": every_request._MESSAGES, "snapshot": {"compression": "Stored", "snapshot_types": ["Test"]},
}  # fmt: skip
REGISTRY_BODIES: Final[dict[str, Any]] = {
    **{
        name: {"schema": '"string"', "references": [{"name": "n", "subject": SECRET, "version": 1}]}
        for name in ("version.register", "schema.find", "compatibility", "compatibility.all")
    },
    "config.change": {"compatibility": "NONE"}, "mode.change": {"mode": "READWRITE"},
}  # fmt: skip
HTTP_BODIES: Final[dict[str, dict[str, Any]]] = {
    "admin": BODIES, "iggy_http": IGGY_BODIES, "schema_registry": REGISTRY_BODIES,
}  # fmt: skip
NSQ_BODIES: Final = {**dict.fromkeys(("pub", "pub_ext", "pubtrace", "mpub"), b"x"), "channel/setoffset": b"msgcount:0"}
IGGY_QUERIES: Final = {
    "partitions.delete": "partitions_count=1", "segment.delete": "segments_count=1",
    "consumer_offset.get": "consumer_id=1&partition_id=0", "consumer_offset.delete": "partition_id=0",
    "message.poll": "consumer_id=1&partition_id=0",
}  # fmt: skip


NO_TOPIC: Final = UUID(int=0)
PATHS: Final = ("/streams", "/topics", "/users", "/rules", "/quotas", "/groups")


@dataclass(frozen=True)
class Command:
    """One request; ``ask`` sends it as a role and returns whether it was refused for want of rights."""

    name: str
    needs: Needs
    stream: str
    label: str
    ask: Callable[[str], bool]
    roles: Collection[str] = frozenset(ROLES)
    """Those that can send it: clients that cannot log in are strangers."""


@dataclass
class World:
    """A broker, and its state as an administrator sees it."""

    running: BrokerProcess
    routes: dict[str, list[Any]]
    root: httpx.Client
    """An administrator's."""
    lookup: httpx.Client
    registry: httpx.Client
    rules: list[Any]
    topic_id: UUID = NO_TOPIC
    commands: dict[tuple[str, UUID], list[Command]] = field(default_factory=dict)
    """Of each face, with the id of the topic that they name."""
    known: dict[str, Any] | None = None
    """The state after the last refusals: to read it takes longer than the requests that are refused."""

    def state(self) -> dict[str, Any]:
        """Everything that a refused request must not change."""
        found: dict[str, Any] = {path: self.root.get(path).json() for path in PATHS}
        for row in found["/users"]:
            found[f"tokens of {row['name']}"] = self.root.get(f"/users/{row['name']}/tokens").json()
        for stream in ("default", HIDDEN):
            found[f"states of {stream}"] = self.root.get(f"/topics/{stream}/{SECRET}/states").json()
        for path in ("/schemas", "/config", "/mode", f"/config/{SECRET}", f"/mode/{SECRET}"):
            found[f"registry {path}"] = self.registry.get(path).json()
        found["channels"] = self.lookup.get(f"/channels?topic={SECRET}").json()
        return found

    def repair(self) -> None:
        """Have everything again that the requests name, after one that was allowed."""
        root = self.root
        streams, topics, users, rules, quotas = (root.get(path).json() for path in PATHS[:5])
        for name in {row["name"] for row in streams} & {"secret2", "secret3", SECRET}:
            assert root.delete(f"/streams/{name}").status_code == 204
        for name in {row["name"] for row in users} & {"secret2"}:
            assert root.delete(f"/users/{name}").status_code == 204
        if quotas:
            root.put(f"/quotas/{SECRET}", json={})
        there = {row["stream"]: row for row in topics if row["topic"] == SECRET}
        for stream in (HIDDEN, "default"):
            row = there.get(stream)
            if row is not None and (not row["partitions"] or row["settings"]):
                assert root.delete(f"/topics/{stream}/{SECRET}").status_code == 204
                row = None
            if row is None:
                row = root.post(f"/topics/{stream}/{SECRET}", json={}).json()
            if stream == "default":
                self.topic_id = UUID(row["id"])
        if not self.registry.get("/schemas").json():
            self.registry.put(f"/mode/{SECRET}", json={"mode": "READWRITE"})
            made = self.registry.post(f"/subjects/{SECRET}/versions", json={"schema": '"string"'})
            assert made.status_code == 200, made.text
        if SECRET not in {row["name"] for row in users}:
            assert root.post(f"/users/{SECRET}", json={"password": "password"}).status_code == 201
            rules = root.get("/rules").json()
        change = {
            "add": [row for row in self.rules if row not in rules],
            "delete": [row for row in rules if row not in self.rules],
        }
        if change["add"] or change["delete"]:
            assert root.post("/rules", json=change).status_code == 204


def password_of(role: str) -> str:
    return PASSWORDS.get(role, "password")


def text(value: str) -> bytes:
    """A text behind its size, as Iggy has it."""
    data = value.encode()
    return bytes((len(data),)) + data


def http_client(running: BrokerProcess, endpoint: str, role: str) -> httpx.Client:
    auth = None if role == "stranger" else httpx.BasicAuth(role.encode(), password_of(role).encode())
    return httpx.Client(base_url=f"http://{running.endpoints[endpoint]}", auth=auth, timeout=30, verify=False)


@contextmanager
def open_http(running: BrokerProcess, face: str, role: str) -> Iterator[httpx.Client]:
    """Open a client of a face that is logged in as a role."""
    with http_client(running, face, role) as http:
        if face == "iggy_http":
            http.auth = None  # type: ignore[assignment]
            if role != "stranger":
                login = {"username": role, "password": password_of(role), "version": "0.11.0"}
                told = http.post("/users/login", json=login).json()
                http.headers["authorization"] = f"Bearer {told['access_token']['token']}"
        yield http


def log_in_as(kafka: KafkaFrames, role: str) -> None:
    """Log a Kafka connection in."""
    assert kafka.ask("SaslHandshake", 1, mechanism="PLAIN").error_code == 0
    secret = f"\0{role}\0{password_of(role)}".encode()
    assert kafka.ask("SaslAuthenticate", 2, auth_bytes=secret).error_code == 0


@contextmanager
def open_world(path: Path) -> Iterator[World]:
    routes: dict[str, list[Any]] = dict(list_routes(path / "routes"))
    others = [role for role in ROLES if role not in ("stranger", *PASSWORDS)]
    with broker_with_users(path / "data", RULES, every_request.EVERY_API, others=others) as (running, _):
        root = http_client(running, "admin", "root")
        assert root.post("/topics/default/elsewhere", json={}).status_code == 201
        lookup, registry = (http_client(running, face, "root") for face in ("nsqlookupd_http", "schema_registry"))
        made = World(running, routes, root, lookup, registry, root.get("/rules").json())
        made.repair()
        with http_client(running, "nsqd_http", "root") as nsqd:
            assert nsqd.post(f"/pub?topic={SECRET}", content=b"x").text == "OK"
            assert nsqd.post(f"/channel/create?topic={SECRET}&channel=channel").status_code == 200
        kafka = log_in(KafkaFrames(running.endpoints["kafka"]), "root")
        place = {"name": SECRET, "partitions": [{"partition_index": 0, "committed_offset": 1}]}
        assert kafka.ask("OffsetCommit", 2, group_id=SECRET, topics=[place]).topics[0].partitions[0].error_code == 0
        kafka.close()
        yield made
        made.root.close()
        made.lookup.close()
        made.registry.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One in which everything is refused: what it has stays as it is."""
    with open_world(tmp_path_factory.mktemp("refused")) as made:
        yield made


@pytest.fixture(scope="module")
def allowed_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One in which requests are allowed, some of which change something later: members time out."""
    with open_world(tmp_path_factory.mktemp("allowed")) as made:
        yield made


# -- each face: all of its commands


JOIN_TIMEOUT_S = 30.0
"""A JoinGroup waits ten seconds for the member that another role's request has left in the group."""


def connect_kafka(world: World) -> KafkaFrames:
    kafka = KafkaFrames(world.running.endpoints["kafka"])
    kafka.socket.settimeout(JOIN_TIMEOUT_S)
    return kafka


def kafka_commands(world: World) -> Iterator[Command]:
    def ask(role: str, name: str, version: int, frame: bytes) -> bool:
        kafka = connect_kafka(world)
        try:
            if role != "stranger":
                log_in_as(kafka, role)
            kafka.send(frame)
            try:
                answer = kafka.answer()
            except ConnectionError:
                return True
            told = repr(message(name + "Response").decode(answer, version=version, header=True))
            codes = {int(code) for code in re.findall(r"error_code[=:'\s]+(-?\d+)", told)}
            # by an id, those who may not know of a topic are answered as if there were none
            is_unknown = name == "Fetch" and UNKNOWN_TOPIC_ID in codes and not is_allowed(role, READ)
            return bool(codes & KAFKA_REFUSALS) or is_unknown
        finally:
            kafka.close()

    for label, frame in kafka_requests(world.topic_id, is_full=False):
        name, version, *variant = label.split(" ")
        if variant != [""]:
            # all of something, and what it is that one may see: test_nothing_leaks
            continue
        needs = KAFKA_BETWEEN_BROKERS.get((name, version), FACES["kafka"][name])
        if (name, version) in CODELESS:
            needs = ALIKE
        yield Command(
            name, needs, "default", label,
            lambda role, name=name, version=int(version), frame=frame: ask(role, name, version, frame),  # type: ignore[misc]
        )  # fmt: skip


def iggy_classic_commands(world: World) -> Iterator[Command]:
    def ask(role: str, version: bytes | None, code: int, payload: bytes) -> bool:
        frames = Frames(world.running.endpoints["iggy_tcp"])
        frames.socket.settimeout(ANSWER_TIMEOUT_S)
        try:
            if role != "stranger":
                told = b"" if version is None else struct.pack("<I", len(version)) + version + struct.pack("<I", 0)
                assert frames.ask(38, text(role) + text(password_of(role)) + told)[0] == 0
            status = frames.ask(code, payload)[0]
            # before a login nothing says of which release the client is
            return status in (40, 41) or (role == "stranger" and status != 0)
        finally:
            frames.close()

    for release in RELEASES:
        # clients from 0.1 to 0.4 do not say at their login which one they are, and those before have none
        version = ".".join(map(str, (*release.version, 0)[:3])).encode() if release.version else None
        roles = frozenset(ROLES) if release.has_names else {"stranger"}
        for label, code, payload in iggy_classic_requests(release):
            name, place = label.split(" ")[1:]
            if place in ("1/1", "2/1"):
                continue
            # what is sent is no frame of these releases, and refused as such before anything is looked up
            is_malformed = name == "message.send" and release.version >= (0, 7)
            needs = ALIKE if is_malformed else FACES["iggy_classic"][name]
            yield Command(
                name, needs, place.split("/")[0], label,
                lambda role, version=version, code=code, payload=payload: ask(role, version, code, payload),  # type: ignore[misc]
                roles,
            )  # fmt: skip


def iggy_current_commands(world: World) -> Iterator[Command]:
    def ask(role: str, operation: int, code: int, body: bytes) -> bool:
        talk = Talk(world.running.endpoints["iggy_tcp"])
        try:
            if role != "stranger":
                login = struct.pack("<I", 11 << 10) + text("sdk") + text("1") + text(role) + text(password_of(role))
                assert talk.ask(REGISTER, login + bytes(4))[0] == 0
            talk.socket.sendall(request(operation, body, code=code))
            reply = talk.read()
            if reply[60] == 13:
                # evicted: no session
                return True
            codes = struct.unpack_from("<I", reply, 216) + struct.unpack_from("<3I", reply + bytes(12), 256)
            return codes[0] in (40, 41) or (codes[0] == 0 and len(reply) == 268 and 41 in codes)
        finally:
            talk.socket.close()

    for label, operation, code, body in iggy_current_requests():
        name, place = [*label.split(" ")[1:], "default/"][:2]
        if place.split("/")[0].isdigit():
            continue
        yield Command(
            name, FACES["iggy_current"][name], place.split("/")[0], label,
            lambda role, operation=operation, code=code, body=body: ask(role, operation, code, body),  # type: ignore[misc]
        )  # fmt: skip


def nsq_tcp_commands(world: World) -> Iterator[Command]:
    def ask(role: str, line: bytes) -> bool:
        nsqd = NsqClient(world.running.endpoints["nsqd_tcp"])
        try:
            if role != "stranger":
                nsqd.send(sized(b"AUTH\n", f"{role}:{password_of(role)}".encode()))
                assert nsqd.frame()[0] == 0
            nsqd.send(line + b"UNKNOWN\n")
            answers = b""
            with suppress(ConnectionError, EOFError):
                for _ in range(3):
                    answers += nsqd.frame()[1]
            return b"E_UNAUTHORIZED" in answers or b"E_AUTH_FIRST" in answers
        finally:
            nsqd.close()

    for name, line in nsq_commands():
        if name != "AUTH":
            yield Command(name, FACES["nsq"][name], "default", name, lambda role, line=line: ask(role, line))  # type: ignore[misc]


def http_commands(world: World, face: str) -> Iterator[Command]:
    def ask(role: str, method: str, path: str, body: Any) -> bool:
        with open_http(world.running, face, role) as http:
            sent = {"content": body} if isinstance(body, bytes) else {"json": body}
            answer = http.request(method, path, **({} if body is None else sent))
            return answer.status_code in (401, 403) or "E_UNAUTHORIZED" in answer.text

    bodies = HTTP_BODIES.get(face, {})
    for label, method, path, body in http_requests(world.routes[face], has_query=face.startswith("nsq")):
        name, stream = label.split(" ")
        if name in ("user.login", "personal_access_token.login", "user.refresh", "user.logout"):
            continue
        if face == "iggy_http" and name in IGGY_QUERIES:
            path = f"{path}?{IGGY_QUERIES[name]}"
        if face.startswith("nsq"):
            body = NSQ_BODIES.get(name)
        elif body is not None:
            body = bodies.get(name, body)
        if face == "schema_registry":
            name = registry_name(name, path)
        rows = [(body, FACES[face][name])]
        if name == "topic.alter":
            rows.append(({"dead_letter_topic": "elsewhere"}, NAME_TARGET))
        for sent, needs in rows:
            yield Command(
                f"{name} {needs}", needs, stream, f"{method} {path} {sent!r}",
                lambda role, method=method, path=path, sent=sent: ask(role, method, path, sent),  # type: ignore[misc]
            )  # fmt: skip


def registry_name(name: str, path: str) -> str:
    """Return the name of a command; a route without a subject has the same name as that of one."""
    return f"{name} of all" if path.lstrip("/") in ("config", "mode") else name


def commands_of(world: World, face: str) -> list[Command]:
    makers: dict[str, Callable[[World], Iterator[Command]]] = {
        "kafka": kafka_commands, "iggy_classic": iggy_classic_commands, "iggy_current": iggy_current_commands,
        "nsq": nsq_tcp_commands,
    }  # fmt: skip
    made = world.commands.get((face, world.topic_id))
    if made is None:
        made = list(http_commands(world, face) if face in HTTP_FACES else makers[face](world))
        world.commands[face, world.topic_id] = made
    return made


# -- tests


def test_every_command_is_in_the_grid(world: World) -> None:
    classic = {row.name for release in RELEASES for row in release.commands.rows if row.code not in IGGY_LOGINS}
    current = {row.name for code, row in READS.items() if code != CANCEL} | {row.name for row in WRITES.values()}
    there = {
        "kafka": {served.name for key, served in SERVED.items() if key not in (SASL_HANDSHAKE, SASL_AUTHENTICATE)},
        "iggy_classic": classic,
        "iggy_current": current - {WRITES[REGISTER].name},
        "nsq": {command.name for command in COMMANDS.values()},
        **{face: {route.name for route in world.routes[face]} for face in HTTP_FACES},
        "schema_registry": {registry_name(route.name, route.pattern) for route in world.routes["schema_registry"]},
    }
    assert {face: set(table) for face, table in FACES.items()} == there


@pytest.fixture(autouse=True)
def same_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever changes the password of a user has it stay as it is."""
    for name in ("current", "new"):
        monkeypatch.setitem(every_request._IGGY_VALUES, name, "password")


def choose(commands: list[Command], role: str, count: int) -> list[Command]:
    """One form of each command that could give rights, and a few others, the same each time."""
    chance = random.Random(role)
    forms: dict[str, list[Command]] = {}
    for command in commands:
        forms.setdefault(command.name, []).append(command)
    first = [chance.choice(of_name) for of_name in forms.values()]
    rest = [command for command in first if not ALWAYS.search(command.name)]
    chosen = chance.sample(rest, min(count, len(rest)))
    return [command for command in first if ALWAYS.search(command.name)] + chosen


@pytest.mark.timeout(600)
@pytest.mark.parametrize("face", FACES)
def test_what_the_table_does_not_allow_is_refused_and_changes_nothing(world: World, face: str, full: bool) -> None:
    before = world.known or world.state()
    allowed: list[str] = []
    changed: dict[str, Any] = {}
    roles = [role for role in ROLES if role != "root"]
    for role in roles:
        commands = [
            one for one in commands_of(world, face) if role in one.roles and not is_allowed(role, one.needs, one.stream)
        ]
        chosen = commands if full else choose(commands, role, SAMPLE)
        allowed += [f"{role}: {one.label}" for one in chosen if not one.ask(role) and one.needs != ALIKE]
        # to read the state takes longer than the requests of a sample
        if full or role == roles[-1]:
            after = world.known = world.state()
            changed |= {f"{role}: {what}": (old, after[what]) for what, old in before.items() if old != after[what]}
            before = after
    assert allowed == []
    assert changed == {}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("role", [role for role in ROLES if role != "stranger"])
@pytest.mark.parametrize("face", FACES)
def test_what_the_table_allows_is_not_refused(allowed_world: World, face: str, role: str, full: bool) -> None:
    world = allowed_world
    world.repair()
    commands = [
        one for one in commands_of(world, face) if role in one.roles and is_allowed(role, one.needs, one.stream)
    ]
    chosen = commands if full else random.Random(f"{face} {role}").sample(commands, min(SAMPLE, len(commands)))
    wrong = []
    for number, one in enumerate(chosen):
        if number:
            world.repair()
        if one.ask(role):
            wrong.append(one.label)
    assert wrong == []


# -- two names in one request


def own_topic(world: World) -> UUID:
    """Return the id of the topic of the role ``other``, which is created if a request has deleted it."""
    created = world.root.post(f"/topics/default/{MINE}", json={})
    if created.status_code == 409:
        created = world.root.get(f"/topics/default/{MINE}")
    return UUID(created.json()["id"])


def empty_own_topic(world: World) -> None:
    """Create the topic of the role ``other`` again."""
    world.root.delete(f"/topics/default/{MINE}")
    own_topic(world)


def state_of_others(world: World) -> dict[str, Any]:
    """Return the state without what is the own of the role ``other``."""
    return {
        what: [row for row in value if f"'{MINE}" not in repr(row)] if isinstance(value, list) else value
        for what, value in world.state().items()
    }


def test_rows_of_a_list_are_allowed_one_by_one(allowed_world: World, full: bool) -> None:
    """A list whose first row is the caller's own, and whose other rows are not: each row is looked at."""
    world = allowed_world
    world.repair()
    own = own_topic(world)
    before = state_of_others(world)
    wrong, lists = [], set()
    for name, version, path, frame in kafka_rows_twice(own, world.topic_id, is_full=full):
        if FACES["kafka"][name] in (OPEN, LOGIN, ALIKE):
            continue
        lists.add(f"{name} {path}")
        own_topic(world)
        kafka = connect_kafka(world)
        log_in_as(kafka, "other")
        kafka.send(frame)
        try:
            answer = kafka.answer()
        except ConnectionError:
            continue
        finally:
            kafka.close()
        document = message(name + "Response").decode(answer, version=version, header=True).to_dict()
        if shows_secret(document, {SECRET, world.topic_id, str(world.topic_id)}):
            wrong.append((name, version, path, document))
    assert wrong == []
    assert state_of_others(world) == before
    assert len(lists) > 40


@pytest.mark.timeout(300)
@pytest.mark.parametrize("face", HTTP_FACES)
def test_a_second_name_does_not_reach_what_the_first_one_may(allowed_world: World, face: str, full: bool) -> None:
    """A parameter twice, or a name in the path and another one in the query or the body."""
    world = allowed_world
    world.repair()
    empty_own_topic(world)
    before = state_of_others(world)
    bodies = HTTP_BODIES.get(face, NSQ_BODIES)
    requests = list(http_names_twice(world.routes[face], bodies))
    if not full:
        requests = random.Random(face).sample(requests, min(SAMPLE_TWICE, len(requests)))
    wrong = []
    with open_http(world.running, face, "other") as http:
        for label, method, path, body in requests:
            if "log" in label.split(" ")[0]:
                continue
            own_topic(world)
            answer = http.request(method, path, content=body, headers={"content-type": "application/json"})
            is_shown = SECRET in answer.text and answer.is_success
            if is_shown or answer.status_code >= 500:
                wrong.append((label, method, path, body, answer.status_code, answer.text))
    assert wrong == []
    # what was sent to the caller's own topic is in the figures of its stream
    empty_own_topic(world)
    assert state_of_others(world) == before


def test_bodies_are_those_of_routes() -> None:
    assert BODIES.keys() <= FACES["admin"].keys() and IGGY_BODIES.keys() <= FACES["iggy_http"].keys()

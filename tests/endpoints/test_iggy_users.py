"""Users, permissions and tokens of Iggy, over TCP of both generations and over HTTP: one set, and its rights."""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from lading import testing
from lading.broker.core.access.rights import ResourceKind, Right
from lading.dialects.iggy.classic.later_commands import CreateUser, DeleteUser, UpdatePermissions, UpdateUser
from lading.dialects.iggy.classic.permissions import Permissions
from lading.dialects.iggy.classic.releases import RELEASES
from lading.dialects.iggy.current.operations import OPERATIONS
from lading.dialects.iggy.current.releases import RELEASE_0_11
from lading.testing import BrokerProcess
from tests.dialects.iggy_current import batch, frame
from tests.endpoints.current_frames import READ, REGISTER, request, sent
from tests.endpoints.current_frames import SEND as SEND_MESSAGES
from tests.endpoints.current_frames import poll as current_poll
from tests.endpoints.frames import Frames
from tests.endpoints.identity import PASSWORDS, broker_with_users, rule
from tests.endpoints.quic_client import QuicClient
from tests.endpoints.quic_frames import QuicFrames
from tests.endpoints.test_http_users import client as http_users_client
from tests.endpoints.test_iggy_current import Talk
from tests.endpoints.test_iggy_releases import named, short
from tests.endpoints.websocket_frames import WebSocketFrames

LOGIN, TOKEN_LOGIN, USERS, USER, STREAM, SEND, POLL, PING, ME = 38, 44, 32, 31, 200, 101, 100, 1, 20
MESSAGES: dict[str, Any] = {
    "partitioning": {"kind": "partition_id", "value": "AAAAAA=="},
    "messages": [{"id": 0, "payload": base64.b64encode(b"hello").decode()}],
}
FLAGS = (
    "manage_servers", "read_servers", "manage_users", "read_users", "manage_streams", "read_streams", "manage_topics",
    "read_topics", "poll_messages", "send_messages",
)  # fmt: skip


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, dict[str, str]]]:
    """A broker with root, who made a topic, ``ann``, who may read it, and ``bob``, who may see servers."""
    rules = [rule("ann", Right.READ, "s.t"), rule("bob", Right.DESCRIBE, "cluster", kind=ResourceKind.CLUSTER)]
    with broker_with_users(tmp_path_factory.mktemp("users"), rules) as (running, tokens):
        http = log_in(running, "root")
        assert http.post("/streams", json={"name": "s"}).status_code == 200
        topic = {"name": "t", "partitions_count": 1, "compression_algorithm": "none", "message_expiry": 0}
        assert http.post("/streams/s/topics", json={**topic, "max_topic_size": 0}).status_code == 200
        yield running, tokens


def client_of(running: BrokerProcess) -> httpx.Client:
    return httpx.Client(base_url=f"http://{running.endpoints['iggy_http']}", timeout=20)


def log_in(running: BrokerProcess, name: str, password: str | None = None) -> httpx.Client:
    http = client_of(running)
    login = {"username": name, "password": password or PASSWORDS[name], "version": "0.11.0"}
    answer = http.post("/users/login", json=login)
    assert answer.status_code == 200, answer.text
    http.headers["authorization"] = f"Bearer {answer.json()['access_token']['token']}"
    return http


@pytest.fixture
def connect(users: tuple[BrokerProcess, dict[str, str]]) -> Iterator[Callable[[], Frames]]:
    address = users[0].endpoints["iggy_tcp"]
    with ExitStack() as stack:

        def open_() -> Frames:
            frames = Frames(address)
            stack.callback(frames.socket.close)
            return frames

        yield open_


def classic_login(name: str, password: str) -> bytes:
    return short(name) + short(password) + struct.pack("<I", 7) + b"0.6.202" + struct.pack("<I", 0)


def test_before_a_login_only_ping_is_answered(connect: Callable[[], Frames]) -> None:
    frames = connect()
    topic = named("s") + named("t")
    assert frames.ask(PING) == (0, b"")
    assert frames.ask(STREAM, named("s"))[0] == 40
    assert frames.ask(SEND, topic + b"\1\0" + bytes(20) + struct.pack("<I", 1) + b"x")[0] == 40
    assert frames.ask(POLL, struct.pack("<BI", 1, 1) + topic + struct.pack("<IBQIB", 1, 1, 0, 10, 0))[0] == 40
    for name, password in (("root", "wrong"), ("nobody", "wrong"), ("ann", "")):
        assert frames.ask(LOGIN, classic_login(name, password))[0] == 42
    assert frames.ask(STREAM, named("s"))[0] == 40


def test_a_login_gives_rights_and_a_logout_takes_them(connect: Callable[[], Frames]) -> None:
    frames = connect()
    assert frames.ask(LOGIN, classic_login("ann", PASSWORDS["ann"])) == (0, struct.pack("<I", 2))
    topic = named("s") + named("t")
    poll = b"\1" + b"\1\4" + struct.pack("<I", 1) + topic + struct.pack("<IBQIB", 1, 1, 0, 10, 0)
    assert frames.ask(POLL, poll)[0] == 0
    sent = topic + struct.pack("<BBI", 2, 4, 1) + bytes(20) + struct.pack("<I", 1) + b"x"
    assert frames.ask(SEND, sent)[0] == 41
    assert frames.ask(USERS)[0] == 41
    assert frames.ask(202, struct.pack("<I", 0) + short("new"))[0] == 41
    # of oneself everybody may know
    assert frames.ask(USER, named("ann"))[1][:4] == struct.pack("<I", 2)
    assert frames.ask(USER, named("root"))[0] == 41
    assert frames.ask(ME)[1][4:8] == struct.pack("<I", 2)
    assert frames.ask(39) == (0, b"")
    assert frames.ask(POLL, poll)[0] == 40
    # another user finds no route that the one before was allowed
    assert frames.ask(LOGIN, classic_login("bob", PASSWORDS["bob"])) == (0, struct.pack("<I", 3))
    assert frames.ask(POLL, poll)[0] == 41
    assert frames.ask(10)[0] == 0


@pytest.mark.parametrize(("endpoint", "client"), [("iggy_quic", QuicFrames), ("iggy_websocket", WebSocketFrames)])
def test_rights_hold_over_quic_and_websocket(
    users: tuple[BrokerProcess, dict[str, str]], endpoint: str, client: type[QuicFrames | WebSocketFrames]
) -> None:
    address = users[0].endpoints[endpoint]
    topic = named("s") + named("t")
    poll = b"\1" + b"\1\4" + struct.pack("<I", 1) + topic + struct.pack("<IBQIB", 1, 1, 0, 10, 0)
    sent = topic + struct.pack("<BBI", 2, 4, 1) + bytes(20) + struct.pack("<I", 1) + b"x"
    ann, other = client(address), client(address)
    assert ann.ask(PING) == (0, b"")
    assert ann.ask(STREAM, named("s"))[0] == 40
    assert ann.ask(LOGIN, classic_login("ann", "wrong"))[0] == 42
    assert ann.ask(LOGIN, classic_login("ann", PASSWORDS["ann"])) == (0, struct.pack("<I", 2))
    assert ann.ask(POLL, poll)[0] == 0
    assert ann.ask(SEND, sent)[0] == 41
    # a login is its connection's alone
    assert other.ask(STREAM, named("s"))[0] == 40
    assert other.ask(TOKEN_LOGIN, short(users[1]["bob"])) == (0, struct.pack("<I", 3))
    assert other.ask(STREAM, named("s"))[0] == 41
    assert other.ask(10)[0] == 0
    assert ann.ask(39) == (0, b"")
    assert ann.ask(POLL, poll)[0] == 40
    ann.close()
    other.close()


def test_rights_of_the_current_generation_hold_over_quic(users: tuple[BrokerProcess, dict[str, str]]) -> None:
    def register(name: str, password: str) -> bytes:
        rest = short("sdk") + short("1") + short(name) + short(password) + bytes(4)
        return client.answer(client.send(request(REGISTER, struct.pack("<I", 11 << 10) + rest)))

    def ask(operation: int, body: bytes, code: int = 0) -> int:
        reply = client.answer(client.send(request(operation, body, code=code)))
        status: int = struct.unpack_from("<I", reply, 216)[0]
        return status

    client = QuicClient(users[0].endpoints["iggy_quic"])
    topic = named("s") + named("t")
    assert register("ann", PASSWORDS["ann"])[60] == 8
    assert ask(READ, current_poll(topic), POLL) == 0
    assert ask(SEND_MESSAGES, sent(topic, batch([frame(b"x")]))) == 41
    assert ask(READ, b"", 10) == 41
    client.close()


def test_tokens_log_in(connect: Callable[[], Frames], users: tuple[BrokerProcess, dict[str, str]]) -> None:
    frames = connect()
    assert frames.ask(TOKEN_LOGIN, short("lading_wrong"))[0] == 53
    assert frames.ask(TOKEN_LOGIN, short(users[1]["bob"])) == (0, struct.pack("<I", 3))
    assert frames.ask(10)[0] == 0
    http = client_of(users[0])
    assert http.post("/personal-access-tokens/login", json={"token": "x"}).status_code == 401
    told = http.post("/personal-access-tokens/login", json={"token": users[1]["ann"]}).json()
    assert told["user_id"] == 1
    http.headers["authorization"] = f"Bearer {told['access_token']['token']}"
    assert [row["name"] for row in http.get("/personal-access-tokens").json()] == ["test"]


def test_a_login_over_http_ends_with_the_access_token_behind_it(users: tuple[BrokerProcess, dict[str, str]]) -> None:
    ann = log_in(users[0], "ann")
    made = ann.post("/personal-access-tokens", json={"name": "brief", "expiry": 2_000_000})
    assert made.status_code in (200, 201), made.text
    told = client_of(users[0]).post("/personal-access-tokens/login", json={"token": made.json()["token"]}).json()
    http = client_of(users[0])
    http.headers["authorization"] = f"Bearer {told['access_token']['token']}"
    assert http.get("/users/ann").is_success
    until_s = time.monotonic() + 10
    while http.get("/users/ann").status_code != 401:
        assert time.monotonic() < until_s
        time.sleep(0.2)


def test_who_may_not_log_in_to_the_current_generation_is_told_why(users: tuple[BrokerProcess, dict[str, str]]) -> None:
    def register(talk: Talk, rest: bytes) -> None:
        version = struct.pack("<I", 11 << 10) + short("sdk") + short("1")
        talk.socket.sendall(request(1, version + rest + bytes(4)))

    for rest, reason in ((short("root") + short("wrong"), 9), (short("lading_wrong"), 10)):
        talk = Talk(users[0].endpoints["iggy_tcp"])
        register(talk, rest)
        assert talk.evicted() == reason
    for rest, user in ((short("ann") + short(PASSWORDS["ann"]), 1), (short(users[1]["bob"]), 2)):
        talk = Talk(users[0].endpoints["iggy_tcp"])
        register(talk, rest)
        reply = talk.read()
        assert (reply[60], struct.unpack_from("<I", reply, 216)[0]) == (8, 0)
        assert struct.unpack_from("<I", reply, 256 + 4)[0] == user


def test_rights_hold_over_http(users: tuple[BrokerProcess, dict[str, str]]) -> None:
    running = users[0]
    stranger = client_of(running)
    assert stranger.get("/streams").json()["id"] == 40
    assert stranger.get("/streams").status_code == 401
    wrong = stranger.post("/users/login", json={"username": "ann", "password": "wrong"})
    assert (wrong.status_code, wrong.json()["id"], wrong.json()["code"]) == (400, 42, "invalid_credentials")
    ann, bob, root = (log_in(running, name) for name in ("ann", "bob", "root"))
    messages = "/streams/s/topics/t/messages"
    assert root.post(messages, json=MESSAGES).status_code == 201
    assert ann.get(messages).json()["count"] >= 1
    refused = ann.post(messages, json=MESSAGES)
    assert (refused.status_code, refused.json()["id"], refused.json()["code"]) == (403, 41, "unauthorized")
    assert bob.get(messages).status_code == 403
    assert bob.get("/stats").is_success
    assert ann.get("/stats").status_code == 403
    assert ann.delete("/streams/s").status_code == 403
    assert (
        ann.put("/streams/s/topics/t/partitions/0/states", json={"state": "poisoned", "first": 0, "end": 1}).status_code
        == 403
    )
    assert root.get("/users").json()[0]["username"] == "root"
    assert ann.get("/users").status_code == 403
    assert ann.get("/users/ann").json()["permissions"]["streams"]["0"]["topics"]["0"]["poll_messages"] is True
    assert root.get("/users/root").json()["permissions"]["global"] == dict.fromkeys(FLAGS, True)


def test_who_renames_needs_the_right_to_create_and_rights_follow(users: tuple[BrokerProcess, dict[str, str]]) -> None:
    root, ann = (log_in(users[0], name) for name in ("root", "ann"))
    flags = ("manage_topic", "read_topic", "poll_messages", "send_messages")
    streams: dict[str, Any] = {
        "0": {**dict.fromkeys((*FLAGS[4:], "manage_stream", "read_stream"), False),
              "topics": {"0": dict.fromkeys(flags, True)}},
    }  # fmt: skip
    nothing = dict.fromkeys(FLAGS, False)
    permissions = {"global": nothing, "streams": streams}
    assert root.put("/users/ann/permissions", json={"permissions": permissions}).status_code == 204
    update = {"name": "u", "compression_algorithm": "none", "message_expiry": 0, "max_topic_size": 0}
    assert ann.put("/streams/s/topics/t", json={**update, "name": "t"}).status_code == 204
    assert ann.put("/streams/s/topics/t", json=update).json()["id"] == 41
    assert root.put("/streams/s/topics/t", json=update).status_code == 204
    try:
        told = ann.get("/users/ann").json()["permissions"]["streams"]["0"]["topics"]
        assert told == {"0": dict.fromkeys(flags, True)}
        assert ann.get("/streams/s/topics/u/messages").is_success
        assert ann.get("/streams/s/topics/t/messages").status_code == 403
    finally:
        assert root.put("/streams/s/topics/u", json={**update, "name": "t"}).status_code == 204
    permissions = {"global": nothing, "streams": {"0": {**streams["0"], "manage_topics": True}}}
    assert root.put("/users/ann/permissions", json={"permissions": permissions}).status_code == 204
    assert ann.put("/streams/s/topics/t", json=update).status_code == 204
    assert ann.put("/streams/s/topics/u", json={**update, "name": "t"}).status_code == 204


def test_rights_on_a_topic_of_the_longest_names(users: tuple[BrokerProcess, dict[str, str]]) -> None:
    """Stream and topic have up to 255 bytes each, and a rule names both."""
    root = log_in(users[0], "root")
    stream, topic = "s" * 255, "t" * 255
    assert root.post("/streams", json={"name": stream}).status_code == 200
    wanted = {"name": topic, "partitions_count": 1, "compression_algorithm": "none", "message_expiry": 0,
              "max_topic_size": 0}  # fmt: skip
    assert root.post(f"/streams/{stream}/topics", json=wanted).status_code == 200
    number = str(root.get(f"/streams/{stream}").json()["id"])
    nothing = dict.fromkeys((*FLAGS[4:], "manage_stream", "read_stream"), False)
    flags = {"manage_topic": False, "read_topic": False, "poll_messages": True, "send_messages": False}
    permissions = {"global": dict.fromkeys(FLAGS, False), "streams": {number: {**nothing, "topics": {"0": flags}}}}
    made = root.post("/users", json={"username": "longest", "password": "longs", "permissions": permissions})
    assert made.json()["permissions"]["streams"][number]["topics"] == {"0": flags}
    longest = log_in(users[0], "longest", "longs")
    assert longest.get(f"/streams/{stream}/topics/{topic}/messages").is_success
    assert longest.get("/streams/s/topics/t/messages").status_code == 403
    assert root.delete("/users/longest").status_code == 204
    assert root.delete(f"/streams/{stream}").status_code == 204


def test_a_user_is_made_changed_and_deleted(
    users: tuple[BrokerProcess, dict[str, str]], connect: Callable[[], Frames]
) -> None:
    running = users[0]
    root = log_in(running, "root")
    permissions: dict[str, Any] = {
        "global": {**dict.fromkeys(FLAGS, False), "read_servers": True},
        "streams": {"0": {"manage_stream": False, "read_stream": False, "manage_topics": False, "read_topics": True,
                          "poll_messages": False, "send_messages": False, "topics": None}},
    }  # fmt: skip
    for field, value, code in (("username", "xy", 43), ("password", "x" * 101, 44), ("username", "ann", 46)):
        document = {"username": "carl", "password": "carls", "status": "active", "permissions": None, field: value}
        assert root.post("/users", json=document).json()["id"] == code
    made = root.post("/users", json={"username": "carl", "password": "carls", "permissions": permissions}).json()
    told = made["permissions"]
    assert told["global"] == permissions["global"]
    # who may read topics may poll, as Iggy has it; what was not set does not come back
    assert told["streams"]["0"] == permissions["streams"]["0"]
    assert root.get("/users/carl").json()["permissions"] == told
    carl, frames = log_in(running, "carl", "carls"), connect()
    assert frames.ask(LOGIN, classic_login("carl", "carls")) == (0, struct.pack("<I", made["id"] + 1))
    assert carl.get("/streams/s/topics/t/messages").is_success
    assert carl.get("/stats").is_success
    # rights change at once
    assert root.put("/users/carl/permissions", json={"permissions": None}).status_code == 204
    assert carl.get("/streams/s/topics/t/messages").status_code == 403
    assert (
        carl.put("/users/carl/password", json={"current_password": "wrong", "new_password": "other"}).json()["id"] == 42
    )
    assert (
        carl.put("/users/carl/password", json={"current_password": "carls", "new_password": "other"}).status_code == 204
    )
    secret = log_in(running, "carl", "other").post("/personal-access-tokens", json={"name": "own", "expiry": 0}).json()
    assert secret["token"].startswith("lading_")
    assert carl.post("/personal-access-tokens", json={"name": "own", "expiry": 0}).json()["id"] == 51
    assert carl.delete("/personal-access-tokens/own").status_code == 204
    # one that is not active, or gone, loses its connections and tokens
    assert root.put("/users/carl", json={"status": "inactive"}).status_code == 204
    with pytest.raises(ConnectionError):
        frames.ask(PING)
    assert client_of(running).post("/users/login", json={"username": "carl", "password": "other"}).json()["id"] == 47
    assert carl.get("/streams").status_code == 401 or carl.get("/streams").status_code == 403
    assert root.delete("/users/carl").status_code == 204
    assert carl.get("/users/carl").status_code == 401
    assert root.get("/users/carl").status_code == 404
    assert root.delete("/users/root").json()["id"] == 48
    assert root.put("/users/root/permissions", json={"permissions": None}).json()["id"] == 49


def test_permissions_come_back_as_they_were_given(users: tuple[BrokerProcess, dict[str, str]]) -> None:
    """Each flag alone, and with polling, which some of them include: globally, on a stream and on a topic."""
    running = users[0]
    root = log_in(running, "root")
    of_stream, of_topic = (*FLAGS[6:], "manage_stream", "read_stream"), (*FLAGS[8:], "manage_topic", "read_topic")
    assert root.post("/users", json={"username": "given", "password": "given"}).is_success
    try:
        for flag in (*FLAGS, *of_stream, *of_topic):
            for named in ({flag}, {flag, "poll_messages"}):
                own = {name: name in named for name in of_topic}
                topics = {"0": own} if any(own.values()) else None
                stream: dict[str, Any] = {**{name: name in named for name in of_stream}, "topics": topics}
                streams = {"0": stream} if any(stream.values()) else None
                wanted = {"global": {name: name in named for name in FLAGS}, "streams": streams}
                assert root.put("/users/given/permissions", json={"permissions": wanted}).status_code == 204
                assert root.get("/users/given").json()["permissions"] == wanted, named
        given = log_in(running, "given", "given")
        nothing = dict.fromkeys(FLAGS, False)
        for held in ({"read_topics": True}, {"read_topics": True, "poll_messages": True}, {"poll_messages": True}):
            wanted = {"global": nothing | held, "streams": None}
            assert root.put("/users/given/permissions", json={"permissions": wanted}).status_code == 204
            assert given.get("/streams/s/topics/t/messages").is_success
    finally:
        assert root.delete("/users/given").status_code == 204


EVERYTHING = Permissions(frozenset(FLAGS), {})


def users_and_rights(root: httpx.Client) -> tuple[object, object]:
    """All that a refused request must leave as it is."""
    return root.get("/users").json(), root.get("/rules").json()


@pytest.mark.parametrize("target", ["ann", "bob", "root", 2, 99, "nobody"])
def test_no_user_gives_himself_or_others_rights(
    users: tuple[BrokerProcess, dict[str, str]], connect: Callable[[], Frames], target: str | int
) -> None:
    """A login was enough to give oneself all permissions, and to delete users with them."""
    running, tokens = users
    root, ann = http_users_client(running, bearer=tokens["root"]), log_in(running, "ann")
    before = users_and_rights(root)
    whole = {"global": dict.fromkeys(FLAGS, True), "streams": None}
    # over HTTP they are counted from 0
    called = target - 1 if isinstance(target, int) else target
    for answer in (
        ann.put(f"/users/{called}/permissions", json={"permissions": whole}),
        ann.put(f"/users/{called}", json={"username": "carl", "status": "inactive"}),
        ann.put(f"/users/{called}", json={"status": "active"}),
        ann.delete(f"/users/{called}"),
        ann.post("/users", json={"username": "carl", "password": "carls", "permissions": whole}),
    ):
        assert (answer.status_code, answer.json()["id"]) == (403, 41), answer.request.url
    later = (
        UpdatePermissions(target, EVERYTHING), UpdateUser(target, "carl", 2), UpdateUser(target, None, 1),
        DeleteUser(target), CreateUser("carl", "carls", 1, EVERYTHING),
    )  # fmt: skip
    for release in RELEASES:
        if CreateUser not in release.commands.row_by_request:
            continue
        frames = connect()
        assert release.version is not None
        version = ".".join(map(str, (*release.version, 0)[:3])).encode()
        told = struct.pack("<I", len(version)) + version + struct.pack("<I", 0)
        assert frames.ask(LOGIN, short("ann") + short(PASSWORDS["ann"]) + told)[0] == 0
        for command in later:
            frame_of_command = release.commands.encode_request(command)
            assert frames.ask(struct.unpack_from("<I", frame_of_command, 4)[0], frame_of_command[8:])[0] == 41
    talk = Talk(running.endpoints["iggy_tcp"])
    login = struct.pack("<I", 11 << 10) + short("sdk") + short("1") + short("ann") + short(PASSWORDS["ann"])
    assert talk.ask(REGISTER, login + bytes(4))[0] == 0
    for command in later:
        frame_of_command = RELEASE_0_11.commands.encode_request(command)
        operation = OPERATIONS[struct.unpack_from("<I", frame_of_command, 4)[0]]
        talk.socket.sendall(request(operation, frame_of_command[8:]))
        reply = talk.read()
        # in the header, or in the result of a change of metadata
        codes = struct.unpack_from("<I", reply, 216)[0], *struct.unpack_from("<3I", reply + bytes(12), 256)
        assert 41 in codes, command
    talk.socket.close()
    assert users_and_rights(root) == before


def test_a_rule_about_one_user_wins_over_one_about_all(users: tuple[BrokerProcess, dict[str, str]]) -> None:
    running, tokens = users
    root = http_users_client(running, bearer=tokens["root"])
    rows = [
        {"user": "bob", "kind": "user", "pattern": "any", "name": "*", "operation": "all"},
        {"user": "bob", "kind": "user", "pattern": "literal", "name": "ann", "operation": "all", "denies": True},
    ]
    assert root.post("/rules", json={"add": rows}).status_code == 204
    bob = log_in(running, "bob")
    before = users_and_rights(root)
    try:
        assert [row["username"] for row in bob.get("/users").json()] == ["root", "bob"]
        for answer in (
            bob.get("/users/ann"),
            bob.delete("/users/ann"),
            bob.put("/users/ann/permissions", json={"permissions": None}),
            bob.put("/users/ann/password", json={"current_password": PASSWORDS["ann"], "new_password": "other"}),
        ):
            assert (answer.status_code, answer.json()["id"]) == (403, 41), answer.request.method
        # an administrator is changed by none but another
        assert bob.delete("/users/root").json()["id"] == 41
        assert users_and_rights(root) == before
    finally:
        assert root.post("/rules", json={"delete": rows}).status_code == 204


def test_what_is_denied_is_in_no_list(
    users: tuple[BrokerProcess, dict[str, str]], connect: Callable[[], Frames]
) -> None:
    """Lists asked for the right on all and showed all, though a rule about one stream or topic denied it."""
    running, tokens = users
    root = http_users_client(running, bearer=tokens["root"])
    rows = [
        {"user": "bob", "kind": "stream", "pattern": "any", "name": "*", "operation": "all"},
        {"user": "bob", "kind": "stream", "pattern": "literal", "name": "hidden", "operation": "all", "denies": True},
        {"user": "bob", "kind": "topic", "pattern": "literal", "name": "s.hidden", "operation": "all", "denies": True},
    ]
    for path in ("/streams/hidden", "/topics/s/hidden"):
        assert root.post(path, json={}).status_code == 201
    assert root.post("/rules", json={"add": rows}).status_code == 204
    try:
        bob, frames, talk = log_in(running, "bob"), connect(), Talk(running.endpoints["iggy_tcp"])
        assert [row["name"] for row in bob.get("/streams").json()] == ["s"]
        assert bob.get("/streams").json()[0]["topics_count"] == 1
        assert [row["name"] for row in bob.get("/streams/s/topics").json()] == ["t"]
        assert [row["name"] for row in bob.get("/streams/s").json()["topics"]] == ["t"]
        assert bob.get("/streams/hidden").json()["id"] == bob.get("/streams/s/topics/hidden").json()["id"] == 41
        assert frames.ask(LOGIN, classic_login("bob", PASSWORDS["bob"]))[0] == 0
        login = struct.pack("<I", 11 << 10) + short("sdk") + short("1") + short("bob") + short(PASSWORDS["bob"])
        assert talk.ask(REGISTER, login + bytes(4))[0] == 0
        lists = [(201, b""), (STREAM, named("s")), (301, named("s"))]
        told = [frames.ask(code, payload) for code, payload in lists]
        told += [talk.ask(READ, payload, code=code) for code, payload in lists]
        assert [(status, b"hidden" in body) for status, body in told] == [(0, False)] * 6
        talk.socket.close()
        # nor goes it with its stream
        admin = http_users_client(running, bearer=tokens["bob"])
        assert admin.delete("/streams/s").status_code == 403
        assert bob.delete("/streams/s").json()["id"] == bob.delete("/streams/s/purge").json()["id"] == 41
        assert frames.ask(203, named("s"))[0] == 41
        assert [row["name"] for row in log_in(running, "root").get("/streams").json()] == ["s", "hidden"]
    finally:
        assert root.post("/rules", json={"delete": rows}).status_code == 204
        for path in ("/streams/hidden", "/topics/s/hidden"):
            assert root.delete(path).status_code == 204


def test_to_rename_gives_no_rights(users: tuple[BrokerProcess, dict[str, str]]) -> None:
    """Who might change the name of a topic gave it one by which a rule let him read its messages."""
    running, tokens = users
    root = http_users_client(running, bearer=tokens["root"])
    rows = [
        {"user": "bob", "kind": "topic", "pattern": "literal", "name": "s.t", "operation": "alter"},
        {"user": "bob", "kind": "topic", "pattern": "prefix", "name": "s.mine", "operation": "all"},
        {"user": "bob", "kind": "stream", "pattern": "literal", "name": "s", "operation": "alter"},
        {"user": "bob", "kind": "stream", "pattern": "prefix", "name": "mine", "operation": "all"},
    ]
    assert root.post("/rules", json={"add": rows}).status_code == 204
    update = {"compression_algorithm": "none", "message_expiry": 0, "max_topic_size": 0}
    try:
        bob = log_in(running, "bob")
        for answer in (
            bob.put("/streams/s/topics/t", json={**update, "name": "mine-t"}),
            bob.put("/streams/s", json={"name": "mine-s"}),
        ):
            assert (answer.status_code, answer.json()["id"]) == (403, 41)
        assert [row["name"] for row in root.get("/topics").json()] == ["s.t"]
        # one's own topic may get every name that one may create
        assert root.post("/topics/s/mine-a", json={}).status_code == 201
        assert bob.put("/streams/s/topics/mine-a", json={**update, "name": "mine-b"}).status_code == 204
        assert root.delete("/topics/s/mine-b").status_code == 204
    finally:
        assert root.post("/rules", json={"delete": rows}).status_code == 204


def test_who_creates_the_first_user_is_the_administrator(tmp_path: Path) -> None:
    with testing.broker(tmp_path) as running:
        address = running.endpoints["iggy_tcp"]
        other, frames = Frames(address), Frames(address)
        before = log_in(running, "root", "anything")
        assert other.ask(LOGIN, classic_login("iggy", "of no use"))[0] == 0
        new = short("dora") + short("doras") + b"\1\0"
        # nobody who has not logged in becomes one
        assert frames.ask(33, new)[0] != 0
        assert frames.ask(LOGIN, classic_login("iggy", "iggy"))[0] == 0
        assert frames.ask(USERS)[1][:4] == struct.pack("<I", 1)
        status, body = frames.ask(33, new)
        assert (status, body[:4]) == (0, struct.pack("<I", 2))
        # the connection that did it goes on, all others have to log in
        assert frames.ask(USERS)[0] == 0
        with pytest.raises(ConnectionError):
            other.ask(PING)
        assert before.get("/streams").status_code == 401
        assert log_in(running, "iggy", "iggy").get("/users/0").json()["username"] == "iggy"
        assert log_in(running, "dora", "doras").get("/users").status_code == 403
        again = Frames(address)
        assert again.ask(LOGIN, classic_login("iggy", "of no use"))[0] == 42
        for each in (other, frames, again):
            each.socket.close()

"""Snapshots of the server by clients of each generation: over connections by hand-written requests, and over HTTP."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from lading import testing
from lading.broker.core.access.rights import ResourceKind, Right
from lading.testing import BrokerProcess
from tests.endpoints.current_frames import LOGIN as CURRENT_LOGIN
from tests.endpoints.current_frames import READ, REGISTER, request
from tests.endpoints.frames import Frames
from tests.endpoints.identity import PASSWORDS, broker_with_users, rule
from tests.endpoints.quic_client import QuicClient
from tests.endpoints.quic_frames import QuicFrames
from tests.endpoints.test_iggy_current import Talk
from tests.endpoints.test_iggy_releases import LOGIN, login
from tests.endpoints.test_iggy_users import classic_login, client_of, log_in
from tests.endpoints.websocket_frames import WebSocketFrames

SNAPSHOT = 11
STORED, DEFLATED, BZIP2, ZSTD, LZMA, XZ = range(1, 7)
TEST, LOGS, CONFIG, ALL = 4, 5, 6, 100
EVERYTHING = ["filesystem_overview", "process_list", "resource_usage", "server_logs", "server_config"]
FRAMES = {"iggy_tcp": Frames, "iggy_quic": QuicFrames, "iggy_websocket": WebSocketFrames}
TOKEN = "correct-horse-battery-staple"
BAD = {
    "nothing": b"",
    "no parts": b"\2",
    "compression 0": b"\0\1\4",
    "compression 7": b"\7\1\4",
    "part 0": b"\2\1\0",
    "part 7": b"\2\1\7",
    "fewer parts than it says": b"\2\3\1\2",
    "all and others": b"\2\2\x64\1",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    settings = {"endpoints.admin.token": TOKEN, "endpoints.iggy_http.listeners.old.address": "127.0.0.1:0"}
    with testing.broker(settings=settings) as running:
        yield running


def wanted(compression: int, *parts: int) -> bytes:
    return bytes((compression, len(parts), *parts))


def files_of(archive: bytes) -> dict[str, str]:
    """The files of an archive by name, each checked against its CRC."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name.removesuffix(".txt"): opened.read(name).decode() for name in opened.namelist()}


def ask_current(client: Talk | QuicClient, body: bytes) -> tuple[int, bytes]:
    if isinstance(client, Talk):
        return client.ask(READ, body, code=SNAPSHOT)
    reply = client.answer(client.send(request(READ, body, code=SNAPSHOT)))
    return struct.unpack_from("<I", reply, 216)[0], reply[256:]


@pytest.fixture(params=[*FRAMES, "current", "current over QUIC"])
def ask(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[Callable[[bytes], tuple[int, bytes]]]:
    """A client that is logged in, over each transport, as a function of the body to the status and the archive."""
    if request.param in FRAMES:
        frames = FRAMES[request.param](broker.endpoints[request.param])
        assert frames.ask(LOGIN, login("0.10.0"))[0] == 0
        yield lambda body: frames.ask(SNAPSHOT, body)
        frames.socket.close() if isinstance(frames, Frames) else frames.close()
    elif request.param == "current":
        talk = Talk(broker.endpoints["iggy_tcp"])
        assert talk.ask(REGISTER, CURRENT_LOGIN)[0] == 0
        yield lambda body: ask_current(talk, body)
        talk.socket.close()
    else:
        client = QuicClient(broker.endpoints["iggy_quic"])
        assert client.answer(client.send(_register()))[60] == 8
        yield lambda body: ask_current(client, body)
        client.close()


def _register() -> bytes:
    return request(REGISTER, CURRENT_LOGIN)


@pytest.mark.turns(3)
def test_everything_is_in_the_archive_and_no_secret(
    ask: Callable[[bytes], tuple[int, bytes]], broker: BrokerProcess
) -> None:
    status, archive = ask(wanted(DEFLATED, ALL))
    assert status == 0
    files = files_of(archive)
    assert list(files) == EVERYTHING
    assert "catalog" in files["filesystem_overview"]
    assert "VmRSS:" in files["process_list"]
    assert "memory_bytes: " in files["resource_usage"]
    assert "iggy_tcp" in files["server_logs"]
    settings = files["server_config"].splitlines()
    assert "[endpoints.admin]" in settings
    assert "# token is set and not shown" in settings
    assert TOKEN not in "".join(files.values())


@pytest.mark.parametrize(
    ("compression", "method"),
    [
        (STORED, zipfile.ZIP_STORED),
        (DEFLATED, zipfile.ZIP_DEFLATED),
        (BZIP2, zipfile.ZIP_BZIP2),
        (LZMA, zipfile.ZIP_LZMA),
        (XZ, zipfile.ZIP_DEFLATED),
    ],
)
def test_it_is_packed_as_asked_for(broker: BrokerProcess, compression: int, method: int) -> None:
    talk = Talk(broker.endpoints["iggy_tcp"])
    assert talk.ask(REGISTER, CURRENT_LOGIN)[0] == 0
    archive = ask_current(talk, wanted(compression, TEST, CONFIG, TEST))[1]
    talk.socket.close()
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        assert [(one.filename, one.compress_type) for one in opened.infolist()] == [
            ("test.txt", method),
            ("server_config.txt", method),
        ]
        assert opened.read("test.txt") == b"test\n"


def test_an_archive_without_parts_is_empty(ask: Callable[[bytes], tuple[int, bytes]]) -> None:
    status, archive = ask(wanted(ZSTD))
    assert (status, files_of(archive)) == (0, {})


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_are_invalid_commands(ask: Callable[[bytes], tuple[int, bytes]], name: str) -> None:
    """As the real server decodes them; the connection stays."""
    status, body = ask(BAD[name])
    assert (status in (3, 4), body) == (True, b"")
    assert ask(wanted(STORED, TEST))[0] == 0


@pytest.mark.parametrize("version", ["0.6.202", "0.9.0", "0.11.0"])
def test_over_http(broker: BrokerProcess, version: str) -> None:
    with client_of(broker) as http:
        credentials = {"username": "iggy", "password": "iggy", "version": version}
        token = http.post("/users/login", json=credentials).json()["access_token"]["token"]
        http.headers["authorization"] = f"Bearer {token}"
        answer = http.post("/snapshot", json={"compression": "Bzip2", "snapshot_types": ["ServerConfig", "Test"]})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/zip"
        assert answer.headers["content-disposition"].startswith('attachment; filename="iggy_snapshot_')
        assert list(files_of(answer.content)) == ["server_config", "test"]
        for bad in (
            {"compression": "Zip", "snapshot_types": ["Test"]},
            {"compression": "Stored", "snapshot_types": ["Tests"]},
            {"compression": "Stored", "snapshot_types": "Test"},
            {"compression": "Stored"},
        ):
            assert http.post("/snapshot", json=bad).status_code == 422, bad
        mixed = http.post("/snapshot", json={"compression": "Stored", "snapshot_types": ["All", "Test"]})
        assert mixed.status_code == 400, mixed.text


def test_releases_without_it_have_no_such_request(broker: BrokerProcess) -> None:
    frames = Frames(broker.endpoints["iggy_tcp"])
    assert frames.ask(LOGIN, login(None))[0] == 0
    assert frames.ask(SNAPSHOT, wanted(DEFLATED, ALL))[0] == 3
    frames.socket.close()
    answer = httpx.post(
        f"http://{broker.endpoints['iggy_http']}/snapshot", json={"compression": "Stored", "snapshot_types": []}
    )
    assert answer.status_code >= 400


def test_it_needs_the_right_to_see_the_server(tmp_path: Path) -> None:
    rules = [rule("ann", Right.READ, "*"), rule("bob", Right.DESCRIBE, "cluster", kind=ResourceKind.CLUSTER)]
    asked = {"compression": "Deflated", "snapshot_types": ["All"]}
    with broker_with_users(tmp_path, rules) as (running, _):
        for name, status, code in (("ann", 403, 41), ("bob", 200, 0)):
            answer = log_in(running, name).post("/snapshot", json=asked)
            assert answer.status_code == status
            frames = Frames(running.endpoints["iggy_tcp"])
            assert frames.ask(SNAPSHOT, wanted(DEFLATED, ALL))[0] in (3, 40)
            assert frames.ask(LOGIN, classic_login(name, PASSWORDS[name]))[0] == 0
            told, archive = frames.ask(SNAPSHOT, wanted(DEFLATED, ALL))
            assert told == code
            frames.socket.close()
            if not code:
                shown = "".join(files_of(archive).values()) + "".join(files_of(answer.content).values())
                assert not any(password in shown for password in PASSWORDS.values())
        assert client_of(running).post("/snapshot", json=asked).status_code == 401

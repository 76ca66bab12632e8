"""Visitors who mean no good: nothing of theirs stays open or is written elsewhere, and they get one error each.

Half handshakes, authorities that are trusted no more, SCRAM played again or cut short, names that are paths.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from lading import testing
from tests.endpoints.authority import Authority
from tests.endpoints.frames import Frames
from tests.endpoints.identity import PASSWORDS, broker_with_users
from tests.endpoints.kafka_frames import KafkaFrames
from tests.endpoints.nsq_client import NsqClient, sized
from tests.endpoints.test_http_users import client as http_client
from tests.endpoints.test_iggy_releases import short

HALF_HANDSHAKES = 1_000
SAMPLE = 150
FACES = ("iggy_tcp", "kafka", "nsqd_tcp", "admin")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ca")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[testing.BrokerProcess]:
    """Users, each protocol plain, and Kafka's TLS with client certificates beside it."""
    path = tmp_path_factory.mktemp("visited")
    trusted = path / "clients.pem"
    shutil.copy(authority.file, trusted)
    key = "endpoints.kafka.listeners.secure"
    settings = {
        f"{key}.address": testing.FREE_PORT, f"{key}.tls.enabled": True, f"{key}.tls.client_ca": trusted,
        f"{key}.tls.certificate": authority.sign("server"), "connections.first_request_timeout_ms": 1_000,
        "durability": "os",
    }  # fmt: skip
    with broker_with_users(path / "data", settings=settings) as (found, _):
        yield found


def files_of(running: testing.BrokerProcess) -> int:
    """Descriptors that are open."""
    return len(list(Path(f"/proc/{running.pid}/fd").iterdir()))


def wait_until(holds: Callable[[], object], said: Callable[[], object] = str) -> None:
    until_s = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < until_s, said()
        time.sleep(0.02)


def log_of(running: testing.BrokerProcess) -> str:
    return running.log_file.read_text()


def secure_place(running: testing.BrokerProcess) -> tuple[str, int]:
    host, _, port = running.endpoints["kafka.secure"].rpartition(":")
    return host, int(port)


def half_hello(context: ssl.SSLContext) -> bytes:
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()
    return hello[: len(hello) // 2]


@pytest.mark.turns(2, part=1)
def test_half_handshakes_leave_no_descriptor_open(
    running: testing.BrokerProcess, authority: Authority, full: bool
) -> None:
    context = ssl.create_default_context(cafile=authority.file)
    root = http_client(running, basic="root")
    assert root.get("/live").status_code == 200
    before, half = files_of(running), half_hello(context)
    for number in range(HALF_HANDSHAKES if full else SAMPLE):
        opened = socket.create_connection(secure_place(running), 10)
        opened.sendall(half)
        if number % 3 == 1:
            # an end without a goodbye
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif number % 3 == 2:
            opened.shutdown(socket.SHUT_WR)
        opened.close()
        if not number % 50:
            assert root.get("/live").status_code == 200
    wait_until(lambda: files_of(running) <= before, lambda: f"{files_of(running)} are open, {before} were")
    assert "Traceback" not in log_of(running)


def shake_hands(running: testing.BrokerProcess, authority: Authority, certificate: Path | None) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=authority.file)
    if certificate is not None:
        context.load_cert_chain(certificate)
    opened = context.wrap_socket(socket.create_connection(secure_place(running), 10), server_hostname="localhost")
    # TLS 1.3 tells a client behind its own handshake whether it is taken; ApiVersions needs no login
    opened.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
    if not opened.recv(4):
        raise ConnectionError
    return opened


def test_an_authority_that_was_removed_vouches_for_nobody(
    running: testing.BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    old, new = authority.sign("old"), Authority(tmp_path, "new")
    shown = new.sign("new client")
    trusted = running.data_dir.parent / "clients.pem"
    shake_hands(running, authority, old).close()
    before = files_of(running)
    shutil.copy(new.file, trusted)
    os.kill(running.pid, signal.SIGHUP)
    wait_until(lambda: "get the certificate that was changed" in log_of(running))
    for refused in (old, None, authority.sign("expired", left=timedelta(hours=-1))):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            shake_hands(running, authority, refused)
    shake_hands(running, authority, shown).close()
    wait_until(lambda: files_of(running) <= before)
    wait_until(lambda: re.search(r"kafka\.secure .*TLS failed: .*certificate", log_of(running)))
    assert "Traceback" not in log_of(running)


def test_a_login_by_scram_cannot_be_played_again_or_cut_short(running: testing.BrokerProcess) -> None:
    """RFC 5802: the proof is of both nonces, and the server's is new each time."""
    before = files_of(running)
    server_first, kafka = begin_scram(running, "recorded")
    final = final_message("recorded", server_first)
    answer = kafka.ask("SaslAuthenticate", 2, auth_bytes=final)
    assert answer.error_code == 0 and answer.auth_bytes.startswith(b"v=")
    kafka.close()
    for played in (final, final[:-4], final[: len(final) // 2], b"", final.partition(b",p=")[0]):
        _, kafka = begin_scram(running, "recorded")
        answer = kafka.ask("SaslAuthenticate", 2, auth_bytes=played)
        assert answer.error_code == 58 and answer.error_message and not answer.auth_bytes
        with pytest.raises(ConnectionError):
            kafka.ask("Metadata", 4, topics=None)
        kafka.close()
    wait_until(lambda: files_of(running) <= before)
    assert "Traceback" not in log_of(running)


def begin_scram(running: testing.BrokerProcess, nonce: str) -> tuple[bytes, KafkaFrames]:
    kafka = KafkaFrames(running.endpoints["kafka"])
    assert kafka.ask("SaslHandshake", 1, mechanism="SCRAM-SHA-256").error_code == 0
    answer = kafka.ask("SaslAuthenticate", 2, auth_bytes=f"n,,n=ann,r={nonce}".encode())
    assert answer.error_code == 0
    return answer.auth_bytes, kafka


def final_message(nonce: str, server_first: bytes) -> bytes:
    """RFC 5802 section 3, by hand."""
    told = dict(part.split("=", 1) for part in server_first.decode().split(","))
    assert told["r"].startswith(nonce)
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORDS["ann"].encode(), base64.b64decode(told["s"]), int(told["i"]))
    client = hmac.digest(salted, b"Client Key", "sha256")
    bare = f"c=biws,r={told['r']}"
    signed = f"n=ann,r={nonce},{server_first.decode()},{bare}".encode()
    signature = hmac.digest(hashlib.sha256(client).digest(), signed, "sha256")
    proof = bytes(one ^ other for one, other in zip(client, signature, strict=True))
    return f"{bare},p={base64.b64encode(proof).decode()}".encode()


# -- names that are paths


NAMES_SAMPLE = 5
TRICKS = (
    "..", "../escaped", "../../escaped", "a/../../escaped", "/tmp/lading-escaped", "..\\escaped", "%2e%2e%2fescaped",
    "./escaped", "a\0b", "catalog.sqlite", "~/escaped", "lock\n", "a" * 300,
)  # fmt: skip
SAFE = re.compile(r"[A-Za-z0-9._-]{1,120}")


def tree_of(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def name_everywhere(
    running: testing.BrokerProcess, name: str, token: str, root: httpx.Client, nsqd: httpx.Client
) -> None:
    """Give everything that has a name this one, on every face; what is refused is refused."""
    encoded = name.encode()
    # every byte escaped: libraries resolve dots
    in_path = "".join(f"%{byte:02x}" for byte in encoded)
    for path in (f"/streams/{in_path}", f"/topics/default/{in_path}", f"/topics/{in_path}/t"):
        assert root.post(path, json={}).status_code < 500, path
    assert root.post(f"/users/{in_path}", json={"password": "a password"}).status_code < 500
    assert root.post(f"/users/root/tokens/{in_path}", json={}).status_code < 500
    # by the bytes of a request line, as no library sends them
    for target in (b"/topics/default/" + encoded, b"/../" + encoded, b"/static/../../" + encoded):
        host, _, port = running.endpoints["admin"].rpartition(":")
        with socket.create_connection((host, int(port)), 10) as plain:
            plain.sendall(b"GET " + target + b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            assert plain.recv(12)[9:] in (b"400", b"401", b"404")
    assert nsqd.post("/pub", params={"topic": name}, content=b"x").status_code in (200, 400)
    assert nsqd.post("/channel/create", params={"topic": "orders", "channel": name}).status_code in (200, 400, 404)
    # a name ends with the line
    encoded = encoded.replace(b"\n", b"")
    for line in (b"PUB " + encoded + b"\n" + struct.pack(">I", 1) + b"x", b"SUB orders " + encoded + b"\n"):
        told = NsqClient(running.endpoints["nsqd_tcp"])
        told.send(sized(b"AUTH\n", token.encode()))
        assert told.frame()[0] == 0
        told.send(line)
        with suppress(ConnectionError, EOFError):
            told.frame()
        told.close()
    kafka = KafkaFrames(running.endpoints["kafka"])
    kafka.ask("SaslHandshake", 1, mechanism="PLAIN")
    secret = f"\0root\0{PASSWORDS['root']}".encode()
    assert kafka.ask("SaslAuthenticate", 2, auth_bytes=secret).error_code == 0
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    kafka.ask("CreateTopics", 2, topics=[topic], timeout_ms=1_000, validate_only=False)
    kafka.ask("InitProducerId", 0, transactional_id=name, transaction_timeout_ms=1_000)
    place = {"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 0}]}
    kafka.ask("OffsetCommit", 2, group_id=name, topics=[place])
    kafka.close()
    iggy = Frames(running.endpoints["iggy_tcp"])
    assert iggy.ask(44, short(token))[0] == 0
    with suppress(ConnectionError):
        iggy.ask(202, struct.pack("<I", 77) + short(name[:200]))
    iggy.close()


@pytest.mark.turns(2, part=0)
def test_names_that_are_paths_lead_nowhere(tmp_path: Path, full: bool) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "kept").write_text("kept")
    with broker_with_users(tmp_path / "data" / "deep", settings={"durability": "os"}) as (running, tokens):
        root, nsqd = (http_client(running, face, bearer=tokens["root"]) for face in ("admin", "nsqd_http"))
        assert root.post("/topics/default/orders", json={}).status_code == 201
        for name in TRICKS if full else TRICKS[:NAMES_SAMPLE]:
            name_everywhere(running, name, tokens["root"], root, nsqd)
        assert root.get("/topics").status_code == 200
        found = tree_of(running.data_dir)
        log = log_of(running)
        root.close()
        nsqd.close()
    outside = {path for path in tree_of(tmp_path) if not path.startswith("data/deep/")}
    assert outside == {"beside", "beside/kept", "data", "data/deep"}
    assert not Path("/tmp/lading-escaped").exists()
    # directories of topics are named by what the broker has made up
    assert not [path for path in found if not all(map(SAFE.fullmatch, path.split("/")))]
    assert not [path for path in found if "escaped" in path]
    assert "Traceback" not in log
    with testing.broker(tmp_path / "data" / "deep") as again:
        assert httpx.get(f"http://{again.endpoints['admin']}/live").status_code == 200

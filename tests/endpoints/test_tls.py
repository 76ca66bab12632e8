"""TLS over TCP: Iggy's frames within it are what they are without, and what is no TLS harms nobody."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from lading import testing
from lading.endpoints.encryption.authority import make_certificate, own_names
from lading.endpoints.encryption.listener_tls import make_context
from lading.model.errors import LocalError
from lading.settings.sections import TlsSettings
from tests.endpoints.authority import Authority
from tests.endpoints.connection import Connection
from tests.endpoints.frames import HEAD, Frames, message, payloads, poll, to_partition

OWN = {
    "endpoints.iggy_tcp.listeners.secure.address": testing.FREE_PORT,
    "endpoints.iggy_tcp.listeners.secure.tls.enabled": True,
}
TOPIC = struct.pack("<BBI", 1, 4, 1) * 2
SEND, POLL, PING = 101, 100, 1


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    """Plain beside encrypted, with the broker's own certificate; one topic."""
    with testing.broker(settings=OWN | {"connections.first_request_timeout_ms": 1_000}) as running:
        frames = Frames(running.endpoints["iggy_tcp"])
        assert frames.ask(202, struct.pack("<I", 1) + b"stream") == (0, b"")
        assert frames.ask(302, TOPIC[:6] + struct.pack("<II", 1, 100) + b"topic") == (0, b"")
        frames.close()
        yield running


def trusting(broker: testing.BrokerProcess) -> ssl.SSLContext:
    """What a client has that was told to trust this broker."""
    return ssl.create_default_context(cafile=broker.data_dir / "certificate.pem")


def connect(
    broker: testing.BrokerProcess, context: ssl.SSLContext | None = None, name: str = "iggy_tcp.secure"
) -> Frames:
    frames = Frames(broker.endpoints[name])
    wrapped = (context or trusting(broker)).wrap_socket(
        frames.socket, server_hostname="localhost", suppress_ragged_eofs=False
    )
    frames.socket = wrapped
    return frames


def test_frames_are_the_same_encrypted_and_plain(broker: testing.BrokerProcess) -> None:
    secure, plain = connect(broker), Frames(broker.endpoints["iggy_tcp"])
    assert isinstance(secure.socket, ssl.SSLSocket)
    assert secure.socket.version() == "TLSv1.3"
    assert secure.ask(SEND, TOPIC + to_partition(1) + message(b"hidden") * 3) == (0, b"")
    assert payloads(secure.ask(POLL, poll(TOPIC))[1]) == payloads(plain.ask(POLL, poll(TOPIC))[1]) == [b"hidden"] * 3
    assert secure.ask(9999) == plain.ask(9999)
    secure.close()
    plain.close()


def test_requests_in_records_of_one_byte_and_many_in_one_record(broker: testing.BrokerProcess) -> None:
    frames = connect(broker)
    ping = HEAD.pack(4, PING)
    for byte in ping * 2:
        frames.socket.send(bytes([byte]))
    frames.socket.sendall(ping * 500)
    assert [frames.answer() for _ in range(502)] == [(0, b"")] * 502
    frames.close()


def test_long_messages_both_ways(broker: testing.BrokerProcess) -> None:
    frames = connect(broker)
    large = bytes(range(256)) * (9 << 12)
    assert frames.ask(SEND, TOPIC + to_partition(2) + message(large)) == (0, b"")
    assert payloads(frames.ask(POLL, poll(TOPIC, partition=2))[1]) == [large]
    frames.close()


def test_responses_that_nobody_reads_wait(broker: testing.BrokerProcess) -> None:
    frames = connect(broker)
    body = b"x" * (1 << 20)
    for _ in range(4):
        assert frames.ask(SEND, TOPIC + to_partition(3) + message(body)) == (0, b"")
    polls = 20
    for _ in range(polls):
        frames.send(POLL, poll(TOPIC, partition=3))
    other = connect(broker)
    assert other.ask(PING) == (0, b"")
    for _ in range(polls):
        assert payloads(frames.answer()[1]) == [body] * 4
    frames.close()
    other.close()


def test_a_plain_client_is_closed_and_the_log_says_why(broker: testing.BrokerProcess) -> None:
    frames = Frames(broker.endpoints["iggy_tcp.secure"])
    frames.send(PING, b"x" * 100)
    # an alert may come before the end
    while True:
        try:
            if not frames.socket.recv(100):
                break
        except ConnectionError:
            break
    frames.close()
    # a thread of its own writes the log
    deadline = time.monotonic() + 10
    while "TLS failed: wrong version number" not in (log := broker.log_file.read_text()):
        assert time.monotonic() < deadline, log
    assert "iggy_tcp.secure 127.0.0.1:" in log


def test_what_is_no_record_ends_an_open_connection(broker: testing.BrokerProcess) -> None:
    frames = connect(broker)
    assert frames.ask(PING) == (0, b"")
    raw = frames.socket.detach()
    with socket.socket(fileno=raw) as plain:
        plain.settimeout(10)
        plain.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        with_alert = b""
        while part := plain.recv(1000):
            with_alert += part
    assert with_alert
    other = connect(broker)
    assert other.ask(PING) == (0, b"")
    other.close()


def test_half_handshakes_are_closed_and_keep_nobody_out(broker: testing.BrokerProcess) -> None:
    hello = b"\x16\x03\x01\x02\x00\x01"
    silent = [Connection(broker.endpoints["iggy_tcp.secure"]) for _ in range(300)]
    for each in silent:
        # the first ones may be closed already where this process is slow
        with contextlib.suppress(ConnectionError):
            each.socket.sendall(hello)
    frames = connect(broker)
    assert frames.ask(PING) == (0, b"")
    until_s = time.monotonic() + 10
    for each in silent:
        each.socket.settimeout(max(until_s - time.monotonic(), 0.1))
        assert each.closed(), "the first request was not whole in time"
        each.close()
    assert frames.ask(PING) == (0, b"")
    frames.close()


def test_clients_may_have_to_show_a_certificate(tmp_path: Path) -> None:
    trusted, other = Authority(tmp_path, "trusted"), Authority(tmp_path, "other")
    settings = {
        "endpoints.iggy_tcp.tls.enabled": True,
        "endpoints.iggy_tcp.tls.certificate": trusted.sign("server"),
        "endpoints.iggy_tcp.tls.client_ca": trusted.file,
    }
    with testing.broker(settings=settings) as broker:
        context = ssl.create_default_context(cafile=trusted.file)
        context.load_cert_chain(trusted.sign("client"))
        frames = connect(broker, context, "iggy_tcp")
        assert frames.ask(PING) == (0, b"")
        for certificate in (None, other.sign("stranger")):
            context = ssl.create_default_context(cafile=trusted.file)
            if certificate is not None:
                context.load_cert_chain(certificate)
            # TLS 1.3 tells a client behind its own handshake
            with pytest.raises((ssl.SSLError, ConnectionError)):
                connect(broker, context, "iggy_tcp").ask(PING)
        assert frames.ask(PING) == (0, b"")
        assert not (broker.data_dir / "certificate.pem").exists()
        frames.close()


def test_a_stop_says_goodbye(tmp_path: Path) -> None:
    with testing.broker(tmp_path, settings=OWN) as broker:
        frames = connect(broker)
        assert frames.ask(PING) == (0, b"")
        assert broker.stop() == 0
        # an end without a goodbye would raise SSLEOFError
        assert frames.socket.recv(1) == b""
        frames.close()
        made = tmp_path / "certificate.pem"
        assert (made.stat().st_mode & 0o777, first := made.read_bytes()) == (0o600, first)
    with testing.broker(tmp_path, settings=OWN) as broker:
        assert made.read_bytes() == first
        connect(broker).close()


@pytest.mark.turns(3)
@pytest.mark.parametrize("content", [None, b"no certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "bad.pem"
    if content is not None:
        file.write_bytes(content)
    key = "endpoints.iggy_tcp.listeners.secure.tls.certificate"
    with (
        pytest.raises(LocalError, match=r"(?s)tls\.certificate: .*bad\.pem cannot be used: .*PEM"),
        testing.broker(settings=OWN | {key: file}),
    ):
        pass


@pytest.mark.parametrize(
    ("certificate", "key", "told"),
    [
        ("one.pem", None, r"one\.pem has no private key in PEM; .*, set endpoints\.kafka\.tls\.key$"),
        ("one.pem", "two.key", "the key is that of another certificate; "),
        ("one.key", "one.key", r"one\.key has no certificate in PEM; "),
        ("one.pem", "one.pem", r"one\.pem has no private key in PEM; "),
        ("one.pem", "none.key", r"none\.key: No such file or directory; "),
        ("one.pem", "locked.key", "the key has a password; "),
    ],
)
def test_the_file_at_fault_is_named(tmp_path: Path, certificate: str, key: str | None, told: str) -> None:
    """OpenSSL says "not PEM" or "no certificate assigned"."""
    for name in ("one", "two"):
        made = make_certificate(name, own_names(), 1)
        (tmp_path / f"{name}.pem").write_bytes(made.to_pem())
        (tmp_path / f"{name}.key").write_bytes(made.key_to_pem())
    locked = BestAvailableEncryption(b"secret")
    (tmp_path / "locked.key").write_bytes(made.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    tls = TlsSettings(enabled=True, certificate=tmp_path / certificate, key=None if key is None else tmp_path / key)
    with pytest.raises(LocalError, match=told):
        make_context(tls, "endpoints.kafka.tls", tmp_path)


def test_a_private_key_that_every_user_may_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = make_certificate("one", own_names(), 1)
    files = tmp_path / "one.pem", tmp_path / "one.key"
    files[0].write_bytes(made.to_pem())
    files[1].write_bytes(made.key_to_pem())
    tls = TlsSettings(enabled=True, certificate=files[0], key=files[1])
    for mode, warned in ((0o600, 0), (0o640, 0), (0o644, 1)):
        caplog.clear()
        files[1].chmod(mode)
        make_context(tls, "endpoints.kafka.tls", tmp_path)
        assert len(caplog.records) == warned
    assert f"private key {files[1]}: every user may read it (mode 0644)" in caplog.text

"""Names from client certificates: who has no login, or needs none, by the common name of its certificate."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from lading import testing
from lading.broker.core.access.rights import Right
from tests.endpoints.authority import Authority
from tests.endpoints.frames import HEAD
from tests.endpoints.identity import PASSWORDS, broker_with_users, rule
from tests.endpoints.nsq_client import NsqClient, pub
from tests.endpoints.test_http_users import client as http_client
from tests.endpoints.test_iggy_releases import named
from tests.endpoints.test_tls_listeners import wait_for_line

FACES = ("iggy_tcp", "iggy_websocket", "kafka", "nsqd_tcp")
STREAM, POLL = 200, 100
READ_T = struct.pack("<BI", 1, 1) + named("default") + named("t") + struct.pack("<IBQIB", 1, 1, 0, 10, 0)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ca")


@pytest.fixture(scope="module")
def broker(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    settings: dict[str, Any] = {}
    for name in FACES:
        key = f"endpoints.{name}.tls"
        settings |= {f"{key}.enabled": True, f"{key}.certificate": authority.sign("server")}
        settings |= {f"{key}.client_ca": authority.file, f"{key}.client_user": "common_name"}
        settings[f"{key}.client_certificates"] = "optional"
    # dora is no user: rules name whom the authority names
    rules = [rule(name, right, "t") for name in ("ann", "dora") for right in (Right.READ, Right.WRITE)]
    with broker_with_users(tmp_path_factory.mktemp("users") / "data", rules, settings) as (running, _):
        root = http_client(running, basic="root")
        assert root.post("/topics/default/t", json={}).status_code == 201
        yield running


def trusting(authority: Authority, name: str | None, **named: timedelta) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.file)
    if name is not None:
        context.load_cert_chain(authority.sign(name, **named))
    return context


class Iggy:
    """Frames of the classic generation within TLS."""

    def __init__(self, broker: testing.BrokerProcess, context: ssl.SSLContext) -> None:
        host, _, port = broker.endpoints["iggy_tcp"].rpartition(":")
        opened = socket.create_connection((host, int(port)), 10)
        self.socket = context.wrap_socket(opened, server_hostname="localhost")
        self.file = self.socket.makefile("rb")

    def ask(self, code: int, payload: bytes = b"") -> int:
        self.socket.sendall(HEAD.pack(4 + len(payload), code) + payload)
        status, size = HEAD.unpack(self.file.read(HEAD.size))
        self.file.read(size)
        return int(status)

    def closed(self) -> bool:
        try:
            return self.file.read(1) == b""
        except (ConnectionError, ssl.SSLError):
            return True


def test_iggy_without_a_login_reads_by_its_certificate(broker: testing.BrokerProcess, authority: Authority) -> None:
    for name, status in (("ann", 0), ("dora", 0), ("bob", 41), (None, 40)):
        iggy = Iggy(broker, trusting(authority, name))
        assert iggy.ask(POLL, READ_T) == status, name
        iggy.socket.close()


def test_nsq_needs_no_auth_with_a_certificate(broker: testing.BrokerProcess, authority: Authority) -> None:
    for name, told in (("dora", b"OK"), ("bob", b"E_UNAUTHORIZED"), (None, b"E_AUTH_FIRST")):
        nsqd = NsqClient(broker.endpoints["nsqd_tcp"], context=trusting(authority, name))
        nsqd.send(pub("t", b"x"))
        assert nsqd.frame()[1].startswith(told), name
        nsqd.close()


@pytest.mark.parametrize("sasl", [{}, {"sasl.mechanism": "SCRAM-SHA-256"}], ids=["SSL", "SASL_SSL"])
def test_kafka_acts_for_the_certificate_unless_it_logs_in(
    broker: testing.BrokerProcess, authority: Authority, sasl: dict[str, str]
) -> None:
    file = str(authority.sign("bob" if sasl else "dora"))
    producer = confluent_kafka.Producer({
        "bootstrap.servers": broker.endpoints["kafka"].replace("127.0.0.1", "localhost"),
        "security.protocol": "SASL_SSL" if sasl else "SSL", "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": file, "ssl.key.location": file, "sasl.username": "ann",
        "sasl.password": PASSWORDS["ann"], **sasl,
    })  # fmt: skip
    failed: list[Any] = []
    producer.produce("t", b"x", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(20) == 0 and failed == [None]


def test_a_connection_ends_with_its_certificate_and_its_user(
    broker: testing.BrokerProcess, authority: Authority
) -> None:
    root = http_client(broker, basic="root")
    short = Iggy(broker, trusting(authority, "ann", left=timedelta(seconds=2)))
    assert short.ask(POLL, READ_T) == 0
    assert root.post("/users/eve", json={"password": "password"}).status_code == 201
    iggy = Iggy(broker, trusting(authority, "eve"))
    assert iggy.ask(POLL, READ_T) == 41
    assert root.put("/users/eve", json={"active": False}).status_code == 200
    assert iggy.closed()
    # one that is not active is not let in by a certificate either
    assert Iggy(broker, trusting(authority, "eve")).closed()
    wait_for_line(broker, "certificate names no user: user 'eve' is not active")
    assert short.closed()


def test_names_that_are_no_users(broker: testing.BrokerProcess, authority: Authority) -> None:
    for name in ("*", "ANONYMOUS"):
        assert Iggy(broker, trusting(authority, name)).closed()
    # another authority's are refused before anybody looks at their names
    other = Authority(Path(authority.file).parent, "other")
    context = ssl.create_default_context(cafile=authority.file)
    context.load_cert_chain(other.sign("ann"))
    with pytest.raises((ssl.SSLError, ConnectionError, struct.error)):
        Iggy(broker, context).ask(POLL, READ_T)


def test_a_certificate_that_has_expired_is_nobodys(broker: testing.BrokerProcess, authority: Authority) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError, struct.error)):
        Iggy(broker, trusting(authority, "ann", left=timedelta(seconds=-1))).ask(POLL, READ_T)
    wait_for_line(broker, "TLS failed: certificate verify failed: certificate has expired")

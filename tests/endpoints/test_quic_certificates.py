"""Certificates that clients show over QUIC: who has none that counts is told so by TLS's alert, and asks nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aioquic.quic.configuration import QuicConfiguration
from aioquic.tls import AlertDescription
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID

from lading import testing
from lading.broker.core.access.rights import Right
from lading.endpoints.io.quic_certificates import CertificateRefused, check_certificates
from lading.model.errors import LocalError
from tests.endpoints.authority import Authority
from tests.endpoints.identity import broker_with_users, rule
from tests.endpoints.quic_frames import PING, POLL, QuicFrames
from tests.endpoints.test_certificate_users import READ_T
from tests.endpoints.test_http_users import client as http_client
from tests.endpoints.test_tls_listeners import wait_for_line

CRYPTO_ERROR = 0x100
"""RFC 9001 section 4.8: an alert of TLS is a code of QUIC behind this one."""
USAGES = {"client": ExtendedKeyUsageOID.CLIENT_AUTH, "server": ExtendedKeyUsageOID.SERVER_AUTH}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ca")


@pytest.fixture(scope="module")
def broker(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    """Its users may show certificates, and a listener beside requires one."""
    quic = "endpoints.iggy_quic"
    settings: dict[str, Any] = {
        f"{quic}.tls.client_ca": authority.file, f"{quic}.tls.client_user": "common_name",
        f"{quic}.tls.client_certificates": "optional",
        f"{quic}.listeners.closed.address": testing.FREE_PORT,
        f"{quic}.listeners.closed.tls.client_certificates": "required",
    }  # fmt: skip
    rules = [rule("ann", right, "t") for right in (Right.READ, Right.WRITE)]
    with broker_with_users(tmp_path_factory.mktemp("users") / "data", rules, settings, others=("eve",)) as (running, _):
        assert http_client(running, basic="root").post("/topics/default/t", json={}).status_code == 201
        yield running


def connect(broker: testing.BrokerProcess, file: Path | None, name: str = "iggy_quic") -> QuicFrames:
    shown: dict[str, Any] = {}
    if file is not None:
        loaded = QuicConfiguration()
        loaded.load_cert_chain(file)
        shown = {"certificate": loaded.certificate, "private_key": loaded.private_key}
    return QuicFrames(broker.endpoints[name], **shown)


def assert_refused(client: QuicFrames, alert: AlertDescription) -> None:
    """What the client did in its own handshake counts for nothing."""
    with pytest.raises(ConnectionError, match=f"{CRYPTO_ERROR + alert:#x}"):
        client.ask(PING)


def test_who_shows_none_asks_nothing(broker: testing.BrokerProcess, authority: Authority) -> None:
    assert connect(broker, None).ask(POLL, READ_T)[0] == 40
    assert_refused(connect(broker, None, "iggy_quic.closed"), AlertDescription.certificate_required)
    wait_for_line(broker, "the client has shown no certificate; this listener requires one")
    good = connect(broker, authority.sign("ann"), "iggy_quic.closed")
    assert good.ask(POLL, READ_T)[0] == 0


@pytest.mark.parametrize("name", ["iggy_quic", "iggy_quic.closed"])
def test_one_that_is_shown_must_be_good(broker: testing.BrokerProcess, authority: Authority, name: str) -> None:
    other = Authority(Path(authority.file).parent, "other")
    assert_refused(connect(broker, other.sign("ann"), name), AlertDescription.bad_certificate)
    late = authority.sign("late", left=timedelta(seconds=-1))
    assert_refused(connect(broker, late, name), AlertDescription.certificate_expired)
    wait_for_line(broker, "Certificate is no longer valid; the client's certificate is not one")


def test_iggy_without_a_login_reads_by_its_certificate(broker: testing.BrokerProcess, authority: Authority) -> None:
    for name, status in (("ann", 0), ("bob", 41)):
        assert connect(broker, authority.sign(name)).ask(POLL, READ_T)[0] == status, name
    assert_refused(connect(broker, authority.sign("*")), AlertDescription.access_denied)
    wait_for_line(broker, "the certificate names no user")


def test_a_connection_ends_with_its_user(broker: testing.BrokerProcess, authority: Authority) -> None:
    eve = connect(broker, authority.sign("eve"))
    assert eve.ask(POLL, READ_T)[0] == 41
    assert http_client(broker, basic="root").put("/users/eve", json={"active": False}).status_code == 200
    with pytest.raises(ConnectionError):
        eve.ask(PING)
    assert_refused(connect(broker, authority.sign("eve")), AlertDescription.access_denied)


@pytest.mark.turns(2, part=0)
def test_new_clients_meet_the_authorities_that_are_in_the_file(tmp_path: Path) -> None:
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(first.file.read_bytes())
    with testing.broker(settings={"endpoints.iggy_quic.tls.client_ca": trusted}) as broker:
        before = connect(broker, first.sign("a"))
        assert before.ask(PING) == (0, b"")
        trusted.write_bytes(second.file.read_bytes())
        os.kill(broker.pid, signal.SIGHUP)
        wait_for_line(broker, "new connections get the certificate that was changed")
        assert_refused(connect(broker, first.sign("a")), AlertDescription.bad_certificate)
        assert connect(broker, second.sign("b")).ask(PING) == (0, b"")
        assert before.ask(PING) == (0, b"")


@pytest.mark.turns(2, part=1)
def test_a_file_that_is_none_is_refused_at_the_start(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    with (
        pytest.raises(LocalError, match=r"endpoints\.iggy_quic\.tls\.client_ca: .*broken\.pem cannot be used"),
        testing.broker(settings={"endpoints.iggy_quic.tls.client_ca": broken}),
    ):
        pass


@pytest.mark.parametrize(("usage", "is_good"), [("client", True), ("server", False)])
@pytest.mark.turns(2)
def test_a_certificate_for_servers_is_none_for_clients(authority: Authority, usage: str, is_good: bool) -> None:
    """As OpenSSL has it over TCP; a certificate that says nothing is for both."""
    key = authority._key
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ann")]))
        .issuer_name(authority._name)
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.ExtendedKeyUsage([USAGES[usage]]), critical=False)
        .public_key(key.public_key())
        .sign(key, hashes.SHA256())
    )
    configuration = QuicConfiguration(is_client=False)
    configuration.load_verify_locations(cadata=authority.file.read_bytes())
    if is_good:
        check_certificates([certificate], configuration)
    else:
        with pytest.raises(CertificateRefused) as refused:
            check_certificates([certificate], configuration)
        assert refused.value.alert is AlertDescription.unsupported_certificate

"""New certificates without a restart: new connections get them, open ones stay, and what is broken is told."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509

from lading import testing
from lading.endpoints.encryption.renewal import CertificateRenewal
from lading.model.errors import LocalError, Unreachable
from lading.transports.open import open_transport
from tests.endpoints.authority import Authority
from tests.endpoints.quic_client import QuicClient

KEYS = ("endpoints.iggy_tcp", "endpoints.kafka", "endpoints.admin", "endpoints.nsqd_tcp")
QUIC = "endpoints.iggy_quic"


def shown_by(broker: testing.BrokerProcess, name: str) -> str:
    """The name in the certificate of a new connection."""
    host, _, port = broker.endpoints[name].rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(socket.create_connection((host, int(port)), 10)) as opened:
        shown = opened.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).subject.rfc4514_string().removeprefix("CN=")


def wait_until(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.02)


@pytest.mark.turns(2, part=1)
def test_sighup_changes_the_certificate_of_new_connections(tmp_path: Path) -> None:
    authority, used = Authority(tmp_path, "ca"), tmp_path / "used.pem"
    shutil.copy(authority.sign("first"), used)
    settings = {
        f"{key}.tls.{name}": value for key in KEYS for name, value in (("enabled", True), ("certificate", used))
    }
    with testing.broker(settings=settings | {f"{QUIC}.tls.certificate": used}) as broker:
        names = [key.partition(".")[2] for key in KEYS]
        assert [shown_by(broker, name) for name in names] == ["first"] * len(KEYS)
        QuicClient(broker.endpoints["iggy_quic"]).close()
        context = ssl.create_default_context(cafile=authority.file)
        with httpx.Client(verify=context, base_url=f"https://{broker.endpoints['admin']}") as client:
            assert client.get("/health").status_code == 200

            # cut short, as a copy under way is
            used.write_bytes(authority.sign("second").read_bytes()[:300])
            os.kill(broker.pid, signal.SIGHUP)
            wait_until(lambda: broker.log_file.read_text().count("new connections get the old certificate") == 5)
            assert [shown_by(broker, name) for name in names] == ["first"] * len(KEYS)
            assert str(used) in broker.log_file.read_text()

            shutil.copy(authority.sign("third"), used)
            os.kill(broker.pid, signal.SIGHUP)
            wait_until(lambda: broker.log_file.read_text().count("get the certificate that was changed") == 5)
            assert [shown_by(broker, name) for name in names] == ["third"] * len(KEYS)
            quic = QuicClient(broker.endpoints["iggy_quic"])
            assert "third" in str(quic.quic.tls._peer_certificate.subject)  # type: ignore[union-attr]
            quic.close()
            # on the connection that was open all the time
            assert client.get("/health").status_code == 200
        assert "Traceback" not in broker.log_file.read_text()


def test_certificates_that_expire_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path, "ca")
    file = authority.sign("ages", left=timedelta(days=30))
    renewal, now_s = CertificateRenewal(), time.time()
    caplog.set_level(logging.INFO)
    renewal.add("kafka", lambda: (file,), lambda: None)
    told = []
    for days in (0, 15, 17, 18, 29, 31, 32):
        caplog.clear()
        renewal.look(now_s + days * 86_400)
        told.append([record.message.partition(": ")[2].partition(" on ")[0] for record in caplog.records])
    assert told == [[], [], ["expires"], [], [], ["has expired"], []]
    # one that replaces it is looked at anew
    authority.sign("ages", left=timedelta(days=3))
    caplog.clear()
    renewal.look(now_s)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]


@pytest.mark.turns(2, part=0)
def test_a_certificate_that_has_expired_is_told_on_both_sides(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    used = authority.sign("server", left=timedelta(hours=-1))
    shown = authority.sign("client", left=timedelta(hours=-1))
    key = "endpoints.kafka.tls"
    settings = {f"{key}.enabled": True, f"{key}.certificate": used, f"{key}.client_ca": authority.file}
    with testing.broker(settings=settings) as broker:
        wait_until(lambda: "server.pem: has expired on" in broker.log_file.read_text())
        metrics = httpx.get(f"http://{broker.endpoints['admin']}/metrics").text
        assert 'lading_certificate_expires_timestamp_seconds{endpoint="kafka"}' in metrics
        (shown_on_start_page,) = httpx.get(f"http://{broker.endpoints['admin']}/overview").json()["certificates"]
        assert shown_on_start_page["endpoint"] == "kafka" and shown_on_start_page["expires_s"] < time.time()
        url = f"kafka://{broker.endpoints['kafka']}"
        with pytest.raises(Unreachable, match="certificate is refused: certificate has expired"):
            open_transport(url, ca_file=str(authority.file), retries=0).topics()
        wait_until(lambda: "the certificate of this listener has expired" in broker.log_file.read_text())
        shutil.copy(authority.sign("fresh"), used)
        os.kill(broker.pid, signal.SIGHUP)
        wait_until(lambda: "get the certificate that was changed" in broker.log_file.read_text())
        with pytest.raises(Unreachable, match="certificate in certificate_file has expired"):
            open_transport(url, ca_file=str(authority.file), certificate_file=str(shown), retries=0).topics()
        wait_until(lambda: "certificate verify failed: certificate has expired" in broker.log_file.read_text())
        valid = str(authority.sign("valid"))
        assert open_transport(url, ca_file=str(authority.file), certificate_file=valid).topics() == []
        assert "Traceback" not in broker.log_file.read_text()


def test_a_look_renews_what_has_changed_and_tells_each_fault_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changing, resting = tmp_path / "changing.pem", tmp_path / "resting.pem"
    renewed: list[str] = []
    changing.write_text("1")
    resting.write_text("1")

    def renew_changing() -> None:
        if changing.read_text() == "bad":
            raise LocalError("changing.pem cannot be used")
        renewed.append(changing.read_text())

    renewal = CertificateRenewal()
    renewal.add("kafka", lambda: (changing, tmp_path / "missing.pem"), renew_changing)
    renewal.add("admin", lambda: (resting,), lambda: renewed.append("resting"))
    caplog.set_level(logging.INFO)
    renewal.look()
    assert renewed == []
    for content, times in (("two", 1), ("bad", 2), ("three", 1)):
        changing.write_text(content)
        for _ in range(times):
            renewal.look()
    assert renewed == ["two", "three"]
    assert [record.levelname for record in caplog.records] == ["INFO", "ERROR", "INFO"]
    assert "changing.pem cannot be used; new connections get the old certificate" in caplog.text
    # the same content by another file, as tools that renew certificates write it
    fresh = tmp_path / "fresh.pem"
    fresh.write_text("3")
    fresh.replace(resting)
    renewal.look()
    assert renewed[-1] == "resting"

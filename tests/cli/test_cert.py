"""``lading cert``: what it makes is taken by a broker, by Python's TLS and by OpenSSL, and nothing is overwritten."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from lading import testing
from lading.cli.main import main


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["cert", *arguments])
    return int(ended.value.code or 0)


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_broker_and_clients_take_them(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    assert run(str(certs)) == 0
    assert set(content(certs)) == {"ca.pem", "ca.key", "server.pem", "server.key", "client.pem", "client.key"}
    assert {path.stat().st_mode & 0o777 for path in certs.iterdir()} == {0o600}
    assert certs.stat().st_mode & 0o777 == 0o700
    settings = {"enabled": True, "certificate": certs / "server.pem", "key": certs / "server.key"}
    settings["client_ca"] = certs / "ca.pem"
    with testing.broker(settings={f"endpoints.admin.tls.{name}": value for name, value in settings.items()}) as broker:
        context = ssl.create_default_context(cafile=certs / "ca.pem")
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_cert_chain(certs / "client.pem", certs / "client.key")
        port = broker.endpoints["admin"].rpartition(":")[2]
        for host in ("127.0.0.1", "localhost"):
            assert httpx.get(f"https://{host}:{port}/health", verify=context).status_code == 200
        with (
            pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for 'elsewhere\.example'"),
            socket.create_connection(("127.0.0.1", int(port)), 10) as opened,
        ):
            context.wrap_socket(opened, server_hostname="elsewhere.example")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_finds_what_was_asked_for(tmp_path: Path) -> None:
    assert (
        run(str(tmp_path), "--server", "broker", "--host", "broker.example", "--host", "10.0.0.7", "--days", "3") == 0
    )
    assert run(str(tmp_path), "--client", "alice") == 0
    for name, purpose in (("broker", "sslserver"), ("alice", "sslclient")):
        command = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", str(tmp_path / "ca.pem")]
        done = subprocess.run([*command, str(tmp_path / f"{name}.pem")], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
    command = ["openssl", "x509", "-noout", "-text", "-in", str(tmp_path / "broker.pem")]
    text = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    assert "DNS:broker.example, IP Address:10.0.0.7" in text
    assert "prime256v1" in text
    # three days and the one before, for clocks that are behind
    command = ["openssl", "x509", "-noout", "-in", str(tmp_path / "broker.pem"), "-checkend"]
    assert subprocess.run([*command, str(3 * 86_400 - 3_600)], timeout=30, capture_output=True).returncode == 0
    assert subprocess.run([*command, str(3 * 86_400 + 3_600)], timeout=30, capture_output=True).returncode == 1


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(tmp_path), "--server", "one") == 0
    before = content(tmp_path)
    for names, told in (
        (("--server", "one"), "one.pem: already exists"),
        (("--client", "two", "--client", "one"), "one.pem: already exists"),
        (("--client", "ca"), "ca.pem: already exists"),
        (("--client", "../two"), "'../two': not a name of a file"),
        (("--client", "two", "--server", "two"), "'two': not a name of a file, or not the only one"),
    ):
        assert run(str(tmp_path), *names) == 2
        assert told in capsys.readouterr().err
        assert content(tmp_path) == before
    (tmp_path / "two.key").touch()
    assert run(str(tmp_path), "--client", "two") == 2
    assert "two.key: already exists" in capsys.readouterr().err


def test_an_authority_that_cannot_be_used_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    assert run(str(tmp_path)) == run(str(other)) == 0
    (tmp_path / "ca.key").write_bytes((other / "ca.key").read_bytes())
    assert run(str(tmp_path), "--client", "a") == 2
    assert "does not belong to it" in capsys.readouterr().err
    (tmp_path / "ca.key").write_bytes(b"none")
    assert run(str(tmp_path), "--client", "a") == 2
    assert "not a certificate and its key as PEM" in capsys.readouterr().err
    (tmp_path / "ca.key").unlink()
    assert run(str(tmp_path), "--client", "a") == 2
    assert "ca.key: No such file" in capsys.readouterr().err

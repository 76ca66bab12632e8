"""The command: its ready line, its end, columns that it is given, and the broker that starts it."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from lading import testing
from lading.model.address import Address
from lading.model.errors import LocalError
from lading.serve.local_server import listen
from lading.topic_tables.server import TablesSettings, run
from lading.transports.lading.transport import LadingTransport
from tests import forked_command

from .conftest import encrypted_catalog, send, write_certificate

END_S = 20
PASSWORD = "correct horse battery"


def test_it_is_ready_serves_and_ends_in_order(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    send(broker.url, "commanded", 0, 4)
    words = ["tables", "--from", broker.url, "--address", "127.0.0.1:0", "--state", str(tmp_path), "--output", "json"]
    with subprocess.Popen(
        [sys.executable, "-m", "lading.cli.main", *words, "--columns", "commanded=delay int", "--with-parent"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        ready = json.loads(process.stdout.readline())
        address = f"http://{ready['endpoints']['tables']}"
        assert (ready["event"], ready["pid"]) == ("ready", process.pid)
        assert "Iceberg catalog" in httpx.get(address).json()["about"]
        loaded = httpx.get(f"{address}/v1/lading/namespaces/default/tables/commanded").json()
        assert [field["name"] for field in loaded["metadata"]["schemas"][-1]["fields"]][-2:] == ["payload", "delay"]
        # a page of another site
        refused = httpx.get(f"{address}/v1/config", headers={"origin": "http://elsewhere.example"})
        assert refused.status_code == 403
        process.terminate()
        assert process.wait(END_S) == 0
        assert address in process.stderr.read()


def test_it_serves_other_machines_with_tls_and_logins(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path)
    with testing.broker() as broker:
        send(broker.url, "abroad", 0, 4)
        settings = TablesSettings(broker.url, Address("0.0.0.0", 0), {}, tmp_path / "state", certificate)
        with pytest.raises(LocalError, match="set up users there"):
            run(settings)
        with closing(LadingTransport(broker.url)) as transport:
            transport.add_user("root", PASSWORD, administrator=True)
            transport.log_in("root", PASSWORD)
            token = transport.add_token("root", "tables")
        with pytest.raises(LocalError, match="listens on this machine only"):
            run(replace(settings, certificate=None))
        with encrypted_catalog(broker.url, tmp_path, certificate) as port:
            trusted = ssl.create_default_context(cafile=str(certificate))
            with httpx.Client(base_url=f"https://localhost:{port}", verify=trusted) as client:
                place = "/v1/lading/namespaces/default/tables/abroad"
                assert client.get(place).status_code == 401
                assert client.get(place, headers={"authorization": "Bearer forged"}).status_code == 401
                login = {"authorization": f"Bearer {token}"}
                loaded = client.get(place, headers=login).json()
                assert loaded["config"]["s3.endpoint"] == f"https://localhost:{port}/"
                # a name of the certificate, and one that a page of another site could be bound to
                named = client.get(place, headers={**login, "host": f"tables.example:{port}"})
                assert named.json()["config"]["s3.endpoint"] == f"https://tables.example:{port}/"
                assert client.get(place, headers={**login, "host": "elsewhere.example"}).status_code == 403
                assert client.get(f"/{loaded['metadata-location'].removeprefix('s3://')}").status_code == 403
            # a client that does not know who signed the certificate
            with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
                httpx.get(f"https://localhost:{port}/")


def test_a_response_does_not_wait_for_an_acknowledgement() -> None:
    """The body of each response waited 40 ms for that of its head."""
    with listen(Address("127.0.0.1", 0), "tables") as bound, socket.create_connection(bound.getsockname()):
        accepted, _ = bound.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("words", [["--columns", "flights"], ["--columns", "a=offset"], ["--address", "0.0.0.0:0"]])
def test_arguments_that_cannot_be(words: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lading.cli.main", "tables", "--from", str(tmp_path), *words]
    done = forked_command.run(command, timeout=60)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_broker_starts_it(full: bool, tmp_path: Path) -> None:
    if not full:
        pytest.skip("starts a broker and its catalog, three seconds of CPU: only with LADING_TEST_FULL=1")
    words = ["serve", "--data", str(tmp_path / "my data"), "--free-ports", "--tables", "-o", "json", "--with-parent"]
    words.append("--console")
    with subprocess.Popen(
        [sys.executable, "-m", "lading.cli.main", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        endpoints = json.loads(process.stdout.readline())["endpoints"]
        send(f"lading://{endpoints['admin']}", "begun", 0, 3)
        tables = httpx.get(f"http://{endpoints['tables']}/v1/lading/namespaces/default/tables", timeout=30).json()
        assert tables == {"identifiers": [{"namespace": ["default"], "name": "begun"}]}
        shown = httpx.get(f"http://{endpoints['console']}/api/topic", params={"topic": "begun"}, timeout=30).json()
        assert shown["table"]["name"] == "default.begun"
        assert all(
            f"http://{endpoints['tables']}" in block["text"]
            for block in shown["table"]["blocks"]
            if block["engine"] != "Spark"
        )
        process.terminate()

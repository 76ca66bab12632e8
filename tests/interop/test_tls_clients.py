"""Clients of each protocol over TLS, as they are: kcat, Java, go-nsq, pynsq, curl and openssl; and upstream's nsqd."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lading
from lading import testing
from tests.endpoints.authority import Authority
from tests.endpoints.nsq_client import NsqClient, pub
from tests.interop import go_programs, kafka_broker, maven, wheels
from tests.interop.iggy_current import CurrentClient

TIMEOUT_S = 60
JARS = (f"org.apache.kafka:kafka-tools:{kafka_broker.VERSION}", *kafka_broker.JARS)
ENCRYPTED = ("iggy_tcp", "kafka", "nsqd_tcp", "nsqlookupd_http", "admin")
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def require(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def run(*command: str, given: str = "") -> str:
    """What a program prints."""
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ca")


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[testing.BrokerProcess]:
    certificate = authority.sign("server")
    settings: dict[str, Any] = {"durability": "os", "endpoints.kafka.tls.client_ca": authority.file}
    for name in ENCRYPTED:
        settings |= {f"endpoints.{name}.tls.enabled": True, f"endpoints.{name}.tls.certificate": certificate}
    with testing.broker(settings=settings) as running:
        yield running


def test_kcat_with_a_client_certificate(broker: testing.BrokerProcess, authority: Authority) -> None:
    shown = str(authority.sign("kcat"))
    options = {"security.protocol": "ssl", "ssl.ca.location": authority.file}
    options |= {"ssl.certificate.location": shown, "ssl.key.location": shown}
    command = [
        require("kcat"),
        "-b",
        broker.endpoints["kafka"],
        *(f"-X{name}={each}" for name, each in options.items()),
    ]
    run(*command, "-P", "-t", "kcat", "-p", "0", "-H", "via=ORD", given="one\ntwo\n")
    read = run(*command, "-C", "-t", "kcat", "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%s %h\n")
    assert read == "one via=ORD\ntwo via=ORD\n"


def test_the_java_client_with_pem_files(
    broker: testing.BrokerProcess, authority: Authority, tmp_path: Path, full: bool
) -> None:
    if not full:
        pytest.skip("two Java processes: with LADING_TEST_FULL=1")
    java = require("java")
    try:
        jars = maven.fetched(f"kafka-tools-{kafka_broker.VERSION}", JARS)
    except maven.Unavailable as reason:
        pytest.skip(str(reason))
    config = tmp_path / "client.properties"
    shown = authority.sign("java")
    config.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={authority.file}\nssl.keystore.location={shown}\n"
    )
    command = [java, "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    to = ["--bootstrap-server", broker.endpoints["kafka"], "--topic", "java", "--command-config", str(config)]
    run(*command, "org.apache.kafka.tools.ConsoleProducer", *to, given="one\ntwo\n")
    limits = ["--from-beginning", "--max-messages", "2", "--timeout-ms", "30000"]
    assert run(*command, "org.apache.kafka.tools.consumer.ConsoleConsumer", *to, *limits) == "one\ntwo\n"


def test_go_nsq_changes_to_tls(broker: testing.BrokerProcess, authority: Authority) -> None:
    try:
        client = go_programs.Conversation(go_programs.client("upstream"))
    except go_programs.Unavailable as reason:
        pytest.skip(str(reason))
    with contextlib.closing(client):
        # the name in the certificate that go-nsq asks for is the host of the address
        to = {"address": broker.endpoints["nsqd_tcp"], "topic": "go", "ca_file": str(authority.file)}
        bodies = [b"one", bytes(1 << 18)]
        assert client.ask(op="publish", bodies=bodies, multi=True, **to)["error"] == ""
        told = client.ask(op="consume", channel="c", count=2, in_flight=2, timeout_ms=20_000, **to)
        assert [each["body"] for each in told["messages"]] == bodies
    refused = go_programs.Conversation(go_programs.client("upstream"))
    with contextlib.closing(refused):
        plain = {"address": broker.endpoints["nsqd_tcp"], "topic": "go"}
        assert refused.ask(op="publish", bodies=[b"x"], **plain)["error"] != ""


PYNSQ = """
import json, sys
import nsq, tornado.ioloop

tcp, ca_file = sys.argv[1:]
loop, seen = tornado.ioloop.IOLoop.current(), []
options = {"tls_v1": True, "tls_options": {"ca_certs": ca_file, "cert_reqs": 2}}

def handler(message):
    seen.append(message.body.decode())
    loop.add_callback(loop.stop)
    return True

def publish():
    if not writer.conns:
        loop.call_later(0.05, publish)
        return
    writer.pub("pynsq", b"hidden", callback=lambda conn, data: None)

writer = nsq.Writer([tcp], **options)
reader = nsq.Reader(message_handler=handler, nsqd_tcp_addresses=[tcp], topic="pynsq", channel="c", **options)
loop.call_later(0.05, publish)
loop.call_later(20, loop.stop)
loop.start()
print(json.dumps(seen))
"""


def test_pynsq_changes_to_tls(broker: testing.BrokerProcess, authority: Authority) -> None:
    pytest.importorskip("nsq", reason="pynsq is not installed (pip install pynsq)")
    told = run(sys.executable, "-c", PYNSQ, broker.endpoints["nsqd_tcp"], str(authority.file))
    assert json.loads(told.splitlines()[-1]) == ["hidden"]


def test_apache_iggy_over_tls(broker: testing.BrokerProcess, authority: Authority) -> None:
    port = broker.endpoints["iggy_tcp"].rpartition(":")[2]
    options = f"tls=true&tls_domain=localhost&tls_ca_file={authority.file}"
    try:
        client = CurrentClient(f"iggy+tcp://iggy:iggy@127.0.0.1:{port}?{options}")
    except wheels.Unavailable as reason:
        pytest.skip(str(reason))
    with contextlib.closing(client):
        client.call("create_stream", "s")
        client.call("create_topic", "s", "t", 1)
        client.send("s", "t", ("partition_id", 0), [(b"hidden", [(2, b"carrier", 2, b"UA")], None)])
        assert [message["payload"] for message in client.poll("s", "t")] == [b"hidden"]


def test_curl_over_https(broker: testing.BrokerProcess, authority: Authority) -> None:
    command = [require("curl"), "-sS", "--fail", "--cacert", str(authority.file)]
    url = f"https://{broker.endpoints['admin']}"
    assert '"status":"ok"' in run(*command, f"{url}/health")
    assert "# HELP" in run(*command, f"{url}/metrics")
    plain = subprocess.run(
        ["curl", "-sS", f"http://{broker.endpoints['admin']}/health"], capture_output=True, timeout=30
    )
    assert b"this port speaks HTTPS" in plain.stdout


@pytest.mark.parametrize("name", ENCRYPTED)
@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_openssl_shakes_hands(broker: testing.BrokerProcess, authority: Authority, name: str, version: str) -> None:
    command = [
        require("openssl"),
        "s_client",
        "-connect",
        broker.endpoints[name],
        "-CAfile",
        str(authority.file),
        version,
    ]
    shown = str(authority.sign("openssl"))
    told = run(*command, "-verify_return_error", "-verify_ip", "127.0.0.1", "-cert", shown, "-key", shown)
    assert "Verify return code: 0 (ok)" in told


def test_our_client_and_a_plain_one_at_upstream_nsqd(authority: Authority, tmp_path: Path) -> None:
    """nsqd -tls-required is what ours is held to: one client finds the same at both."""
    try:
        program = go_programs.server("nsqd")
    except go_programs.Unavailable as reason:
        pytest.skip(str(reason))
    certificate = authority.sign("server")
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        address, http = (f"127.0.0.1:{each.getsockname()[1]}" for each in (taken, other))
    options = [f"-tcp-address={address}", f"-http-address={http}", f"-data-path={tmp_path}", "-tls-required=true"]
    options += [f"-tls-cert={certificate}", f"-tls-key={certificate}"]
    server = subprocess.Popen([str(program), *options], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until_s = time.monotonic() + 15
        while True:
            try:
                plain = NsqClient(address)
                break
            except ConnectionError:
                assert time.monotonic() < until_s
                time.sleep(0.05)
        assert plain.ask(pub("t", b"x")) == b"E_INVALID cannot PUB in current state (TLS required)"
        plain.close()
        client = NsqClient(address, tls_v1=True)
        assert client.identity["tls_v1"] is True
        client.start_tls(ssl.create_default_context(cafile=authority.file))
        assert client.frame() == (0, b"OK")
        assert client.ask(pub("t", b"x")) == b"OK"
        client.close()
        with lading.Producer(f"nsq://{address}", ca_file=str(authority.file)) as producer:
            producer.send("ours", b"hidden")
        with lading.Consumer(
            f"nsq://{address}", "ours", group="g", timeout_s=10, ca_file=str(authority.file)
        ) as consumer:
            assert next(iter(consumer)).payload == b"hidden"
    finally:
        server.terminate()
        server.wait(10)

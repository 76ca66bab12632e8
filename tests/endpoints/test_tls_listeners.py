"""TLS on every listener that is plain by default: the same answers, with clients of each protocol and by hand."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import httpx
import pytest

from lading import testing
from tests.endpoints.authority import Authority
from tests.endpoints.nsq_client import NsqClient, pub, sized

HTTP = ("admin", "iggy_http", "nsqd_http", "nsqlookupd_http")
PATHS = {"admin": "/health", "iggy_http": "/ping", "nsqd_http": "/ping", "nsqlookupd_http": "/ping"}
ENCRYPTED = (*HTTP, "kafka.secure", "nsqd_tcp", "nsqlookupd_tcp")
IDENTIFY = b"IDENTIFY\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ca")


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[testing.BrokerProcess]:
    """Everything that can be encrypted is, with one certificate; Kafka on a listener beside the plain one."""
    certificate = authority.sign("server")
    settings: dict[str, Any] = {"connections.first_request_timeout_ms": 1_000}
    for name in ENCRYPTED:
        key = "endpoints." + name.replace(".", ".listeners.")
        settings |= {f"{key}.tls.enabled": True, f"{key}.tls.certificate": certificate}
        settings[f"{key}.address"] = testing.FREE_PORT
    settings["endpoints.nsqlookupd_tcp.tls.client_ca"] = authority.file
    settings["endpoints.nsqlookupd_http.tls.client_ca"] = authority.file
    settings["endpoints.nsqlookupd_http.tls.client_certificates"] = "optional"
    with testing.broker(settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.file)


def place(broker: testing.BrokerProcess, name: str) -> tuple[str, int]:
    host, _, port = broker.endpoints[name].rpartition(":")
    return host, int(port)


def open_tls(broker: testing.BrokerProcess, name: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(socket.create_connection(place(broker, name), 10), server_hostname="localhost")


def wait_for_line(broker: testing.BrokerProcess, pattern: str) -> str:
    """A thread of its own writes the log."""
    until_s = time.monotonic() + 10
    while not (found := re.search(pattern, log := broker.log_file.read_text())):
        assert time.monotonic() < until_s, log
        time.sleep(0.02)
    return found[0]


def read_all(opened: socket.socket) -> bytes:
    """What comes until the other side closes."""
    found = b""
    try:
        while part := opened.recv(1 << 16):
            found += part
    except ConnectionError:
        pass
    return found


@pytest.mark.parametrize("name", HTTP)
def test_https_answers_many_requests_on_a_connection(
    broker: testing.BrokerProcess, trusting: ssl.SSLContext, name: str
) -> None:
    with httpx.Client(verify=trusting, base_url=f"https://{broker.endpoints[name]}") as client:
        assert [client.get(PATHS[name]).status_code for _ in range(3)] == [200] * 3
        assert client.get("/no-such-path").status_code == 404
        # a page of this listener names it with its scheme
        origin = f"https://{broker.endpoints[name]}"
        assert client.get(PATHS[name], headers={"origin": origin}).status_code == 200
        assert client.get(PATHS[name], headers={"origin": origin.replace("https", "http")}).status_code == 403


def test_long_bodies_over_https(broker: testing.BrokerProcess, trusting: ssl.SSLContext) -> None:
    body = bytes(range(256)) * (1 << 11)
    with httpx.Client(verify=trusting, base_url=f"https://{broker.endpoints['nsqd_http']}") as client:
        assert client.post("/mpub?topic=long&binary=true", content=_multi([body] * 8)).status_code == 200
    with httpx.Client(verify=trusting, base_url=f"https://{broker.endpoints['admin']}", timeout=30) as client:
        assert len(client.get("/metrics").content) > 1 << 12


def _multi(bodies: list[bytes]) -> bytes:
    return struct.pack(">I", len(bodies)) + b"".join(struct.pack(">I", len(body)) + body for body in bodies)


@pytest.mark.parametrize("name", HTTP)
def test_plain_http_on_a_port_of_https_is_told_so(broker: testing.BrokerProcess, name: str) -> None:
    with socket.create_connection(place(broker, name), 10) as plain:
        plain.sendall(f"GET {PATHS[name]} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        answer = read_all(plain)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"https://" in answer
    wait_for_line(broker, rf"{name} 127\.0\.0\.1:\d+ closing the connection: TLS failed: http request; a plain client")


def test_confluent_kafka_over_ssl_beside_plain(broker: testing.BrokerProcess, authority: Authority) -> None:
    secure = {"bootstrap.servers": broker.endpoints["kafka.secure"], "security.protocol": "SSL"}
    secure |= {"ssl.ca.location": str(authority.file)}
    producer = confluent_kafka.Producer(secure)
    bodies = [bytes([number]) * 1000 for number in range(100)]
    for body in bodies:
        producer.produce("encrypted", body, headers=[("a", b"1"), ("a", None)])
    assert producer.flush(20) == 0
    for options in (secure, {"bootstrap.servers": broker.endpoints["kafka"]}):
        consumer = confluent_kafka.Consumer(options | {"group.id": "g" + str(len(options))})
        consumer.assign([confluent_kafka.TopicPartition("encrypted", 0, 0)])
        found = consumer.consume(100, 20)
        consumer.close()
        assert [one.value() for one in found] == bodies
        assert found[0].headers() == [("a", b"1"), ("a", None)]


def test_aiokafka_over_ssl(broker: testing.BrokerProcess, trusting: ssl.SSLContext) -> None:
    async def send_and_read() -> bytes:
        options: dict[str, Any] = {"security_protocol": "SSL", "ssl_context": trusting}
        options["bootstrap_servers"] = broker.endpoints["kafka.secure"]
        async with aiokafka.AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait("aio", b"hidden")
        async with aiokafka.AIOKafkaConsumer("aio", auto_offset_reset="earliest", **options) as consumer:
            return bytes((await asyncio.wait_for(consumer.getone(), 20)).value)

    assert asyncio.run(send_and_read()) == b"hidden"


def test_nsq_changes_to_tls_by_identify(broker: testing.BrokerProcess, trusting: ssl.SSLContext) -> None:
    client = NsqClient(broker.endpoints["nsqd_tcp"], tls_v1=True)
    assert client.identity["tls_v1"] is True
    client.start_tls(trusting)
    assert client.frame() == (0, b"OK")
    assert client.ask(pub("upgraded", b"hidden")) == b"OK"
    client.send(b"SUB upgraded c\nRDY 1\n")
    assert client.frame() == (0, b"OK")
    kind, data = client.frame()
    assert (kind, data[26:]) == (2, b"hidden")
    # once is enough
    client.send(b"FIN " + data[10:26] + b"\n" + sized(IDENTIFY, b"{}"))
    assert client.frame() == (1, b"E_INVALID cannot IDENTIFY in current state")
    client.close()


def test_nsq_takes_tls_from_the_first_byte(broker: testing.BrokerProcess, trusting: ssl.SSLContext) -> None:
    client = NsqClient(broker.endpoints["nsqd_tcp"], context=trusting, tls_v1=True)
    assert client.identity["tls_v1"] is False, "it is encrypted already"
    assert client.ask(pub("first", b"x")) == b"OK"
    client.close()


@pytest.mark.parametrize(
    "command", [pub("upgraded", b"x"), b"SUB upgraded c\n", b"NOP\n", b"MPUB upgraded\n\x00\x00\x00\x00"]
)
@pytest.mark.parametrize("told", [{}, {"client_id": "plain"}])
def test_nsq_clients_that_stay_plain_are_refused(
    broker: testing.BrokerProcess, trusting: ssl.SSLContext, command: bytes, told: dict[str, Any]
) -> None:
    # a line that somebody else has sent, whose meaning is known
    other = NsqClient(broker.endpoints["nsqd_tcp"], context=trusting)
    assert other.ask(pub("upgraded", b"x")) == b"OK"
    other.close()
    client = NsqClient(broker.endpoints["nsqd_tcp"], **told)
    name = command.split()[0].decode()
    assert client.ask(command) == f"E_INVALID cannot {name} in current state (TLS required)".encode()
    assert client.closed()
    client.close()


def test_a_hello_right_behind_identify_is_taken(broker: testing.BrokerProcess, trusting: ssl.SSLContext) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    body = b'{"feature_negotiation":true,"tls_v1":true}'
    with socket.create_connection(place(broker, "nsqd_tcp"), 10) as client:
        client.sendall(b"  V2" + sized(IDENTIFY, body) + outgoing.read())
        (size,) = struct.unpack(">I", client.recv(4, socket.MSG_WAITALL))
        assert b'"tls_v1":true' in client.recv(size, socket.MSG_WAITALL)
        while True:
            incoming.write(client.recv(1 << 16))
            try:
                tls.do_handshake()
                client.sendall(outgoing.read())
                ok = tls.read(100)
                break
            except ssl.SSLWantReadError:
                client.sendall(outgoing.read())
        assert ok == struct.pack(">II", 6, 0) + b"OK"


def test_nsqlookupd_wants_a_certificate_of_nodes(
    broker: testing.BrokerProcess, trusting: ssl.SSLContext, authority: Authority
) -> None:
    shown = ssl.create_default_context(cafile=authority.file)
    shown.load_cert_chain(authority.sign("node"))
    with open_tls(broker, "nsqlookupd_tcp", shown) as node:
        node.sendall(b"  V1PING\n")
        assert node.recv(6) == struct.pack(">I", 2) + b"OK"
    with open_tls(broker, "nsqlookupd_tcp", trusting) as stranger, pytest.raises((ssl.SSLError, ConnectionError)):
        stranger.sendall(b"  V1PING\n")
        assert not stranger.recv(6)
        raise ConnectionError
    wait_for_line(broker, r"nsqlookupd_tcp .*TLS failed: peer did not return a certificate; this listener requires")


def test_optional_certificates_may_be_missing_but_not_wrong(
    broker: testing.BrokerProcess, trusting: ssl.SSLContext, authority: Authority, tmp_path: Path
) -> None:
    url = f"https://{broker.endpoints['nsqlookupd_http']}/ping"
    shown, wrong = ssl.create_default_context(cafile=authority.file), ssl.create_default_context(cafile=authority.file)
    shown.load_cert_chain(authority.sign("reader"))
    wrong.load_cert_chain(Authority(tmp_path, "other").sign("stranger"))
    for context in (trusting, shown):
        assert httpx.get(url, verify=context).text == "OK"
    with pytest.raises(httpx.TransportError):
        httpx.get(url, verify=wrong)
    wait_for_line(broker, r"nsqlookupd_http .*certificate verify failed: .*; the client's certificate is not one")


def test_clients_that_do_not_trust_the_certificate_are_told_of(broker: testing.BrokerProcess) -> None:
    for name in ("admin", "kafka.secure", "nsqd_tcp"):
        with pytest.raises(ssl.SSLCertVerificationError):
            open_tls(broker, name, ssl.create_default_context())
        wait_for_line(
            broker, rf"{name} .*TLS failed: tlsv1 alert unknown ca; the client does not trust the certificate"
        )


def test_old_versions_of_tls_are_refused(broker: testing.BrokerProcess) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        open_tls(broker, "admin", old)
    wait_for_line(broker, r"admin .*TLS failed: .*; the client speaks no TLS of version 1\.2 or later")


def test_half_handshakes_are_closed_in_time_and_keep_nobody_out(
    broker: testing.BrokerProcess, trusting: ssl.SSLContext
) -> None:
    hello = b"\x16\x03\x01\x02\x00\x01"
    silent = [socket.create_connection(place(broker, name), 10) for name in ENCRYPTED for _ in range(150)]
    for each in silent:
        each.sendall(hello)
    assert httpx.get(f"https://{broker.endpoints['admin']}/health", verify=trusting).status_code == 200
    until_s = time.monotonic() + 10
    for each in silent:
        each.settimeout(max(until_s - time.monotonic(), 0.1))
        assert read_all(each) == b""
        each.close()
    assert httpx.get(f"https://{broker.endpoints['admin']}/health", verify=trusting).status_code == 200


def test_what_is_no_record_ends_an_open_https_connection(
    broker: testing.BrokerProcess, trusting: ssl.SSLContext
) -> None:
    opened = open_tls(broker, "admin", trusting)
    opened.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert opened.recv(12) == b"HTTP/1.1 200"
    with socket.socket(fileno=opened.detach()) as plain:
        plain.settimeout(10)
        plain.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        assert read_all(plain)


def test_no_failure_leaves_a_stack_in_the_log(broker: testing.BrokerProcess) -> None:
    assert "Traceback" not in broker.log_file.read_text()

"""Requests that a web page of elsewhere makes a browser send are refused; command lines and SDKs are not disturbed."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest

from lading import testing
from lading.endpoints.http_shared.cross_site import HostNames
from lading.settings.settings import HttpSettings
from lading.testing import BrokerProcess

HTTP = ("admin", "iggy_http", "nsqd_http", "nsqlookupd_http")
PATHS = {"admin": "/health", "iggy_http": "/ping", "nsqd_http": "/ping", "nsqlookupd_http": "/ping"}
MAKING = {
    "admin": ("POST", "/topics/default/crossed"),
    "iggy_http": ("POST", "/streams"),
    "nsqd_http": ("POST", "/pub?topic=crossed"),
    "nsqlookupd_http": ("POST", "/topic/create?topic=crossed"),
}
FOREIGN = (
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://localhost:8888"},
    {"host": "evil.example"},
    {"host": "evil.example:{port}"},
    {"host": "localhost.evil.example"},
    {"host": "192.168.1.5:{port}"},
    {"host": "[::1]evil"},
    {"host": "[::1].evil.example:{port}"},
    {"host": "evil.example", "origin": "http://evil.example"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
)
OWN: tuple[dict[str, str], ...] = (
    {},
    {"host": "localhost:{port}"},
    {"host": "LOCALHOST"},
    {"host": "127.0.0.1:{port}"},
    {"host": "127.0.0.1:9999"},
    {"host": "[::1]:{port}"},
    {"origin": "http://{address}", "sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "none"},
)


def fill(headers: dict[str, str], address: str) -> dict[str, str]:
    port = address.rpartition(":")[2]
    return {name: value.format(port=port, address=address) for name, value in headers.items()}


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", HTTP)
def test_a_page_of_elsewhere_is_refused_and_changes_nothing(broker: BrokerProcess, name: str) -> None:
    address = broker.endpoints[name]
    method, path = MAKING[name]
    for headers in FOREIGN:
        sent = fill(headers, address) | {"content-type": "text/plain"}
        answer = httpx.request(
            method, f"http://{address}{path}", headers=sent, content=b'{"stream_id": 9, "name": "x"}'
        )
        assert answer.status_code == 403, (headers, answer.text)
        assert "http." in answer.text, answer.text
        assert httpx.get(f"http://{address}{PATHS[name]}", headers=fill(headers, address)).status_code == 403
    names = [topic["name"] for topic in httpx.get(f"http://{broker.endpoints['admin']}/topics").json()]
    assert "crossed" not in names


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", HTTP)
def test_command_lines_and_own_pages_pass(broker: BrokerProcess, name: str) -> None:
    address = broker.endpoints[name]
    for headers in OWN:
        answer = httpx.get(f"http://{address}{PATHS[name]}", headers=fill(headers, address))
        assert answer.status_code == 200, (headers, answer.text)


@pytest.mark.parametrize("name", HTTP)
def test_a_request_of_http_1_1_has_one_host(broker: BrokerProcess, name: str) -> None:
    """RFC 9112 3.2: 400 without a host and with two, in the words of Go's net/http, which nsqd is made with."""

    def ask(*lines: bytes) -> bytes:
        host, port = broker.endpoints[name].split(":")
        with socket.create_connection((host, int(port)), timeout=10) as peer:
            peer.sendall(b"\r\n".join([*lines, b"", b""]))
            # the server closes after each of these
            return b"".join(iter(lambda: peer.recv(1000), b""))

    path = PATHS[name].encode()
    absolute = b"http://localhost" + path
    assert b" 200 " in ask(b"GET %s HTTP/1.0" % path)
    assert b" 200 " in ask(b"GET %s HTTP/1.0" % path, b"host: localhost")
    for version, target in ((b"1.1", path), (b"1.1", absolute)):
        refused = ask(b"GET %s HTTP/%s" % (target, version), b"accept: */*")
        assert refused.startswith(b"HTTP/1.1 400 ") and b"missing required Host header" in refused
        assert b"connection: close" in refused
    for version in (b"1.0", b"1.1"):
        refused = ask(b"GET %s HTTP/%s" % (path, version), b"host: localhost", b"host: localhost")
        assert refused.startswith(b"HTTP/1.1 400 ") and b"Host" in refused
    # a host after the head is a trailer, and names nothing
    chunks = (b"transfer-encoding: chunked", b"", b"0", b"host: localhost")
    assert ask(b"GET %s HTTP/1.1" % path, *chunks).startswith(b"HTTP/1.1 400 ")


def test_http_1_0_without_a_host_passes_and_two_hosts_do_not(broker: BrokerProcess) -> None:
    def ask(head: bytes) -> bytes:
        host, port = broker.endpoints["nsqd_http"].split(":")
        with socket.create_connection((host, int(port)), timeout=10) as peer:
            peer.sendall(head)
            return peer.recv(1000)

    assert b" 200 " in ask(b"GET /ping HTTP/1.0\r\n\r\n")
    assert b" 400 " in ask(b"GET /ping HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\nconnection: close\r\n\r\n")
    # of a target in absolute form, its own host counts (RFC 9112 3.2.2), as a proxy sends it
    end = b"\r\nconnection: close\r\n\r\n"
    for target in (b"http://evil.example", b"http://evil.example:80", b"http://localhost@evil.example", b"http://"):
        assert b" 200 " not in ask(b"GET %s/ping HTTP/1.1\r\nhost: localhost%s" % (target, end)), target
        assert b" 200 " not in ask(b"GET %s/ping HTTP/1.0%s" % (target, end)), target
    assert b" 200 " in ask(b"GET http://localhost/ping HTTP/1.1\r\nhost: localhost" + end)
    assert b" 200 " in ask(b"GET http://localhost:1/ping HTTP/1.1\r\nhost: evil.example" + end)
    assert b" 400 " in ask(b"GET http://localhost/ping HTTP/1.1\r\nhost: localhost\r\nhost: evil.example" + end)


@pytest.fixture(scope="module")
def named() -> Iterator[BrokerProcess]:
    with testing.broker(http__hosts="queue.example, other", http__origins="https://console.example") as running:
        yield running


def test_hosts_and_origins_of_the_settings_pass(named: BrokerProcess) -> None:
    url = f"http://{named.endpoints['nsqd_http']}/ping"
    for headers in (
        {"host": "queue.example:4151"},
        {"host": "Other"},
        {"origin": "https://console.example", "sec-fetch-site": "cross-site"},
    ):
        assert httpx.get(url, headers=headers).status_code == 200, headers
    assert httpx.get(url, headers={"host": "third.example"}).status_code == 403
    assert httpx.get(url, headers={"origin": "http://console.example"}).status_code == 403


NO_HOSTS = [
    "[::1]evil", "[::1]:1evil", "[::1].evil", "[::1]:1:2", "[::1", "::1]", "::1", "[127.0.0.1]", "[localhost]", "[]",
    "[::1%lo]", "[::1%25lo]", "evil@localhost", "localhost@evil", "localhost/evil", "localhost evil", "localhost,evil",
    "localhost:", "localhost:x", "localhost:-1", "localhost:65536", "localhost:0x1", "localhost..", "127.1",
    "0177.0.0.1", "2130706433", "127.0.0.1.evil", "127.0.0.1%00", "\xb9localhost", "localhost\xa0", "localhost\t",
    " localhost", "", ":1", ".",
]  # fmt: skip


def test_a_host_that_is_none_is_not_read_in_part() -> None:
    """RFC 3986 3.2.2 and 3.2.3: a name, an address, or one in brackets, and digits after a colon, or none."""
    hosts = HostNames(HttpSettings())
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        hosts.bind(listener)
    assert [host for host in NO_HOSTS if hosts.has_host(host)] == ["localhost:"]
    taken = ["localhost", "LOCALHOST.:80", "127.0.0.1:65535", "127.255.0.9", "[::1]:80", "[0:0:0:0:0:0:0:1]"]
    assert [host for host in taken if not hosts.has_host(host)] == []


@pytest.mark.parametrize(
    ("bound", "taken", "refused"),
    [
        ("0.0.0.0", ["10.1.2.3:1", "localhost", "127.0.0.1", socket.gethostname()], ["evil.example", ""]),
        ("127.0.0.1", ["localhost.", "127.0.0.2:5", "[::1]"], ["10.1.2.3", "localhost.evil.example", "localhost:x:y"]),
    ],
)
def test_names_of_a_bound_address(bound: str, taken: list[str], refused: list[str]) -> None:
    hosts = HostNames(HttpSettings())
    with socket.socket() as listener:
        listener.bind((bound, 0))
        hosts.bind(listener)
    assert [host for host in taken if not hosts.has_host(host)] == []
    assert [host for host in refused if hosts.has_host(host)] == []

"""Bytes that are nearly TLS, on every listener: each connection ends, nothing is kept, and others are served."""

from __future__ import annotations

import random
import re
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from lading import testing
from tests.endpoints.authority import Authority
from tests.endpoints.nsq_client import sized

NAMES = (
    "iggy_tcp", "iggy_websocket", "iggy_http", "kafka", "nsqd_tcp", "nsqd_http", "nsqlookupd_tcp", "nsqlookupd_http",
    "admin",
)  # fmt: skip
SEED = 20_261_122
ROUNDS = 150
ROUNDS_FULL = 20_000
UPGRADE = sized(b"  V2IDENTIFY\n", b'{"feature_negotiation":true,"tls_v1":true}')


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ca")


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[testing.BrokerProcess]:
    certificate = authority.sign("server")
    settings: dict[str, Any] = {"connections.first_request_timeout_ms": 1_000}
    for name in NAMES:
        settings |= {f"endpoints.{name}.tls.enabled": True, f"endpoints.{name}.tls.certificate": certificate}
    with testing.broker(settings=settings) as running:
        yield running


class Fuzzer:
    """Connections that begin well, or not even that."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.dice = random.Random(SEED)
        self.kinds: list[Callable[[socket.socket], socket.socket]] = [
            self.send_changed_hello,
            self.send_half_hello,
            self.send_noise,
            self.send_noise_encrypted,
            self.send_record_that_is_none,
            self.send_upgrade,
        ]

    def noise(self, size_max: int) -> bytes:
        return self.dice.randbytes(self.dice.randint(0, size_max))

    def hello(self) -> bytes:
        outgoing = ssl.MemoryBIO()
        with suppress(ssl.SSLWantReadError):
            self._context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
        return outgoing.read()

    def send_changed_hello(self, opened: socket.socket) -> socket.socket:
        hello = bytearray(self.hello())
        for _ in range(self.dice.randint(1, 6)):
            hello[self.dice.randrange(len(hello))] = self.dice.randrange(256)
        opened.sendall(hello)
        return opened

    def send_half_hello(self, opened: socket.socket) -> socket.socket:
        opened.sendall(self.hello()[: self.dice.randint(1, 200)])
        return opened

    def send_noise(self, opened: socket.socket) -> socket.socket:
        opened.sendall(self.noise(600))
        return opened

    def send_noise_encrypted(self, opened: socket.socket) -> socket.socket:
        encrypted = self._context.wrap_socket(opened, server_hostname="localhost")
        encrypted.sendall(self.noise(3_000))
        return encrypted

    def send_record_that_is_none(self, opened: socket.socket) -> socket.socket:
        plain = socket.socket(fileno=self._context.wrap_socket(opened, server_hostname="localhost").detach())
        plain.sendall(b"\x17\x03\x03" + struct.pack(">H", self.dice.randint(0, 400)) + self.noise(400))
        return plain

    def send_upgrade(self, opened: socket.socket) -> socket.socket:
        opened.sendall(UPGRADE + self.dice.choice((self.hello(), self.noise(50))))
        return opened


@pytest.mark.timeout(1_200)
def test_bytes_that_are_nearly_tls_leave_nothing_behind(
    broker: testing.BrokerProcess, authority: Authority, full: bool
) -> None:
    context = ssl.create_default_context(cafile=authority.file)
    fuzzer = Fuzzer(context)
    client = httpx.Client(verify=context, base_url=f"https://{broker.endpoints['admin']}", timeout=10)

    def count_connections() -> int:
        rows = re.findall(r"^lading_connections\{.*\} (\S+)$", client.get("/metrics").text, re.MULTILINE)
        assert rows
        return int(sum(map(float, rows)))

    for number in range(ROUNDS_FULL if full else ROUNDS):
        host, _, port = broker.endpoints[fuzzer.dice.choice(NAMES)].rpartition(":")
        opened = socket.create_connection((host, int(port)), 10)
        with suppress(OSError):
            opened = fuzzer.kinds[number % len(fuzzer.kinds)](opened)
            if fuzzer.dice.random() < 0.3:
                opened.shutdown(socket.SHUT_WR)
            opened.settimeout(0.01)
            opened.recv(1_000)
        opened.close()
        if not number % 50:
            assert client.get("/live").status_code == 200
    until_s = time.monotonic() + 10
    # that of the one who asks stays
    while count_connections() > 1:
        assert time.monotonic() < until_s, "connections are still open"
        time.sleep(0.05)
    assert client.get("/live").status_code == 200
    client.close()
    assert "Traceback" not in broker.log_file.read_text()

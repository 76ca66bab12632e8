"""A server that sends a byte now and then holds no client up beyond its time-out."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any, cast

import pytest

from lading.model.errors import CorruptError, LadingError
from lading.runtime.read_deadline import BYTES_PER_S_MIN, JOINED_BYTES, DeadlineSocket, ReadDeadline
from lading.transports.kafka.socket import KafkaSecurity, KafkaSocket
from lading.transports.lading import http
from lading.transports.lading.http import AdminHttp
from lading.transports.nsq import lookup
from lading.transports.nsq.lookup import Discovery

TIMEOUT_S = 0.3
DRIP_S = 0.03
DRIPS = 200
"""Until the server gives up: twenty times the time-out."""
HTTP_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"


@contextmanager
def dripping_server(whole: bytes) -> Iterator[tuple[int, list[int]]]:
    """A server that sends ``whole`` to its client, then a byte at a time; its port, and how many of those it sent."""
    sent = [0]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)

        def drip() -> None:
            with suppress(OSError), listener.accept()[0] as client:
                client.recv(65536)
                client.sendall(whole)
                while sent[0] < DRIPS:
                    client.sendall(b"{")
                    sent[0] += 1
                    time.sleep(DRIP_S)

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            yield listener.getsockname()[1], sent
        finally:
            thread.join(30)
            assert not thread.is_alive()


def ask_admin(port: int) -> None:
    client = AdminHttp("127.0.0.1", port, timeout_s=TIMEOUT_S, retries=0)
    try:
        client.get("streams")
    finally:
        client.close()


def ask_nsqlookupd(port: int) -> None:
    Discovery("127.0.0.1", port, timeout_s=TIMEOUT_S).lookup()


def ask_kafka(port: int) -> None:
    connection = KafkaSocket("127.0.0.1", port, KafkaSecurity(), TIMEOUT_S)
    try:
        connection.ask("Metadata", topics=[])
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("ask", "whole"),
    [
        (ask_admin, HTTP_HEAD), (ask_admin, b""), (ask_nsqlookupd, HTTP_HEAD), (ask_nsqlookupd, b"HTTP/1.1 200 "),
        (ask_kafka, b"\x00\x01\x00\x00\x00\x00\x00\x01"),
    ],
    ids=["admin body", "admin head", "nsqlookupd body", "nsqlookupd head", "kafka response"],
)  # fmt: skip
def test_a_dripping_server_is_given_up(ask: Callable[[int], None], whole: bytes) -> None:
    with dripping_server(whole) as (port, sent):
        with pytest.raises((LadingError, OSError)):
            ask(port)
        # by the server's count, not by the time that this took on a busy machine
        assert sent[0] < DRIPS


def test_every_byte_gives_a_little_more_time() -> None:
    now_s = [0.0]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        deadline = ReadDeadline(1.0, lambda: now_s[0])
        theirs.sendall(bytes(BYTES_PER_S_MIN // 2))
        view, received = memoryview(bytearray(1 << 20)), 0
        while received < BYTES_PER_S_MIN // 2:
            received += deadline.receive_into(ours, view)
        now_s[0] = 1.4
        theirs.sendall(b"x")
        assert deadline.receive_into(ours, view) == 1
        now_s[0] = 1.6
        theirs.sendall(b"x")
        with pytest.raises(TimeoutError):
            deadline.receive_into(ours, view)


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + bytes(0x1000) + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2147483647\r\n\r\n", bytes(0x1000)),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", bytes(0x1000)),
    ],
)
@pytest.mark.parametrize(("client", "ask"), [(http, ask_admin), (lookup, ask_nsqlookupd)])
def test_a_response_that_never_ends_is_cut(
    monkeypatch: pytest.MonkeyPatch, client: ModuleType, ask: Callable[[int], None], head: bytes, piece: bytes
) -> None:
    """Its bytes come fast enough for any time-out: a command held 676 MiB of them when its server stopped."""
    monkeypatch.setattr(client, "RESPONSE_BYTES_MAX", 1 << 20)
    with dripping_server(head + piece * 512) as (port, _), pytest.raises(CorruptError, match="more than 1048576 bytes"):
        ask(port)


@pytest.mark.parametrize(("size_bytes", "packets"), [(1, 1), (JOINED_BYTES, 1), (JOINED_BYTES + 1, 2), (0, 1)])
def test_a_short_content_is_sent_with_its_head(size_bytes: int, packets: int) -> None:
    """http.client sends them one after the other, and a server on a busy machine was woken twice for each message."""
    # such a socket keeps the borders of what is sent
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client = AdminHttp("127.0.0.1", 1, timeout_s=10, retries=0)
    cast("Any", client)._socket = cast("Any", client)._connection.sock = DeadlineSocket(ours, 10)
    received: list[bytes] = []

    def respond() -> None:
        with theirs:
            received.extend(theirs.recv(1 << 20) for _ in range(packets))
            theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    server = threading.Thread(target=respond)
    server.start()
    try:
        client.request("POST", "chunks", again=False, content=bytes(size_bytes))
    finally:
        client.close()
        server.join(10)
    head, content = b"".join(received).split(b"\r\n\r\n", 1)
    assert head.startswith(b"POST /chunks HTTP/1.1") and content == bytes(size_bytes)

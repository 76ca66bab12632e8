"""HTTP connections under an adversary: heads without end, pipelined requests, half requests; others are served."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from lading import testing
from lading.endpoints.http_shared import http
from lading.testing import BrokerProcess

HTTP = ("admin", "iggy_http", "nsqd_http", "nsqlookupd_http")
PING = {"admin": "/health", "iggy_http": "/ping", "nsqd_http": "/ping", "nsqlookupd_http": "/ping"}
WAIT_S = 20.0
HEAD = b"GET /ping HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = b"POST /pub?topic=http-chunked HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=WAIT_S)


def read_all(peer: socket.socket) -> bytes:
    """Everything until the server closes."""
    data = bytearray()
    with contextlib.suppress(ConnectionError):
        while part := peer.recv(1 << 16):
            data += part
    return bytes(data)


def send_in_pieces(peer: socket.socket, data: bytes, piece_bytes: int) -> None:
    for at in range(0, len(data), piece_bytes):
        peer.sendall(data[at : at + piece_bytes])


def rss_bytes(broker: BrokerProcess) -> int:
    lines = Path(f"/proc/{broker.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


def send_until_refused(address: str, first: bytes, more: bytes, bytes_max: int) -> tuple[bytes, int]:
    """What the server says, and how much it took before."""
    sent = 0
    with connect(address) as peer:
        try:
            peer.sendall(first)
            while sent < bytes_max:
                peer.sendall(more)
                sent += len(more)
                peer.settimeout(0)
                with contextlib.suppress(BlockingIOError):
                    if head := peer.recv(1 << 16):
                        return head, sent
                peer.settimeout(WAIT_S)
        except ConnectionError:
            pass
        with contextlib.suppress(OSError):
            peer.settimeout(WAIT_S)
            return peer.recv(1 << 16), sent
    return b"", sent


@pytest.mark.turns(4)
@pytest.mark.parametrize("name", HTTP)
@pytest.mark.parametrize(
    ("first", "more"),
    [
        (HEAD, b"a: b\r\n" * 1000),
        (HEAD, b"abcdefghijkl: mnopqrstuvwxyz\r\n" * 10),
        (HEAD + b"a: ", b"b" * 10_000),
        (HEAD, b"a" * 10_000),
        (b"GET /", b"b" * 10_000),
        (b"GET /?a=", b"b" * 10_000),
        (CHUNKED + b"1\r\nx\r\n0\r\n", b"a: b\r\n" * 1000),
        (CHUNKED + b"1\r\nx\r\n0\r\na: ", b"b" * 10_000),
        (CHUNKED + b"1;", b"b" * 10_000),
    ],
    ids=["lines", "few-lines", "value", "name", "path", "query", "trailers", "trailer-value", "chunk-extension"],
)
def test_a_head_without_an_end_is_refused(broker: BrokerProcess, name: str, first: bytes, more: bytes) -> None:
    answer, sent = send_until_refused(broker.endpoints[name], first, more, 64 << 20)
    assert sent < 16 << 20
    # what was sent behind the refusal may take it back
    assert not answer or answer.split()[1] in (b"431", b"400", b"404", b"405", b"414"), answer
    assert httpx.get(f"http://{broker.endpoints[name]}{PING[name]}").status_code == 200


def test_limits_are_told(broker: BrokerProcess) -> None:
    def ask(head: bytes) -> bytes:
        with connect(broker.endpoints["nsqd_http"]) as peer:
            peer.sendall(head)
            return read_all(peer)

    close = b"connection: close\r\n\r\n"
    assert b" 200 OK" in ask(HEAD + b"a: b\r\n" * 200 + close)
    answer = ask(HEAD + b"a: b\r\n" * 300 + close)
    assert b" 431 " in answer and b"at most 256 lines" in answer
    assert b" 200 OK" in ask(HEAD + b"a: " + b"b" * 200_000 + b"\r\n" + close)
    answer = ask(HEAD + b"a: " + b"b" * 300_000 + b"\r\n" + close)
    assert b" 431 " in answer and b"at most 262144 bytes" in answer
    assert b" 414 " in ask(b"GET /" + b"p" * 9_000 + b" HTTP/1.1\r\nhost: localhost\r\n" + close)
    assert b" 414 " in ask(b"GET /ping?" + b"a=&" * 300 + b" HTTP/1.1\r\nhost: localhost\r\n" + close)
    assert b" 400 " in ask(b"nonsense\r\n\r\n")


def test_trailers_do_not_become_headers_of_a_request(broker: BrokerProcess) -> None:
    with connect(broker.endpoints["nsqd_http"]) as peer:
        body = b"2\r\nhi\r\n0\r\nx-trailer: v\r\n\r\n"
        peer.sendall(CHUNKED + body + HEAD + b"connection: close\r\n\r\n")
        answers = read_all(peer)
    assert answers.count(b"HTTP/1.1 200 OK") == 2


def test_pipelined_requests_are_answered_in_order(broker: BrokerProcess) -> None:
    pings = b"GET /ping HTTP/1.1\r\nhost: localhost\r\n\r\n"
    posts = b"POST /pub?topic=http-many HTTP/1.1\r\nhost: localhost\r\ncontent-length: 7\r\n\r\n\r\n\r\nabc"
    none = b"GET /none HTTP/1.1\r\nhost: localhost\r\n\r\n"
    data = (pings + posts + none) * 200
    with connect(broker.endpoints["nsqd_http"]) as peer:
        # in pieces of a prime length, so that they end everywhere
        sender = threading.Thread(target=send_in_pieces, args=(peer, data, 997))
        sender.start()
        received = bytearray()
        while received.count(b"HTTP/1.1 ") < 600 or not received.endswith(b"}"):
            part = peer.recv(1 << 16)
            assert part
            received += part
        sender.join()
    statuses = [line[:3] for line in bytes(received).split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"200", b"404"] * 200


def test_nothing_is_read_behind_answers_that_nobody_reads(broker: BrokerProcess) -> None:
    before = rss_bytes(broker)
    peers = [connect(broker.endpoints["admin"]) for _ in range(4)]
    burst = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2_000
    taken = 0
    for peer in peers:
        peer.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            for _ in range(200):
                taken += peer.send(burst)
    assert taken < 60 << 20
    assert rss_bytes(broker) - before < 200 << 20
    assert httpx.get(f"http://{broker.endpoints['admin']}/health", timeout=WAIT_S).status_code == 200
    for peer in peers:
        peer.close()


@pytest.fixture(scope="module")
def hasty() -> Iterator[BrokerProcess]:
    """A broker with short deadlines and few places."""
    settings = {
        "connections.first_request_timeout_ms": 600,
        "connections.head_timeout_ms": 500,
        "connections.request_timeout_ms": 700,
        "connections.http_idle_timeout_ms": 800,
        "connections.unread_timeout_ms": 900,
    } | {f"endpoints.{name}.connections_max": 40 for name in HTTP}
    with testing.broker(settings=settings) as running:
        yield running


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", HTTP)
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b""),
        (b"GET ", b"408"),
        (HEAD, b"408"),
        (b"POST /pub?topic=slow HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nab", b"408"),
        (b"GET /ping HTTP/1.1\r\nhost: localhost\r\n\r\n", b"200"),
    ],
    ids=["nothing", "method", "head", "body", "idle"],
)
def test_each_deadline_closes(hasty: BrokerProcess, name: str, sent: bytes, status: bytes) -> None:
    if sent.startswith(b"GET /ping "):
        sent = sent.replace(b"/ping", PING[name].encode())
    with connect(hasty.endpoints[name]) as peer:
        peer.sendall(sent)
        answer = read_all(peer)
    if b"POST" in sent and name != "nsqd_http":
        assert answer.split()[1] in (b"404", b"405")
    else:
        assert (answer.split() or [b"", b""])[1] == status


def test_a_request_that_comes_byte_by_byte_has_one_deadline(hasty: BrokerProcess) -> None:
    with connect(hasty.endpoints["nsqd_http"]) as peer:
        peer.sendall(HEAD)
        began_s = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - began_s < WAIT_S:
                peer.sendall(b"a: b\r\n")
                peer.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    assert b"408" in peer.recv(1000)
                    break
        assert time.monotonic() - began_s < WAIT_S


@pytest.mark.parametrize("name", HTTP)
def test_half_requests_lock_nobody_out(hasty: BrokerProcess, name: str) -> None:
    half = []
    for _ in range(100):
        half.append(connect(hasty.endpoints[name]))
        half[-1].sendall(HEAD)
    for _ in range(5):
        assert httpx.get(f"http://{hasty.endpoints[name]}{PING[name]}", timeout=WAIT_S).status_code == 200
    for peer in half:
        peer.close()


def test_health_answers_when_every_place_is_busy(broker: BrokerProcess) -> None:
    with testing.broker(endpoints__admin__connections_max=4, connections__peer_share=1.0) as running:
        admin = running.endpoints["admin"]
        assert httpx.post(f"http://{admin}/topics/default/waited").status_code == 201
        wait = b"GET /topics/default/waited/0/chunks?wait_ms=20000 HTTP/1.1\r\nhost: localhost\r\n\r\n"
        waiting = [connect(admin) for _ in range(4)]
        for peer in waiting:
            peer.sendall(wait)
        ask_until(lambda: httpx.get(f"http://{admin}/topics", timeout=WAIT_S).status_code == 503)
        assert httpx.get(f"http://{admin}/health", timeout=WAIT_S).status_code == 200
        for peer in waiting:
            peer.close()
        ask_until(lambda: httpx.get(f"http://{admin}/topics", timeout=WAIT_S).status_code == 200)


def ask_until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.02)


def test_accepted_connections_have_keepalive(broker: BrokerProcess) -> None:
    with connect(broker.endpoints["admin"]) as peer:
        # of the whole machine: another process may have a connection from the same port
        ends = [f":{each[1]:04X}" for each in (peer.getpeername(), peer.getsockname())]
        table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        mine = [line for line in table if [line[1][-5:], line[2][-5:]] == ends]
        # timer 02 of the server's side: keepalive
        assert [line[5][:2] for line in mine] == ["02"]


def test_a_server_whose_connections_rest_stops_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stop of a broker took a tenth of a second longer, for requests that it did not have."""

    async def stop() -> tuple[set[float], bytes]:
        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
            await send({"type": "http.response.body", "body": b"pong"})

        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = http._Server(uvicorn.Config(app, lifespan="off", log_config=None))
            task = asyncio.create_task(server.serve([listener]))
            while not server.started:
                await asyncio.sleep(0)
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(HEAD + b"\r\n")
            await reader.readuntil(b"pong")
            pauses, sleep = set(), asyncio.sleep

            def record(delay_s: float) -> Awaitable[None]:
                pauses.add(delay_s)
                return sleep(delay_s)

            monkeypatch.setattr(asyncio, "sleep", record)
            server.end()
            await task
            monkeypatch.undo()
            rest = await reader.read()
            writer.close()
            return pauses, rest

    assert asyncio.run(stop()) == ({0}, b"")

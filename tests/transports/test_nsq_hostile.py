"""A server sends an NSQ client what no nsqd sends: memory stays bounded, and each attack ends with one sentence."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lading.dialects.nsq.commands import ERROR, HEARTBEAT, MESSAGE, OK, RESPONSE, frame
from lading.model.errors import LadingError
from lading.transports.nsq import connection as nsq_connection
from lading.transports.nsq import queue as nsq_queue
from lading.transports.nsq.queue import NsqQueue
from lading.transports.nsq.transport import NsqTransport

IN_FLIGHT = 10
MESSAGE_BYTES = 1000
FACTS = {"max_rdy_count": 2500, "version": "1.3.0"}
Attack = Callable[[socket.socket], None]


def message(number: int, body: bytes = b"x" * MESSAGE_BYTES) -> bytes:
    return frame(MESSAGE, struct.pack(">qH16s", 1, 1, b"%016d" % number) + body)


@contextmanager
def nsqd(after_sub: Attack, *, on_identify: bytes | None = None, **facts: object) -> Iterator[str]:
    """A server that answers IDENTIFY and SUB, and then attacks; its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            heard = connection.recv(4096)
            if not heard.startswith(b"  V2"):
                return
            connection.sendall(on_identify or frame(RESPONSE, json.dumps(FACTS | facts).encode()))
            if facts.get("deflate"):
                connection.sendall(compress(frame(RESPONSE, OK)))
            while b"SUB" not in heard and not facts.get("deflate"):
                heard = connection.recv(4096)
                if not heard:
                    return
            after_sub(connection)
            connection.settimeout(20)
            while connection.recv(4096):
                pass

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"nsq://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def compress(data: bytes) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)


def send_for_ever(*frames: bytes) -> Attack:
    data = b"".join(frames) * max((1 << 20) // len(b"".join(frames)), 1)

    def attack(connection: socket.socket) -> None:
        connection.sendall(frame(RESPONSE, OK))
        while True:
            connection.sendall(data)

    return attack


@contextmanager
def joined(url: str, **options: object) -> Iterator[NsqQueue]:
    transport = NsqTransport(url, in_flight=IN_FLIGHT, timeout_s=5.0, retries=0, **options)  # type: ignore[arg-type]
    try:
        queue = transport.join("c", ["t"])
        assert isinstance(queue, NsqQueue)
        yield queue
    finally:
        for queue in transport._queues.values():
            for connection in queue._list_connections():
                connection.close()
            queue._closed = True


def test_a_server_that_sends_more_than_it_was_asked_for_is_read_no_further() -> None:
    with nsqd(send_for_ever(message(1))) as url, joined(url) as queue:
        for _ in range(100):
            queue.fetch(0, max_messages=1, wait_ms=1)
            queue.heartbeat()
        # what a read brings, and the bound
        assert queue.end <= 4 * IN_FLIGHT + 1 + nsq_connection.RECEIVE_BYTES // MESSAGE_BYTES
        # those that are finished make room again
        end = queue.end
        queue.finish(end)
        assert queue.fetch(end, max_messages=1, wait_ms=5_000).runs


def test_large_messages_are_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsq_queue, "UNFINISHED_BYTES_MAX", 4 << 20)
    with nsqd(send_for_ever(message(1, bytes(1 << 20)))) as url, joined(url) as queue:
        for _ in range(200):
            queue.fetch(0, max_messages=1, wait_ms=1)
            queue.heartbeat()
        assert 4 <= queue.end <= 6
        assert queue.is_rebalancing


def test_responses_to_nothing_take_no_memory() -> None:
    with nsqd(send_for_ever(frame(RESPONSE, b"x" * 1000), frame(ERROR, b"E_FIN_FAILED"))) as url, joined(url) as queue:
        for _ in range(50):
            queue.heartbeat()
        (connection,) = queue._list_connections()
        assert not connection._answers and not connection.errors and queue.end == 0


def test_heartbeats_alone_are_an_idle_queue() -> None:
    with nsqd(send_for_ever(frame(RESPONSE, HEARTBEAT))) as url, joined(url) as queue:
        began = time.monotonic()
        assert not queue.fetch(0, max_messages=1, wait_ms=300).runs
        assert time.monotonic() - began < 5


def test_messages_instead_of_a_response_end_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsq_connection, "MESSAGES_BYTES_MAX", 4 << 20)

    def flood(connection: socket.socket) -> None:
        while True:
            connection.sendall(message(1) * 1000)

    with nsqd(flood) as url, pytest.raises(LadingError, match="messages that it was not asked for"), joined(url):
        pass


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff\0\0\0\2" + bytes(64),
        b"\0\0\0\3\0\0\0\2" + bytes(64),
        b"\0\0\0\10\0\0\0\7" + bytes(64),
        frame(MESSAGE, bytes(10)),
    ],
    ids=["4 GiB", "shorter than its type", "unknown type", "message without id"],
)
def test_frames_that_are_none_end_with_a_sentence(data: bytes) -> None:
    def attack(connection: socket.socket) -> None:
        connection.sendall(frame(RESPONSE, OK) + data)

    with nsqd(attack) as url:
        try:
            with joined(url) as queue:
                assert not queue.fetch(0, max_messages=1, wait_ms=300).runs
                # the node counts as away, with the reason
                (node,) = queue._nodes.values()
                assert node.error is not None
                raise node.error
        except LadingError as error:
            assert str(error).startswith(f"nsqd at {url.removeprefix('nsq://')}") and "\n" not in str(error)


def test_an_ext_that_is_longer_than_its_message_is_refused() -> None:
    broken = frame(MESSAGE, struct.pack(">qH16s", 1, 1, bytes(16)) + b"\4" + struct.pack(">H", 500) + b'{"a":"b"}')

    def attack(connection: socket.socket) -> None:
        connection.sendall(frame(RESPONSE, OK) + broken)

    with (
        nsqd(attack, version="0.3.7-HA.1.5") as url,
        joined(url) as queue,
        pytest.raises(LadingError, match="ends in its ext"),
    ):
        queue.fetch(0, max_messages=1, wait_ms=5_000)


def test_a_document_that_is_nested_without_end_is_refused() -> None:
    deep = frame(RESPONSE, b'{"a":' * 100_000)
    with (
        nsqd(lambda connection: None, on_identify=deep) as url,
        pytest.raises(LadingError, match="another form"),
        joined(url),
    ):
        pass


def test_a_stream_that_grows_a_thousandfold_is_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0
    real = nsq_connection.NsqConnection._take

    def take(self: nsq_connection.NsqConnection, awaiting: bool) -> None:
        nonlocal largest
        largest = max(largest, len(self._buffer))
        real(self, awaiting)

    monkeypatch.setattr(nsq_connection.NsqConnection, "_take", take)
    bomb = compress(frame(RESPONSE, OK) + message(1, bytes(1 << 20)) * 200)

    def attack(connection: socket.socket) -> None:
        connection.sendall(bomb)

    with nsqd(attack, deflate=True) as url, joined(url, connection_compression="deflate") as queue:
        for _ in range(20):
            queue.heartbeat()
        assert queue.end and largest <= 1100 * nsq_connection.COMPRESSED_RECEIVE_BYTES


def test_a_lookup_that_names_a_million_nodes_is_refused() -> None:
    producers = [{"broadcast_address": "127.0.0.1", "tcp_port": port} for port in range(1, 5_000)]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"producers": producers, "version": "1.3.0"}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        transport = NsqTransport(f"nsq://127.0.0.1:{server.server_port}", timeout_s=5.0, retries=0)
        with pytest.raises(LadingError, match="names 4999 nodes"):
            transport.join("c", ["t"])
    finally:
        server.shutdown()
        server.server_close()

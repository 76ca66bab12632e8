"""A proxy in front of an S3 server that fails one request, or all from one on, in the ways a network and a store do."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

FAULTS: Final = ("refused", "conflict", "cut", "lost", "gone", "gone after")
"""Of one request: answered 503; answered 409, as a conditional put that meets another; its connection closed before it
is passed on; passed on, and its answer dropped. Of all from one on, as for a process that was killed or a network that
went away: none is passed on any more; or the first still is, without an answer."""
ANSWERS: Final = {
    "refused": ("503 Service Unavailable", "SlowDown"), "conflict": ("409 Conflict", "ConditionalRequestConflict"),
}  # fmt: skip
TIMEOUT_S: Final = 20.0


class FaultyStore:
    """Passes requests on, each on a connection of its own, and fails the one that is armed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = threading.Lock()
        self.requests = 0
        self._armed: tuple[int, str] | None = None
        self._on_fault: Callable[[], None] | None = None

    def arm(self, request: int, fault: str, on_fault: Callable[[], None] | None = None) -> None:
        """Let this request from now on, counted from 0, fail; ``on_fault`` is called when it is there."""
        with self._lock:
            self.requests, self._armed, self._on_fault = 0, (request, fault), on_fault

    def heal(self) -> bool:
        """Fail no more; returns whether the armed request was reached."""
        with self._lock:
            armed, self._armed = self._armed, None
            return armed is not None and self.requests > armed[0]

    def answer(self, request: bytes) -> bytes:
        """Return what the client gets; empty for a connection that is closed."""
        with self._lock:
            number, armed = self.requests, self._armed
            self.requests += 1
        fault = None
        if armed is not None and (number == armed[0] or (number > armed[0] and armed[1].startswith("gone"))):
            fault = "gone" if number > armed[0] else armed[1]
        if fault == "conflict" and b"\r\nif-none-match:" not in request.partition(b"\r\n\r\n")[0].lower() + b"\r\n":
            # only such a put meets another
            fault = "refused"
        if fault == "gone after" and armed is not None and number == armed[0]:
            # what is passed on has an effect before its sender is killed
            self._pass_on(request)
        if fault is not None and self._on_fault is not None:
            self._on_fault()
        if fault in ANSWERS:
            status, code = ANSWERS[fault]
            body = f"<Error><Code>{code}</Code></Error>"
            return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
        if fault in ("cut", "gone", "gone after"):
            return b""
        held = self._pass_on(request)
        return b"" if fault == "lost" else held

    def _pass_on(self, request: bytes) -> bytes:
        head, _, body = request.partition(b"\r\n\r\n")
        held = bytearray()
        with socket.create_connection(("127.0.0.1", self._port), TIMEOUT_S) as server:
            server.sendall(head + b"\r\nConnection: close\r\n\r\n" + body)
            while part := server.recv(1 << 16):
                held += part
        answer, _, body = bytes(held).partition(b"\r\n\r\n")
        lines = [
            line for line in answer.split(b"\r\n") if not line.lower().startswith((b"connection:", b"keep-alive:"))
        ]
        return b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.connection.settimeout(TIMEOUT_S)
        lines = []
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            lines.append(line)
        if not lines:
            return
        sizes = [int(line.partition(b":")[2]) for line in lines if line.lower().startswith(b"content-length:")]
        kept = [line for line in lines if not line.lower().startswith(b"connection:")]
        body = self.rfile.read(sizes[0]) if sizes else b""
        store: FaultyStore = vars(self.server)["store"]
        self.wfile.write(store.answer(b"".join(kept) + b"\r\n" + body))


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that went away is what this is for."""


@contextmanager
def run_faulty_store(url: str) -> Iterator[tuple[str, FaultyStore]]:
    """Give the URL of a proxy before the server at ``url``, and the proxy."""
    store = FaultyStore(int(url.rpartition(":")[2]))
    with _Server(("127.0.0.1", 0), _Handler) as server:
        vars(server)["store"] = store
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", store
        finally:
            server.shutdown()
            thread.join()

"""A proxy in front of an object store that fails one request, or all from one on, in the ways a network and a store do.

It is a process of its own, ``python -m tests.tables.object_faults PORT``: a library that waits for the store while it
holds the interpreter's lock would wait for a thread of its own process for ever.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

FAULTS: Final = ("refused", "conflict", "cut", "lost", "gone", "gone after")
"""Of one request: answered 503; answered 409, as a conditional put that meets another; its connection closed before it
is passed on; passed on, and its answer dropped. Of all from one on, as for a process that was killed or a network that
went away: none is passed on any more; or the first still is, without an answer."""
ANSWERS: Final = {
    "refused": ("503 Service Unavailable", "SlowDown"), "conflict": ("409 Conflict", "ConditionalRequestConflict"),
}  # fmt: skip
CONDITIONS: Final = (b"\r\nif-none-match:", b"\r\nx-goog-if-generation-match:")
TIMEOUT_S: Final = 20.0


class FaultyStore:
    """Passes requests on, each on a connection of its own, and fails the one that is armed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = threading.Lock()
        self.requests = 0
        self._armed: tuple[int, str] | None = None
        self._killed: int | None = None

    def arm(self, request: int, fault: str, killed: int | None = None) -> None:
        """Let this request from now on, counted from 0, fail; the process ``killed`` is killed when it is there."""
        with self._lock:
            self.requests, self._armed, self._killed = 0, (request, fault), killed

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
        if fault == "conflict" and not any(one in request.partition(b"\r\n\r\n")[0].lower() for one in CONDITIONS):
            # only such a put meets another
            fault = "refused"
        if fault == "gone after" and armed is not None and number == armed[0]:
            # what is passed on has an effect before its sender is killed
            self._pass_on(request)
        if fault is not None and self._killed is not None:
            killed, self._killed = self._killed, None
            os.kill(killed, signal.SIGKILL)
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


class StoreFaults:
    """The proxy as tests see it, which is in another process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{self._read()}"

    @property
    def requests(self) -> int:
        """How many there were since it was armed."""
        return int(self._ask("requests"))

    def arm(self, request: int, fault: str, killed: int | None = None) -> None:
        """See FaultyStore."""
        self._ask("arm", request, fault, killed)

    def heal(self) -> bool:
        """See FaultyStore."""
        return bool(self._ask("heal"))

    def _ask(self, *words: Any) -> Any:
        assert self._process.stdin is not None
        print(json.dumps(words), file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


@contextmanager
def run_faulty_store(url: str) -> Iterator[StoreFaults]:
    """Run a proxy before the server at ``url``."""
    command = [sys.executable, "-m", "tests.tables.object_faults", str(urlsplit(url).port)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield StoreFaults(process)
        finally:
            process.kill()


def serve(port: int) -> None:
    """Run until standard input ends; a line there is a question, and gets a line as its answer."""
    store = FaultyStore(port)
    with _Server(("127.0.0.1", 0), _Handler) as server:
        vars(server)["store"] = store
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        print(server.server_address[1], flush=True)
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            answer = store.requests if name == "requests" else getattr(store, name)(*arguments)
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]))

"""A server that answers Iggy classic requests with what the real one once answered, or with what a test gives it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

VECTORS = Path(__file__).parent.parent / "vectors" / "iggy_classic_capture.jsonl"
Answer = Callable[[bytes], bytes | None]
"""Request frame -> response frame; None closes the connection."""


def recorded() -> Mapping[bytes, bytes]:
    """Request frame -> response frame, as recorded; of equal requests the first."""
    exchanges: dict[bytes, bytes] = {}
    for line in VECTORS.read_text().splitlines():
        exchange = json.loads(line)
        request, response = bytes.fromhex(exchange["request_hex"]), bytes.fromhex(exchange["response_hex"])
        exchanges.setdefault(request, response)
    return exchanges


class Server:
    """Listens on a free port of the loopback and keeps what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.requests: list[bytes] = []
        self.connections = 0
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def drop(self) -> None:
        """Close every connection; new ones are welcome."""
        while self._open:
            # its thread may have closed it: a client that gave up has left
            with suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop listening and close every connection."""
        self._listener.close()
        self.drop()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while True:
                try:
                    head = stream.read(4)
                    frame = head + stream.read(int.from_bytes(head, "little")) if len(head) == 4 else b""
                except OSError:
                    return
                answer = None
                if frame:
                    self.requests.append(frame)
                    answer = self._answer(frame)
                if answer is None:
                    if connection in self._open:
                        self._open.remove(connection)
                    return
                connection.sendall(answer)


@contextmanager
def server(answer: Answer) -> Iterator[Server]:
    """A Server while the block runs."""
    running = Server(answer)
    try:
        yield running
    finally:
        running.close()

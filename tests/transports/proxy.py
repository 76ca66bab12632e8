"""A TCP proxy in front of a broker that loses answers on demand: what a broken network looks like to a client."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """Forwards connections to ``target``; ``lose_answers`` of the next answers are dropped with their connection.

    ``delivered`` counts requests that reached the server.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.lose_answers = 0
        self.refuse_connections = 0
        self.delivered = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refuse_connections:
                self.refuse_connections -= 1
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.create_connection(self._target)
        threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
        with client, server, suppress(OSError):
            while data := server.recv(1 << 16):
                self.delivered += 1
                if self.lose_answers:
                    self.lose_answers -= 1
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.close()


@contextmanager
def proxy(address: str) -> Iterator[Proxy]:
    """A proxy to ``host:port``, closed at the end."""
    host, _, port = address.rpartition(":")
    made = Proxy((host, int(port)))
    try:
        yield made
    finally:
        made.close()

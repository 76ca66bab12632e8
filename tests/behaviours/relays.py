"""Iggy's other transports for clients that know TCP only: a relay that carries each frame over one of them."""

from __future__ import annotations

import select
import socket
import ssl
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from tests.endpoints.frames import HEAD, Frames
from tests.endpoints.quic_client import QuicClient
from tests.endpoints.websocket_frames import WebSocketFrames

QUIET_S = 2.0


class _ClosedError(Exception):
    """The client has closed its connection."""


class Carrier(ABC):
    """A connection to the server."""

    @abstractmethod
    def exchange(self, frame: bytes) -> bytes:
        """Send a request, return its response."""

    def rest(self) -> None:  # noqa: B027 - most do nothing
        """Do what a client does that has nothing to ask."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""


class QuicCarrier(Carrier):
    """A stream for each request."""

    def __init__(self, address: str) -> None:
        self._client = QuicClient(address)

    def exchange(self, frame: bytes) -> bytes:
        return self._client.answer(self._client.send(frame))

    def rest(self) -> None:
        self._client.quic.send_ping(0)
        self._client.step()

    def close(self) -> None:
        self._client.close()


class WebSocketCarrier(Carrier):
    """A message for each request."""

    def __init__(self, address: str) -> None:
        self._client = WebSocketFrames(address)

    def exchange(self, frame: bytes) -> bytes:
        self._client.socket.send(frame)
        answer = self._client.socket.recv(QUIET_S * 10)
        assert isinstance(answer, bytes)
        return answer

    def close(self) -> None:
        self._client.close()


class TlsCarrier(Carrier):
    """TCP with TLS; whose certificate it is does not matter here."""

    def __init__(self, address: str) -> None:
        self._frames = Frames(address)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._frames.socket = context.wrap_socket(self._frames.socket)

    def exchange(self, frame: bytes) -> bytes:
        self._frames.socket.sendall(frame)
        status, body = self._frames.answer()
        return HEAD.pack(status, len(body)) + body

    def close(self) -> None:
        self._frames.close()


def relay(connect: Callable[[str], Carrier], address: str) -> str:
    """Return where frames of TCP are carried to ``address``, one connection for each, to the end of the process."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_carry, args=(client, connect, address), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return "{}:{}".format(*listener.getsockname())


def _carry(client: socket.socket, connect: Callable[[str], Carrier], address: str) -> None:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with client, suppress(_ClosedError):
        try:
            carrier = connect(address)
            try:
                _exchange(client, carrier)
            finally:
                carrier.close()
        except OSError as error:
            # the client sees a closed connection only
            print(f"relay to {address}: {error!r}", file=sys.stderr)


def _exchange(client: socket.socket, carrier: Carrier) -> None:
    while True:
        while not select.select([client], [], [], QUIET_S)[0]:
            carrier.rest()
        head = _receive(client, 4)
        client.sendall(carrier.exchange(head + _receive(client, int.from_bytes(head, "little"))))


def _receive(client: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = client.recv(size - len(data))
        if not part:
            raise _ClosedError
        data += part
    return bytes(data)

"""A QUIC client for tests that can do all that it should not, on aioquic and a plain socket; no event loop."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import defaultdict
from typing import Any

from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

TIMEOUT_S = 10.0


class QuicClient:
    """To ``host:port``; every wait ends after TIMEOUT_S."""

    def __init__(self, address: str, *, connect: bool = True, **options: Any) -> None:
        host, _, port = address.rpartition(":")
        self.address = (host, int(port))
        named: dict[str, Any] = {"verify_mode": ssl.CERT_NONE, "server_name": "localhost", **options}
        self.quic = QuicConnection(configuration=QuicConfiguration(is_client=True, **named))
        self.received: defaultdict[int, bytearray] = defaultdict(bytearray)
        self.ended: set[int] = set()
        self.resets: dict[int, int] = {}
        self.stopped: dict[int, int] = {}
        self.terminated: events.ConnectionTerminated | None = None
        self.is_connected = False
        self.is_reading = True
        self.socket = self._open()
        if connect:
            self.connect()

    def _open(self) -> socket.socket:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        opened.bind(("127.0.0.1", 0))
        return opened

    def connect(self) -> None:
        """Shake hands."""
        self.quic.connect(self.address, now=time.monotonic())
        self.run_until(lambda: self.is_connected)

    def migrate(self) -> None:
        """Go on from another port."""
        self.socket.close()
        self.socket = self._open()

    def flush(self) -> None:
        """Send what is due."""
        for data, _ in self.quic.datagrams_to_send(now=time.monotonic()):
            self.socket.sendto(data, self.address)

    def run_until(self, condition: Any, timeout_s: float = TIMEOUT_S) -> None:
        """Send and receive until ``condition()``; TimeoutError if it does not come, ConnectionError if it cannot."""
        until_s = time.monotonic() + timeout_s
        while not condition():
            if self.terminated is not None:
                raise ConnectionError(f"closed: {self.terminated.error_code:#x} {self.terminated.reason_phrase}")
            if time.monotonic() > until_s:
                raise TimeoutError("nothing came")
            self.step()

    def step(self, wait_s: float = 0.05) -> None:
        """Send what is due and take what comes soon."""
        self.flush()
        now_s = time.monotonic()
        due_s = self.quic.get_timer()
        wait_s = min(wait_s, max((due_s or now_s + wait_s) - now_s, 0))
        if self.is_reading and select.select([self.socket], [], [], wait_s)[0]:
            data, address = self.socket.recvfrom(65_536)
            self.quic.receive_datagram(data, address, now=time.monotonic())
        if due_s is not None and time.monotonic() >= due_s:
            self.quic.handle_timer(now=time.monotonic())
        while (event := self.quic.next_event()) is not None:
            self._handle(event)

    def _handle(self, event: events.QuicEvent) -> None:
        if isinstance(event, events.HandshakeCompleted):
            self.is_connected = True
        elif isinstance(event, events.StreamDataReceived):
            self.received[event.stream_id] += event.data
            if event.end_stream:
                self.ended.add(event.stream_id)
        elif isinstance(event, events.StreamReset):
            self.resets[event.stream_id] = event.error_code
        elif isinstance(event, events.StopSendingReceived):
            self.stopped[event.stream_id] = event.error_code
        elif isinstance(event, events.ConnectionTerminated):
            self.terminated = event

    def send(self, data: bytes, *, end: bool = True) -> int:
        """Write to a new stream. Return its number."""
        stream_id = self.quic.get_next_available_stream_id()
        self.quic.send_stream_data(stream_id, data, end_stream=end)
        return stream_id

    def is_over(self, stream_id: int) -> bool:
        """Whether nothing more comes on a stream."""
        return stream_id in self.ended or stream_id in self.resets

    def answer(self, stream_id: int) -> bytes:
        """Return all that comes on a stream; ConnectionResetError if it is reset."""
        self.run_until(lambda: self.is_over(stream_id))
        if stream_id in self.resets:
            raise ConnectionResetError(f"stream {stream_id}: {self.resets[stream_id]}")
        self.ended.discard(stream_id)
        return bytes(self.received.pop(stream_id, b""))

    def close(self) -> None:
        """Say goodbye."""
        self.quic.close()
        self.flush()
        self.socket.close()

"""Iggy classic frames over QUIC: each request on a stream of its own (iggy.md A1)."""

from __future__ import annotations

import struct

from tests.endpoints.frames import HEAD, message, payloads, poll, to_partition
from tests.endpoints.quic_client import QuicClient

TOPIC = struct.pack("<BBI", 1, 4, 1) * 2
"""Stream 1, topic 1."""
PING, ME, POLL, SEND, CREATE_STREAM, CREATE_TOPIC = 1, 20, 100, 101, 202, 302
OK = bytes(8)


def frame(code: int, payload: bytes = b"") -> bytes:
    """A whole request."""
    return HEAD.pack(4 + len(payload), code) + payload


def sending(payload: bytes, partition: int = 1) -> bytes:
    """A request that sends one message."""
    return frame(SEND, TOPIC + to_partition(partition) + message(payload))


class QuicFrames(QuicClient):
    """A connection with requests and their answers."""

    def ask(self, code: int, payload: bytes = b"") -> tuple[int, bytes]:
        """Return status and body."""
        answer = self.answer(self.send(frame(code, payload)))
        status, size = HEAD.unpack_from(answer)
        assert len(answer) == HEAD.size + size
        return status, answer[HEAD.size :]

    def create_topic(self, partitions: int) -> None:
        """Create TOPIC."""
        assert self.ask(CREATE_STREAM, struct.pack("<I", 1) + b"stream") == (0, b"")
        assert self.ask(CREATE_TOPIC, TOPIC[:6] + struct.pack("<II", 1, partitions) + b"topic") == (0, b"")

    def send_message(self, payload: bytes, partition: int = 1) -> None:
        """Send one message to TOPIC; acknowledged when it returns."""
        assert self.answer(self.send(sending(payload, partition))) == OK

    def poll(self, partition: int = 1, offset: int = 0, count: int = 100_000) -> list[bytes]:
        """Return payloads of TOPIC."""
        status, body = self.ask(POLL, poll(TOPIC, offset, count, partition))
        assert status == 0
        return payloads(body)

"""Iggy classic frames by hand, from iggy.md A1 to A4, so that tests can also send what no client would."""

from __future__ import annotations

import struct

from tests.endpoints.connection import Connection

HEAD = struct.Struct("<II")


class Frames(Connection):
    """One TCP connection."""

    def send(self, code: int, payload: bytes = b"") -> None:
        """A whole request frame."""
        self.socket.sendall(HEAD.pack(4 + len(payload), code) + payload)

    def answer(self) -> tuple[int, bytes]:
        """Status and body of the next answer; ConnectionError where the server closed instead."""
        status, size = HEAD.unpack(self.receive(HEAD.size))
        return status, self.receive(size)

    def ask(self, code: int, payload: bytes = b"") -> tuple[int, bytes]:
        """A request and its answer."""
        self.send(code, payload)
        return self.answer()


def header(key: bytes, kind: int, value: bytes) -> bytes:
    """One header of a block."""
    return struct.pack("<I", len(key)) + key + struct.pack("<BI", kind, len(value)) + value


def message(payload: bytes, headers: bytes = b"", id_: int = 0) -> bytes:
    """A message as sent."""
    return (
        id_.to_bytes(16, "little")
        + struct.pack("<I", len(headers))
        + headers
        + struct.pack("<I", len(payload))
        + payload
    )


def to_partition(number: int) -> bytes:
    """Partitioning by number, from 1."""
    return struct.pack("<BBI", 2, 4, number)


def poll(
    topic: bytes, offset: int = 0, count: int = 1000, partition: int = 1, kind: int = 1, consumer: int = 1
) -> bytes:
    """The payload of a poll as a consumer."""
    return struct.pack("<BI", 1, consumer) + topic + struct.pack("<IBQIB", partition, kind, offset, count, 0)


def payloads(body: bytes) -> list[bytes]:
    """The payloads of polled messages."""
    (count,) = struct.unpack_from("<I", body)
    found, at = [], 4
    while at < len(body):
        (headers_size,) = struct.unpack_from("<I", body, at + 37)
        (size,) = struct.unpack_from("<I", body, at + 41 + headers_size)
        start = at + 45 + headers_size
        found.append(body[start : start + size])
        at = start + size
    assert len(found) == count
    return found

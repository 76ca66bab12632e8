"""Requests of the current generation of Iggy as bytes."""

from __future__ import annotations

import struct

CLIENT = bytes(range(1, 17))
REGISTER, READ, LOGOUT, CREATE_STREAM, CREATE_TOPIC, SEND = 1, 2, 3, 128, 132, 160
PING, POLL, GET_STREAM = 1, 100, 200
LOGIN = struct.pack("<I", 11264) + b"\x04test\x050.0.0\x04iggy\x04iggy" + bytes(4)
NO_SESSION, INVALID_OPERATION, INVALID_BODY_SIZE, INCOMPATIBLE, MALFORMED_LOGIN = 1, 4, 6, 14, 15


def request(
    operation: int, body: bytes = b"", *, code: int = 0, client: bytes = CLIENT, kind: int = 5, checksum: int = 0,
    size: int | None = None,
) -> bytes:  # fmt: skip
    header = bytearray(256)
    struct.pack_into("<I", header, 48, 256 + len(body) if size is None else size)
    header[60] = kind
    header[128:144] = client
    struct.pack_into("<Q", header, 144, checksum)
    header[176] = operation
    struct.pack_into("<I", header, 196, code)
    return bytes(header) + body


def sent(topic: bytes, data: bytes, count: int = 1, partition: int = 0) -> bytes:
    where = topic + b"\x02\x04" + struct.pack("<II", partition, count)
    return struct.pack("<I", len(where)) + where + data


def poll(topic: bytes, count: int = 100) -> bytes:
    return b"\x01\x01\x04" + struct.pack("<I", 1) + topic + b"\x01" + struct.pack("<IBQIB", 0, 1, 0, count, 0)

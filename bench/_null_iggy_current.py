"""A server of Iggy's current generation that does nothing for messages: what the client alone can do at most.

Its argument is the address of a broker. Every request goes there, but for sends and polls once one of each was
answered: they get that answer again, so that the client has the same bytes to write, to read and to decode.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys

import uvloop

HEADER_BYTES = 256
SIZE_AT, OPERATION_AT, CODE_AT, REQUEST_AT, REPLY_REQUEST_AT = 48, 176, 196, 168, 200
SEND, READ, POLL = 160, 2, 100
MESSAGES_AT = HEADER_BYTES + 12
"""Where a reply to a poll says how many messages it has."""


class Connection(asyncio.BufferedProtocol):
    """One client, with a connection of its own to the broker."""

    def __init__(self, broker: str) -> None:
        host, _, port = broker.rpartition(":")
        self._broker = socket.create_connection((host, int(port)))
        self._view = memoryview(bytearray(4 << 20))
        self._have = 0
        self._answers: dict[tuple[int, int], bytes] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._have :]

    def buffer_updated(self, size_bytes: int) -> None:
        self._have += size_bytes
        at = 0
        while self._have - at >= HEADER_BYTES:
            end = at + struct.unpack_from("<I", self._view, at + SIZE_AT)[0]
            if end > self._have:
                break
            self._transport.write(self._answer(self._view[at:end]))  # type: ignore[attr-defined]
            at = end
        rest = bytes(self._view[at : self._have])
        self._view[: len(rest)] = rest
        self._have = len(rest)

    def connection_lost(self, error: Exception | None) -> None:
        self._broker.close()

    def _answer(self, request: memoryview) -> bytes:
        operation = request[OPERATION_AT]
        key = operation, struct.unpack_from("<I", request, CODE_AT)[0] if operation == READ else 0
        known = self._answers.get(key)
        if known is not None:
            return known[:REPLY_REQUEST_AT] + request[REQUEST_AT : REQUEST_AT + 8] + known[REPLY_REQUEST_AT + 8 :]
        self._broker.sendall(request)
        reply = self._read(HEADER_BYTES)
        reply += self._read(struct.unpack_from("<I", reply, SIZE_AT)[0] - HEADER_BYTES)
        if key == (SEND, 0) or (key == (READ, POLL) and struct.unpack_from("<I", reply, MESSAGES_AT)[0]):
            self._answers[key] = reply
        return reply

    def _read(self, size_bytes: int) -> bytes:
        data = b""
        while len(data) < size_bytes:
            part = self._broker.recv(size_bytes - len(data))
            if not part:
                raise ConnectionError("the broker has closed")
            data += part
        return data


async def main() -> None:
    """Listen on a free port and print it."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(sys.argv[1]), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(uvloop.run(main()))

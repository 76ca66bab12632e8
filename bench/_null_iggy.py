"""A server that answers every Iggy request with success and does nothing: what the client alone can do at most."""

from __future__ import annotations

import asyncio
import struct
import sys

import uvloop

OK = bytes(8)


class Connection(asyncio.BufferedProtocol):
    """Counts whole frames and answers each."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray(4 << 20))
        self._have = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._have :]

    def buffer_updated(self, size_bytes: int) -> None:
        self._have += size_bytes
        at = 0
        while self._have - at >= 4:
            end = at + 4 + struct.unpack_from("<I", self._view, at)[0]
            if end > self._have:
                break
            self._transport.write(OK)  # type: ignore[attr-defined]
            at = end
        rest = bytes(self._view[at : self._have])
        self._view[: len(rest)] = rest
        self._have = len(rest)


async def main() -> None:
    """Listen on a free port and print it."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(uvloop.run(main()))

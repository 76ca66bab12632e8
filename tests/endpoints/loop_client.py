"""A client within the loop of its server, for tests in which each step of both has its place."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from lading.endpoints.io.lent_sockets import SocketPass

PIECE_BYTES: Final = 1 << 20
TIMEOUT_S: Final = 20
TRIES_MAX: Final = 50


class LoopClient:
    """A socket whose other end is served by the loop that runs this."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.sock, data)

    async def read(self, size: int) -> bytes:
        """Return ``size`` bytes, or fewer if the server closes."""
        data = b""
        while len(data) < size:
            more = await asyncio.wait_for(self._loop.sock_recv(self.sock, size - len(data)), TIMEOUT_S)
            if not more:
                break
            data += more
        return data

    async def read_to_end(self) -> bytes:
        """Return all that comes until the server closes.

        A server that closes while requests are left unread resets the connection: what came before that counts.
        """
        data = b""
        with suppress(ConnectionError):
            while more := await asyncio.wait_for(self._loop.sock_recv(self.sock, PIECE_BYTES), TIMEOUT_S):
                data += more
        return data

    async def converse(self, writes: list[bytes], waits: list[int]) -> bytes:
        """Send by turns, each time let the loop make some passes, close the sending half, and return all responses."""
        for data, wait in zip(writes, waits, strict=True):
            with suppress(ConnectionError):
                await self.send(data)
            for _ in range(wait):
                await asyncio.sleep(0)
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        answers = await self.read_to_end()
        self.sock.close()
        return answers


def note_loans(owner: SocketPass | None, lent: list[int]) -> None:
    """Note the number of each socket that is lent from now on; none is, if there is no pass."""
    if owner is None:
        return
    real = owner.lend

    def lend(connection: Any, file: int, line: int) -> None:
        lent.append(file)
        real(connection, file, line)

    owner.lend = lend  # type: ignore[method-assign]


def compare_until_lent(compare: Callable[[int], bool]) -> None:
    """Call ``compare`` with seeds until it has lent a socket: a bad request at the beginning ends it before that."""
    seeds = [random.randrange(1 << 30) for _ in range(TRIES_MAX)]
    assert any(compare(seed) for seed in seeds), f"none of {seeds} lends a socket"

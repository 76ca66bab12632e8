"""The toy's server: one frame, one answer, in order."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any, Final

from lading.endpoints.base.append_wait import wait_acknowledged
from lading.endpoints.base.carrying import Carrying
from lading.endpoints.base.services import Endpoint, Services
from lading.model.errors import LadingError, MalformedMessage

from ..dialect.commands import HEAD, PublishCommand, frame_bytes, pack_frame, parse_command, parse_frame
from ..dialect.protocol import READ
from .consume import answer_read
from .publish import create, publish

NAME: Final = "toy"


def endpoint(services: Services) -> Endpoint:
    """Return the endpoint, as its row names it."""
    return ToyServer(services)


class ToyServer:
    """Serves clients of the toy."""

    def __init__(self, services: Services) -> None:
        self._broker = services.broker
        self._carrying = Carrying(services, NAME, READ, default=True)
        self._messages_in = services.metrics.messages_in.values
        self._connections: set[asyncio.StreamWriter] = set()

    async def start(self, listener: socket.socket) -> None:
        """Accept connections."""
        self._server = await asyncio.start_server(self._serve, sock=listener)

    async def stop(self) -> None:
        """Close them."""
        self._server.close()
        for writer in self._connections:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, MalformedMessage):
                while True:
                    head = await reader.readexactly(HEAD.size)
                    facts, sent = parse_frame(head, await reader.readexactly(frame_bytes(head)))
                    writer.write(pack_frame(*await self._answer(facts, sent)))
                    await writer.drain()
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _answer(self, facts: dict[str, Any], sent: bytes) -> tuple[dict[str, Any], bytes]:
        try:
            command = parse_command(facts)
            if not isinstance(command, PublishCommand):
                return answer_read(self._broker, self._carrying, command)
            if command.create:
                create(self._broker, command)
                return {}, b""
            append = publish(self._broker, command, sent)
            self._messages_in[(NAME,)] += append.count
            await wait_acknowledged(append)
            return {"base_offset": append.base_offset}, b""
        except LadingError as error:
            return {"error": str(error), "reason": type(error).__name__}, b""

"""nsqd over TCP: the listening socket and its connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

from ...settings import Address
from ..base.services import Services
from ..io.gate import Gate
from . import node as nodes
from .publish import Publisher
from .publish_coalescing import PublishCoalescer
from .session import NAME, NsqdConnection

DRAIN_TIMEOUT_S: Final = 5.0


class Nsqd:
    """The endpoint."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.node = nodes.of(services)
        self.publisher = Publisher(self.node, NAME)
        self.gathering = PublishCoalescer(
            self.publisher,
            NAME,
            services.metrics.requests.values,
            services.broker.appender.call_before_flush,
            services.busy_poll.served,
        )
        self.gate = Gate(services, NAME, services.settings.endpoints.nsqd_tcp.connections_max)
        self._connections: set[NsqdConnection] = set()
        self._server: asyncio.Server | None = None
        self._all_gone = asyncio.Event()

    async def start(self, listener: socket.socket) -> None:
        """Accept from now on."""
        self.node.tcp = Address(*listener.getsockname()[:2])
        self.node.forget_ephemeral()
        self._server = await asyncio.get_running_loop().create_server(lambda: NsqdConnection(self), sock=listener)

    async def stop(self) -> None:
        """Accept no more, answer what is on its way to the disk, close; a client that does not read is cut."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.process_commands()
        with contextlib.suppress(TimeoutError):
            if self._connections:
                await asyncio.wait_for(self._all_gone.wait(), DRAIN_TIMEOUT_S)
        for connection in list(self._connections):
            connection.abort()

    def admit(self, connection: NsqdConnection, host: str) -> bool:
        """Whether there is room for one more."""
        if not self.gate.admit(connection, host):
            return False
        self._connections.add(connection)
        self.node.connections.add(connection)
        return True

    def leave(self, connection: NsqdConnection) -> None:
        """The client is gone."""
        self._connections.discard(connection)
        self.node.connections.discard(connection)
        self.gate.leave(connection)
        if not self._connections:
            self._all_gone.set()

    def wait_for_disk(self, relieved: Callable[[], None]) -> bool:
        """Whether the disk is so far behind that no command may be read; ``relieved`` is called when it is not."""
        if not self.services.broker.appender.congested:
            return False
        self.services.broker.appender.call_when_uncongested(relieved)
        return True

    def dropped(self, reason: str, count: int = 1) -> None:
        """Count what nobody could be told in the protocol."""
        self.services.metrics.dropped.values[NAME, reason] += count

"""The Kafka endpoint: the listening socket and its connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from itertools import count, takewhile
from typing import Final

from ...dialects.kafka.requests import load_codecs
from ...settings import Address
from ..base.deadlines import Stage
from ..base.services import Services
from ..io.gate import Gate
from .fetch import Fetcher
from .handling import NAME, Context, Session
from .produce import ProduceHandler
from .registry import handlers, list_advertised_keys
from .session import KafkaConnection

DRAIN_TIMEOUT_S: Final = 5.0
CODECS_AFTER_S: Final = 0.05


class KafkaServer:
    """One broker of a cluster of one."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.settings = services.settings.endpoints.kafka
        self.context = Context(services, self.settings)
        self.handlers = handlers(self.context)
        self.told = list_advertised_keys(self.handlers)
        """Keys of the APIs that clients are told of."""
        self.producer = ProduceHandler(self.context)
        self.fetcher = Fetcher(self.context)
        connections = services.settings.connections
        self.gate = Gate(
            services,
            NAME,
            self.settings.connections_max,
            # a consumer that is at work on what it got reads nothing more meanwhile
            {Stage.BLOCKED: (connections.idle_timeout_ms, "connections.idle_timeout_ms")},
        )
        self._ids = count(1)
        self._connections: set[KafkaConnection] = set()
        self._server: asyncio.Server | None = None
        self._all_gone = asyncio.Event()

    async def start(self, listener: socket.socket) -> None:
        """Accept from now on."""
        loop = asyncio.get_running_loop()
        # the library that reads rare messages makes its code when it is first used: not while somebody waits, and
        # not before all endpoints listen; a broker that is stopped before they are made waits for one of them at most
        wanted = takewhile(lambda _: not self.services.stopping, tuple(self.handlers))
        loop.call_later(CODECS_AFTER_S, loop.run_in_executor, self.services.workers, load_codecs, wanted)
        self._server = await loop.create_server(lambda: KafkaConnection(self), sock=listener)

    async def stop(self) -> None:
        """Stop accepting, finish requests in flight, close. Clients that do not read are disconnected."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.process_requests()
        with contextlib.suppress(TimeoutError):
            if self._connections:
                await asyncio.wait_for(self._all_gone.wait(), DRAIN_TIMEOUT_S)
        for connection in list(self._connections):
            connection.abort()

    def admit(self, connection: KafkaConnection, host: str, here: Address) -> Session | None:
        """A session, where there is room for one more."""
        if not self.gate.admit(connection, host):
            return None
        self._connections.add(connection)
        return Session(next(self._ids), host, here)

    def leave(self, connection: KafkaConnection) -> None:
        """The client is gone."""
        self._connections.discard(connection)
        self.gate.leave(connection)
        if not self._connections:
            self._all_gone.set()

    def dropped(self, reason: str, count: int = 1) -> None:
        """Count what nobody could be told in the protocol."""
        self.services.metrics.dropped.values[NAME, reason] += count

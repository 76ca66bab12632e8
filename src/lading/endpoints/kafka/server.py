"""The Kafka endpoint: one broker of a cluster of one, on TCP."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from itertools import takewhile
from typing import Final

from ...dialects.kafka.requests import load_codecs
from ...endpoint_settings import KafkaListener
from ..base.deadlines import Stage
from ..base.services import Services
from ..io.gate import Gate
from ..io.tcp import TcpServer
from ..io.tls import encrypt
from .fetch import Fetcher
from .handling import Context
from .produce import ProduceHandler
from .registry import handlers, list_advertised_keys
from .session import KafkaHandlers, KafkaSession

CODECS_AFTER_S: Final = 0.05


class KafkaServer(TcpServer):
    """The listening socket, its connections, and the codecs of rare messages."""

    def __init__(self, services: Services, name: str) -> None:
        settings = services.settings.endpoints.section(name)
        assert isinstance(settings, KafkaListener)
        context = Context(services, settings, name)
        rare = handlers(context)
        idle_timeout_ms = services.settings.connections.idle_timeout_ms
        # a consumer that is at work on what it got reads nothing more meanwhile
        timeouts_ms = {Stage.BLOCKED: (idle_timeout_ms, "connections.idle_timeout_ms")}
        gate = Gate(services, name, settings.connections_max, timeouts_ms)
        shared = KafkaHandlers(context, ProduceHandler(context), Fetcher(context), rare, list_advertised_keys(rare))
        super().__init__(services, name, gate, encrypt(services, name, settings, partial(KafkaSession, shared)))
        self._keys = tuple(rare)

    async def start(self, listener: socket.socket) -> None:
        """Accept from now on."""
        loop = asyncio.get_running_loop()
        # the library that reads rare messages makes its code when it is first used: not while somebody waits, and
        # not before all endpoints listen; a broker that is stopped before they are made waits for one of them at most
        wanted = takewhile(lambda _: not self.services.stopping, self._keys)
        loop.call_later(CODECS_AFTER_S, loop.run_in_executor, self.services.workers, load_codecs, wanted)
        await super().start(listener)

"""The Kafka endpoint: one broker of a cluster of one, on TCP."""

from __future__ import annotations

import asyncio
from itertools import takewhile
from typing import Final

from ...dialects.kafka.requests import load_codecs
from ...endpoint_settings import KafkaListener
from ..base.deadlines import Stage
from ..base.services import Services
from ..base.session import ConnectionHandle
from ..io.gate import Gate
from ..io.tcp import TcpServer
from ..io.tls import encrypt
from .fetcher import Fetcher
from .handling import Context
from .produce import ProduceHandler
from .registry import handlers, list_advertised_keys
from .session import KafkaHandlers, KafkaSession

CODECS_AFTER_S: Final = 0.05
"""After the first client: its own first requests come before the codecs of those that it may never send."""


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
        gate = Gate(services, name, timeouts_ms)
        shared = KafkaHandlers(context, ProduceHandler(context), Fetcher(context), rare, list_advertised_keys(rare))
        self._shared = shared
        self._keys = tuple(rare)
        self._are_codecs_due = False
        super().__init__(services, name, gate, encrypt(services, name, settings, self._open_session))

    def _open_session(self, connection: ConnectionHandle) -> KafkaSession:
        if not self._are_codecs_due:
            self._are_codecs_due = True
            asyncio.get_running_loop().call_later(CODECS_AFTER_S, self._load_codecs)
        return KafkaSession(self._shared, connection)

    def _load_codecs(self) -> None:
        """Have the library make its code for rare messages, in a worker.

        It would at their first use, while a client waits. It takes longer than all other imports of a start, so that
        brokers without Kafka clients do without.
        """
        if not self.services.stopping:
            # a broker that is stopped before all are made waits for one of them at most
            wanted = takewhile(lambda _: not self.services.stopping, self._keys)
            asyncio.get_running_loop().run_in_executor(self.services.workers, load_codecs, wanted)

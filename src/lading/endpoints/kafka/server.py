"""The Kafka endpoint: one broker of a cluster of one, on TCP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import takewhile
from typing import Final

from ...dialects.kafka.requests import import_messages, prepare_codecs
from ...dialects.kafka.versions import SERVED
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

MESSAGES_AFTER_S: Final = 0.5
"""After the first client: its own first requests, and the kernels for them, come before the classes of those that it
may never send."""


class KafkaServer(TcpServer):
    """The listening socket, its connections, and the classes of rare messages."""

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
        self._are_messages_due = False
        super().__init__(services, name, gate, encrypt(services, name, settings, self._open_session))

    def _open_session(self, connection: ConnectionHandle) -> KafkaSession:
        if not self._are_messages_due:
            self._are_messages_due = True
            asyncio.get_running_loop().call_later(MESSAGES_AFTER_S, self._import_messages)
        return KafkaSession(self._shared, connection)

    def _import_messages(self) -> None:
        """Import the library's classes of rare messages, in a worker.

        At their first use all clients would wait for it. Brokers without Kafka clients do without.
        """
        if not self.services.stopping:
            # a broker that is stopped before all are there waits for one of them at most
            wanted = takewhile(lambda _: not self.services.stopping, self._keys)
            asyncio.get_running_loop().run_in_executor(self.services.workers, import_messages, wanted)


def prepare_codecs_until(is_over: Callable[[], bool]) -> None:
    """Prepare what requests of rare messages need, one API after the other, in a process in which nobody waits yet."""
    prepare_codecs(takewhile(lambda _: not is_over(), SERVED))

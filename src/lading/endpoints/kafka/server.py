"""The Kafka endpoint over TCP: the only broker of its cluster."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from ...dialects.kafka.requests import prepare_codecs
from ...dialects.kafka.versions import SERVED
from ...settings.endpoints import KafkaListener
from ..base.deadlines import Stage
from ..base.services import Services
from ..base.session import ConnectionHandle
from ..io.fast_connection import LendingServer, can_lend
from ..io.gate import Gate
from ..io.tls import encrypt
from .fetcher import Fetcher
from .handling import Context
from .lent_produces import LentProduces
from .produce import ProduceHandler
from .registry import handlers, list_advertised_keys
from .session import KafkaHandlers, KafkaSession


class KafkaServer(LendingServer):
    """The listening socket and its connections."""

    def __init__(self, services: Services, name: str) -> None:
        settings = services.settings.endpoints.section(name)
        assert isinstance(settings, KafkaListener)
        context = Context(services, settings, name)
        rare = handlers(context)
        idle_timeout_ms = services.settings.connections.idle_timeout_ms
        # a consumer that processes its messages reads nothing more meanwhile
        timeouts_ms = {Stage.BLOCKED: (idle_timeout_ms, "connections.idle_timeout_ms")}
        gate = Gate(services, name, timeouts_ms)
        producer = ProduceHandler(context)
        lent = LentProduces(producer, name, services.metrics.requests.values) if can_lend(services) else None
        keys = list_advertised_keys(rare)
        self._shared = KafkaHandlers(context, producer, Fetcher(context), rare, keys, lent)
        super().__init__(services, name, gate, encrypt(services, name, settings, self._open_session), lent)

    def _open_session(self, connection: ConnectionHandle) -> KafkaSession:
        return KafkaSession(self._shared, connection)


def prepare_codecs_until(is_over: Callable[[], bool]) -> None:
    """Prepare what rare requests need, one API after the other, in a process without clients so far."""
    prepare_codecs(takewhile(lambda _: not is_over(), SERVED))

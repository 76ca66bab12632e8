"""Iggy's binary protocol: the endpoints that ``serve`` starts."""

from __future__ import annotations

import logging
from functools import partial

from ...dialects.iggy.classic.responses import TRANSPORT_QUIC, TRANSPORT_TCP, TRANSPORT_WEBSOCKET
from ...settings.endpoints import IggyListener, IggyQuicListener, IggyTcpListener, IggyWebSocketListener, endpoint_key
from ..base.deadlines import Stage
from ..base.services import Endpoint, Services
from ..base.session import ConnectionHandle, ProtocolSession, SessionFactory
from ..io.fast_connection import LendingServer, can_lend
from ..io.gate import Gate
from ..io.quic import QuicEndpoint
from ..io.tcp import TcpServer
from ..io.tls import encrypt
from .handlers import IggyHandlers
from .lent_sends import LentSends
from .session import IggySession

log = logging.getLogger(__name__)


def create_tcp(services: Services, name: str) -> Endpoint:
    """Create an endpoint, or a listener of it, over TCP; called by ``serve``."""
    settings = services.settings.endpoints.section(name)
    assert isinstance(settings, IggyTcpListener)
    lent = LentSends(name, services.metrics.requests.values) if can_lend(services) else None
    new_session = encrypt(services, name, settings, _choose_session(services, name, settings, TRANSPORT_TCP, lent))
    return LendingServer(services, name, _make_gate(services, name, settings), new_session, lent)


def create_quic(services: Services, name: str) -> Endpoint:
    """Create an endpoint, or a listener of it, over QUIC; called by ``serve``."""
    settings = services.settings.endpoints.section(name)
    assert isinstance(settings, IggyQuicListener)
    new_session = _choose_session(services, name, settings, TRANSPORT_QUIC)
    gate = _make_gate(services, name, settings)
    return QuicEndpoint(services, name, gate, new_session, settings.tls, settings.request_bytes_max)


def create_websocket(services: Services, name: str) -> Endpoint:
    """Create an endpoint, or a listener of it, over WebSocket; called by ``serve``."""
    settings = services.settings.endpoints.section(name)
    assert isinstance(settings, IggyWebSocketListener)
    new_session = _choose_session(services, name, settings, TRANSPORT_WEBSOCKET)

    def open_session(connection: ConnectionHandle) -> ProtocolSession:
        # imported for the first client: the library takes 50 ms and 10 MB, which brokers without QUIC do not pay
        from ..io.websocket import WebSocketSession

        return WebSocketSession(services, new_session, settings.request_bytes_max, connection)

    gate = _make_gate(services, name, settings)
    return TcpServer(services, name, gate, encrypt(services, name, settings, open_session))


def _choose_session(
    services: Services, name: str, settings: IggyListener, transport: int, lent: LentSends | None = None
) -> SessionFactory:
    """Return the function that creates a client's session, whatever carries its bytes; clients see ``transport``."""
    if IggyHandlers not in services.shared:
        # logged once: it holds for all listeners
        services.shared[IggyHandlers] = name
        if not services.broker.access.is_enabled:
            log.info("%s: no users are set up; a login succeeds with any name and password", endpoint_key(name))
    return partial(IggySession, IggyHandlers(services, name, settings, transport, lent))


def _make_gate(services: Services, name: str, settings: IggyListener) -> Gate:
    idle = (settings.idle_timeout_ms, f"{endpoint_key(name)}.idle_timeout_ms")
    return Gate(services, name, {Stage.IDLE: idle})

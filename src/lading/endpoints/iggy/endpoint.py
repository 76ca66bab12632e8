"""Iggy's binary protocol: the endpoints that ``serve`` starts."""

from __future__ import annotations

from functools import partial

from ...endpoint_settings import IggyListener, IggyTcpListener, endpoint_key
from ..base.deadlines import Stage
from ..base.services import Endpoint, Services
from ..base.session import SessionFactory
from ..io.gate import Gate
from ..io.tcp import TcpServer
from ..io.tls import encrypt
from .poll import Poller
from .send import Sender
from .service import IggyService
from .session import IggyHandlers, IggySession
from .states import StateSetter


def create_tcp(services: Services, name: str) -> Endpoint:
    """Create an endpoint, or a listener of it, over TCP; called by ``serve``."""
    settings = services.settings.endpoints.section(name)
    assert isinstance(settings, IggyTcpListener)
    new_session = encrypt(services, name, settings.tls, _choose_session(services, name, settings))
    return TcpServer(services, name, _make_gate(services, name, settings), new_session)


def _choose_session(services: Services, name: str, settings: IggyListener) -> SessionFactory:
    """Return what makes the session of a client, whatever carries its bytes."""
    handlers = IggyHandlers(
        name,
        services,
        IggyService(services),
        Sender(services, name),
        Poller(services, name, settings),
        StateSetter(services),
    )
    return partial(IggySession, handlers)


def _make_gate(services: Services, name: str, settings: IggyListener) -> Gate:
    idle = (settings.idle_timeout_ms, f"{endpoint_key(name)}.idle_timeout_ms")
    return Gate(services, name, settings.connections_max, {Stage.IDLE: idle})

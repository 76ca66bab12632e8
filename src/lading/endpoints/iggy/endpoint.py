"""Iggy classic over TCP: the endpoint that ``serve`` starts."""

from __future__ import annotations

from functools import partial
from typing import Final

from ..base.deadlines import Stage
from ..base.services import Endpoint, Services
from ..io.gate import Gate
from ..io.tcp import TcpServer
from .poll import Poller
from .send import Sender
from .service import IggyService
from .session import IggyHandlers, IggySession
from .states import StateSetter

NAME: Final = "iggy_tcp"


def endpoint(services: Services) -> Endpoint:
    """Create the endpoint; called by ``serve``."""
    settings = services.settings.endpoints.iggy_tcp
    idle = (settings.idle_timeout_ms, "endpoints.iggy_tcp.idle_timeout_ms")
    gate = Gate(services, NAME, settings.connections_max, {Stage.IDLE: idle})
    handlers = IggyHandlers(
        NAME,
        services,
        IggyService(services),
        Sender(services, NAME),
        Poller(services, NAME, settings),
        StateSetter(services),
    )
    return TcpServer(services, NAME, gate, partial(IggySession, handlers))

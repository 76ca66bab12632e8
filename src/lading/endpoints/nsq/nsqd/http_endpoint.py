"""nsqd over HTTP (nsq.md 5.2): the endpoint that ``serve`` starts."""

from __future__ import annotations

import socket

from ....settings.settings import Address
from ...base.services import Endpoint, Services
from ...http_shared.http import HttpEndpoint
from ...http_shared.http_guard import guard_administration
from ...http_shared.routing import Router
from . import node as nodes
from .http import NAME, NsqdHttp
from .http_responses import missing, refuse


class _Endpoint(HttpEndpoint):
    """The endpoint, which sets the node's HTTP address."""

    def __init__(self, services: Services) -> None:
        self._node = nodes.of(services)
        routes, absent = NsqdHttp(self._node).routes(), missing(self._node.strict)
        guard = guard_administration(services, NAME)
        app = Router(NAME, routes, refuse, services.metrics, guard, absent)
        settings = services.settings.endpoints.nsqd_http
        names = [address.host for address in (settings.address, settings.advertised) if address is not None]
        super().__init__(NAME, app, services, names, frozenset({"/ping"}))

    async def start(self, listener: socket.socket) -> None:
        """Serve from now on."""
        self._node.http = Address(*listener.getsockname()[:2])
        await super().start(listener)


def endpoint(services: Services, name: str) -> Endpoint:
    """Create the endpoint; called by ``serve``."""
    return _Endpoint(services)

"""The toy's endpoint, as its row names it."""

from __future__ import annotations

from functools import partial
from typing import Final

from lading.endpoints.base.carrying import Carrying
from lading.endpoints.base.services import Endpoint, Services
from lading.endpoints.io.gate import Gate
from lading.endpoints.io.tcp import TcpServer

from ..dialect.protocol import READ
from .session import ToyHandlers, ToySession

NAME: Final = "toy"


def endpoint(services: Services, name: str) -> Endpoint:
    """Create the endpoint; called by ``serve``."""
    handlers = ToyHandlers(NAME, services, Carrying(services, NAME, READ, default=True))
    return TcpServer(services, NAME, Gate(services, NAME), partial(ToySession, handlers))

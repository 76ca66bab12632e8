"""nsqd's TCP protocol, for unmodified NSQ clients (nsq.md 1): the endpoint that ``serve`` starts."""

from __future__ import annotations

import socket
from functools import partial

from ....settings.settings import Address
from ...base.services import Endpoint, Services
from ...base.session import SessionFactory
from ...encryption.listener_tls import find_tls
from ...io.fast_connection import LendingServer, can_lend
from ...io.gate import Gate
from ...io.tls_upgrade import UpgradedTlsSession
from . import node as nodes
from .handlers import NsqdHandlers
from .lent_publications import LentPublications
from .login import LoginRules
from .publish import Publisher
from .publish_coalescing import PublishCoalescer
from .session import NAME, NsqdSession


class NsqdServer(LendingServer):
    """The listening socket of nsqd."""

    def __init__(self, services: Services) -> None:
        self._node = nodes.of(services)
        publisher = Publisher(self._node, NAME)
        gathering = PublishCoalescer(
            publisher,
            NAME,
            services.metrics.requests.values,
            services.broker.appender.call_before_flush,
            services.busy_poll.record_response,
        )
        lent = None
        if can_lend(services):
            lent = LentPublications(
                publisher, NAME, services.metrics.requests.values, services.busy_poll.record_response
            )
        settings = services.settings.endpoints.nsqd_tcp
        tls = find_tls(services, NAME, settings)
        handlers = NsqdHandlers(
            services,
            self._node,
            publisher,
            gathering,
            LoginRules(
                offers_tls=tls is not None,
                requires_tls=tls is not None and settings.tls.required,
                is_open=settings.allow_unauthenticated,
            ),
            lent,
        )
        new_session: SessionFactory = partial(NsqdSession, handlers)
        if tls is not None:
            new_session = partial(UpgradedTlsSession, tls, services, new_session)
        gate = Gate(services, NAME)
        super().__init__(services, NAME, gate, new_session, lent)

    async def start(self, listener: socket.socket) -> None:
        """Accept connections from now on."""
        self._node.tcp = Address(*listener.getsockname()[:2])
        self._node.forget_ephemeral()
        await super().start(listener)


def endpoint(services: Services, name: str) -> Endpoint:
    """Create the endpoint; called by ``serve``."""
    return NsqdServer(services)

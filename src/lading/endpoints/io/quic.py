"""QUIC: an endpoint that listens from the start and loads what it needs when the first datagram comes.

The library takes 120 ms and 26 MB, which brokers without QUIC clients spare themselves. Meanwhile datagrams wait in the
kernel. Threads: event loop only.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...model.errors import LadingError
from ...runtime.log_lines import origin
from ...settings.sections import ClientCertificateSettings, TlsSettings
from ..base.services import Services
from ..base.session import SessionFactory
from ..encryption.certificates import find_certificate
from ..encryption.listener_tls import ListenerTls
from .gate import Gate

if TYPE_CHECKING:
    from aioquic.quic.configuration import QuicConfiguration

    from .quic_server import QuicServer

log = logging.getLogger(__name__)


class QuicEndpoint:
    """A UDP socket, with a server that is created when the first datagram needs it."""

    def __init__(
        self,
        services: Services,
        name: str,
        gate: Gate,
        new_session: SessionFactory,
        tls: ClientCertificateSettings,
        request_bytes_max: int,
    ) -> None:
        """LocalError if a certificate in the settings cannot be used."""
        self._services, self._name = services, name
        self._tls = tls
        self._listener: socket.socket | None = None
        self._opening: asyncio.Task[None] | None = None
        self._server: QuicServer | None = None
        self._load: Callable[[], QuicServer] = lambda: self._load_server(gate, new_session, request_bytes_max)
        if tls.certificate is not None or tls.client_ca is not None:
            # now, not when the first client comes
            files = ListenerTls(services, name, TlsSettings(enabled=True, **tls.model_dump()))
            files.on_renewed = self._renew

    async def start(self, listener: socket.socket) -> None:
        """Take datagrams from now on."""
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener.fileno(), self._on_first_datagram)

    async def stop(self) -> None:
        """Take no new clients, respond to whole requests, close."""
        if self._opening is not None:
            await self._opening
        if self._server is not None:
            await self._server.stop()
        elif self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())

    def _on_first_datagram(self) -> None:
        assert self._listener is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener.fileno())
        self._opening = loop.create_task(self._open(self._listener))

    async def _open(self, listener: socket.socket) -> None:
        try:
            server = await asyncio.get_running_loop().run_in_executor(self._services.workers, self._load)
            await server.start(listener)
        except (LadingError, OSError, ImportError):
            log.exception("QUIC cannot be served until the broker is started again", extra=origin(self._name))
        else:
            self._server = server

    def _renew(self) -> None:
        """Use the certificate in the files, which was found to be valid, for new connections."""
        if self._server is not None:
            self._server.configuration = self._make_configuration()

    def _make_configuration(self) -> QuicConfiguration:
        from .quic_server import make_configuration

        return make_configuration(find_certificate(self._tls, self._services.settings.data), self._tls)

    def _load_server(self, gate: Gate, new_session: SessionFactory, request_bytes_max: int) -> QuicServer:
        from .quic_server import QuicServer

        configuration = self._make_configuration()
        names_clients = self._tls.client_user is not None
        return QuicServer(
            self._services, self._name, gate, new_session, configuration, request_bytes_max, names_clients
        )

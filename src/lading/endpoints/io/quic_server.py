"""The datagrams of a QUIC endpoint: passed to their connections, or opening new ones.

While many handshakes are under way, a new client must respond from its address (Retry), so that made-up addresses take
no places; datagrams of closed connections, of other versions and of no protocol at all take nothing. Threads: event
loop only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from pathlib import Path
from typing import Final, cast

from aioquic.buffer import Buffer  # type: ignore[attr-defined]
from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE, QuicConfiguration
from aioquic.quic.packet import (
    QuicHeader,
    QuicPacketType,
    encode_quic_retry,
    encode_quic_version_negotiation,
    pull_quic_header,
)
from aioquic.quic.retry import QuicRetryTokenHandler

from ...settings.sections import ClientCertificateSettings
from ...settings.settings import Address
from ..base.services import Services
from ..base.session import SessionFactory
from ..encryption.certificates import CertificateFiles
from ..encryption.listener_tls import VERIFY_MODES
from .datagrams import DatagramSocket, NetworkAddress
from .gate import Gate
from .quic_bounds import WINDOW_BYTES, BoundedQuicConnection
from .quic_connection import QuicClientConnection, QuicConnections

ID_BYTES: Final = 8
"""Bytes of the connection ids that this server chooses."""
LONG_HEADER: Final = 0x80
STREAMS_MAX: Final = 128
"""Requests of one connection under way; aioquic looks at each for each datagram."""
HANDSHAKES_MAX: Final = 32
"""While this many are under way, a new client must prove its address first."""
IDLE_TIMEOUT_S: Final = 30.0
"""After this long without a datagram a client counts as disconnected; Iggy's clients send one every 5 or 10 s."""
RECEIVE_BUFFER_BYTES: Final = 4 << 20
"""Datagrams that the kernel keeps while the event loop is at work; the system may allow fewer."""

# aioquic logs each connection, and each mistake of a peer
logging.getLogger("quic").setLevel(logging.CRITICAL)


def make_configuration(files: CertificateFiles, tls: ClientCertificateSettings) -> QuicConfiguration:
    """Return what all connections of an endpoint have in common. No ALPN: no release of Iggy offers any.

    OSError if a file cannot be read.
    """
    configuration = QuicConfiguration(
        is_client=False,
        connection_id_length=ID_BYTES,
        idle_timeout=IDLE_TIMEOUT_S,
        max_data=WINDOW_BYTES,
        max_stream_data=WINDOW_BYTES,
    )
    configuration.load_cert_chain(files.certificate, cast("Path", files.key))
    if tls.client_ca is not None:
        configuration.verify_mode = VERIFY_MODES[tls.client_certificates]
        configuration.load_verify_locations(cadata=tls.client_ca.read_bytes())
    return configuration


class QuicServer(QuicConnections):
    """An endpoint's socket, once the first datagram has come to it."""

    def __init__(
        self,
        services: Services,
        name: str,
        gate: Gate,
        new_session: SessionFactory,
        configuration: QuicConfiguration,
        request_bytes_max: int,
        names_clients: bool,
    ) -> None:
        super().__init__(services, name, gate, new_session)
        self.request_bytes_max = request_bytes_max
        self.names_clients = names_clients
        self.configuration = configuration
        """The configuration of connections that begin from now on."""
        self._retry = QuicRetryTokenHandler()

    async def start(self, listener: socket.socket) -> None:
        """Take datagrams from now on."""
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self.here = Address(*listener.getsockname()[:2])
        self.datagrams = DatagramSocket(listener, self._receive)

    async def stop(self) -> None:
        """Take no new clients, respond to whole requests, close."""
        await super().stop()
        self.datagrams.close()

    def _receive(self, data: bytes, addr: NetworkAddress) -> None:
        if len(data) > ID_BYTES and not data[0] & LONG_HEADER:
            # all but the first datagrams of a connection
            connection = self._by_id.get(data[1 : 1 + ID_BYTES])
            if connection is not None:
                connection.receive(data, addr)
            else:
                self.gate.count_dropped("no_connection")
            return
        try:
            header = pull_quic_header(Buffer(data=data), host_cid_length=ID_BYTES)
        except ValueError:
            self.gate.count_dropped("malformed")
            return
        connection = self._by_id.get(header.destination_cid)
        if connection is not None:
            connection.receive(data, addr)
        elif header.version not in self.configuration.supported_versions:
            self._negotiate_version(header, data, addr)
        elif header.packet_type is QuicPacketType.INITIAL and len(data) >= SMALLEST_MAX_DATAGRAM_SIZE:
            self._accept(header, data, addr)
        else:
            self.gate.count_dropped("no_connection")

    # -- new connections

    def _negotiate_version(self, header: QuicHeader, data: bytes, addr: NetworkAddress) -> None:
        """Send the supported versions; never more bytes than were received, and never in response to such a packet."""
        self.gate.count_dropped("version")
        if header.packet_type is not QuicPacketType.VERSION_NEGOTIATION and len(data) >= SMALLEST_MAX_DATAGRAM_SIZE:
            answer = encode_quic_version_negotiation(
                source_cid=header.destination_cid,
                destination_cid=header.source_cid,
                supported_versions=self.configuration.supported_versions,
            )
            self.datagrams.send([(answer, addr)])

    def _accept(self, header: QuicHeader, data: bytes, addr: NetworkAddress) -> None:
        """Begin a connection, if there is a place for it."""
        original_cid, retry_cid = header.destination_cid, None
        if self.services.stopping:
            return
        if header.token:
            try:
                now_s = asyncio.get_running_loop().time()
                original_cid = self._retry.validate_token(
                    address=addr, destination_cid=original_cid, token=header.token, now=now_s
                )
            except ValueError:
                self.gate.count_dropped("token")
                return
            retry_cid = header.destination_cid
        elif len(self._handshakes) >= HANDSHAKES_MAX:
            self._demand_token(header, addr)
            return
        quic = BoundedQuicConnection(
            configuration=self.configuration,
            streams_max=STREAMS_MAX,
            original_destination_connection_id=original_cid,
            retry_source_connection_id=retry_cid,
        )
        connection = QuicClientConnection(self, quic, addr)
        if not self.admit(connection, str(addr[0])):
            # without a response the client tries again
            connection.session.lose()
            return
        self._handshakes.add(connection)
        connection.add_id(header.destination_cid)
        connection.add_id(quic.host_cid)
        connection.receive(data, addr)

    def _demand_token(self, header: QuicHeader, addr: NetworkAddress) -> None:
        """Send a Retry: the client must return its token, which arrives only at its true address."""
        source_cid = os.urandom(ID_BYTES)
        token = self._retry.create_token(
            address=addr,
            original_destination_connection_id=header.destination_cid,
            retry_source_connection_id=source_cid,
            now=asyncio.get_running_loop().time(),
        )
        answer = encode_quic_retry(
            version=cast("int", header.version),
            source_cid=source_cid,
            destination_cid=header.source_cid,
            original_destination_cid=header.destination_cid,
            retry_token=token,
        )
        self.datagrams.send([(answer, addr)])

"""TLS that a client requests within its protocol: a connection begins plain, and both sides change to TLS at a command.

A client may also begin with TLS, as its first byte shows: no protocol that is upgraded begins with that of a TLS
record.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base.deadlines import Stage
from ..base.peer import HANDSHAKE_BYTE
from ..base.responses import Bytes
from ..base.services import Services
from ..base.session import ConnectionHandle, ReceiveResult, SessionFactory
from ..encryption.listener_tls import ListenerTls
from .layer import LayeredSession
from .tls import TlsSession


class UpgradedTlsSession(TlsSession):
    """A client that may change to TLS; until then its bytes are passed on as they are."""

    def __init__(
        self, tls: ListenerTls, services: Services, new_session: SessionFactory, connection: ConnectionHandle
    ) -> None:
        super().__init__(tls, services, new_session, connection)
        self._is_plain, self._is_first = True, True
        self.inner_connection.encrypts = False
        self.inner_connection.start_tls = self._start_tls

    # -- what the connection calls

    def receive(self, now_us: int) -> ReceiveResult:
        if self._is_first and (unread := self.inbox.unread):
            self._is_first = False
            if unread[0] == HANDSHAKE_BYTE:
                self._start_tls()
        if not self._is_plain:
            return super().receive(now_us)
        result = LayeredSession.receive(self, now_us)
        # a client that did not wait for the response to its command may have sent its hello right after it
        return result if self._is_plain or self.is_ended else super().receive(now_us)

    def fill(self) -> bool:
        if not self._is_plain:
            return super().fill()
        inbox, inner = self.inbox, self.inner.inbox
        part = inbox.unread[: len(inner.view) - inner.have]
        inner.view[inner.have : inner.have + len(part)] = part
        inner.have += len(part)
        inbox.at += len(part)
        return inbox.at < inbox.have

    def stage(self) -> Stage:
        return LayeredSession.stage(self) if self._is_plain else super().stage()

    def lose(self) -> None:
        super().lose()
        # else the layer and what lies within would refer to each other
        self.inner_connection.start_tls = self.connection.start_tls

    # -- the sink of responses

    def write(self, data: Bytes) -> None:
        if not self._is_plain:
            super().write(data)
        elif self._sink is not None:
            self._sink.write(data)

    def writelines(self, list_of_data: Sequence[Bytes]) -> None:
        if not self._is_plain:
            super().writelines(list_of_data)
        elif self._sink is not None:
            self._sink.writelines(list_of_data)

    def _start_tls(self) -> None:
        """Take what follows for TLS; what was written before stays plain."""
        self._is_plain = False
        self.inner_connection.encrypts = True
        inner = self.inner.inbox
        self._incoming.write(inner.unread)
        inner.have = inner.at

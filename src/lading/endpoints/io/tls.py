"""TLS over TCP: a layer around the session of any protocol."""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Sequence
from functools import partial
from typing import Final, cast

from ...model.errors import Refusal
from ...settings.sections import TlsEndpointSection
from ..base.deadlines import Stage
from ..base.responses import Bytes, Sink
from ..base.services import Services
from ..base.session import ConnectionHandle, ReceiveResult, SessionFactory
from ..encryption.client_certificates import find_user
from ..encryption.listener_tls import ListenerTls, explain_failure, find_tls
from .layer import LayeredSession

log = logging.getLogger(__name__)

RECORDS_BYTES: Final = 256 << 10
"""Parts of responses up to this are joined: each write makes a record of its own, and costs as much as a long one."""


def encrypt(services: Services, name: str, section: TlsEndpointSection, new_session: SessionFactory) -> SessionFactory:
    """Return what makes sessions of the endpoint ``name``: with TLS if its settings say so, as they are otherwise."""
    tls = find_tls(services, name, section)
    return new_session if tls is None else partial(TlsSession, tls, services, new_session)


class TlsSession(LayeredSession):
    """A client that speaks TLS, and within it another protocol."""

    def __init__(
        self, tls: ListenerTls, services: Services, new_session: SessionFactory, connection: ConnectionHandle
    ) -> None:
        super().__init__(services, new_session, connection)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = self._is_broken = False
        self._has_turn = False
        """The handshake continues after other connections have had their turn."""
        self._ends_later = False
        """Whether the client has sent its last byte, after those that the handshake still needs."""
        self._sink: Sink | None = None
        self._held: list[Bytes] = []
        """The session's output during the handshake."""
        self._names_clients, self._access = tls.names_clients, services.broker.access
        self.inner_connection.encrypts = True

    # -- what the connection calls

    def wrap(self, sink: Sink) -> Sink:
        self._sink = sink
        return self.inner.wrap(self)

    def receive(self, now_us: int) -> ReceiveResult:
        if not self._is_open:
            self._has_turn = not self._has_turn
            if self._has_turn:
                # hellos of hundreds of clients come in one pass, and each takes up to a millisecond
                return ReceiveResult.TURN
            if not self._shake_hands():
                self._end_late()
                return ReceiveResult.DONE
        result = super().receive(now_us)
        self._end_late()
        return result

    def _end_late(self) -> None:
        if self._ends_later and not self.is_ended:
            self.end()

    def end(self) -> None:
        if self._has_turn and not self.is_lost:
            self._ends_later = True
        else:
            super().end()

    @property
    def is_busy(self) -> bool:
        return self._has_turn or super().is_busy

    def fill(self) -> bool:
        inbox = self.inner.inbox
        try:
            while True:
                room = inbox.view[inbox.have :]
                if not room:
                    return True
                self._feed_tls()
                # typeshed knows the form that returns bytes
                size_bytes = cast("int", self._tls.read(len(room), room))
                if not size_bytes:
                    break
                inbox.have += size_bytes
        except ssl.SSLWantReadError:
            # such as the response to a key update
            self._flush()
            return False
        except ssl.SSLError as error:
            if not isinstance(error, ssl.SSLZeroReturnError):
                self._break_off(error)
        self.end()
        return False

    def say_goodbye(self) -> None:
        self.inner.say_goodbye()
        if self._is_open and not self._is_broken:
            # the client's own goodbye is not waited for
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()

    def stage(self) -> Stage:
        return super().stage() if self._is_open else Stage.FIRST

    # -- the sink of responses

    def write(self, data: Bytes) -> None:
        """Send ``data``, encrypted."""
        self._encrypt(data)
        self._flush()

    def writelines(self, list_of_data: Sequence[Bytes]) -> None:
        """Send all of these, encrypted, one after the other."""
        if sum(map(len, list_of_data)) <= RECORDS_BYTES:
            list_of_data = (b"".join(list_of_data),)
        for data in list_of_data:
            self._encrypt(data)
        self._flush()

    # -- records

    def _encrypt(self, data: Bytes) -> None:
        if not self._is_open:
            self._held.append(data)
            return
        left = memoryview(data)
        while left and not self._is_broken:
            try:
                left = left[self._tls.write(left) :]
            except ssl.SSLError as error:
                self._break_off(error)
                self.connection.abort()

    def _shake_hands(self) -> bool:
        """Continue the handshake. Return whether it is done."""
        self._feed_tls()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._break_off(error)
            self.end()
            return False
        if self._names_clients and not self._accept_certificate():
            return False
        self._is_open = True
        held, self._held = self._held, []
        for data in held:
            self._encrypt(data)
        self._flush()
        return True

    def _accept_certificate(self) -> bool:
        """Log the client in by its certificate, if it has shown one; False if that names no user who may."""
        shown = self._tls.getpeercert()
        if not shown or not self._access.is_enabled:
            return True
        subject = cast("Sequence[Sequence[tuple[str, str]]]", shown["subject"])
        names = [value for part in subject for kind, value in part if kind == "commonName"]
        try:
            ends_s = ssl.cert_time_to_seconds(str(shown["notAfter"]))
            self.inner.accept_certificate(find_user(self._access, names, ends_s))
        except Refusal as refusal:
            self._is_broken = True
            self.connection.count_dropped("tls")
            log.info(
                "closing the connection: the client's certificate names no user: %s", refusal,
                extra=self.connection.origin(),
            )  # fmt: skip
            self.end()
            return False
        return True

    def _feed_tls(self) -> None:
        """Give the received bytes to TLS."""
        inbox = self.inbox
        if inbox.at < inbox.have:
            self._incoming.write(inbox.unread)
            inbox.at = inbox.have

    def _flush(self) -> None:
        """Send the finished records."""
        if self._outgoing.pending and self._sink is not None and not self.is_lost:
            self._sink.write(self._outgoing.read())

    def _break_off(self, error: ssl.SSLError) -> None:
        """Log why this is not TLS, or not an allowed version; the connection is closed."""
        self._is_broken = True
        self.connection.count_dropped("tls")
        log.info("closing the connection: %s", explain_failure(error), extra=self.connection.origin())
        # the alert for the client
        self._flush()

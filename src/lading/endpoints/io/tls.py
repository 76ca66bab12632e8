"""TLS over TCP: a layer around the session of any protocol."""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, cast

from ...endpoint_settings import TlsSettings, endpoint_key
from ...model.errors import LocalError
from ..base.deadlines import Stage
from ..base.responses import Bytes, Sink
from ..base.services import Services
from ..base.session import ConnectionHandle, ReceiveResult, SessionFactory
from .certificates import find_certificate
from .layer import LayeredSession

log = logging.getLogger(__name__)

RECORDS_BYTES: Final = 256 << 10
"""Parts of responses up to this are joined: each write makes a record of its own, and costs as much as a long one."""


def encrypt(services: Services, name: str, tls: TlsSettings, new_session: SessionFactory) -> SessionFactory:
    """Return what makes sessions of the endpoint ``name``: with TLS if its settings say so, as they are otherwise."""
    if not tls.enabled:
        return new_session
    context = make_context(tls, f"{endpoint_key(name)}.tls", services.settings.data)
    return partial(TlsSession, context, services, new_session)


def make_context(tls: TlsSettings, key: str, data: Path) -> ssl.SSLContext:
    """Return a server's TLS context; LocalError in one sentence that names the setting below ``key`` at fault."""
    files = find_certificate(tls, data)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(files.certificate, files.key, password="")
    except (OSError, ValueError) as error:
        where = f"{files.certificate}" + (f" and {files.key}" if files.key is not None else "")
        raise LocalError(
            f"setting {key}.certificate: {where} cannot be used: {_reason(error)}; "
            "give a certificate and its key as PEM, the key without a password"
        ) from None
    if tls.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(tls.client_ca)
        except (OSError, ValueError) as error:
            raise LocalError(
                f"setting {key}.client_ca: {tls.client_ca} cannot be used: {_reason(error)}; give certificates as PEM"
            ) from None
    return context


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").replace("_", " ").lower()
    return str(getattr(error, "strerror", None) or error)


class TlsSession(LayeredSession):
    """A client that speaks TLS, and within it another protocol."""

    def __init__(
        self, context: ssl.SSLContext, services: Services, new_session: SessionFactory, connection: ConnectionHandle
    ) -> None:
        super().__init__(services, new_session, connection)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = self._is_broken = False
        self._sink: Sink | None = None

    # -- what the connection calls

    def wrap(self, sink: Sink) -> Sink:
        self._sink = sink
        return self.inner.wrap(self)

    def receive(self, now_us: int) -> ReceiveResult:
        if not self._is_open and not self._shake_hands():
            return ReceiveResult.DONE
        return super().receive(now_us)

    def fill(self) -> bool:
        inbox = self.inner.inbox
        try:
            while True:
                room = inbox.view[inbox.have :]
                if not room:
                    return True
                self._feed()
                # typeshed knows the form that returns bytes
                size_bytes = cast("int", self._tls.read(len(room), room))
                if not size_bytes:
                    break
                inbox.have += size_bytes
        except ssl.SSLWantReadError:
            # such as the answer to a new key
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
        """Send all of these, encrypted, one behind the other."""
        if sum(map(len, list_of_data)) <= RECORDS_BYTES:
            list_of_data = (b"".join(list_of_data),)
        for data in list_of_data:
            self._encrypt(data)
        self._flush()

    # -- records

    def _encrypt(self, data: Bytes) -> None:
        left = memoryview(data)
        while left and not self._is_broken:
            try:
                left = left[self._tls.write(left) :]
            except ssl.SSLError as error:
                self._break_off(error)
                self.connection.abort()

    def _shake_hands(self) -> bool:
        """Go on with the handshake. Return whether it is done."""
        self._feed()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._break_off(error)
            self.end()
            return False
        self._is_open = True
        self._flush()
        return True

    def _feed(self) -> None:
        """Hand over what was received."""
        inbox = self.inbox
        if inbox.at < inbox.have:
            self._incoming.write(inbox.unread)
            inbox.at = inbox.have

    def _flush(self) -> None:
        """Send the records that are made."""
        if self._outgoing.pending and self._sink is not None and not self.is_lost:
            self._sink.write(self._outgoing.read())

    def _break_off(self, error: ssl.SSLError) -> None:
        """Tell why this is no TLS, or not one that is allowed; the connection is closed."""
        self._is_broken = True
        self.connection.count_dropped("tls")
        log.info("closing the connection: TLS failed: %s", _reason(error), extra=self.connection.origin())
        # the alert that tells the client
        self._flush()

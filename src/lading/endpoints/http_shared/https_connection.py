"""HTTPS: an HTTP connection over TLS, with the places, deadlines and limits of a plain one from its first byte on.

asyncio's own TLS calls a protocol only after the handshake: half handshakes would take no place and have a deadline of
their own. Threads: event loop only.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.server import ServerState

from ..base.peer import origin_of
from ..base.responses import Bytes
from ..encryption.listener_tls import explain_failure
from .http_connection import HttpConnection, HttpContext

log = logging.getLogger(__name__)

READ_BYTES: Final = 256 << 10
_PLAIN_ANSWER: Final = b"this port speaks HTTPS; ask for https:// instead of http://\n"
PLAIN_RESPONSE: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_PLAIN_ANSWER), _PLAIN_ANSWER)
)
"""Response to a client that speaks plain HTTP."""


class EncryptedTransport(asyncio.Transport):
    """A transport of asyncio with TLS over it."""

    def __init__(self, context: ssl.SSLContext, transport: asyncio.Transport) -> None:
        super().__init__()
        self._context, self._transport = context, transport
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = self._has_ended = False
        self.pause_reading = transport.pause_reading  # type: ignore[method-assign]
        self.resume_reading = transport.resume_reading  # type: ignore[method-assign]
        self.is_closing = transport.is_closing  # type: ignore[method-assign]
        self.abort = transport.abort  # type: ignore[method-assign]
        self.get_write_buffer_size = transport.get_write_buffer_size  # type: ignore[method-assign]

    @property
    def is_open(self) -> bool:
        """Return whether hands are shaken."""
        return self._is_open

    def decrypt(self, data: bytes) -> Iterator[bytes]:
        """Yield the client's data in these records; raises SSLError if it is not TLS, or a version that is not
        allowed."""
        self._incoming.write(data)
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
            while part := self._tls.read(READ_BYTES):
                yield part
        except ssl.SSLWantReadError:
            return
        except ssl.SSLZeroReturnError:
            pass
        finally:
            # the server's part of the handshake, or the alert with the reason of a refusal
            self._flush()
        self.close()

    def refuse(self, answer: bytes) -> None:
        """Part from a client whose handshake failed, with a response that is not encrypted, or none."""
        self._has_ended = True
        if answer:
            self._transport.write(answer)
        self._transport.close()

    def write(self, data: Bytes) -> None:
        """Send ``data``, encrypted."""
        with suppress(ssl.SSLError):
            self._tls.write(data)
        self._flush()

    def writelines(self, list_of_data: Iterable[Bytes]) -> None:
        """Send all of these, one after the other."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """Return whether the transport below can close its sending half (asyncio.WriteTransport)."""
        return self._transport.can_write_eof()

    def write_eof(self) -> None:
        """Send the end of the stream to the client, and continue to read."""
        self._say_goodbye()
        self._transport.write_eof()

    def close(self) -> None:
        """Close when all is sent."""
        self._say_goodbye()
        self._transport.close()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a fact about the connection by its name, those of TLS included (asyncio.BaseTransport)."""
        own = {"sslcontext": self._context, "ssl_object": self._tls}
        return own[name] if name in own else self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Have the transport below pass what it receives to another protocol (asyncio.BaseTransport)."""
        self._transport.set_protocol(protocol)

    def _say_goodbye(self) -> None:
        if self._is_open and not self._has_ended:
            self._has_ended = True
            # the client's own goodbye is not waited for
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())


class HttpsConnection(HttpConnection):
    """One connection. uvicorn makes it; ``find_tls`` and ``context`` come first, by functools.partial.

    ``find_tls`` is called for each connection: certificates are renewed while a server runs.
    """

    _encrypted: EncryptedTransport

    def __init__(
        self,
        find_tls: Callable[[], ssl.SSLContext],
        context: HttpContext,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(context, config, server_state, app_state, _loop)
        self._find_tls = find_tls
        self._hello = b""
        """The received part of a handshake, which continues when others had their turn."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin as a plain connection does, within TLS."""
        self._encrypted = EncryptedTransport(self._find_tls(), transport)
        super().connection_made(self._encrypted)

    def data_received(self, data: bytes) -> None:
        """Decrypt, and continue as a plain connection does."""
        if self._encrypted.is_open:
            self._decrypt(data)
            return
        # hellos of hundreds of clients come in one pass of the loop, and each takes up to a millisecond
        if not self._hello:
            self._context.turns.add(self._shake_hands)
        self._hello += data
        self._encrypted.pause_reading()

    def _shake_hands(self) -> None:
        hello, self._hello = self._hello, b""
        if not self.transport.is_closing():
            self._encrypted.resume_reading()
            self._decrypt(hello)

    def _decrypt(self, data: bytes) -> None:
        try:
            for part in self._encrypted.decrypt(data):
                super().data_received(part)
        except ssl.SSLError as error:
            context = self._context
            context.drop("tls")
            log.info(
                "closing the connection: %s", explain_failure(error), extra=origin_of(context.name, self.transport)
            )
            self._encrypted.refuse(PLAIN_RESPONSE if error.reason == "HTTP_REQUEST" else b"")

"""HTTP endpoints: one uvicorn server each, in the broker's own event loop, with sockets that serve has bound."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...model.errors import LadingError, Reason, Refusal
from ...settings.sections import TlsEndpointSection
from ..base.receive_budget import ReceiveBudget
from ..base.services import Services
from ..encryption.listener_tls import find_tls
from .cross_site import CrossSiteGuard, HostNames
from .http_connection import HttpConnection, make_context
from .https_connection import HttpsConnection
from .quota_rest import BODY_BYTES

DRAIN_TIMEOUT_S: Final = 5
DATE_EVERY_S: Final = 1.0
PIECE_BYTES: Final = 256 << 10
"""How much of a large response goes to the socket at once: the kernel copies it while the loop waits."""


class _Server(uvicorn.Server):
    """uvicorn without signal handlers, which are serve's, and without its pauses."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def end(self) -> None:
        """Finish requests in flight, then stop."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        # the tick at 0 also renews the date in responses
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(DATE_EVERY_S):
                    await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening and close connections: at once those without a request. uvicorn calls this.

        Its own shutdown pauses for a tenth of a second, even without a connection.
        """
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        # connections that were accepted in this turn of the loop are in the state after it
        await asyncio.sleep(0)
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)


class HttpEndpoint:
    """An ASGI application on a socket."""

    def __init__(
        self,
        name: str,
        app: ASGIApp,
        services: Services,
        hosts: Iterable[str],
        reserved_paths: frozenset[str],
    ) -> None:
        """``hosts``: names, besides the bound address, by which clients may address the endpoint.

        ``reserved_paths`` are also served when all places are taken.
        """
        self.app: Final = app
        self._hosts = HostNames(services.settings.http, hosts)
        context = make_context(name, services, reserved_paths)
        section = services.settings.endpoints.section(name)
        assert isinstance(section, TlsEndpointSection)
        tls = find_tls(services, name, section)
        new_connection: Callable[..., HttpConnection] = partial(HttpConnection, context)
        if tls is not None:
            new_connection = partial(HttpsConnection, partial(getattr, tls, "context"), context)
        self._server = _Server(
            uvicorn.Config(
                CrossSiteGuard(app, self._hosts, name, services.metrics),
                http=new_connection,  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=DRAIN_TIMEOUT_S,
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self, listener: socket.socket) -> None:
        """Serve from now on."""
        self._hosts.bind(listener)
        self._task = asyncio.get_running_loop().create_task(self._server.serve([listener]))
        while not self._server.started:
            if self._task.done():
                await self._task
                raise LadingError("the HTTP server left while it started")
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """Respond to requests in progress, then close; connections that do not finish are aborted."""
        if self._task is not None:
            self._server.end()
            await self._task


class _ArrivingBody:
    """The body of a request as far as it is here, and the memory for it, which a request that is older may lose."""

    def __init__(self, request: Request, size_bytes_max: int, budget: ReceiveBudget) -> None:
        self._request = request
        self._size_bytes_max = size_bytes_max
        self._account = budget.open(request.client.host if request.client else "", self._give_way)
        self._parts: list[bytes] = []
        self._granted_bytes = 0
        self._gave_way = False
        self._patience = asyncio.timeout(None)

    async def read(self) -> bytes:
        """Return the body when it is whole; raises Refusal if it is too large, or memory is short."""
        with suppress(TimeoutError):
            try:
                async with self._patience:
                    await self._collect()
                if not self._gave_way:
                    return b"".join(self._parts)
            finally:
                self._release()
        raise _short_of_memory()

    async def _collect(self) -> None:
        size_bytes = 0
        async for part in self._request.stream():
            size_bytes += len(part)
            if size_bytes > self._size_bytes_max:
                raise _too_large(self._size_bytes_max)
            if size_bytes > self._granted_bytes and not self._take(size_bytes):
                raise _short_of_memory()
            self._parts.append(part)

    def _take(self, size_bytes: int) -> bool:
        # in steps that double: small ones would take a large body out of the reserve for small requests
        wanted_bytes = max(size_bytes, min(2 * self._granted_bytes, self._size_bytes_max))
        if self._gave_way or not self._account.take(wanted_bytes - self._granted_bytes):
            return False
        self._granted_bytes = wanted_bytes
        return True

    def _give_way(self) -> None:
        self._gave_way = True
        self._release()
        self._patience.reschedule(asyncio.get_running_loop().time())

    def _release(self) -> None:
        self._parts.clear()
        self._account.give(self._granted_bytes)
        self._granted_bytes = 0


async def read_body(request: Request, limit_bytes: int, budget: ReceiveBudget) -> bytes:
    """Return the body of a request.

    Raises Refusal if it is over the limit (before it is read, if its size is declared), or if memory for it is short:
    that of its peer address, or another one's that began later.
    """
    declared = request.headers.get("content-length", "")
    size_bytes = int(declared[:20]) if declared.isdigit() else limit_bytes
    if size_bytes > limit_bytes:
        raise _too_large(limit_bytes)
    body = await _ArrivingBody(request, size_bytes, budget).read()
    request.scope[BODY_BYTES] = len(body)
    return body


@contextmanager
def hold_body(size_bytes: int, budget: ReceiveBudget) -> Iterator[None]:
    """Count the body of a request that waits as one that still arrives. Raises Refusal if memory for it is short."""
    if not budget.acquire(size_bytes):
        raise _short_of_memory()
    try:
        yield
    finally:
        budget.release(size_bytes)


def _too_large(limit_bytes: int) -> Refusal:
    return Refusal(Reason.REQUEST_TOO_LARGE, f"the body is larger than {limit_bytes} bytes; send it in parts")


def _short_of_memory() -> Refusal:
    return Refusal(Reason.STOPPING, "the broker is receiving too many large requests; retry later")


class TextResponse(PlainTextResponse):
    """A sentence, which may quote text that UTF-8 does not allow: a lone surrogate is written as its escape."""

    def render(self, content: Any) -> bytes:
        """Encode the sentence as UTF-8. Starlette calls this."""
        return str(content).encode(errors="backslashreplace")


class InPieces(Response):
    """A large response, after each piece of which others have their turn."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the body in pieces of ``PIECE_BYTES``. Starlette calls this, by the rules of ASGI."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        left = memoryview(self.body)
        while len(left) > PIECE_BYTES:
            await send({"type": "http.response.body", "body": left[:PIECE_BYTES], "more_body": True})
            left = left[PIECE_BYTES:]
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": left})

"""An HTTP server in a process of its own on this machine: its socket, its ready line, and its orderly end."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from ..endpoints.encryption.listener_tls import RenewedTls
from ..endpoints.encryption.renewal import LOOK_S, CertificateRenewal
from ..endpoints.http_shared.http_connection import HttpConnection, make_process_context
from ..endpoints.http_shared.https_connection import HttpsConnection
from ..model.address import Address
from ..model.errors import LocalError
from ..model.version import __version__
from ..runtime.log_lines import quiet_uvicorn
from ..runtime.open_files import raise_open_files_limit

BACKLOG: Final = 128
END_S: Final = 1
"""Time for open responses to finish when the server ends: a tail never finishes."""


class _Server(uvicorn.Server):
    """A server that ends in order at Ctrl-C or SIGTERM; uvicorn's raises the signal again after that."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the context is active."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(
    name: str,
    app: ASGIApp,
    listener: socket.socket,
    announce: Callable[[], None],
    tls: RenewedTls | None = None,
) -> None:
    """Serve an application on a bound socket until SIGTERM or Ctrl-C; ``announce`` prints the ready line.

    Files of ``tls`` that change are read again within some seconds, for new connections.
    """
    quiet_uvicorn()
    raise_open_files_limit()
    server = _Server(make_config(name, app, None if tls is None else lambda: tls.context))
    # before the ready line: its reader may end the process at once
    with server.capture_signals(), _watch_files(name, tls):
        announce()
        asyncio.run(server.serve([listener]))


@contextmanager
def _watch_files(name: str, tls: RenewedTls | None) -> Iterator[None]:
    """Read the files of a listener's certificate again when they change, while the context is active."""
    if tls is None:
        yield
        return
    renewal, ended = CertificateRenewal(), threading.Event()
    renewal.add(name, tls.files, tls.renew)

    def look() -> None:
        while not ended.wait(LOOK_S):
            renewal.look()

    thread = threading.Thread(target=look, name=f"lading-{name}-certificates", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def make_config(name: str, app: ASGIApp, find_tls: Callable[[], ssl.SSLContext] | None = None) -> uvicorn.Config:
    """Return the configuration of a server, whose connections and requests are bounded as those of a broker.

    ``find_tls`` returns the TLS of a new connection.
    """
    context = make_process_context(name)
    connection: Callable[..., HttpConnection] = partial(HttpConnection, context)
    if find_tls is not None:
        connection = partial(HttpsConnection, find_tls, context)
    config = uvicorn.Config(
        app, http=connection, ws="none", lifespan="off", log_config=None, access_log=False,  # type: ignore[arg-type]
        server_header=False, proxy_headers=False, timeout_graceful_shutdown=END_S,
    )  # fmt: skip
    config.load()
    return config


def listen(address: Address, name: str, option: str = "--address", *, is_public: bool = False) -> socket.socket:
    """Return a socket bound to an address of the loopback, or any if ``is_public``. Raises LocalError for others."""
    if not address.loopback and not is_public:
        raise LocalError(
            f"{option} {address}: `lading {name}` listens on this machine only; to reach it from another one: "
            f"ssh -L {address.port}:127.0.0.1:{address.port} HOST, or run `lading {name}` with --certificate FILE"
        )
    try:
        bound = socket.create_server(
            (address.host, address.port), family=socket.AF_INET6 if ":" in address.host else socket.AF_INET,
            backlog=BACKLOG,
        )  # fmt: skip
        # connections inherit it; asyncio sets it only for sockets that were made with the protocol's number. Without it
        # the body of a response waits 40 ms for the acknowledgement of its head
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return bound
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise LocalError(f"{address} is in use by another program; choose another with {option}") from None
        raise LocalError(f"cannot listen on {address}: {error.strerror}; choose another with {option}") from None


def print_ready(name: str, address: Address, output: str) -> None:
    """Print the ready line to standard output, in the form of that of ``lading serve``."""
    document = {"event": "ready", "pid": os.getpid(), "endpoints": {name: str(address)}, "version": __version__}
    sys.stdout.write((json.dumps(document) if output == "json" else f"ready {name}={address}") + "\n")
    sys.stdout.flush()

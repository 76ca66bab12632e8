"""The HTTP server of a process that is not a broker: metrics for Prometheus, and a description at ``GET /``."""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from ..model.address import Address
from ..model.errors import LocalError
from ..model.version import __version__

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

METRICS: Final = "/metrics"
REQUEST_TIMEOUT_S: Final = 10.0
"""A client that has not sent its request and read the response within this time is disconnected: each has a thread."""
CONNECTIONS_MAX: Final = 32
"""One more connection closes the oldest one that has not sent its request: a scraper sends it at once."""
REQUEST_BYTES_MAX: Final = 4096
"""Part of what has arrived in which the end of a request is looked for: a scraper's has a few hundred bytes."""


class StatusPage(NamedTuple):
    """The response of a path."""

    content: bytes
    content_type: str


def render_json(document: Mapping[str, Any]) -> StatusPage:
    """Return a page that is this document as JSON."""
    return StatusPage(json.dumps(document, ensure_ascii=False).encode() + b"\n", "application/json")


def render_metrics(collector: Collector) -> StatusPage:
    """Return the page of ``/metrics``: the collector's metrics, and those of the process itself."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    ProcessCollector(registry=registry)
    return StatusPage(generate_latest(registry), CONTENT_TYPE_LATEST)


@contextmanager
def serve_status(address: Address, purpose: str, pages: Mapping[str, Callable[[], StatusPage]]) -> Iterator[Address]:
    """Serve ``pages`` by path until the end of the block; give the address with its actual port.

    ``GET /`` says in one line what the process is (``purpose``, such as "a Lading mirror service") and which pages it
    has. Raises LocalError if the address cannot be bound.
    """
    sentence = (
        f"{purpose}, Lading {__version__}. GET {', '.join(pages)}; its page of the docs: docs/reference/metrics.md"
    )

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_S
        server_version = f"lading/{__version__}"
        sys_version = ""

        def do_GET(self) -> None:
            cast("_StatusServer", self.server).keep(self.connection)
            path = self.path.partition("?")[0]
            render = pages.get(path)
            hosts = len(self.headers.get_all("host", []))
            if hosts > 1 or (not hosts and self.request_version >= "HTTP/1.1"):
                # RFC 9112 3.2
                self._respond(400, _render_text("header Host: missing, or given more than once; send it once\n"))
            elif render is not None:
                self._respond(200, render())
            elif path == "/":
                self._respond(200, _render_text(f"{sentence}\n"))
            else:
                self._respond(404, _render_text(f"{path}: not here. This is {sentence}\n"))

        do_HEAD = do_GET

        def _respond(self, status: int, page: StatusPage) -> None:
            self.send_response(status)
            self.send_header("content-type", page.content_type)
            self.send_header("content-length", str(len(page.content)))
            self.send_header("x-content-type-options", "nosniff")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(page.content)

        def log_message(self, format: str, *values: object) -> None:
            """Write nothing: a scrape every few seconds would fill the log."""

    try:
        server = _open_server(address, Handler)
    except OSError as error:
        raise LocalError(
            f"metrics cannot be served at {address}: {error.strerror or error}; name another address, with port 0 for "
            "a free one"
        ) from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="status", daemon=True)
    thread.start()
    try:
        yield Address(address.host, server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _StatusServer(ThreadingHTTPServer):
    """A server of few connections, each with a thread and one deadline for all of its request and response."""

    daemon_threads = True
    # a scraper that is slow to go away delays no stop
    block_on_close = False
    # the default of 5 makes a scraper wait a second for its connection if few others come at once
    request_queue_size = 128

    def __init__(self, family: int, address: Address, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = family
        self._lock = threading.Lock()
        self._ends_at: dict[socket.socket, float] = {}
        """The deadlines of the open connections, oldest first."""
        self._answered: set[socket.socket] = set()
        """The connections whose requests are being responded to."""
        super().__init__((address.host, address.port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection; beyond CONNECTIONS_MAX end one for it.

        That is the oldest one without a whole request: else hundreds of slow clients would end each scrape.
        """
        with self._lock:
            if len(self._ends_at) >= CONNECTIONS_MAX:
                self._disconnect(self._choose_slow_one())
            self._ends_at[request] = time.monotonic() + REQUEST_TIMEOUT_S
        super().process_request(request, client_address)

    def _choose_slow_one(self) -> socket.socket:
        for request in self._ends_at:
            # its thread may close it just now
            with suppress(OSError, ValueError):
                if request not in self._answered and not _has_request(request):
                    return request
        return next(iter(self._ends_at))

    def keep(self, request: socket.socket) -> None:
        """Keep a connection, whose request has arrived, until its response is sent or its time is up."""
        with self._lock:
            self._answered.add(request)

    def service_actions(self) -> None:
        """Disconnect the clients whose time is up: a time-out of the socket begins again with every byte."""
        now = time.monotonic()
        with self._lock:
            for request in [request for request, ends_at in self._ends_at.items() if ends_at <= now]:
                self._disconnect(request)

    def _disconnect(self, request: socket.socket) -> None:
        del self._ends_at[request]
        self._answered.discard(request)
        # the client may have disconnected
        with suppress(OSError):
            # its thread reads or writes: that ends, and closes the socket
            request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._ends_at.pop(request, None)
            self._answered.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing of a client that leaves before its response: the base class writes a traceback for each."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _has_request(connection: socket.socket) -> bool:
    """Return whether a whole request without a body has arrived that its thread has not read yet."""
    ready = select.poll()
    # not MSG_DONTWAIT: a socket with a time-out waits before it is read
    ready.register(connection, select.POLLIN)
    return bool(ready.poll(0)) and b"\r\n\r\n" in connection.recv(REQUEST_BYTES_MAX, socket.MSG_PEEK)


def _open_server(address: Address, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    family, *_ = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
    return _StatusServer(family, address, handler)


def _render_text(text: str) -> StatusPage:
    return StatusPage(text.encode(), "text/plain; charset=utf-8")

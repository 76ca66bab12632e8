"""A TCP proxy that fails as networks do: for tests of how a program handles it."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, Self

READ_BYTES: Final = 64 << 10
CONNECT_TIMEOUT_S: Final = 10.0
END_TIMEOUT_S: Final = 10.0
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: the other side sees a reset, as after a cut, and not an orderly end."""


class FaultyProxy:
    """Forwards connections from ``address`` to a target, and fails on demand; any thread may use it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        host, port = self._listener.getsockname()[:2]
        self.address = f"{host}:{port}"
        self._target: tuple[str, int] | None = None
        self._lock = threading.Lock()
        self._links: dict[_Link, None] = {}
        self._delay_s = 0.0
        self._refusals = 0
        self._cut_probability = 0.0
        self._random = random.Random(0)
        self._closing = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, name="lading faulty proxy", daemon=True)

    def start(self, target: str) -> None:
        """Forward to ``host:port`` from now on."""
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._acceptor.start()

    def drop_connections(self) -> int:
        """Reset all open connections; return how many. New connections are accepted."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()
        return len(links)

    def refuse_connections(self, count: int) -> None:
        """Reset the next ``count`` connections as soon as they are made."""
        with self._lock:
            self._refusals += count

    @contextmanager
    def delaying(self, seconds: float) -> Iterator[None]:
        """A block in which every response is held back for this time."""
        before, self._delay_s = self._delay_s, seconds
        try:
            yield
        finally:
            self._delay_s = before

    @contextmanager
    def cutting(self, probability: float, *, seed: int = 0) -> Iterator[None]:
        """A block in which a connection is reset in place of a piece of a response, with this probability for each.

        The server has the request by then, so that a client cannot know its outcome. With the same ``seed`` and the
        same pieces, the same ones are cut.
        """
        with self._lock:
            self._random, self._cut_probability = random.Random(seed), probability
        try:
            yield
        finally:
            self._cut_probability = 0.0

    def close(self) -> None:
        """Close all connections and stop listening. Further calls do nothing."""
        self._closing.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()
        if self._acceptor.is_alive():
            self._acceptor.join(END_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        assert self._target is not None
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                refused = self._refusals > 0
                self._refusals -= refused
            if refused:
                _reset(client)
                continue
            try:
                server = socket.create_connection(self._target, CONNECT_TIMEOUT_S)
            except OSError:
                # the broker is down: the client gets a reset, as if it had not reached the broker
                _reset(client)
                continue
            server.settimeout(None)
            link = _Link(self, client, server)
            with self._lock:
                self._links[link] = None
            link.start()

    def _forget(self, link: _Link) -> None:
        with self._lock:
            self._links.pop(link, None)

    def _holds_back(self) -> bool:
        """Wait as long as a response is delayed; return whether the connection is to be cut instead."""
        self._closing.wait(self._delay_s)
        with self._lock:
            return bool(self._cut_probability) and self._random.random() < self._cut_probability


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: FaultyProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._ended = 0
        self._is_cut = False
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        for source, sink, is_response in ((self._client, self._server, False), (self._server, self._client, True)):
            threading.Thread(target=self._pass_bytes_on, args=(source, sink, is_response), daemon=True).start()

    def cut(self) -> None:
        # the pumps, which this wakes, do not take it for an orderly end
        self._is_cut = True
        self._proxy._forget(self)
        for one in (self._client, self._server):
            _reset(one)

    def _pass_bytes_on(self, source: socket.socket, sink: socket.socket, is_response: bool) -> None:
        try:
            while data := source.recv(READ_BYTES):
                if is_response and self._proxy._holds_back():
                    self.cut()
                    return
                sink.sendall(data)
            if self._is_cut:
                return
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            self.cut()
        else:
            self._end()

    def _end(self) -> None:
        """Close when both sides have said that they are done: what was sent before arrives."""
        with self._proxy._lock:
            self._ended += 1
            is_done = self._ended == 2
        if is_done:
            self._proxy._forget(self)
            self._client.close()
            self._server.close()


def _reset(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        # wakes the thread that reads it
        connection.shutdown(socket.SHUT_RD)
    connection.close()

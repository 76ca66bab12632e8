"""Transports of one URL for several threads: each is lent to one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from ..model.errors import RemoteError
from .interface import Transport
from .open import open_transport

IDLE_MAX: Final = 8
"""How many idle connections are kept for later requests."""


class TransportPool:
    """Transports of a URL or directory. An unreachable server is noticed by the first request only.

    ``connect`` opens one in another way than by the URL, with another login for example.
    """

    def __init__(self, url: str, connect: Callable[[], Transport] | None = None) -> None:
        self.url = url
        self._connect = connect or partial(open_transport, url)
        self._idle: list[Transport] = []
        self._lock = threading.Lock()

    @contextmanager
    def lend(self) -> Iterator[Transport]:
        """Lend a transport to this thread; after an error of the server the next one gets a new connection."""
        with self._lock:
            transport = self._idle.pop() if self._idle else None
        if transport is None:
            transport = self._connect()
        try:
            yield transport
        except (RemoteError, GeneratorExit):
            # what was on its way may still arrive on this connection
            transport.close()
            raise
        except BaseException:
            self._take_back(transport)
            raise
        self._take_back(transport)

    def _take_back(self, transport: Transport) -> None:
        with self._lock:
            if len(self._idle) < IDLE_MAX:
                self._idle.append(transport)
                return
        transport.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for transport in idle:
            transport.close()

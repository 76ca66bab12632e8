"""The source that the console reads: a server, cluster or directory, with a connection for each working thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from ..model.errors import LocalError, RemoteError
from ..transports.group_administration import GroupAdministration
from ..transports.interface import Marking, Transport
from ..transports.lading.transport import LadingTransport
from ..transports.open import is_queue, open_transport, option_names
from ..transports.secrets import PREFIX, SECRETS
from .damage import MetDamage

IDLE_MAX: Final = 8
"""How many idle connections are kept for later requests."""


class ConsoleSource:
    """A URL or directory; transports of it are lent to one thread at a time.

    Raises LocalError for a queue, which has no offsets, and SettingError for an address that cannot be one. An
    unreachable server is noticed by the first request only: it may start later.
    """

    def __init__(self, url: str) -> None:
        if is_queue(url):
            raise LocalError(
                f"{url} is a queue: reading consumes its messages, and there is nothing to browse; name the admin "
                "endpoint of a broker (lading://host:port), a Kafka cluster, an Iggy server or a data directory"
            )
        self.url = url
        self.met_damage: Final = MetDamage()
        self._idle: list[Transport] = []
        self._lock = threading.Lock()
        with self.lend() as transport:
            self.can_mark: Final = isinstance(transport, Marking)
            """Whether message states can be listed and set."""
            self.has_groups: Final = isinstance(transport, GroupAdministration)
            """Whether it can list the groups that read its topics, with their lag."""
            self.is_broker: Final = isinstance(transport, LadingTransport)
            """Whether it is the admin endpoint of a broker, which also reports damage."""

    @property
    def shown(self) -> str:
        """The URL without its options, for people."""
        return self.url.partition("?")[0] if "://" in self.url else self.url

    @property
    def is_writable(self) -> bool:
        """Whether there is a server to send messages to."""
        return "://" in self.url and urlsplit(self.url).scheme.lower() != "file"

    @property
    def holds_secret(self) -> bool:
        """Whether the console logs in for whoever opens it, so that opening it has to need a key as well."""
        options = self.url.partition("?")[2]
        known = [name for name in option_names(self.shown) if name.removesuffix("_file") in SECRETS]
        return any(f"{name}=" in options or os.environ.get(PREFIX + name.upper()) for name in known)

    @contextmanager
    def lend(self) -> Iterator[Transport]:
        """Lend a transport to this thread; after an error of the server the next one gets a new connection."""
        with self._lock:
            transport = self._idle.pop() if self._idle else None
        if transport is None:
            transport = open_transport(self.url)
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

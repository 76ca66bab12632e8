"""Admission of connections: a share of an endpoint's places for each peer address, and TCP keepalive.

An endpoint that is full makes room: it closes the connection that waits longest for its first whole request, so that
half requests, however many, never lock out a client that asks at once. Threads: event loop only.
"""

from __future__ import annotations

import math
import socket
from collections import OrderedDict, defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from ...settings.settings import ConnectionSettings

KEEPALIVE_INTERVAL_S: Final = 15
KEEPALIVE_PROBES: Final = 4
"""A peer that responds to none of this many probes counts as disconnected."""
SECOND_CHANCES: Final = 64
"""Connections that are looked at for one that may be closed."""


class AdmittedConnection(Protocol):
    """A connection that holds a place."""

    def is_evictable(self) -> bool:
        """Return whether the connection may be closed for another one, after its first request."""

    def evict(self) -> None:
        """Close the connection at once: another one needs its place."""


class ConnectionBudget:
    """Limits the connections of all endpoints together, so that file descriptors are left for the log."""

    def __init__(self, connections_max: int) -> None:
        self.connections_max = connections_max
        self.used = 0
        self.endpoints: list[Places] = []

    @property
    def is_spent(self) -> bool:
        """Whether the bound is reached, so that another connection has no place."""
        return self.used >= self.connections_max

    def make_room(self) -> bool:
        """Close a connection of the endpoint that has most of them; False if none may be closed."""
        return any(places.evict_one() for places in sorted(self.endpoints, key=len, reverse=True))


class Places:
    """The places of one endpoint, by peer address."""

    def __init__(self, connections_max: int, peer_share: float, budget: ConnectionBudget | None = None) -> None:
        """``peer_share``: the share of all places, at least one, that one peer address may take."""
        self._budget = budget or ConnectionBudget(connections_max)
        self._budget.endpoints.append(self)
        self.set_limits(connections_max, peer_share)
        self._newcomers: defaultdict[str, OrderedDict[AdmittedConnection, None]] = defaultdict(OrderedDict)
        """Connections without a whole request, the oldest first, by peer."""
        self._peers: dict[AdmittedConnection, str] = {}
        self._settled: OrderedDict[AdmittedConnection, None] = OrderedDict()
        self._counts: defaultdict[str, int] = defaultdict(int)

    def __len__(self) -> int:
        return len(self._peers)

    def set_limits(self, connections_max: int, peer_share: float) -> None:
        """Use other limits from the next connection on; connections that are open stay open."""
        self._connections_max = connections_max
        self._peer_max = max(1, math.ceil(connections_max * peer_share))

    def admit(self, connection: AdmittedConnection, peer: str) -> bool:
        """Give ``connection`` a place, if necessary by closing another connection. Return whether it has one.

        A peer that has its share makes room among its own connections only.
        """
        has_room = self._make_room(peer)
        if has_room:
            self._peers[connection] = peer
            self._counts[peer] += 1
            self._budget.used += 1
            self._newcomers[peer][connection] = None
        elif not self._counts[peer]:
            del self._counts[peer]
        return has_room

    def _make_room(self, peer: str) -> bool:
        # more than one has to go only after a limit was lowered
        while self._counts[peer] >= self._peer_max:
            if not (self._evict_newcomer(peer) or self._evict_settled(peer)):
                return False
        while len(self._peers) >= self._connections_max:
            if not self.evict_one():
                return False
        return not self._budget.is_spent or self._budget.make_room()

    def settle(self, connection: AdmittedConnection) -> None:
        """Note that the first request of ``connection`` is whole."""
        peer = self._peers.get(connection)
        if peer is not None and connection in self._newcomers[peer]:
            del self._newcomers[peer][connection]
            self._settled[connection] = None

    def leave(self, connection: AdmittedConnection) -> None:
        """Release the place of a connection that was closed, if it has one."""
        peer = self._peers.pop(connection, None)
        if peer is None:
            return
        self._newcomers[peer].pop(connection, None)
        self._settled.pop(connection, None)
        self._counts[peer] -= 1
        self._budget.used -= 1
        if not self._counts[peer]:
            del self._counts[peer], self._newcomers[peer]

    def evict_one(self) -> bool:
        """Close the oldest connection without a whole request, of the peer with most of them, else one that is idle.
        Returns False if none may be closed.
        """
        return self._evict_newcomer(self._crowding_peer()) or self._evict_settled(None)

    def _crowding_peer(self) -> str:
        """Return the peer with the most connections without a whole request."""
        return max(self._newcomers, key=lambda peer: len(self._newcomers[peer]), default="")

    def _evict_newcomer(self, peer: str) -> bool:
        oldest = next(iter(self._newcomers.get(peer, ())), None)
        return oldest is not None and self._evict(oldest)

    def _evict_settled(self, peer: str | None) -> bool:
        for _ in range(min(SECOND_CHANCES, len(self._settled))):
            connection = next(iter(self._settled))
            # whichever is looked at is looked at last the next time, so that a search stays short
            self._settled.move_to_end(connection)
            if (peer is None or self._peers[connection] == peer) and connection.is_evictable():
                return self._evict(connection)
        return False

    def _evict(self, connection: AdmittedConnection) -> bool:
        self.leave(connection)
        connection.evict()
        return True


def set_keepalive(listener: socket.socket, settings: ConnectionSettings) -> None:
    """Let the kernel detect dead peers: connections inherit this from the socket that accepts them."""
    if listener.type is not socket.SOCK_STREAM:
        return
    with suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(settings.keepalive_s > 0))
        if settings.keepalive_s:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, settings.keepalive_s)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)

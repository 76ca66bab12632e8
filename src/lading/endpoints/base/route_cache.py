"""A memory of what request heads mean: clients name the same place in the same bytes again and again."""

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar

H = TypeVar("H")
R = TypeVar("R")

ROUTES_MAX: Final = 4096
"""Heads that one cache remembers: a client may make up any number."""


class Topology(Protocol):
    """The topics that routes lead to."""

    @property
    def version(self) -> int:
        """Grows whenever a stream, topic or partition comes or goes, or a user or a right."""


class RouteCache(Generic[H, R]):
    """Routes by the head that names them, as long as topics and rights stay; one for all connections of a user.

    Threads: event loop only.
    """

    __slots__ = ("_routes", "_routes_max", "_version", "topology")

    def __init__(self, topology: Topology, routes_max: float = ROUTES_MAX) -> None:
        """``routes_max`` may be infinite if clients cannot invent the keys of routes."""
        self.topology = topology
        self._routes_max = routes_max
        self._version = -1
        self._routes: dict[H, R] = {}

    def get(self, head: H) -> R | None:
        """Return the route that ``head`` means, or None if it is not known."""
        version = self.topology.version
        if self._version != version:
            self._version = version
            self._routes.clear()
        return self._routes.get(head)

    def add(self, head: H, route: R) -> None:
        """Remember what ``head`` means now."""
        # finding the route may have created its topic, and what was remembered before is older than that
        version = self.topology.version
        if self._version != version or len(self._routes) >= self._routes_max:
            # heads are forgotten all at once when there are too many: those in use are soon back, those of clients
            # that have left are not, and a hit does not pay for keeping an order
            self._version = version
            self._routes.clear()
        self._routes[head] = route


USERS_MAX: Final = 1024
"""Users whose routes are remembered; a user without connections costs the memory of its routes."""


class UserRouteCaches(Generic[H, R]):
    """A cache for each user of an endpoint: a route that is remembered was allowed to the user who found it.

    A session takes its cache when it knows its user (``of``) and keeps it, so that a request pays nothing for it.
    """

    __slots__ = ("_caches", "_routes_max", "_topology")

    def __init__(self, topology: Topology, routes_max: float = ROUTES_MAX) -> None:
        self._topology = topology
        self._routes_max = routes_max
        self._caches: dict[str, RouteCache[H, R]] = {}

    def of(self, user: str) -> RouteCache[H, R]:
        """Return the cache of a user, by the name of its principal: empty while no users are set up."""
        cache = self._caches.get(user)
        if cache is None:
            if len(self._caches) >= USERS_MAX:
                # sessions keep what they have
                self._caches.clear()
            cache = self._caches[user] = RouteCache(self._topology, self._routes_max)
        return cache

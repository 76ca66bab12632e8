"""Routes of an HTTP endpoint, matched on the path as it was sent: a percent-encoded slash inside a part stays in it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Final
from urllib.parse import unquote_to_bytes

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...broker.core.access.rights import Resource, Right
from ...model.errors import LadingError, Reason, Refusal
from ...model.lazy_dataclass import lazy_dataclass
from ...runtime.log_lines import origin
from ...runtime.metrics import Metrics
from ...settings.settings import Address
from .quota_rest import rest_for_quota

log = logging.getLogger(__name__)

Parameters = dict[str, str]
ResourceFinder = Callable[[Request, Parameters], Resource]
Handler = Callable[[Request, Parameters], Awaitable[Response]]

CLIENT_CLOSED: Final = 499
"""The status that metrics show for a request whose client disconnected; no response is sent."""


class Access(Enum):
    """Kind of access that a route gives, for guards."""

    HEALTH = "health"
    """Ask whether the broker lives."""
    USE = "use"
    """Send and read, and what belongs to it."""
    ADMINISTRATE = "administrate"
    """Delete, empty, pause: take something from others."""


@lazy_dataclass(frozen=True, slots=True)
class HttpRoute:
    """``GET /topics/{stream}/{topic}``; ``name`` is what metrics call it."""

    method: str
    pattern: str
    name: str
    handler: Handler
    access: Access = Access.USE
    right: Right | None = Right.ADMINISTRATE
    """Right that a user needs; None: a login, and the handler asks for more."""
    resource: ResourceFinder | None = None
    """Resource that it is needed on; None: the topic or stream of the path, else the cluster."""


Guard = Callable[[Request, HttpRoute | None, Parameters], Response | Awaitable[Response | None] | None]
"""Refuses a request before its route is called, or lets it pass; the route is None if none matches."""

MissingResponder = Callable[[Request, Sequence[str]], Response]
"""Responds if no route matches: with 404, or 405 if the path has a route for the methods that are given."""


def parse_number(text: str, maximum: int) -> int | None:
    """Return ``text`` as a decimal number from 0 to ``maximum``, or None."""
    if not text.isascii() or not text.isdigit() or len(text) > len(str(maximum)):
        return None
    number = int(text)
    return number if number <= maximum else None


class Router:
    """An ASGI application: a table of routes and one place that turns errors into responses."""

    def __init__(
        self,
        endpoint: str,
        routes: Sequence[HttpRoute],
        refuse: Callable[[LadingError], Response],
        metrics: Metrics,
        guard: Guard = lambda request, route, path: None,
        missing: MissingResponder = lambda request, allowed: Response(status_code=405 if allowed else 404),
    ) -> None:
        """``missing`` responds with 404 or 405 if no route matches path or method."""
        self._guard = guard
        self._missing = missing
        self._endpoint = endpoint
        self.routes: Final = routes
        self._routes = [(tuple(route.pattern.strip("/").split("/")), route) for route in routes]
        self._refuse = refuse
        self._requests = metrics.requests.values
        self._sent_bytes = metrics.sent_bytes.values

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request."""
        request = Request(scope, receive)
        parts = _parts_of(scope["raw_path"])
        route, parameters, allowed = self._match(scope["method"], parts or ())
        guarded = self._guard(request, route, parameters)
        refused = await guarded if isinstance(guarded, Awaitable) else guarded
        if parts is None:
            refused = refused or self._refuse(Refusal(Reason.MALFORMED, "path: not UTF-8; encode it as UTF-8"))
        if refused is not None:
            name, response = "refused", refused
        elif route is None:
            name, response = "unknown", self._missing(request, sorted(allowed))
            if allowed:
                response.headers.setdefault("allow", ", ".join(sorted(allowed)))
        else:
            name = route.name
            try:
                response = await route.handler(request, parameters)
            except ClientDisconnect:
                self._requests[self._endpoint, name, str(CLIENT_CLOSED)] += 1
                return
            except LadingError as error:
                response = self._refuse(error)
            except Exception:
                client = scope.get("client")
                peer = str(Address(*client)) if client else ""
                log.exception("%s %s failed", scope["method"], name, extra=origin(self._endpoint, peer))
                response = Response("internal error; the broker's log has the details\n", 500, media_type="text/plain")
        await rest_for_quota(request, response)
        self._requests[self._endpoint, name, str(response.status_code)] += 1
        self._sent_bytes[(self._endpoint,)] += len(response.body)
        await response(scope, receive, send)

    def _match(self, method: str, parts: Sequence[str]) -> tuple[HttpRoute | None, Parameters, set[str]]:
        """Return the route, what its path names, and the methods that the path allows if this one is not among them."""
        allowed: set[str] = set()
        for pattern, route in self._routes:
            parameters = _match_path(pattern, parts)
            if parameters is None:
                continue
            if route.method == method or (route.method == "GET" and method == "HEAD"):
                return route, parameters, allowed
            allowed.add(route.method)
        return None, {}, allowed


def _parts_of(raw_path: bytes) -> list[str] | None:
    """Return the parts of a path, each decoded by itself; None if one is not UTF-8."""
    path = raw_path.partition(b"?")[0].decode("latin-1")
    try:
        return [unquote_to_bytes(part).decode() for part in path.strip("/").split("/")]
    except UnicodeDecodeError:
        return None


def _match_path(pattern: Sequence[str], parts: Sequence[str]) -> Parameters | None:
    if len(pattern) != len(parts):
        return None
    parameters = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted.startswith("{"):
            if not part:
                return None
            parameters[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return parameters

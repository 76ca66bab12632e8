"""Requests that a web page of elsewhere makes a browser send: refused on every HTTP listener, before any route.

A page can send a simple POST to every port of the machine its reader sits at. Its browser says so: ``Origin`` and
``Sec-Fetch-Site`` name another site, or, if the page's own name was bound to this address a moment ago (DNS rebinding),
``Host`` is that name. Command lines and SDKs send neither of the first two and name the address they connect to.

Starlette's TrustedHostMiddleware looks at ``Host`` only, and knows neither the addresses that were bound nor origins.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

if TYPE_CHECKING:
    from ...runtime.metrics import Metrics
    from ...settings.settings import HttpSettings

LOCALHOST: Final = "localhost"
PORT_MAX: Final = 65_535
_HOST: Final = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::(?P<port>[0-9]{0,5}))?", re.ASCII)
"""An address of IPv6 stands in brackets; a port may be empty (RFC 3986 3.2.3)."""
OWN_SITES: Final = frozenset({b"same-origin", b"none"})
"""Values of Sec-Fetch-Site for requests of our own pages, and for what a person typed."""


class HostNames:
    """The names by which one listener may be asked, and the origins that are as good as its own."""

    def __init__(self, settings: HttpSettings, names: Iterable[str] = ()) -> None:
        self._names = {name.lower() for name in (*settings.hosts, *names)}
        self._origins = {origin.lower().rstrip("/") for origin in settings.origins}
        self._is_loopback = self._is_everywhere = False

    def bind(self, listener: socket.socket) -> None:
        """Add the address that ``listener`` is bound to; if that is every address of the machine, each of them."""
        address = ipaddress.ip_address(listener.getsockname()[0].partition("%")[0])
        self._names.add(str(address))
        self._is_loopback |= address.is_loopback or address.is_unspecified
        self._is_everywhere |= address.is_unspecified
        if not address.is_loopback:
            self._names.add(socket.gethostname().lower())

    def has_host(self, host: str) -> bool:
        """Return whether a Host header names this listener. Its port does not count: a tunnel has another one."""
        name = _parse_host(host)
        if name is None:
            return False
        if name in self._names:
            return True
        if name == LOCALHOST:
            return self._is_loopback
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # no page's name can be bound to a Host that is an address: its reader asked for that address
        return self._is_everywhere or (self._is_loopback and address.is_loopback)

    def has_origin(self, origin: str, scheme: str, host: str) -> bool:
        """Return whether a page of ``origin`` may ask: a page of this listener, or one named in the settings."""
        return origin.lower() in self._origins or origin.lower() == f"{scheme}://{host}".lower()


def _parse_host(text: str) -> str | None:
    """Return the name or address of a Host header (RFC 9110 7.2), in lower case; None if it is not one.

    A browser sends what is in the address bar, which is of this form. Whatever else stands there is not skipped: what
    one reader of ``[::1]evil`` leaves out another one looks up. The dot that ends an absolute name is left out.
    """
    found = _HOST.fullmatch(text.lower())
    if found is None or int(found["port"] or 0) > PORT_MAX:
        return None
    if found["v6"] is None:
        return found["name"].removesuffix(".")
    try:
        return str(ipaddress.IPv6Address(found["v6"]))
    except ValueError:
        return None


class CrossSiteGuard:
    """An ASGI application around another one that refuses requests from another site with 403."""

    def __init__(self, app: ASGIApp, hosts: HostNames, endpoint: str, metrics: Metrics) -> None:
        self._app = app
        self._hosts = hosts
        self._endpoint = endpoint
        self._requests = metrics.requests.values
        self._known: set[bytes] = set()
        """Host headers that were accepted before; few, as each is a name of this machine and a port."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        refusal = self._find_refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
            return
        self._requests[self._endpoint, "refused", "403"] += 1
        await PlainTextResponse(f"{refusal}\n", 403)(scope, receive, send)

    def _find_refusal(self, scope: Scope) -> str | None:
        hosts, origins, site = [], [], None
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origins.append(value)
            elif name == b"sec-fetch-site":
                site = value
        if len(hosts) > 1 or len(origins) > 1:
            return "headers Host and Origin: given more than once; send each once"
        host = hosts[0] if hosts else b""
        if hosts and host not in self._known:
            if not self._hosts.has_host(host.decode("latin-1")):
                return (
                    f"host {host.decode('latin-1')[:200]!r}: not an address of this endpoint; "
                    "ask for the address it listens on, or name the host in the setting http.hosts"
                )
            if len(self._known) < 64:
                self._known.add(host)
        if origins:
            origin = origins[0].decode("latin-1")
            if not self._hosts.has_origin(origin, scope["scheme"], host.decode("latin-1")):
                return f"origin {origin[:200]!r}: another site; name it in the setting http.origins to let its pages in"
        elif site is not None and site.lower() not in OWN_SITES:
            return "request of another site's page: not allowed; name the site in the setting http.origins"
        return None

"""The process of the console: an HTTP server on the loopback, which other sites' pages cannot use."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..endpoints.http_shared.cross_site import CrossSiteGuard, HostNames
from ..kernels import engine
from ..model.address import Address
from ..model.errors import LadingError
from ..model.version import __version__
from ..runtime.metrics import Metrics
from ..serve.local_server import listen, print_ready, serve
from ..settings.settings import HttpSettings
from .broker_switch import BrokerSwitch
from .changes import MessageChanges
from .failures import FailurePages
from .groups import GroupPages
from .headers import HeaderPages
from .messages import MessagePages
from .overview import OverviewPage
from .responses import error_answer, json_answer
from .runs import RunPages
from .settings import ConsoleSettings
from .source import ConsoleSource
from .topic_changes import TopicChanges
from .topics import TopicPages

NAME: Final = "console"
PAGES: Final = (
    "/", "/topic", "/messages", "/headers", "/send", "/groups", "/group", "/failures", "/pipelines", "/mirrors"
)  # fmt: skip
"""All paths return the same document: the address selects what it shows."""
STATIC: Final = files("lading.console") / "static"
KEY_HEADER: Final = "x-lading-console-key"
"""A header that the page sends with each request, as browsers send cookies to every port of a host."""
GUARDED: Final = "/api/"
"""Paths that need the key; the document and its files are the same for all users."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The policy allows no scripts of other sites and none inside the document, so that content of a message never runs."""
Refuser = Callable[[Request, Exception], Response | None]


def run(
    brokers: Sequence[ConsoleSettings],
    *,
    output: str = "text",
    listener: socket.socket | None = None,
    print_note: Callable[[str], None] = lambda text: None,
) -> int:
    """Serve one source or several until SIGTERM or Ctrl-C; returns the exit code 0.

    ``listener`` is a bound socket that was handed over; without one, the address of the settings is bound and announced
    by a ready line. Raises LocalError for an address that is taken or that others than this machine can reach.
    """
    sources = [ConsoleSource(one.url, one.registry, masks=one.masks) for one in brokers]
    bound = listener if listener is not None else listen(brokers[0].address, NAME)
    key = secrets.token_urlsafe(16) if any(source.holds_secret for source in sources) else None
    address = Address(*bound.getsockname()[:2])
    # the first pages need not wait for the compiler, if it has to run: plain Python reads fifty messages as well
    engine.load_in_background()

    def announce() -> None:
        if listener is None:
            print_ready(NAME, address, output)
        shown = ", ".join(source.shown for source in sources)
        print_note(f"the console of {shown}: http://{address}/{f'#key={key}' if key else ''}")

    try:
        serve(NAME, make_app(list(zip(brokers, sources, strict=True)), bound, key), bound, announce)
    finally:
        for source in sources:
            source.close()
        bound.close()
    return 0


def make_app(
    brokers: Sequence[tuple[ConsoleSettings, ConsoleSource]], listener: socket.socket, key: str | None = None
) -> ASGIApp:
    """Return the application for a listener, of one source, or of several that have names.

    With a ``key`` it is for pages that were opened with ``#key=``.
    """
    apps: list[ASGIApp] = []
    for settings, source in brokers:
        app: ASGIApp = make_pages([*make_document_routes(), *routes_of(settings, source)])
        apps.append(app if key is None else ConsoleKey(app, key))
    names = [settings.broker for settings, _ in brokers]
    switched = {name: app for name, app in zip(names, apps, strict=True) if name is not None}
    hosts = HostNames(HttpSettings())
    hosts.bind(listener)
    app = ConsolePolicy(BrokerSwitch(switched) if switched else apps[0])
    return CrossSiteGuard(app, hosts, NAME, Metrics())


def make_document_routes() -> list[BaseRoute]:
    """Return the routes of the document and its files, which are the same for all users."""
    document = _read_document()

    def page(request: Request) -> Response:
        return Response(document, media_type="text/html; charset=utf-8")

    return [*(Route(path, page) for path in PAGES), Mount("/static", StaticFiles(directory=str(STATIC)))]


def make_pages(routes: Sequence[BaseRoute], refuse_first: Refuser | None = None) -> Starlette:
    """Return an application of these routes that reports errors as sentences.

    ``refuse_first`` may return another response to an error.
    """
    document = _read_document()

    async def say_unknown(request: Request, error: Exception) -> Response:
        if request.url.path.startswith(("/api/", "/static/")):
            return json_answer({"error": f"{request.url.path} does not exist"}, 404)
        # for a mistyped address the page says so, with links to the existing pages
        return Response(document, 404, media_type="text/html; charset=utf-8")

    async def refuse(request: Request, error: Exception) -> Response:
        own = None if refuse_first is None else refuse_first(request, error)
        return own or error_answer(error)

    return Starlette(routes=routes, exception_handlers={404: say_unknown, LadingError: refuse, OSError: refuse})


def _read_document() -> bytes:
    return (STATIC / "index.html").read_bytes()


def routes_of(
    settings: ConsoleSettings, source: ConsoleSource, user: str | None = None, *, can_log_out: bool = False
) -> list[Route]:
    """Return the routes that the pages use; ``user`` is the name of the one that logged in."""

    def about(request: Request) -> Response:
        return json_answer(
            {
                "version": __version__,
                "source": source.shown,
                "is_broker": source.is_broker,
                "has_groups": source.has_groups,
                "can_mark": source.can_mark and not settings.is_read_only,
                "can_send": source.is_writable and not settings.is_read_only,
                "is_read_only": settings.is_read_only,
                "shows_files": settings.shows_files,
                "user": user,
                "can_log_out": can_log_out,
                "broker": settings.broker,
                "brokers": [one._asdict() for one in settings.brokers],
            }
        )

    return [
        Route("/api/about", about),
        *OverviewPage(source).routes(),
        *TopicPages(source, settings.tables).routes(),
        *TopicChanges(source, is_read_only=settings.is_read_only).routes(),
        *MessagePages(source, settings.pipelines if settings.shows_files else ()).routes(),
        *MessageChanges(source, is_read_only=settings.is_read_only).routes(),
        *GroupPages(source, settings).routes(),
        *HeaderPages(source, settings.pipelines if settings.shows_files else ()).routes(),
        *FailurePages(source, settings).routes(),
        *RunPages(settings).routes(),
    ]


class ConsolePolicy:
    """An application around another one that adds the headers which limit what browsers let its pages do."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("content-security-policy", POLICY)
                headers["x-content-type-options"] = "nosniff"
                headers.setdefault("referrer-policy", "no-referrer")
                headers["cross-origin-opener-policy"] = "same-origin"
                headers["cross-origin-resource-policy"] = "same-origin"
                headers.setdefault("cache-control", "no-cache")
            await send(message)

        await self._app(scope, receive, send_with_policy)


class ConsoleKey:
    """An application around another one, which serves only pages that know the key.

    The key is in the fragment of the printed address, which browsers send nowhere. The page keeps it in the storage of
    its origin, which includes the port, and sends it in a header. A cookie would go to other users' servers on other
    ports of this machine.
    """

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        answer: ASGIApp = self._app
        if scope["path"].startswith(GUARDED) and not _is_same(Request(scope).headers.get(KEY_HEADER, ""), self._key):
            answer = json_answer(
                {
                    "error": "this console logs in with a secret and is for the person who started it: open the "
                    "address with #key= that it printed",
                    "needs_key": True,
                },
                403,
            )
        await answer(scope, receive, send)


def _is_same(given: str, key: str) -> bool:
    return secrets.compare_digest(given.encode("latin-1", "replace"), key.encode())

"""The application of a console for several people: logins, and each request with the rights of its user."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...model.errors import LadingError, Reason, Refusal, Unreachable
from ...runtime.log_lines import origin
from ..changes import CHANGE_NOTER
from ..masks import Masks
from ..responses import encode, error_answer, json_answer
from ..source import ConsoleSource
from .audit import AuditFile
from .login_page import LoginWays, find_goal, render_continuation, render_login
from .logins import ENDED, PasswordLogins, UserLogin, check_login, is_over, open_vouched_login
from .oidc import ATTRIBUTES, BEGIN, CALLBACK, LOGIN_S, OidcLogins
from .oidc import COOKIE as OIDC_COOKIE
from .proxy import TrustedProxy
from .sessions import UNKNOWN, BrowserSession, BrowserSessions

log = logging.getLogger(__name__)

COOKIE: Final = "__Host-lading-console"
"""Name of the session's cookie: browsers accept such a name only over TLS, for the whole host, and from the
host itself.
"""
_ATTRIBUTES: Final = "Path=/; Secure; HttpOnly; SameSite=Strict"
BACKGROUND_HEADER: Final = "x-lading-console-background"
"""A header of requests that an open page sends without an action of its user."""
FORM_BYTES_MAX: Final = 16_384
CHECK_S: Final = 10.0
"""The source is asked once in this time whether the login of a session in use is still valid."""
REJECT: Final = "lading.console.reject"
"""The key of a function in the scope of a request that ends its session and returns the response."""
REJECTED: Final = "your password, your user or your rights have changed; log in again"


@dataclass(frozen=True, slots=True)
class TeamServices:
    """Parts of the application. ``make_app`` returns the pages of a source, for an administrator or another user."""

    url: str
    ways: LoginWays
    registry: str | None
    masks: Masks
    logins: PasswordLogins
    sessions: BrowserSessions
    audit: AuditFile
    make_app: Callable[[ConsoleSource, UserLogin], ASGIApp]
    proxy: TrustedProxy | None
    provider: OidcLogins | None
    documents: ASGIApp
    """Pages and files that are the same for all users, and for those that are not logged in."""


class TeamConsole:
    """An ASGI application. Requests under /api need a session; each session has an application of its own."""

    def __init__(self, services: TeamServices) -> None:
        self._services = services
        self._sessions = services.sessions
        # browsers send the cookies of all brokers to each; a name of its own keeps their logins apart
        mark = "" if services.ways.broker is None else f".{services.ways.broker}"
        self._cookie, self._oidc_cookie = f"{COOKIE}{mark}", f"{OIDC_COOKIE}{mark}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope, receive)
        path = scope["path"]
        try:
            if self._services.proxy is not None:
                self._services.proxy.require(request)
        except Refusal as refusal:
            log.warning("%s", refusal, extra=origin("console", _peer_of(request)))
            await json_answer({"error": str(refusal)}, 403)(scope, receive, send)
            return
        if scope["method"] not in ("GET", "HEAD") and not _is_of_own_page(request):
            answer: ASGIApp = json_answer({"error": "changes are made from the pages of this console alone"}, 403)
        elif (path in ("/login", "/logout") or path.startswith("/login/")) and self._is_vouched:
            answer = json_answer({"error": "the reverse proxy of this console logs people in and out"}, 404)
        elif path == "/login":
            answer = await self._log_in(request) if scope["method"] == "POST" else self._show_login(request)
        elif path == "/logout":
            answer = self._log_out(request)
        elif path == BEGIN:
            answer = await self._begin_at_provider(request)
        elif path == CALLBACK:
            answer = await self._finish_at_provider(request)
        elif path.startswith("/api/"):
            await self._serve(request, send)
            return
        else:
            answer = self._services.documents
        await answer(scope, receive, send)

    def close(self) -> None:
        """End all sessions."""
        self._sessions.close()
        self._services.logins.close()

    # -- logging in and out

    def _show_login(self, request: Request) -> Response:
        return render_login(self._services.ways, goal=find_goal(request.query_params.get("next", "")))

    async def _log_in(self, request: Request) -> Response:
        form = await _read_form(request) if self._services.ways.has_passwords else None
        if form is None:
            return json_answer({"error": "send the form of the login page"}, 400)
        user, host, goal = form.get("user", ""), self._host_of(request), find_goal(form.get("next", ""))
        show = partial(render_login, self._services.ways, goal=goal, user=user[:255])
        try:
            login = await self._services.logins.log_in(user, form.get("password", ""), host)
            return await self._open_session(login, host, goal)
        except Refusal as refusal:
            if refusal.reason is Reason.STOPPING:
                return show(problem=str(refusal), status=503)
            await run_in_threadpool(self._services.audit.note, "log in", user, host, f"refused: {refusal}")
            return show(problem=str(refusal), status=401)
        except Unreachable as error:
            return show(problem=str(error), status=502)
        except LadingError as error:
            return show(problem=str(error), status=503)

    async def _open_session(self, login: UserLogin, host: str, goal: str) -> Response:
        """Return the response with the cookie of a new session. Raises LocalError if the audit file cannot
        be written.
        """
        token = await self._add_session(login, host)
        # a redirect, so that reloading the next page does not send the password again
        response = RedirectResponse(f"{self._services.ways.base}{goal}", 303, {"cache-control": "no-store"})
        response.headers.append("set-cookie", f"{self._cookie}={token}; {_ATTRIBUTES}")
        return response

    # -- logging in at an identity provider

    async def _begin_at_provider(self, request: Request) -> Response:
        provider, goal = self._services.provider, find_goal(request.query_params.get("next", ""))
        if provider is None:
            return json_answer({"error": "this console has no identity provider"}, 404)
        try:
            begun = await provider.begin(goal)
        except Unreachable as error:
            return render_login(self._services.ways, goal=goal, problem=str(error), status=502)
        response = RedirectResponse(begun.url, 303, {"cache-control": "no-store"})
        response.headers.append("set-cookie", f"{self._oidc_cookie}={begun.cookie}; Max-Age={LOGIN_S}; {ATTRIBUTES}")
        return response

    async def _finish_at_provider(self, request: Request) -> Response:
        """Return the page after a login at the provider, from the parameters with which the provider sent the browser
        back.
        """
        services, host = self._services, self._host_of(request)
        if services.provider is None:
            return json_answer({"error": "this console has no identity provider"}, 404)
        name = ""
        try:
            begun = request.cookies.get(self._oidc_cookie, "")
            name, goal = await services.provider.finish(begun, request.query_params, host)
            login = await run_in_threadpool(open_vouched_login, services.url, name)
            token = await self._add_session(login, host)
        except Refusal as refusal:
            await run_in_threadpool(services.audit.note, "log in", name, host, f"refused: {refusal}")
            return render_login(services.ways, problem=str(refusal), status=401)
        except LadingError as error:
            return render_login(services.ways, problem=str(error), status=502)
        response = render_continuation(f"{services.ways.base}{find_goal(goal)}")
        response.headers.append("set-cookie", f"{self._cookie}={token}; {_ATTRIBUTES}")
        response.headers.append("set-cookie", f"{self._oidc_cookie}=; Max-Age=0; {ATTRIBUTES}")
        return response

    async def _add_session(self, login: UserLogin, host: str, token: str = "") -> str:
        """Keep a new session and return its token. Raises LocalError if the audit file cannot be written."""
        services, now_s = self._services, self._sessions.clock()
        await run_in_threadpool(services.audit.require)
        await run_in_threadpool(services.audit.note, "log in", login.name, host, "done")
        source = ConsoleSource(services.url, services.registry, login.options, services.masks)
        session = BrowserSession(login, source, services.make_app(source, login), host, now_s, now_s, now_s)
        return self._sessions.add(session, token)

    def _log_out(self, request: Request) -> Response:
        if request.method != "POST":
            return json_answer({"error": "log out with a POST"}, 405)
        session = self._sessions.find(self._token_of(request), is_used=False)
        if session is not None:
            self._sessions.end(session, "you logged out; log in again")
            self._services.audit.note("log out", session.login.name, self._host_of(request), "done")
        response = json_answer({"logged_out": True})
        response.headers.append("set-cookie", f"{self._cookie}=; Max-Age=0; {_ATTRIBUTES}")
        return response

    # -- requests of a session

    async def _serve(self, request: Request, send: Send) -> None:
        try:
            session = await (self._find_vouched(request) if self._is_vouched else self._find_session(request))
        except Refusal as refusal:
            is_login = refusal.reason in ENDED
            answer = self._refuse(str(refusal)) if is_login else json_answer({"error": str(refusal)}, 403)
            await answer(request.scope, request.receive, send)
            return
        except LadingError as error:
            await error_answer(error)(request.scope, request.receive, send)
            return
        if session.end_reason is not None:
            await self._refuse(session.end_reason)(request.scope, request.receive, send)
            return
        scope = request.scope
        scope[CHANGE_NOTER] = _SessionNoter(self._services.audit, session, self._host_of(request))
        scope[REJECT] = partial(self._reject, session)
        guarded = _SessionSend(self._sessions, session, send)
        try:
            await session.app(scope, request.receive, guarded)
        except ClientDisconnect:
            if not guarded.is_cut:
                raise

    async def _find_session(self, request: Request) -> BrowserSession:
        """Return the session of a request's cookie. Raises Refusal if it has none, or one that has ended."""
        token = self._token_of(request)
        session = self._sessions.find(token, is_used=BACKGROUND_HEADER not in request.headers)
        if session is None:
            raise Refusal(Reason.UNAUTHENTICATED, self._sessions.explain(token))
        await self._check(session)
        return session

    async def _find_vouched(self, request: Request) -> BrowserSession:
        """Return the session of the user that the proxy names, a new one if the user had none.

        Raises Refusal if the proxy names no user, or several, and the errors of the source.
        """
        proxy = self._services.proxy
        assert proxy is not None
        name, host = proxy.find_user(request), self._host_of(request)
        token = f"user {name}"
        session = self._sessions.find(token, is_used=BACKGROUND_HEADER not in request.headers)
        if session is None:
            login = await run_in_threadpool(open_vouched_login, self._services.url, name)
            await self._add_session(login, host, token)
            session = self._sessions.find(token, is_used=True)
            assert session is not None
        await self._check(session)
        return session

    def _token_of(self, request: Request) -> str:
        return request.cookies.get(self._cookie, "")

    @property
    def _is_vouched(self) -> bool:
        """Whether a proxy names the user of each request."""
        return self._services.proxy is not None and self._services.proxy.names_users

    def _host_of(self, request: Request) -> str:
        """Return the visitor's address."""
        proxy = self._services.proxy
        return _peer_of(request) if proxy is None else proxy.find_host(request)

    def _refuse(self, reason: str) -> Response:
        return json_answer(describe_end(reason, login_url="/" if self._is_vouched else "/login"), 401)

    def _reject(self, session: BrowserSession) -> Response:
        self._sessions.end(session, REJECTED)
        return self._refuse(REJECTED)

    async def _check(self, session: BrowserSession) -> None:
        """End a session if the source no longer accepts its user, or the user's rights have changed."""
        now_s = self._sessions.clock()
        if now_s - session.checked_s < CHECK_S:
            return
        session.checked_s = now_s
        login = session.login
        try:
            found = await run_in_threadpool(check_login, self._services.url, login.name, login.options)
        except LadingError as error:
            # an unreachable source shows nothing about the login
            if is_over(error):
                self._sessions.end(session, REJECTED)
            return
        if (found.name, found.is_administrator) != (login.name, login.is_administrator):
            self._sessions.end(session, REJECTED)


def respond_rejected(request: Request, error: Exception) -> Response | None:
    """End the session of a request whose login the source no longer accepts, and return the response; else None."""
    return request.scope[REJECT]() if is_over(error) else None


class _SessionNoter:
    """Writes the audit lines of one request."""

    def __init__(self, audit: AuditFile, session: BrowserSession, host: str) -> None:
        self._audit, self._user, self._host = audit, session.login.name, host

    def require(self) -> None:
        """Raise LocalError if the audit file cannot be written: the change must not be carried out then."""
        self._audit.require()

    def note(self, action: str, result: str, given: Mapping[str, Any], done: Mapping[str, Any] | None = None) -> None:
        """Write the line of a change."""
        self._audit.note(action, self._user, self._host, result, given, done)


class _SessionSend:
    """Sends a response as long as its session lasts; a stream ends with the reason."""

    def __init__(self, sessions: BrowserSessions, session: BrowserSession, send: Send) -> None:
        self._sessions, self._session, self._send = sessions, session, send
        self.is_cut = False

    async def __call__(self, message: Message) -> None:
        """Send a part of the response."""
        if (
            message["type"] == "http.response.body"
            and message.get("more_body")
            and not self._sessions.is_alive(self._session)
        ):
            line = encode(describe_end(self._session.end_reason or UNKNOWN)) + b"\n"
            await self._send({"type": "http.response.body", "body": line, "more_body": False})
            self.is_cut = True
            raise ClientDisconnect
        await self._send(message)


def describe_end(reason: str, login_url: str = "/login") -> dict[str, Any]:
    """Return the document by which a page learns that its session has ended, and the address of the login."""
    return {"error": reason, "needs_login": True, "login_url": login_url}


def _peer_of(request: Request) -> str:
    return request.client.host if request.client else ""


def _is_of_own_page(request: Request) -> bool:
    """Return whether a browser says that a page of this console sent a request.

    Requests from another origin were refused before; scripts without an origin must not use a cookie.
    """
    origin = request.headers.get("origin", "")
    if origin:
        return bool(urlsplit(origin).netloc)
    return request.headers.get("sec-fetch-site", "") == "same-origin"


async def _read_form(request: Request) -> dict[str, str] | None:
    """Return the fields of a form; None if the body is too long or not a form."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        return None
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES_MAX:
            return None
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=16))
    except ValueError:
        return None

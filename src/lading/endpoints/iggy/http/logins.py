"""Logins of Iggy's HTTP clients, which return the token that clients send with each request (iggy-current.md B5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ....dialects.iggy.http.commands import Part
from ....dialects.iggy.http.documents import TEXT, optional
from ....dialects.iggy.http.releases import release_of_http_login
from ....dialects.iggy.http.text import dump
from .callers import HttpCaller, HttpCallers

if TYPE_CHECKING:
    from ...http_shared.routing import Parameters

_LOGIN: Final = (
    Part("name", ("username",), TEXT),
    Part("password", ("password",), TEXT),
    # a client that sends the field has a version, even if its value says nothing: see guess_release
    Part("version", ("version",), optional(TEXT, ""), None),
    Part("context", ("context",), optional(TEXT, ""), ""),
)
_TOKEN: Final = (Part("token", ("token",), TEXT),)
_REFRESH: Final = (Part("token", ("token", "refresh_token"), TEXT),)

ReadFields = Callable[[Sequence[Part], Request], Awaitable[dict[str, Any]]]
Route = tuple[str, str, str, Callable[[HttpCaller, Request, "Parameters"], Awaitable[Response]]]


class HttpLogins:
    """Handlers of the routes."""

    def __init__(self, callers: HttpCallers, read: ReadFields) -> None:
        self._callers = callers
        self._read = read

    def routes(self) -> list[Route]:
        """Return the method, pattern, name and handler of each route."""
        return [
            ("POST", "/users/login", "user.login", self._log_in),
            ("POST", "/personal-access-tokens/login", "personal_access_token.login", self._log_in_with_token),
            ("POST", "/users/refresh-token", "user.refresh", self._refresh),
            # releases before 0.3
            ("POST", "/users/logout", "user.logout", self._log_out),
            ("DELETE", "/users/logout", "user.logout", self._log_out),
        ]

    async def _log_in(self, caller: HttpCaller, request: Request, path: Parameters) -> Response:
        login = await self._read(_LOGIN, request)
        release = release_of_http_login(login["version"], login["context"])
        answer = await self._callers.log_in(login["name"], login["password"], release, request)
        return Response(dump(answer), media_type="application/json")

    async def _log_in_with_token(self, caller: HttpCaller, request: Request, path: Parameters) -> Response:
        token = (await self._read(_TOKEN, request))["token"]
        answer = await self._callers.log_in_with_token(token, caller, request)
        return Response(dump(answer), media_type="application/json")

    async def _refresh(self, caller: HttpCaller, request: Request, path: Parameters) -> Response:
        token = (await self._read(_REFRESH, request))["token"]
        return Response(dump(self._callers.refresh(token, request)), media_type="application/json")

    async def _log_out(self, caller: HttpCaller, request: Request, path: Parameters) -> Response:
        self._callers.log_out(caller)
        return Response(status_code=204)

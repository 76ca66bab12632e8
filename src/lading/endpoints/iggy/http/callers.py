"""Callers over HTTP: the token of a request names its user and, from its login, the release of the client."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ....dialects.iggy.http.releases import BY_TOKEN, JSON_RELEASES, JsonRelease
from ....model.errors import Reason, Refusal
from ....runtime.clock import date_us
from ....settings.settings import Address
from ...base.services import Services, now_us
from ...http_shared.http_guard import HttpGuard
from ...http_shared.routing import Access, HttpRoute, Parameters
from ..clients import Client
from ..logins import Logins, user_id_of
from .tokens import ACCESS, REFRESH, HttpTokens, TokenClaims, has_own_algorithm, refuse_token

if TYPE_CHECKING:
    from ....broker.core.access.principal import Principal
    from ....settings.endpoints import IggyHttpListener

TRANSPORT_HTTP: Final = 3
_NEWEST: Final = "0.11"
_BEARER: Final = "bearer "
_PUBLIC: Final = frozenset({"/users/login", "/users/refresh-token", "/personal-access-tokens/login"})
"""Response to a request without a token, or with one that has expired."""


@dataclass(frozen=True, slots=True, eq=False)
class HttpCaller:
    """The sender of a request; ``client`` stands in for a connection, and is not listed among the clients."""

    release: JsonRelease
    client: Client
    claims: TokenClaims | None = None


class HttpCallers:
    """Knows the callers of one listener by their tokens."""

    def __init__(self, services: Services, settings: IggyHttpListener) -> None:
        self._services = services
        self._tokens = tokens_of(services)
        self._access = services.broker.access
        self._authenticator = services.authenticator
        self._logins = Logins(services, is_open=settings.secured, admits_strangers=settings.allow_unauthenticated)
        self._configured_release = None if settings.release is None else JSON_RELEASES[settings.release]
        admin = services.settings.endpoints.admin
        self._secrets = [one.token.get_secret_value() for one in (settings, admin) if one.token is not None]

    @property
    def first(self) -> JsonRelease:
        """The release that is assumed until a client has shown its own."""
        return self._configured_release or JSON_RELEASES["0.0.40"]

    async def identify(self, request: Request) -> HttpCaller:
        """Return the caller that sent a request. Raises Refusal for a token that is not valid."""
        shown = request.headers.get("authorization", "")
        token = shown[len(_BEARER) :].strip()
        # clients send an empty token before they log in
        if shown[: len(_BEARER)].lower() != _BEARER or not token or request.scope["path"] in _PUBLIC:
            return self._make_stranger(request)
        if any(hmac.compare_digest(token.encode("latin-1"), one.encode()) for one in self._secrets):
            return self._make_stranger(request, self._access.trust())
        if self._access.is_enabled and self._authenticator.has_issuer and not has_own_algorithm(token):
            return await self._caller_of_issuer(request, token)
        claims = self._tokens.read(token, now_us() // 1_000_000)
        release = self._configured_release or BY_TOKEN[claims.release]
        client = self._make_client(request, release)
        client.log_in(self._principal_of(claims), claims.name, self._tokens.password_of(claims))
        return HttpCaller(release, client, claims)

    async def _caller_of_issuer(self, request: Request, token: str) -> HttpCaller:
        """Return the caller with a token of the configured issuer; like every login by token, it shows no release."""
        release = self._configured_release or JSON_RELEASES[_NEWEST]
        client = self._make_client(request, release)
        try:
            await self._logins.log_in_with_token(client, token)
        except Refusal as refusal:
            # the code that this broker's own expired tokens get: clients log in again
            raise Refusal(Reason.UNAUTHENTICATED, str(refusal)) from None
        return HttpCaller(release, client)

    def _principal_of(self, claims: TokenClaims) -> Principal | None:
        """Return the principal of a token; Refusal if its user or access token is deleted or expired."""
        if not self._access.is_enabled:
            return self._access.admit(is_open=False)
        self._tokens.forget_passwords()
        user = self._access.table.users.get(claims.name)
        has_token = claims.pat is None
        if claims.pat is not None and (shown := self._access.table.tokens.get((claims.name, claims.pat))) is not None:
            has_token = shown.ends_us is None or shown.ends_us > date_us()
        # 0 marks a token from before users were set up, when any name was accepted
        if user is None or user.id != claims.user_id or not has_token:
            raise refuse_token()
        return self._access.accept(claims.name)

    def _make_stranger(self, request: Request, principal: Principal | None = None) -> HttpCaller:
        """Return a caller without a token, or the operator with its ``principal``."""
        client = self._make_client(request, self.first)
        client.log_in(self._logins.admit() if principal is None else principal, None)
        return HttpCaller(self.first, client)

    def _make_client(self, request: Request, release: JsonRelease) -> Client:
        return Client(_peer_of(request), TRANSPORT_HTTP, _here_of(request), release.release)

    async def log_in(self, name: str, password: str, release: JsonRelease, request: Request) -> dict[str, Any]:
        """Return the response to a login by a client of ``release``.

        Raises Refusal for a wrong login, or one from another machine.
        """
        release = self._configured_release or release
        client = self._make_client(request, release)
        await self._logins.log_in(client, name, password)
        return self._build_response(client, release)

    async def log_in_with_token(self, token: str, caller: HttpCaller, request: Request) -> dict[str, Any]:
        """Return the response to a login by a personal access token; Refusal for an invalid one.

        Such a login has no version: its client counts as one of the current generation, unless the listener is set.
        """
        release = self._configured_release or JSON_RELEASES[_NEWEST]
        client = self._make_client(request, release)
        await self._logins.log_in_with_token(client, token)
        if client.principal is not None and client.principal.ends_us is not None and client.principal.token is None:
            # such a token would be valid for longer than the login, and its user need not exist here
            raise Refusal(Reason.INVALID_TOKEN, "show a token of another issuer with each request, as Bearer")
        return self._build_response(client, release)

    def refresh(self, token: str, request: Request) -> dict[str, Any]:
        """Return the response of a login with new tokens. Raises Refusal for a token that cannot be refreshed."""
        now_s = now_us() // 1_000_000
        claims = self._tokens.read(token, now_s, REFRESH, ACCESS)
        release = BY_TOKEN[claims.release]
        if release.has_refresh_tokens != (claims.use == REFRESH):
            raise refuse_token()
        client = self._make_client(request, release)
        client.log_in(self._principal_of(claims), claims.name, self._tokens.password_of(claims))
        return self._build_response(client, self._configured_release or release)

    def log_out(self, caller: HttpCaller) -> None:
        """Revoke the caller's token."""
        if caller.claims is not None:
            self._tokens.log_out(caller.claims, now_us() // 1_000_000)

    def _build_response(self, client: Client, release: JsonRelease) -> dict[str, Any]:
        now_s, principal, name = now_us() // 1_000_000, client.principal, client.user
        assert principal is not None and name is not None, "logged in"
        who = (name, principal.user_id, release.name, now_s)
        access = self._tokens.issue(*who, ACCESS, principal.token, client.secret)._asdict()
        told = {"user_id": user_id_of(client) - 1 + release.first_id}
        if not release.has_refresh_tokens:
            return {**told, "access_token": access}
        refresh = self._tokens.issue(*who, REFRESH, principal.token, client.secret)._asdict()
        return {**told, "tokens": {"access_token": access, "refresh_token": refresh}}


def tokens_of(services: Services) -> HttpTokens:
    """Return the tokens of this process, shared by all listeners."""
    tokens: HttpTokens = services.shared.setdefault(HttpTokens, HttpTokens())
    return tokens


def _peer_of(request: Request) -> str:
    return str(Address(*request.client)) if request.client else ""


def _here_of(request: Request) -> Address:
    server = request.scope.get("server")
    return Address(server[0], server[1] or 0) if server else Address("", 0)


class IggyHttpGuard(HttpGuard):
    """The guard while no users are set up; the endpoint then requires its own tokens, which only it can check."""

    def __init__(self, services: Services, name: str) -> None:
        super().__init__(services, name, [name, "admin"], frozenset({Access.ADMINISTRATE}))
        self._users = services.broker.access

    def __call__(
        self, request: Request, route: HttpRoute | None, path: Parameters
    ) -> Response | Awaitable[Response | None] | None:
        return None if self._users.is_enabled else super().__call__(request, route, path)

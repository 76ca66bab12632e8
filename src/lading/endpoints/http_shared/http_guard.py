"""Authorization of requests to an HTTP endpoint: bearer tokens and Basic logins, and the right that a route needs.

An administrator may send ``Lading-On-Behalf-Of: NAME``, as a web page does that logs users in itself: the request is
then done with the rights of that user alone.

While no users are set up, only the tokens of the settings are required: on every route of admin, elsewhere on routes
that delete something. With users every request but one for health needs a login: an access token (``Bearer``), name and
password (``Basic``, RFC 7617), or a token of the settings, whose owner may do everything.
"""

from __future__ import annotations

import binascii
import hmac
import json
from base64 import b64decode
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from ...broker.core.access.principal import Principal
from ...broker.core.access.rights import CLUSTER, Resource, ResourceKind, topic_resource
from ...model.errors import Reason, Refusal
from ...settings.endpoints import endpoint_key
from ...settings.sections import TokenSettings
from ..base.login_throttle import network_of
from .quota_rest import PRINCIPAL
from .routing import Access, Guard, HttpRoute, Parameters

if TYPE_CHECKING:
    from ..base.services import Services

LOGIN_BYTES_MAX: Final = 8 << 10
ON_BEHALF_OF: Final = "lading-on-behalf-of"
"""The header with the name of the user whose rights a request of an administrator has, percent-encoded."""
_STATUS: Final = {Reason.UNAUTHORIZED: 403, Reason.STOPPING: 503}
_CHALLENGE: Final = 'Basic realm="lading", charset="UTF-8"'


def guard_all(services: Services) -> Guard:
    """Return the guard of admin: every route but health needs admin's token, if there is one."""
    return HttpGuard(services, "admin", ["admin"], frozenset({Access.USE, Access.ADMINISTRATE}))


def guard_administration(services: Services, name: str) -> Guard:
    """Return the guard of the endpoint ``name``: administration needs its own token or admin's, if one is set."""
    return HttpGuard(services, name, [name, "admin"], frozenset({Access.ADMINISTRATE}))


class HttpGuard:
    """Refuses requests that are not allowed, before their route is called."""

    def __init__(self, services: Services, name: str, sections: Sequence[str], guarded: frozenset[Access]) -> None:
        endpoints = services.settings.endpoints
        settings = [endpoints.section(section) for section in sections]
        self._access = services.broker.access
        self._authenticator = services.authenticator
        self._guarded = guarded
        self._is_open = bool(getattr(settings[0], "allow_unauthenticated", False))
        tokens = [
            section.token for section in settings if isinstance(section, TokenSettings) and section.token is not None
        ]
        self._wanted = [f"Bearer {token.get_secret_value()}".encode() for token in tokens]
        keys = " or ".join(f"{endpoint_key(section)}.token" for section in sections)
        self._token_needed = f"this request needs the bearer token of {keys}; send Authorization: Bearer …"

    def __call__(
        self, request: Request, route: HttpRoute | None, path: Parameters
    ) -> Response | Awaitable[Response | None] | None:
        # a path without a route is guarded like a used one: it reveals as little
        access = Access.USE if route is None else route.access
        header = request.headers.get("authorization", "")
        if access is Access.HEALTH and not header and (self._wanted or self._access.is_enabled):
            # strangers get it too, without any names in it
            return None
        # compare with every token, so that the time does not reveal which one was near
        has_token = bool(sum(hmac.compare_digest(header.encode("latin-1"), one) for one in self._wanted))
        if self._access.is_enabled:
            return self._check_user(request, route, path, header, has_token=has_token)
        if not self._wanted or has_token or access is not Access.HEALTH:
            request.scope[PRINCIPAL] = self._access.admit(is_open=False)
        if not self._wanted or has_token or access not in self._guarded:
            return None
        return _refuse(401, "unauthorized", self._token_needed, "Bearer")

    async def _check_user(
        self, request: Request, route: HttpRoute | None, path: Parameters, header: str, *, has_token: bool
    ) -> Response | None:
        try:
            principal = self._access.trust() if has_token else await self._log_in(request, header)
            if principal is None:
                raise Refusal(
                    Reason.UNAUTHENTICATED,
                    "this request needs a login: Authorization: Bearer … or Basic …; "
                    "the command line takes a token from LADING_TOKEN",
                )
            principal = self._find_user(request, principal)
            request.scope[PRINCIPAL] = principal
            if route is not None and route.right is not None and route.access is not Access.HEALTH:
                find = route.resource or resource_in_path
                self._access.require(principal, route.right, find(request, path))
        except Refusal as refusal:
            status = _STATUS.get(refusal.reason, 401)
            return _refuse(status, refusal.reason.value, str(refusal), _CHALLENGE if status == 401 else "")
        return None

    def _find_user(self, request: Request, caller: Principal) -> Principal:
        """Return the user whose rights apply to a request: the caller, or the user on whose behalf the caller acts.

        Raises Refusal if a caller that is not an administrator acts for another user. Administrators gain nothing by
        it, as they have all rights.
        """
        names = request.headers.getlist(ON_BEHALF_OF)
        if not names:
            return caller
        if not self._access.is_administrator(caller):
            raise Refusal(
                Reason.UNAUTHORIZED,
                f"header {ON_BEHALF_OF}: only an administrator may act on behalf of a user; leave it out",
            )
        if len(names) > 1:
            raise Refusal(Reason.UNAUTHORIZED, f"header {ON_BEHALF_OF}: given more than once; send it once")
        try:
            return self._access.vouch(unquote(names[0], errors="strict"))
        except UnicodeDecodeError:
            sentence = f"header {ON_BEHALF_OF}: not UTF-8; percent-encode the name"
            raise Refusal(Reason.UNAUTHENTICATED, sentence) from None

    async def _log_in(self, request: Request, header: str) -> Principal | None:
        host = request.client.host if request.client else ""
        scheme, _, given = header.partition(" ")
        if not header:
            return self._access.admit(is_open=self._is_open)
        if scheme.lower() == "bearer":
            return await self._authenticator.log_in_with_token(given.strip(), host)
        if scheme.lower() != "basic" or len(given) > LOGIN_BYTES_MAX:
            raise Refusal(Reason.UNAUTHENTICATED, "Authorization: not supported; send Bearer … or Basic …")
        try:
            name, colon, password = b64decode(given.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            name = colon = password = ""
        if not colon:
            raise Refusal(Reason.UNAUTHENTICATED, "Authorization: Basic takes name:password in Base64 of UTF-8")
        return await self._authenticator.log_in(name, password, host)


def principal_of(request: Request) -> Principal | None:
    """Return the sender of a request that its guard let pass; None for strangers, which may read the health."""
    principal: Principal | None = request.scope.get(PRINCIPAL)
    return principal


def client_of(request: Request) -> str:
    """Return who has a share of the broker's work: the user that sent a request, or else the address."""
    principal = principal_of(request)
    if principal is not None and principal.name:
        return principal.name
    return network_of(request.client.host) if request.client else ""


def resource_in_path(request: Request, path: Parameters) -> Resource:
    """Return the topic or the stream that a path names, else the cluster."""
    if "stream" not in path:
        return CLUSTER
    if "topic" not in path:
        return Resource(ResourceKind.STREAM, path["stream"])
    return topic_resource(path["stream"], path["topic"])


def group_in_path(request: Request, path: Parameters) -> Resource:
    """Return the group that a path names."""
    return Resource(ResourceKind.GROUP, path["group"])


def _refuse(status: int, reason: str, message: str, challenge: str) -> Response:
    body = json.dumps({"reason": reason, "message": message}, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, status, {"www-authenticate": challenge} if challenge else None, "application/json")

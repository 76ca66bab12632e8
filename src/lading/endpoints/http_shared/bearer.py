"""Bearer tokens of HTTP endpoints: on every route of admin, elsewhere where something is deleted."""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ...endpoint_settings import TokenSettings, endpoint_key
from .routing import Access, Guard, HttpRoute

if TYPE_CHECKING:
    from ...endpoint_settings import EndpointSettings


def guard_all(settings: EndpointSettings) -> Guard:
    """Return the guard of admin: every route but health needs admin's token, if there is one."""
    return _guard("admin", [settings.admin], frozenset({Access.USE, Access.ADMINISTRATE}))


def guard_administration(settings: EndpointSettings, name: str) -> Guard:
    """Return the guard of the endpoint ``name``: administration needs its own token or admin's, if one is set."""
    section = settings.section(name)
    assert isinstance(section, TokenSettings)
    return _guard(name, [section, settings.admin], frozenset({Access.ADMINISTRATE}))


def _guard(name: str, sections: Sequence[TokenSettings], guarded: frozenset[Access]) -> Guard:
    tokens = [section.token for section in sections if section.token is not None]
    if not tokens:
        return lambda request, route: None
    wanted = [f"Bearer {token.get_secret_value()}".encode() for token in tokens]
    keys = [f"{endpoint_key(name)}.token", *(["endpoints.admin.token"] if name != "admin" else [])]
    document = {
        "reason": "unauthorized",
        "message": f"this request needs the bearer token of {' or '.join(keys)}; send Authorization: Bearer …",
    }
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    def check(request: Request, route: HttpRoute | None) -> Response | None:
        # a path that no route has is guarded like what is used: it tells as little
        if (Access.USE if route is None else route.access) not in guarded:
            return None
        given = request.headers.get("authorization", "").encode("latin-1")
        # each of them is compared: how long it takes does not tell which one was near
        if sum(hmac.compare_digest(given, one) for one in wanted):
            return None
        return Response(body, 401, {"www-authenticate": "Bearer"}, "application/json")

    return check

"""``GET /`` of an HTTP endpoint: one line for people who open its port in a browser."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from .routing import Access, HttpRoute, Parameters

ELSEWHERE: Final = (
    "`lading console` shows topics and messages in a browser, `lading topic list` in a terminal; the documentation is "
    "docs/ in Lading's source"
)


def make_root_route(purpose: str) -> HttpRoute:
    """Return the route of ``GET /``, which says what the port is: ``purpose``, such as "the admin endpoint: …"."""
    text = f"This is {purpose} {ELSEWHERE}.\n"

    async def show(request: Request, path: Parameters) -> Response:
        return PlainTextResponse(text)

    return HttpRoute("GET", "/", "root", show, Access.HEALTH, None)

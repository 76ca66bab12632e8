"""Several brokers in one console: the first part of an address names the broker whose pages it shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from .responses import json_answer

PREFIX: Final = "/at/"
"""Begins the address of each broker's pages: ``/at/NAME/topic?topic=flights``."""
SHARED: Final = "/static/"
"""Paths of files that are the same for all brokers."""


def base_of(name: str | None) -> str:
    """Return the start of the addresses of the pages of a broker; empty in a console of one broker."""
    return "" if name is None else f"{PREFIX}{name}"


class BrokerSwitch:
    """An ASGI application that has one for each broker. An address without a broker leads to the first one."""

    def __init__(self, apps: Mapping[str, ASGIApp]) -> None:
        self._apps = dict(apps)
        self._first = next(iter(self._apps))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._apps[self._first](scope, receive, send)
            return
        path: str = scope["path"]
        name, slash, rest = path.removeprefix(PREFIX).partition("/") if path.startswith(PREFIX) else ("", "", "")
        app = self._apps.get(name)
        answer: ASGIApp
        if app is not None and slash:
            below = f"/{rest}"
            scope, answer = {**scope, "path": below, "raw_path": quote(below).encode()}, app
        elif path.startswith(SHARED):
            answer = self._apps[self._first]
        elif name and app is None:
            known = ", ".join(self._apps)
            sentence = f"this console has no broker {name[:64]!r}; choose one of {known}"
            # the document has the program that shows the sentence
            answer = (
                self._show_unknown
                if not rest.startswith("api/")
                else json_answer({"error": sentence, "broker_names": list(self._apps)}, 404)
            )
        elif scope["method"] in ("GET", "HEAD") and not path.startswith("/api/"):
            goal = f"{base_of(name or self._first)}{'/' if name else quote(path)}"
            query = scope.get("query_string", b"").decode("latin-1")
            answer = RedirectResponse(f"{goal}?{query}" if query else goal, 307)
        else:
            answer = json_answer({"error": f"{path}: no broker is named; write {base_of('NAME')}{path}"}, 404)
        await answer(scope, receive, send)

    async def _show_unknown(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._apps[self._first]({**scope, "path": "/unknown", "raw_path": b"/unknown"}, receive, send)

"""The process of a console for several people: a listener with TLS, which asks each visitor for a login."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from starlette.types import ASGIApp, Receive, Scope, Send

from ...endpoints.http_shared.cross_site import CrossSiteGuard, HostNames
from ...kernels import engine
from ...model.address import Address
from ...runtime.log_lines import logging_to_stderr
from ...runtime.metrics import Metrics
from ...serve.local_server import listen, print_ready, serve
from ...settings.settings import HttpSettings
from ...transports.open import without_options
from ..server import NAME, ConsolePolicy, make_document_routes, make_pages, routes_of
from ..source import ConsoleSource
from .app import TeamConsole, TeamServices, respond_rejected
from .audit import AuditFile
from .login_page import LoginWays
from .logins import PasswordLogins, UserLogin, require_administrator, require_users
from .oidc import OidcLogins
from .proxy import TrustedProxy
from .sessions import BrowserSessions
from .settings import TeamDocument

SAMPLED_GROUPS_MAX = 50
"""How many groups have samples of their lag in each session: some 60 kB each."""


def run_team(
    team: TeamDocument,
    *,
    output: Literal["text", "json"] = "text",
    print_note: Callable[[str], None] = lambda text: None,
) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit code 0.

    Raises LocalError for an address that is taken, files that cannot be used, and a source that lets everybody in.
    """
    require_users(team.from_)
    if team.acts_for_users:
        require_administrator(team.from_)
    tls, names = team.make_tls(), team.list_names()
    with logging_to_stderr(output):
        console = make_console(team)
        bound = listen(team.address, NAME, is_public=True)
        address = Address(*bound.getsockname()[:2])
        engine.load_in_background()

        def announce() -> None:
            print_ready(NAME, address, output)
            print_note(f"the console of {without_options(team.from_)}: {team.public_url or f'https://{address}'}/")

        try:
            serve(NAME, guard(console, bound, team, names), bound, announce, tls)
        finally:
            console.close()
            bound.close()
    return 0


def make_console(team: TeamDocument, clock: Callable[[], float] = time.monotonic) -> TeamConsole:
    """Return the application. ``clock`` gives the seconds by which sessions end. Raises LocalError for audit files."""
    settings = replace(team.make_console_settings(), sampled_groups_max=SAMPLED_GROUPS_MAX)

    can_log_out = team.proxy is None or team.proxy.user_header is None

    def make_app(source: ConsoleSource, login: UserLogin) -> ASGIApp:
        # files of this machine are read with the rights of this process, which only an administrator has as well
        own = replace(settings, shows_files=login.is_administrator)
        return make_pages(routes_of(own, source, login.name, can_log_out=can_log_out), respond_rejected)

    return TeamConsole(
        TeamServices(
            url=team.from_,
            ways=LoginWays(without_options(team.from_), None if team.oidc is None else team.oidc.shown, team.passwords),
            registry=team.registry,
            logins=PasswordLogins(team.from_),
            sessions=BrowserSessions(team.session, clock),
            audit=AuditFile(team.audit_file),
            make_app=make_app,
            provider=None if team.oidc is None else OidcLogins(team.oidc, team.public_url or ""),
            proxy=None if team.proxy is None else TrustedProxy(team.proxy),
            documents=make_pages(make_document_routes()),
        )
    )


def guard(console: TeamConsole, listener: socket.socket, team: TeamDocument, names: list[str]) -> ASGIApp:
    """Return the application for a listener, which browsers ask by these ``names``."""
    origins = () if team.public_url is None else (team.public_url,)
    hosts = HostNames(HttpSettings(origins=origins), names)
    hosts.bind(listener)
    guarded = CrossSiteGuard(ConsolePolicy(console), hosts, NAME, Metrics())

    async def serve_as_https(scope: Scope, receive: Receive, send: Send) -> None:
        # a proxy may ask without TLS, but a page of http:// is another site
        headers = list(_drop_site(scope)) if scope["type"] == "http" else []
        await guarded({**scope, "scheme": "https", "headers": headers}, receive, send)

    return serve_as_https


def _drop_site(scope: Scope) -> Iterator[tuple[bytes, bytes]]:
    """Yield the headers of a request, without the site that sent it if a person followed a link to a page.

    A page holds nothing of the source before it asks for it itself, and an identity provider sends people back.
    """
    headers = dict(scope["headers"])
    is_link = (
        scope["method"] == "GET"
        and not scope["path"].startswith("/api/")
        and headers.get(b"sec-fetch-mode") == b"navigate"
        and headers.get(b"sec-fetch-dest") == b"document"
    )
    for name, value in scope["headers"]:
        if not (is_link and name == b"sec-fetch-site"):
            yield name, value

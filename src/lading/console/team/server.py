"""The process of a console for several people: a listener with TLS, which asks each visitor for a login."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
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
from ..broker_switch import BrokerSwitch, base_of
from ..masks import NO_MASKS, Masks
from ..server import NAME, ConsolePolicy, make_document_routes, make_pages, routes_of
from ..settings import ListedBroker
from ..source import ConsoleSource
from .app import TeamConsole, TeamServices, respond_rejected
from .audit import AuditFile
from .login_page import LoginWays
from .logins import PasswordLogins, UserLogin, require_administrator, require_users
from .oidc import OidcLogins
from .proxy import TrustedProxy
from .sessions import BrowserSessions
from .settings import TeamBroker, TeamDocument

SAMPLED_GROUPS_MAX = 50
"""How many groups have samples of their lag in each session: some 60 kB each."""


def run_team(
    brokers: Sequence[TeamBroker],
    *,
    output: Literal["text", "json"] = "text",
    print_note: Callable[[str], None] = lambda text: None,
) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit code 0.

    Raises LocalError if the address is taken, files cannot be used, or the source accepts everybody.
    """
    for one in brokers:
        require_users(one.team.from_)
        if one.team.acts_for_users:
            require_administrator(one.team.from_)
    # all have the same listener
    team = brokers[0].team
    tls, names = team.make_tls(), team.list_names()
    with logging_to_stderr(output):
        consoles = [make_console(one.team, name=one.name, listed=one.listed, masks=one.masks) for one in brokers]
        bound = listen(team.address, NAME, is_public=True)
        address = Address(*bound.getsockname()[:2])
        engine.load_in_background()

        def announce() -> None:
            print_ready(NAME, address, output)
            shown = ", ".join(without_options(one.team.from_) for one in brokers)
            print_note(f"the console of {shown}: {team.public_url or f'https://{address}'}/")

        try:
            serve(NAME, guard(switch_consoles(brokers, consoles), bound, team, names), bound, announce, tls)
        finally:
            for console in consoles:
                console.close()
            bound.close()
    return 0


def switch_consoles(brokers: Sequence[TeamBroker], consoles: Sequence[TeamConsole]) -> ASGIApp:
    """Return the application of all consoles, each with its own logins; of one that no file names, itself."""
    apps = {one.name: console for one, console in zip(brokers, consoles, strict=True) if one.name is not None}
    return BrokerSwitch(apps) if apps else consoles[0]


def make_console(
    team: TeamDocument,
    clock: Callable[[], float] = time.monotonic,
    *,
    name: str | None = None,
    listed: tuple[ListedBroker, ...] = (),
    masks: Masks = NO_MASKS,
) -> TeamConsole:
    """Return the application over one source. ``clock`` gives the seconds by which sessions end.

    ``name``, ``listed`` and ``masks`` are those of a file of brokers. Raises LocalError for audit files.
    """
    settings = replace(team.make_console_settings(name, listed), sampled_groups_max=SAMPLED_GROUPS_MAX)
    others = tuple(one.name for one in listed if one.name != name)

    can_log_out = team.proxy is None or team.proxy.user_header is None

    def make_app(source: ConsoleSource, login: UserLogin) -> ASGIApp:
        # files of this machine are read with the rights of this process, so only administrators may see them
        own = replace(settings, shows_files=login.is_administrator)
        return make_pages(routes_of(own, source, login.name, can_log_out=can_log_out), respond_rejected)

    return TeamConsole(
        TeamServices(
            url=team.from_,
            ways=LoginWays(
                without_options(team.from_),
                None if team.oidc is None else team.oidc.shown,
                team.passwords,
                name,
                others,
            ),
            registry=team.registry,
            masks=masks,
            logins=PasswordLogins(team.from_),
            sessions=BrowserSessions(team.session, clock),
            audit=AuditFile(team.audit_file, broker=name),
            make_app=make_app,
            provider=None if team.oidc is None else OidcLogins(team.oidc, f"{team.public_url or ''}{base_of(name)}"),
            proxy=None if team.proxy is None else TrustedProxy(team.proxy),
            documents=make_pages(make_document_routes()),
        )
    )  # fmt: skip


def guard(console: ASGIApp, listener: socket.socket, team: TeamDocument, names: list[str]) -> ASGIApp:
    """Return the application for a listener, which browsers address by these ``names``."""
    origins = () if team.public_url is None else (team.public_url,)
    hosts = HostNames(HttpSettings(origins=origins), names)
    hosts.bind(listener)
    guarded = CrossSiteGuard(ConsolePolicy(console), hosts, NAME, Metrics())

    async def serve_as_https(scope: Scope, receive: Receive, send: Send) -> None:
        # a proxy may connect without TLS, but for the browser a page of http:// is another site
        headers = list(_drop_site(scope)) if scope["type"] == "http" else []
        await guarded({**scope, "scheme": "https", "headers": headers}, receive, send)

    return serve_as_https


def _drop_site(scope: Scope) -> Iterator[tuple[bytes, bytes]]:
    """Yield the headers of a request, without the site that sent it if a person followed a link to a page.

    That is safe: a page contains nothing of the source before its own requests, and identity providers link here.
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

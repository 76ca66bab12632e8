"""A console for several people over a broker with users, without a process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from lading import testing
from lading.console.team.server import guard, make_console
from lading.console.team.settings import parse_team
from lading.model.address import Address
from lading.serve.local_server import listen
from lading.transports.lading.transport import LadingTransport

from .conftest import TestClient

PASSWORD = "correct horse battery"
URL = "https://console.test"
COOKIE = "__Host-lading-console"


class TeamClock:
    """Seconds that a test moves on."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Team:
    """The console and its clock; ``browser`` makes a browser without a login."""

    def __init__(self, url: str, place: Path, clock: TeamClock, **more: Any) -> None:
        document = {"from": url, "public_url": URL, "tls": {"enabled": True}, "state": str(place), **more}
        team = parse_team(document, "test", place)
        self.clock = clock
        self.audit_file = team.audit_file
        self.console = make_console(team, clock)
        self._listener = listen(Address("127.0.0.1", 0), "console")
        self._app = guard(self.console, self._listener, team, team.list_names())

    def browser(self, host: str = "192.0.2.1", **headers: str) -> TestClient:
        return TestClient(
            self._app, base_url=URL, headers={"origin": URL, **headers}, follow_redirects=False, client=(host, 5_000)
        )

    def log_in(self, user: str, password: str = PASSWORD, **more: Any) -> TestClient:
        browser = self.browser(**more)
        assert log_in(browser, user, password).status_code == 303
        return browser

    def audit(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.audit_file.read_text().splitlines()]

    def close(self) -> None:
        self.console.close()
        self._listener.close()


def log_in(browser: TestClient, user: str, password: str = PASSWORD, goal: str = "/") -> httpx.Response:
    response: Any = browser.post("/login", data={"user": user, "password": password, "next": goal})
    return response  # type: ignore[no-any-return]


def add_users(broker: testing.BrokerProcess) -> LadingTransport:
    """Add an administrator, root, and ann, who may read and write ``mine``; return root's transport."""
    transport = LadingTransport(broker.url)
    transport.create_topic("mine", 2)
    transport.create_topic("secret", 1)
    transport.add_user("root", PASSWORD, administrator=True)
    transport.log_in("root", PASSWORD)
    transport.add_user("ann", PASSWORD)
    rule = {"user": "ann", "kind": "topic", "pattern": "literal", "name": "mine"}
    transport.change_rules([{**rule, "operation": operation} for operation in ("read", "write", "describe")])
    return transport

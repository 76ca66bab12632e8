"""One broker for the suite, and every behaviour over every row of ``rows.CLIENTS``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from lading import testing
from lading.transports.lading import LadingTransport
from tests.behaviours.rows import CLIENTS, Client, Session

_numbers = count(1)


@pytest.fixture(scope="session")
def broker() -> Iterator[testing.Running]:
    """The broker that all clients connect to."""
    with testing.broker() as running:
        yield running


@pytest.fixture(scope="session")
def sessions(broker: testing.Running) -> Iterator[Callable[[Client], Session]]:
    """The session of a row, opened once."""
    opened: dict[str, Session] = {}

    def session(client: Client) -> Session:
        if client.name not in opened:
            opened[client.name] = client.open(broker)
        return opened[client.name]

    yield session
    for each in opened.values():
        each.close()


@pytest.fixture
def admin(broker: testing.Running) -> Iterator[LadingTransport]:
    """The admin endpoint, for what only it can do."""
    transport = LadingTransport(broker.url)
    yield transport
    transport.close()


@pytest.fixture
def topic() -> str:
    """A topic name nobody used before."""
    return f"behaviour-{next(_numbers)}"


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest, sessions: Callable[[Client], Session]) -> Session:
    """Each client in turn, for what one client does alone."""
    return _open(request, request.param, sessions)


@pytest.fixture(params=CLIENTS, ids=lambda client: f"from-{client.name}")
def writer(request: pytest.FixtureRequest, sessions: Callable[[Client], Session]) -> Session:
    """Each client in turn as the one that sends."""
    return _open(request, request.param, sessions)


@pytest.fixture(params=CLIENTS, ids=lambda client: f"to-{client.name}")
def reader(request: pytest.FixtureRequest, sessions: Callable[[Client], Session]) -> Session:
    """Each client in turn as the one that reads."""
    return _open(request, request.param, sessions)


def _open(request: pytest.FixtureRequest, client: Client, sessions: Callable[[Client], Session]) -> Session:
    name = request.function.__name__.removeprefix("test_")
    if name in client.exceptions:
        request.applymarker(pytest.mark.xfail(reason=f"{client.name}: {client.exceptions[name]}", strict=True))
    return sessions(client)

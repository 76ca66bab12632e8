"""One broker of each kind for the suite, and every behaviour over the rows that ``sample.py`` chooses, or all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from lading import testing
from lading.transports.lading.transport import LadingTransport
from tests.behaviours import sample
from tests.behaviours.rows import GATEWAY, LISTENERS, SERVERS, Client, Server, Session
from tests.interop import go_programs, kafka_broker, shared_kafka, wheels

_numbers = count(1)


@dataclass(frozen=True)
class Seat:
    """A client at a server."""

    server: Server
    client: Client


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``client``: each in turn, for what one does alone; ``writer`` and ``reader``: those that meet."""
    names = metafunc.fixturenames
    if not {"client", "writer"} & set(names):
        return
    routes = sample.list_routes(metafunc.function.__name__.removeprefix("test_"))
    if "client" in names:
        seats = [Seat(server, client) for server, (client,) in routes]
        ids = [f"{seat.server.name}-{seat.client.name}" for seat in seats]
        metafunc.parametrize("client", seats, indirect=True, ids=ids)
    else:
        pairs = [(Seat(server, writer), Seat(server, reader)) for server, (writer, reader) in routes]
        ids = [f"{writer.server.name}-from-{writer.client.name}-to-{reader.client.name}" for writer, reader in pairs]
        metafunc.parametrize(("writer", "reader"), pairs, indirect=True, ids=ids)


def pytest_itemcollected(item: pytest.Item) -> None:
    """The cases of most behaviours take turns."""
    is_case = {"client", "writer"} & set(getattr(item, "fixturenames", ())) and Path(
        __file__
    ).parent in item.path.parents
    if is_case and getattr(item, "originalname", "").removeprefix("test_") not in sample.EVERY_DAY:
        item.add_marker(pytest.mark.turns(sample.TURNS))


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Server], Mapping[str, str]]]:
    """The endpoints of a server, started once."""
    with ExitStack() as stack:

        @cache
        def lading() -> Mapping[str, str]:
            return stack.enter_context(testing.broker(settings=LISTENERS)).endpoints

        @cache
        def apache_kafka() -> Mapping[str, str]:
            try:
                return {"kafka": shared_kafka.running().address}
            except kafka_broker.Unavailable as reason:
                pytest.skip(str(reason))

        @cache
        def gateway() -> Mapping[str, str]:
            store = {"store": f"kafka://{apache_kafka()['kafka']}"}
            return stack.enter_context(testing.broker(settings={**LISTENERS, **store})).endpoints

        @cache
        def nsqd() -> Mapping[str, str]:
            try:
                running = stack.enter_context(go_programs.running(tmp_path_factory.mktemp("nsqd")))
            except go_programs.Unavailable as reason:
                pytest.skip(str(reason))
            return {"nsqd_tcp": running.nsqd_tcp, "nsqd_http": running.nsqd_http}

        start: dict[str, Callable[[], Mapping[str, str]]] = {
            "lading": lading,
            "apache-kafka": apache_kafka,
            "nsqd": nsqd,
            GATEWAY: gateway,
        }
        yield lambda server: start[server.name]()


@pytest.fixture(scope="session")
def sessions(servers: Callable[[Server], Mapping[str, str]]) -> Iterator[Callable[[Seat], Session]]:
    """The session of a seat, opened once."""
    opened: dict[tuple[str, str], Session] = {}

    def session(seat: Seat) -> Session:
        key = (seat.server.name, seat.client.name)
        if key not in opened:
            try:
                opened[key] = seat.client.open(servers(seat.server))
            except (go_programs.Unavailable, wheels.Unavailable) as reason:
                pytest.skip(str(reason))
        return opened[key]

    yield session
    for each in opened.values():
        each.close()


@pytest.fixture
def admin(servers: Callable[[Server], Mapping[str, str]]) -> Iterator[LadingTransport]:
    """The admin endpoint of our broker, for what only it can do."""
    transport = LadingTransport(f"lading://{servers(SERVERS[0])['admin']}")
    yield transport
    transport.close()


@pytest.fixture
def topic() -> str:
    """A topic name nobody used before."""
    return f"behaviour-{shared_kafka.PROCESS}-{next(_numbers)}"


@pytest.fixture
def client(request: pytest.FixtureRequest, sessions: Callable[[Seat], Session]) -> Session:
    """A client that does something alone."""
    _excuse(request, request.param.client.cannot_write)
    return _open(request, sessions)


@pytest.fixture
def writer(request: pytest.FixtureRequest, sessions: Callable[[Seat], Session]) -> Session:
    """The client that sends."""
    _excuse(request, request.param.client.cannot_write)
    return _open(request, sessions)


@pytest.fixture
def reader(request: pytest.FixtureRequest, sessions: Callable[[Seat], Session]) -> Session:
    """The client that reads."""
    return _open(request, sessions)


def _open(request: pytest.FixtureRequest, sessions: Callable[[Seat], Session]) -> Session:
    seat: Seat = request.param
    if reason := seat.client.left_out.get(_behaviour(request)):
        pytest.xfail(f"{seat.client.name}: {reason}")
    _excuse(request, seat.client.exceptions)
    _excuse(request, seat.server.exceptions.get(seat.client.endpoint, {}))
    return sessions(seat)


def _excuse(request: pytest.FixtureRequest, exceptions: Mapping[str, str]) -> None:
    if reason := exceptions.get(_behaviour(request)):
        name = request.param.client.name
        request.applymarker(pytest.mark.xfail(reason=f"{name}: {reason}", strict=True))


def _behaviour(request: pytest.FixtureRequest) -> str:
    name: str = request.function.__name__
    return name.removeprefix("test_")

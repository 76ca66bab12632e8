"""The sample of the ordinary run has each behaviour at each endpoint, and each client of each server."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.behaviours.rows import SERVERS
from tests.behaviours.sample import can_have, choose_sample, list_behaviours, list_servers

TURNS_MIN = {0: 3, 1: 1, 740_002: 1}
"""Behaviours of each client, at least, on some days."""
DAYS = tuple(TURNS_MIN)


@pytest.mark.parametrize("day", DAYS)
def test_each_behaviour_runs_at_each_endpoint(day: int) -> None:
    for behaviour, routes in choose_sample(day).items():
        for server in list_servers(behaviour):
            endpoints = {client.endpoint for client in server.clients()}
            of_server = [route for at, route in routes if at is server]
            for place in range(len(of_server[0])):
                assert {route[place].endpoint for route in of_server} == endpoints, (behaviour, server.name)


@pytest.mark.parametrize("day", DAYS)
def test_each_client_of_each_server_runs(day: int) -> None:
    turns = Counter(
        (server.name, client.name)
        for behaviour, routes in choose_sample(day).items()
        for server, route in routes
        for place, client in enumerate(route)
        if can_have(behaviour, client, as_writer=place == 0)
    )
    few = {
        (server.name, client.name): turns[server.name, client.name]
        for server in SERVERS
        for client in server.clients()
        if turns[server.name, client.name] < TURNS_MIN[day]
    }
    assert few == {}


def test_the_days_go_through_the_clients_of_each_behaviour() -> None:
    """157 days have had each client that can, but for one; nine of ten come within the first 40 days."""
    chosen = {
        (behaviour, server.name, route[0].name)
        for day in range(40)
        for behaviour, routes in choose_sample(day).items()
        for server, route in routes
    }
    able = {
        (behaviour, server.name, client.name)
        for behaviour in list_behaviours()
        for server in list_servers(behaviour)
        for client in server.clients()
        if can_have(behaviour, client, as_writer=True)
    }
    assert len(able & chosen) > 0.9 * len(able)


@pytest.mark.parametrize("day", DAYS)
def test_every_two_endpoints_meet(day: int) -> None:
    pairs = {
        (server.name, *(client.endpoint for client in route))
        for routes in choose_sample(day).values()
        for server, route in routes
        if len(route) == 2
    }
    ours = SERVERS[0]
    endpoints = {client.endpoint for client in ours.clients()}
    assert {(ours.name, one, other) for one in endpoints for other in endpoints} <= pairs


def test_behaviours_are_those_of_the_tests() -> None:
    from tests.behaviours import test_groups, test_send_and_read

    tests = [name for module in (test_groups, test_send_and_read) for name in vars(module) if name.startswith("test_")]
    assert {name.removeprefix("test_") for name in tests} <= set(list_behaviours())

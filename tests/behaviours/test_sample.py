"""The sample of the ordinary run has each behaviour at each endpoint, and each client of each server."""

from __future__ import annotations

from collections import Counter

from tests.behaviours.rows import SERVERS
from tests.behaviours.sample import can_have, choose_sample, list_behaviours, list_servers

TURNS_MIN = 3
"""Behaviours of each client, at least."""


def test_each_behaviour_runs_at_each_endpoint() -> None:
    for behaviour, routes in choose_sample().items():
        for server in list_servers(behaviour):
            endpoints = {client.endpoint for client in server.clients()}
            of_server = [route for at, route in routes if at is server]
            for place in range(len(of_server[0])):
                assert {route[place].endpoint for route in of_server} == endpoints, (behaviour, server.name)


def test_each_client_of_each_server_runs() -> None:
    turns = Counter(
        (server.name, client.name)
        for behaviour, routes in choose_sample().items()
        for server, route in routes
        for place, client in enumerate(route)
        if can_have(behaviour, client, as_writer=place == 0)
    )
    few = {
        (server.name, client.name): turns[server.name, client.name]
        for server in SERVERS
        for client in server.clients()
        if turns[server.name, client.name] < TURNS_MIN
    }
    assert few == {}


def test_every_two_endpoints_meet() -> None:
    pairs = {
        (server.name, *(client.endpoint for client in route))
        for routes in choose_sample().values()
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

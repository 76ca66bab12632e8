"""Which combinations of a behaviour, a server and its clients the ordinary run has; ``make test-full`` has all.

The sample is computed from ``rows.py``, from the tests beside it and from the day, as in ``tests/case_turns.py``, so
that the days go through all combinations. Each behaviour has every endpoint of every server: with one client for every
``CLIENTS_OF_ONE`` that can connect there, always the ones that were chosen least so far, so that each client of each
server gets its turns. Of two clients, one writes and one reads; each endpoint writes once and reads once for a
behaviour, and the next behaviour pairs it with the next endpoint.
A client that cannot have a behaviour is chosen only if the others at its endpoint cannot either.
Of the sample of a day every ``TURNS``-th case runs, and all cases of ``EVERY_DAY``. If pytest is given files, the
sample of day 0 runs whole.
``test_sample.py`` checks all this. ``LADING_TEST_BEHAVIOURS_OF`` names a client that meets all of ours besides.
"""

from __future__ import annotations

import ast
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final

from tests.behaviours.rows import SERVERS, Client, Server
from tests.case_turns import read_day

CLIENTS_OF_ONE: Final = 8
TURNS: Final = 3
EVERY_DAY: Final = frozenset({"every_kind_is_exact", "null_and_empty_values_are_different"})
"""Behaviours whose cases take no turns: they find most of what an endpoint can do wrong to headers."""
IS_WHOLE: Final = os.environ.get("LADING_TEST_FULL") == "1"
ALSO: Final = os.environ.get("LADING_TEST_BEHAVIOURS_OF")

Route = tuple[Client, ...]
"""The client that does something alone, or the writer and the reader."""


@cache
def list_behaviours() -> Mapping[str, frozenset[str]]:
    """Return the names of the arguments of each test of this directory, by its name without ``test_``."""
    return {
        node.name.removeprefix("test_"): frozenset(argument.arg for argument in node.args.args)
        for path in sorted(Path(__file__).parent.glob("test_*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and {"client", "writer"} & {argument.arg for argument in node.args.args}
    }


def list_routes(behaviour: str) -> list[tuple[Server, Route]]:
    """Return the combinations that run for a behaviour: those of the sample, or all in ``make test-full``."""
    if not IS_WHOLE:
        routes = list(choose_sample(read_day() or 0)[behaviour])
        return routes + [route for route in _list_whole(behaviour) if _is_wanted(route[1]) and route not in routes]
    return _list_whole(behaviour)


def list_servers(behaviour: str) -> list[Server]:
    """Return the servers where a behaviour runs: what needs our admin endpoint runs at our broker only."""
    return [server for server in SERVERS if "admin" not in list_behaviours()[behaviour] or server is SERVERS[0]]


def can_have(behaviour: str, client: Client, *, as_writer: bool) -> bool:
    """Return whether no row excuses the client from the behaviour."""
    excuses = (client.exceptions, client.left_out, client.cannot_write if as_writer else {})
    return not any(behaviour in excuse for excuse in excuses)


@cache
def choose_sample(day: int) -> Mapping[str, Sequence[tuple[Server, Route]]]:
    """Return the combinations of a day, by behaviour."""
    turns: Counter[tuple[str, str]] = Counter()
    behaviours = list(enumerate(list_behaviours()))
    # the first ones find clients that were not chosen yet, later ones those that had to be left
    if day:
        random.Random(day).shuffle(behaviours)
    return {
        behaviour: [
            (server, route)
            for server in list_servers(behaviour)
            for route in _choose_routes(behaviour, server, day, shift, turns)
        ]
        for shift, behaviour in behaviours
    }


def _choose_routes(
    behaviour: str, server: Server, day: int, shift: int, turns: Counter[tuple[str, str]]
) -> Iterator[Route]:
    by_endpoint: dict[str, list[Client]] = {}
    for client in server.clients():
        by_endpoint.setdefault(client.endpoint, []).append(client)
    endpoints = list(by_endpoint)
    # which of those that were chosen equally often is the next one
    chance = random.Random(f"{day} {behaviour} {server.name}")
    for clients in by_endpoint.values() if day else ():
        chance.shuffle(clients)

    def choose(endpoint: str, *, as_writer: bool) -> Client:
        clients = by_endpoint[endpoint]
        able = [client for client in clients if can_have(behaviour, client, as_writer=as_writer)] or clients
        chosen = min(able, key=lambda client: turns[server.name, client.name])
        turns[server.name, chosen.name] += 1
        return chosen

    for number, endpoint in enumerate(endpoints):
        for again in range(-(-len(by_endpoint[endpoint]) // CLIENTS_OF_ONE)):
            writer = choose(endpoint, as_writer=True)
            if "client" in list_behaviours()[behaviour]:
                yield (writer,)
                continue
            other = endpoints[(number + day + shift + again) % len(endpoints)]
            yield writer, choose(other, as_writer=False)


def _list_whole(behaviour: str) -> list[tuple[Server, Route]]:
    count = 1 if "client" in list_behaviours()[behaviour] else 2
    return [
        (server, route)
        for server in list_servers(behaviour)
        for route in product(server.clients(), repeat=count)
    ]  # fmt: skip


def _is_wanted(route: Route) -> bool:
    names = [client.name for client in route]
    return ALSO in names and all(name.startswith("python-") for name in names)

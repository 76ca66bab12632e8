"""Many QUIC clients in one pass of the event loop: what is sent to them has turns, and so have their timers."""

from __future__ import annotations

import struct
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tests.endpoints.request_cost import World, opened_world
from tests.endpoints.scripted_quic import ScriptedQuicConnection

CLIENTS: Final = 20
PING: Final = struct.pack("<II", 4, 1)
TRANSMITS_MAX: Final = 5
"""In one pass, if each takes a millisecond: a pass has four of them."""


def _connect(world: World) -> list[ScriptedQuicConnection]:
    clients = []
    for _ in range(CLIENTS):
        client = world.connect("iggy_quic")
        assert isinstance(client, ScriptedQuicConnection)
        assert client.ask(PING) == bytes(8)
        clients.append(client)
    # the last acknowledgements to each are sent while the next one connects
    for client in clients:
        client.take()
    return clients


def _count_in_passes(world: World, clients: list[ScriptedQuicConnection]) -> list[int]:
    """Return how many clients get a datagram in each pass, until nothing is left to do."""
    ready, counts = world.loop._ready, []
    # by this clock everything takes a millisecond
    milliseconds = count()
    world.services.turns.clock = lambda: next(milliseconds) / 1_000
    for _ in range(200):
        if not ready:
            break
        for _ in range(len(ready)):
            callback, arguments = ready.popleft()
            callback(*arguments)
        counts.append(sum(client.take() for client in clients))
    assert not ready
    return counts


@pytest.mark.parametrize("requests_each", [1, 20])
def test_responses_to_many_clients_are_sent_in_turns(tmp_path: Path, requests_each: int) -> None:
    """All that came in a pass were encrypted in the next one: a third of a millisecond each, more for 20 streams."""
    with opened_world(tmp_path, has_users=False) as world:
        clients = _connect(world)
        for client in clients:
            client.open_streams([PING] * requests_each)
            client.deliver()
            client.read_datagrams()
        counts = _count_in_passes(world, clients)
        assert max(counts) <= TRANSMITS_MAX
        assert sum(counts) >= CLIENTS
        for client in clients:
            client.finish()
            assert client.transport.take() == bytes(8) * requests_each


def test_timers_of_many_clients_end_in_turns(tmp_path: Path) -> None:
    """Clients that acknowledge nothing are probed: their timers end together, each with a datagram to encrypt."""
    with opened_world(tmp_path, has_users=False) as world:
        clients = _connect(world)
        for client in clients:
            client.open_streams([PING])
            client.deliver()
            client.read_datagrams()
        assert sum(_count_in_passes(world, clients)) >= CLIENTS
        world.loop.end_timers(2)
        assert not any(client.take() for client in clients)
        counts = _count_in_passes(world, clients)
        assert max(counts) <= TRANSMITS_MAX
        assert sum(counts) >= CLIENTS

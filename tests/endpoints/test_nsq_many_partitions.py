"""A client of nsqd on a topic of many partitions: nobody waits for all of them in one pass of the loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from lading.dialects.nsq.commands import OK, RESPONSE, frame
from tests.endpoints.request_cost import Cost, World, opened_world
from tests.house.scripted import ScriptedConnection

PASS_S_MAX = 0.020


def subscribe(world: World, partitions_count: int) -> list[Cost]:
    """Return what it costs to create a channel, to read, to be sent a message and to leave."""
    stream = world.broker.topology.ensure_stream("default", now_us=1)
    world.broker.at_once.create_topic(stream.id, None, "many", partitions_count, now_us=1)
    world.broker.at_once.create_topic(stream.id, None, "few", 1, now_us=1)
    warm = world.connect("nsqd_tcp")
    world.send(warm, b"  V2SUB few c\n")
    world.loop.turn()
    client = world.connect("nsqd_tcp")
    assert isinstance(client, ScriptedConnection)
    world.send(client, b"  V2")

    def leave() -> None:
        with world.loop.measure_pass():
            client.protocol.connection_lost(None)

    costs = [
        world.measure(lambda: world.send(client, b"SUB many c\n")),
        world.measure(lambda: world.send(client, b"RDY 1\n")),
        world.measure(lambda: world.send(warm, b"PUB many\n\0\0\0\1m")),
        world.measure(leave),
    ]
    assert client.transport.take()[:10] == frame(RESPONSE, OK)
    return costs


@pytest.mark.parametrize("partitions_count", [1_000, 10_000])
def test_no_pass_takes_all_partitions(tmp_path: Path, full: bool, partitions_count: int) -> None:
    if partitions_count > 1_000 and not full:
        pytest.skip("long; runs with LADING_TEST_FULL=1")
    with opened_world(tmp_path, has_users=False, partitions_per_topic_max=partitions_count) as world:
        costs = subscribe(world, partitions_count)
        assert max(cost.longest_pass_s for cost in costs) <= PASS_S_MAX, costs

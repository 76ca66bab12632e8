"""A member's session ends at its time for whoever asks, as in Apache Kafka, not when the broker looks next."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from lading.broker.core.settings import BrokerSettings
from lading.endpoints.kafka import groups as handlers
from lading.runtime.clock import now_us
from tests.endpoints.kafka_frames import message, request_frame
from tests.endpoints.request_cost import Client, World, opened_world

SESSION_MS = 6_000
NON_EMPTY_GROUP = 68


def send(world: World, client: Client, name: str, version: int, **fields: Any) -> None:
    """Send a request, encoded by kafka-python."""
    frame = request_frame(name, version, 1, **fields)
    world.send(client, struct.pack(">i", len(frame)) + frame)
    world.loop.turn()


def receive(client: Client, name: str, version: int) -> Any:
    """Return the response, decoded by kafka-python."""
    return message(name + "Response").decode(client.transport.take()[4:], version=version, header=True)


@pytest.mark.parametrize("late_us", [-1, 0])
def test_a_group_can_be_deleted_when_its_last_session_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late_us: int
) -> None:
    time_us = now_us()
    monkeypatch.setattr(handlers, "now_us", lambda: time_us)
    # a static member, which does not leave when its client is closed; nothing but the test calls the broker's ticks
    member = {"group_id": "g", "member_id": "", "group_instance_id": "static"}
    limits = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": SESSION_MS}
    protocols = [{"name": "range", "metadata": b""}]
    with opened_world(tmp_path, has_users=False) as world:
        client = world.connect("kafka")
        send(world, client, "JoinGroup", 5, protocol_type="consumer", protocols=protocols, **member, **limits)
        time_us += BrokerSettings().rebalance_delay_us
        world.broker.coordinated_groups.tick(time_us)
        world.loop.turn()
        joined = receive(client, "JoinGroup", 5)
        member |= {"member_id": joined.member_id, "generation_id": joined.generation_id}
        send(world, client, "Heartbeat", 3, **member)
        assert receive(client, "Heartbeat", 3).error_code == 0
        time_us += SESSION_MS * 1000 + late_us
        send(world, client, "DeleteGroups", 2, groups_names=["g"])
        deleted = receive(client, "DeleteGroups", 2)
        assert [row.error_code for row in deleted.results] == [NON_EMPTY_GROUP if late_us else 0]

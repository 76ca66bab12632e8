"""The longest pass of the loop for one request of Kafka, by a client that has logged in."""

from __future__ import annotations

import struct
from typing import Any

from tests.endpoints.kafka_frames import message, request_frame
from tests.endpoints.repeated_parts import LOGINS
from tests.endpoints.request_cost import Client, World


def connect_user(world: World, endpoint: str, user: str) -> Client:
    """Connect a client to an endpoint and log in; the responses to that are taken."""
    client = world.connect(endpoint)
    LOGINS[endpoint](client, user)
    client.transport.take()
    return client


def measure_pass(world: World, client: Client, name: str, version: int, **fields: Any) -> tuple[float, Any]:
    """Return the longest pass of the loop for a request of Kafka, in seconds, and the response."""
    frame = request_frame(name, version, 7, **fields)
    cost = world.measure(lambda: world.send(client, struct.pack(">i", len(frame)) + frame))
    response = message(f"{name}Response").decode(client.transport.take()[4:], version=version, header=True)
    return cost.longest_pass_s, response

"""Kafka's protocol: any Kafka client works with this as with a broker of one node (kafka.md 3).

``connection`` takes frames apart and keeps the order of responses; Produce and Fetch read their requests themselves;
every other API is a handler: a function from a request to the fields of its response, listed by its module.
"""

from __future__ import annotations

from ..base.services import Endpoint, Services


def endpoint(services: Services, name: str) -> Endpoint:
    """Create the endpoint; called by ``serve``."""
    from .server import KafkaServer

    return KafkaServer(services, name)

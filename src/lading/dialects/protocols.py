"""Every protocol, as one row each. To add one, add its row here; nothing else asks for a protocol by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lading.model.protocol import EndpointSpec, Protocol, Scheme, VisibilityRule

from .iggy_classic.protocol import PROTOCOL as IGGY
from .kafka.protocol import PROTOCOL as KAFKA
from .native.protocol import PROTOCOL as NATIVE
from .nsq.protocol import PROTOCOL as NSQ

PROTOCOLS: Final[tuple[Protocol, ...]] = (IGGY, KAFKA, NSQ, NATIVE)

ENDPOINTS: Final[Mapping[str, EndpointSpec]] = {spec.name: spec for one in PROTOCOLS for spec in one.endpoints}
"""Endpoints by their key in the settings."""

SCHEMES: Final[Mapping[str, Scheme]] = {
    scheme: row for one in (NATIVE, IGGY, KAFKA, NSQ) for scheme, row in one.schemes.items()
}
"""URL schemes; our own come first in messages to people."""

VISIBILITY: Final[tuple[VisibilityRule, ...]] = tuple(rule for one in PROTOCOLS for rule in one.visibility)


def explain_invisible(name: str, partitions: int) -> dict[str, str]:
    """Return by protocol's title why its clients cannot see a topic of this flat name, or not all of it."""
    reasons = {one.title: one.topic_error(name, partitions) for one in PROTOCOLS}
    return {title: reason for title, reason in reasons.items() if reason is not None}

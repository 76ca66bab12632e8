"""Every protocol, as one row each. To add one, add the line of its row; nothing else asks for a protocol by name."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Final

from lading.model.protocol import DialectSpec, EndpointSpec, Protocol, Scheme, VisibilityRule

ROWS: Final = (
    "lading.dialects.iggy.classic.protocol",
    "lading.dialects.kafka.protocol",
    "lading.dialects.nsq.protocol",
    "lading.dialects.native.protocol",
)
"""Modules whose ``PROTOCOL`` is a row; the last is our own."""

PROTOCOLS: Final[tuple[Protocol, ...]] = tuple(resolve_name(f"{row}:PROTOCOL") for row in ROWS)

DIALECTS: Final[Mapping[int, DialectSpec]] = {spec.code: spec for one in PROTOCOLS for spec in one.dialects}
"""Dialects by their code."""

ENDPOINTS: Final[Mapping[str, EndpointSpec]] = {spec.name: spec for one in PROTOCOLS for spec in one.endpoints}
"""Endpoints by their key in the settings."""

SCHEMES: Final[Mapping[str, Scheme]] = {
    scheme: row for one in (PROTOCOLS[-1], *PROTOCOLS[:-1]) for scheme, row in one.schemes.items()
}
"""URL schemes; our own come first in messages to people."""

VISIBILITY: Final[tuple[VisibilityRule, ...]] = tuple(rule for one in PROTOCOLS for rule in one.visibility)


def explain_invisible(name: str, partitions: int) -> dict[str, str]:
    """Return by protocol's title why its clients cannot see a topic of this flat name, or not all of it."""
    reasons = {one.title: one.topic_error(name, partitions) for one in PROTOCOLS}
    return {title: reason for title, reason in reasons.items() if reason is not None}

"""A stored position: its owner and its offset, in its protocol's own terms."""

from __future__ import annotations

from typing import NamedTuple


class PositionKey(NamedTuple):
    """Owner of a position: protocol, and the consumer's name within it."""

    protocol: str
    consumer: str


class StoredPosition(NamedTuple):
    """A position as its protocol means it."""

    offset: int
    epoch: int | None = None
    extra: bytes | None = None
    updated_us: int = 0

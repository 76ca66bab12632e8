"""The rows of the catalog's tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A stream as stored; ``id`` is a u32 from 1."""

    id: int
    name: str
    created_us: int


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic as stored; ``uuid`` is 16 bytes; ``next_epoch`` is the first epoch of a partition created again."""

    uuid: bytes
    stream_id: int
    id: int
    name: str
    created_us: int
    partitions: int
    next_epoch: int
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group; ``scope`` is the topic's uuid if groups belong to topics (Iggy), else empty."""

    protocol: str
    scope: bytes
    name: str
    generation: int


@dataclass(frozen=True, slots=True)
class PositionRow:
    """A position in its protocol's terms (design.md Names): in Iggy the last offset consumed, natively the next one."""

    protocol: str
    topic: bytes
    partition: int
    consumer: str
    offset: int
    epoch: int | None
    extra: bytes | None
    updated_us: int


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """A transaction; ``state`` is ``open``, ``committed`` or ``aborted``."""

    id: int
    scope: str
    state: str
    deadline_us: int

"""The rows of the catalog's tables: tuples, since a start reads tens of thousands."""

from __future__ import annotations

from typing import Any, NamedTuple


class StreamRow(NamedTuple):
    """A stream as stored; ``id`` is a u32 from 1."""

    id: int
    name: str
    created_us: int


class TopicRow(NamedTuple):
    """A topic as stored; ``uuid`` is 16 bytes; ``next_epoch`` is the first epoch of a partition created again."""

    uuid: bytes
    stream_id: int
    id: int
    name: str
    created_us: int
    partitions: int
    next_epoch: int
    settings: dict[str, Any]


class GroupRow(NamedTuple):
    """A group; ``scope`` is the topic's uuid if groups belong to topics (Iggy), else empty."""

    protocol: str
    scope: bytes
    name: str
    generation: int


class PositionRow(NamedTuple):
    """A position in its protocol's terms (design.md Names): in Iggy the last offset consumed, natively the next one."""

    protocol: str
    topic: bytes
    partition: int
    consumer: str
    offset: int
    epoch: int | None
    extra: bytes | None
    updated_us: int


class TransactionRow(NamedTuple):
    """A transaction; ``state`` is ``open``, ``committed`` or ``aborted``."""

    id: int
    scope: str
    state: str
    deadline_us: int

"""Codecs of single fields in requests and responses of the current generation (iggy-current.md B2).

Streams, topics, groups, users and partitions are counted from 0 in bytes and from 1 inside.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from ....model.errors import MalformedMessage
from ..classic.permissions import SOME_PERMISSIONS, Permissions
from ..classic.primitives import (
    BOOL,
    IDENTIFIER,
    U8,
    U32,
    Bytes,
    Codec,
    ConsumerIdentifier,
    ConsumerKind,
    Identifier,
    PollingKind,
    Strategy,
    map_values,
    read_bytes,
)
from . import limits
from .options import Option, encode_options, parse_options


def to_wire(ident: int) -> int:
    """Return the id by which clients know the broker's stream, topic or group ``ident``."""
    return ident - 1


def _count_from_1(ident: Identifier) -> Identifier:
    return ident + 1 if isinstance(ident, int) else ident


def _count_from_0(ident: Identifier) -> Identifier:
    return ident - 1 if isinstance(ident, int) else ident


IDENTIFIER_FROM_ZERO: Final[Codec[Identifier]] = map_values(IDENTIFIER, _count_from_1, _count_from_0)
"""A stream, topic, group or user: its number or its name."""


def _read_name(data: memoryview, at: int) -> tuple[str, int]:
    size_bytes, at = U8.read(data, at)
    raw, end = read_bytes(data, at, size_bytes, "a name")
    if not raw:
        raise MalformedMessage("a name has no bytes", at=at)
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        raise MalformedMessage("a name is not UTF-8", at=at) from None


def _write_name(value: str) -> bytes:
    raw = value.encode()
    if not 1 <= len(raw) <= limits.NAME_BYTES_MAX:
        raise MalformedMessage(f"a name has {len(raw)} bytes, not 1 to {limits.NAME_BYTES_MAX}")
    return bytes((len(raw),)) + raw


NAME: Final[Codec[str]] = Codec(_read_name, _write_name)
"""``[len u8][utf8]`` of 1 to 255 bytes."""


def _read_names(data: memoryview, at: int) -> tuple[tuple[str, ...], int]:
    count, at = U8.read(data, at)
    names = []
    for _ in range(count):
        name, at = NAME.read(data, at)
        names.append(name)
    return tuple(names), at


NAMES: Final[Codec[tuple[str, ...]]] = Codec(
    _read_names, lambda names: bytes((len(names),)) + b"".join(map(NAME.write, names))
)
"""``[count u8][name]*``."""


def _read_secret(data: memoryview, at: int) -> tuple[str, int]:
    size_bytes, at = U8.read(data, at)
    raw, end = read_bytes(data, at, size_bytes, "a password or token")
    return raw.decode(errors="replace"), end


SECRET: Final[Codec[str]] = Codec(_read_secret, lambda value: bytes((len(value.encode()),)) + value.encode())
"""``[len u8][utf8]``, also empty."""


def _read_consumer(data: memoryview, at: int) -> tuple[ConsumerIdentifier, int]:
    code, ident_at = U8.read(data, at)
    ident, end = IDENTIFIER.read(data, ident_at)
    try:
        kind = ConsumerKind(code)
    except ValueError:
        raise MalformedMessage(f"unknown consumer kind {code}", at=at) from None
    return ConsumerIdentifier(kind, _count_from_1(ident) if kind is ConsumerKind.GROUP else ident), end


def _write_consumer(value: ConsumerIdentifier) -> bytes:
    ident = _count_from_0(value.id) if value.kind is ConsumerKind.GROUP else value.id
    return U8.write(value.kind) + IDENTIFIER.write(ident)


CONSUMER: Final[Codec[ConsumerIdentifier]] = Codec(_read_consumer, _write_consumer)
"""``[kind u8][ident]``; numbers of consumers are of the client's choice and stay, those of groups count from 0."""


def _read_partition(data: memoryview, at: int) -> tuple[int | None, int]:
    is_named, at = BOOL.read(data, at)
    number, end = U32.read(data, at)
    return (number + 1 if is_named else None), end


NAMED_PARTITION: Final[Codec[int | None]] = Codec(
    _read_partition, lambda number: BOOL.write(True) + U32.write(number - 1) if number else bytes(5)
)
"""``[flag u8][partition u32]``; None if the client names no partition."""


def _read_options(data: memoryview, at: int) -> tuple[dict[str, Option], int]:
    return parse_options(data[at:]), len(data)


OPTIONS: Final[Codec[Any]] = Codec(_read_options, lambda options: encode_options(options or {}))
"""A block of options to the end of the body."""


def read_block(data: memoryview, at: int) -> tuple[Bytes, int]:
    """Return a block with its size in front, ``[len u32][block]``, and the position after it."""
    size_bytes, at = U32.read(data, at)
    return read_bytes(data, at, size_bytes, "a block")


BLOCK: Final[Codec[Bytes]] = Codec(read_block, lambda block: U32.write(len(block)) + bytes(block))
"""``[len u32][block]``."""


def _read_permissions(data: memoryview, at: int) -> tuple[Permissions | None, int]:
    permissions, end = SOME_PERMISSIONS.read(data, at)
    return (None, U32.read(data, at)[1]) if permissions is None else (permissions, end)


PERMISSIONS: Final[Codec[Permissions | None]] = Codec(
    _read_permissions, lambda value: U32.write(0) if value is None else SOME_PERMISSIONS.write(value)
)
"""Permissions in the details of a user: four zero bytes for None."""

_PORTS = struct.Struct("<4H")


def _read_ports(data: memoryview, at: int) -> tuple[tuple[int, ...], int]:
    raw, end = read_bytes(data, at, _PORTS.size, "the ports of a node")
    return _PORTS.unpack(raw), end


PORTS: Final[Codec[Any]] = Codec(_read_ports, lambda ports: _PORTS.pack(*ports))
"""``[tcp u16][quic u16][http u16][websocket u16]``."""


class Deferral(NamedTuple):
    """How long a poll may wait for how much; times in microseconds."""

    wait_us: int
    count_min: int
    bytes_max: int
    timeout_us: int


class FetchTarget(NamedTuple):
    """A partition, counted from 0, that a fetch reads, and the offset to begin at."""

    partition: int
    strategy: Strategy
    bytes_max: int
    incarnation: int
    owner: int


class PatchedResource(NamedTuple):
    """A topic, a stream or a user that a patch changes."""

    kind: str
    names: tuple[Identifier, ...]
    """Stream and topic, or the one identifier."""


_DEFERRAL: Final = struct.Struct("<QIIQ")
_TARGET: Final = struct.Struct("<IBQIQQ")
_PATCHED_KINDS: Final = {1: ("topic", 2), 2: ("stream", 1), 3: ("user", 1)}


def _read_deferral(data: memoryview, at: int) -> tuple[Deferral, int]:
    raw, end = read_bytes(data, at, _DEFERRAL.size, "how long a poll waits")
    return Deferral(*_DEFERRAL.unpack(raw)), end


DEFERRAL: Final[Codec[Deferral]] = Codec(_read_deferral, lambda value: _DEFERRAL.pack(*value))
"""``[wait u64][min_count u32][max_bytes u32][request_timeout u64]``."""


def _read_target(data: memoryview, at: int) -> tuple[FetchTarget, int]:
    raw, end = read_bytes(data, at, _TARGET.size, "a target of a fetch")
    partition, kind, value, bytes_max, incarnation, owner = _TARGET.unpack(raw)
    try:
        return FetchTarget(partition, Strategy(PollingKind(kind), value), bytes_max, incarnation, owner), end
    except ValueError:
        raise MalformedMessage(f"unknown polling kind {kind}", at=at) from None


TARGET: Final[Codec[FetchTarget]] = Codec(
    _read_target,
    lambda target: _TARGET.pack(target.partition, target.strategy.kind, target.strategy.value, *target[2:]),
)
"""``[partition u32][strategy][max_bytes u32][incarnation u64][owner_generation u64]``."""


def _read_resource(data: memoryview, at: int) -> tuple[PatchedResource, int]:
    scope, at = U8.read(data, at)
    if scope not in _PATCHED_KINDS:
        raise MalformedMessage(f"a patch has no scope {scope}", at=at)
    kind, count = _PATCHED_KINDS[scope]
    names = []
    for _ in range(count):
        name, at = IDENTIFIER_FROM_ZERO.read(data, at)
        names.append(name)
    return PatchedResource(kind, tuple(names)), at


def _write_resource(value: PatchedResource) -> bytes:
    scope = next(scope for scope, (kind, _) in _PATCHED_KINDS.items() if kind == value.kind)
    return U8.write(scope) + b"".join(map(IDENTIFIER_FROM_ZERO.write, value.names))


RESOURCE: Final[Codec[PatchedResource]] = Codec(_read_resource, _write_resource)
"""``[scope u8][ident]*``: stream and topic of a topic, else one."""

"""Every operation of the current Iggy: its number, its name, and which fields its body has (iggy-current.md B2, B3).

An operation is a byte of the request's header; NON_REPLICATED has a command code beside it. Fields are given to who
answers by the names they have here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ...model.errors import MalformedMessage, Reason
from ..iggy_classic.permissions import SOME_PERMISSIONS
from ..iggy_classic.primitives import (
    BOOL,
    IDENTIFIER,
    PARTITIONING,
    STRATEGY,
    U8,
    U32,
    U64,
    Codec,
    ConsumerKind,
    Identifier,
    Partitioning,
    PollingKind,
    Strategy,
    optional,
    read_bytes,
    repeat_counted,
)
from ..iggy_classic.snapshots import COMPRESSION, PARTS
from . import limits
from .options import Option, encode_options, parse_options

REGISTER: Final = 1
NON_REPLICATED: Final = 2
LOGOUT: Final = 3
SEND_MESSAGES: Final = 160
DELETE_SEGMENTS: Final = 138
STORE_OFFSET, DELETE_OFFSET = 161, 162
PING, POLL = 1, 100
POLL_DEFERRED, CANCEL, FETCH = 106, 108, 109
"""Polls that may wait; a request to end one has no reply."""
UPDATE_RESOURCE: Final = 150
RESULT_FIRST, RESULT_LAST = 128, UPDATE_RESOURCE
"""Operations whose outcome stands in the body, in a result section; the header's status is for what never began."""


class ConsumerName(NamedTuple):
    """Consumer of a poll: a consumer or a group, by number or name."""

    kind: ConsumerKind
    ident: Identifier


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


NAME: Codec[str] = Codec(_read_name, _write_name)
"""``[len u8][utf8]`` of 1 to 255 bytes."""


def _read_secret(data: memoryview, at: int) -> tuple[str, int]:
    size_bytes, at = U8.read(data, at)
    raw, end = read_bytes(data, at, size_bytes, "a password or token")
    return raw.decode(errors="replace"), end


SECRET: Codec[str] = Codec(_read_secret, lambda value: bytes((len(value.encode()),)) + value.encode())
"""``[len u8][utf8]``, also empty."""


def _read_consumer(data: memoryview, at: int) -> tuple[ConsumerName, int]:
    code, ident_at = U8.read(data, at)
    ident, end = IDENTIFIER.read(data, ident_at)
    try:
        return ConsumerName(ConsumerKind(code), ident), end
    except ValueError:
        raise MalformedMessage(f"unknown consumer kind {code}", at=at) from None


CONSUMER: Codec[ConsumerName] = Codec(
    _read_consumer, lambda value: U8.write(value.kind) + IDENTIFIER.write(value.ident)
)
"""``[kind u8][ident]``."""


def _read_partition(data: memoryview, at: int) -> tuple[int | None, int]:
    flag, at = BOOL.read(data, at)
    number, end = U32.read(data, at)
    return (number if flag else None), end


PARTITION: Codec[int | None] = Codec(
    _read_partition, lambda value: BOOL.write(value is not None) + U32.write(value or 0)
)
"""``[flag u8][partition u32]``; None where the flag is 0."""


class Deferral(NamedTuple):
    """How long a poll may wait for how much; times in microseconds."""

    wait_us: int
    count_min: int
    bytes_max: int
    timeout_us: int


class FetchTarget(NamedTuple):
    """A partition that a fetch reads, and from where."""

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


DEFERRAL: Codec[Deferral] = Codec(_read_deferral, lambda value: _DEFERRAL.pack(*value))
"""``[wait u64][min_count u32][max_bytes u32][request_timeout u64]``."""


def _read_target(data: memoryview, at: int) -> tuple[FetchTarget, int]:
    raw, end = read_bytes(data, at, _TARGET.size, "a target of a fetch")
    partition, kind, value, bytes_max, incarnation, owner = _TARGET.unpack(raw)
    try:
        return FetchTarget(partition, Strategy(PollingKind(kind), value), bytes_max, incarnation, owner), end
    except ValueError:
        raise MalformedMessage(f"unknown polling kind {kind}", at=at) from None


TARGET: Codec[FetchTarget] = Codec(
    _read_target,
    lambda one: _TARGET.pack(one.partition, one.strategy.kind, one.strategy.value, *one[2:]),
)
"""``[partition u32][strategy][max_bytes u32][incarnation u64][owner_generation u64]``."""


def _read_resource(data: memoryview, at: int) -> tuple[PatchedResource, int]:
    scope, at = U8.read(data, at)
    if scope not in _PATCHED_KINDS:
        raise MalformedMessage(f"a patch has no scope {scope}", at=at)
    kind, count = _PATCHED_KINDS[scope]
    names = []
    for _ in range(count):
        name, at = IDENTIFIER.read(data, at)
        names.append(name)
    return PatchedResource(kind, tuple(names)), at


def _write_resource(value: PatchedResource) -> bytes:
    scope = next(scope for scope, (kind, _) in _PATCHED_KINDS.items() if kind == value.kind)
    return U8.write(scope) + b"".join(map(IDENTIFIER.write, value.names))


RESOURCE: Codec[PatchedResource] = Codec(_read_resource, _write_resource)
"""``[scope u8][ident]*``: stream and topic of a topic, else one."""


def _read_names(data: memoryview, at: int) -> tuple[tuple[str, ...], int]:
    count, at = U8.read(data, at)
    names = []
    for _ in range(count):
        name, at = NAME.read(data, at)
        names.append(name)
    return tuple(names), at


NAMES: Codec[tuple[str, ...]] = Codec(
    _read_names, lambda names: bytes((len(names),)) + b"".join(map(NAME.write, names))
)
"""``[count u8][name]*``."""


def _read_options(data: memoryview, at: int) -> tuple[dict[str, Option], int]:
    return parse_options(data[at:]), len(data)


OPTIONS: Codec[dict[str, Option]] = Codec(_read_options, encode_options)
"""An options block to the end of the body."""


def _read_rest(data: memoryview, at: int) -> tuple[memoryview, int]:
    return data[at:], len(data)


REST: Codec[memoryview] = Codec(_read_rest, bytes)
"""The rest, unread."""

Fields = tuple[tuple[str, Codec[Any]], ...]


class Operation(NamedTuple):
    """A row: what it is called, and the fields of its body in their order."""

    name: str
    fields: Fields = ()


_STREAM: Final[Fields] = (("stream", IDENTIFIER),)
_TOPIC: Final[Fields] = (*_STREAM, ("topic", IDENTIFIER))
_GROUP: Final[Fields] = (*_TOPIC, ("group", IDENTIFIER))
_NAMED: Final[Fields] = (("name", NAME),)
_OFFSET: Final[Fields] = (("consumer", CONSUMER), *_TOPIC, ("partition", PARTITION))
_POLL: Final[Fields] = (*_OFFSET, ("strategy", STRATEGY), ("count", U32), ("auto_commit", BOOL))
_USER: Final[Fields] = (("user", IDENTIFIER),)

READS: Final[Mapping[int, Operation]] = {
    PING: Operation("ping"),
    10: Operation("get_stats"),
    11: Operation("get_snapshot", (("compression", COMPRESSION), ("parts", PARTS))),
    12: Operation("get_cluster_metadata"),
    13: Operation("describe_options", (("scope", U8),)),
    20: Operation("get_me"),
    21: Operation("get_client", (("client_id", U32),)),
    22: Operation("get_clients"),
    31: Operation("get_user", _USER),
    32: Operation("get_users"),
    41: Operation("get_personal_access_tokens"),
    POLL: Operation("poll_messages", _POLL),
    # since 0.12
    17: Operation("get_metadata_changes", (("wanted", REST),)),
    105: Operation("get_partition_route", (*_TOPIC, ("partition", U32))),
    POLL_DEFERRED: Operation("poll_messages_deferred", (*_POLL, ("deferral", DEFERRAL))),
    CANCEL: Operation("cancel_deferred_request"),
    FETCH: Operation(
        "fetch_messages",
        (
            ("consumer", CONSUMER),
            *_TOPIC,
            ("wait_us", U64),
            ("timeout_us", U64),
            ("count_min", U32),
            ("count", U32),
            ("bytes_max", U32),
            ("auto_commit", BOOL),
            ("targets", repeat_counted(TARGET)),
        ),
    ),
    # until 0.11
    102: Operation("flush_unsaved_buffer", (*_TOPIC, ("partition", U32), ("fsync", BOOL))),
    120: Operation("get_consumer_offset", _OFFSET),
    200: Operation("get_stream", _STREAM),
    201: Operation("get_streams"),
    300: Operation("get_topic", _TOPIC),
    301: Operation("get_topics", _STREAM),
    600: Operation("get_consumer_group", _GROUP),
    601: Operation("get_consumer_groups", _TOPIC),
    606: Operation("sync_consumer_group", _GROUP),
}
"""Operations that change nothing, by command code: their operation byte is NON_REPLICATED."""

WRITES: Final[Mapping[int, Operation]] = {
    REGISTER: Operation("register", (("version", U32), ("sdk_name", NAME), ("sdk_version", NAME), ("rest", REST))),
    LOGOUT: Operation("logout"),
    128: Operation("create_stream", (*_NAMED, ("options", OPTIONS))),
    129: Operation("update_stream", (*_STREAM, *_NAMED, ("options", OPTIONS))),
    130: Operation("delete_stream", _STREAM),
    131: Operation("purge_stream", _STREAM),
    132: Operation("create_topic", (*_STREAM, ("partitions_count", U32), *_NAMED, ("options", OPTIONS))),
    133: Operation("update_topic", (*_TOPIC, *_NAMED, ("options", OPTIONS))),
    134: Operation("delete_topic", _TOPIC),
    135: Operation("purge_topic", _TOPIC),
    136: Operation("create_partitions", (*_TOPIC, ("count", U32))),
    137: Operation("delete_partitions", (*_TOPIC, ("count", U32))),
    138: Operation("delete_segments", (*_TOPIC, ("partition", U32), ("segments_count", U32))),
    139: Operation("create_consumer_group", (*_TOPIC, *_NAMED)),
    140: Operation("delete_consumer_group", _GROUP),
    141: Operation(
        "create_user",
        (
            ("username", NAME),
            ("password", SECRET),
            ("status", U8),
            ("permissions", SOME_PERMISSIONS),
            ("options", OPTIONS),
        ),
    ),
    142: Operation(
        "update_user", (*_USER, ("username", optional(NAME)), ("status", optional(U8)), ("options", OPTIONS))
    ),
    143: Operation("delete_user", _USER),
    144: Operation("change_password", (*_USER, ("current", SECRET), ("new", SECRET))),
    145: Operation("update_permissions", (*_USER, ("permissions", SOME_PERMISSIONS))),
    146: Operation("create_personal_access_token", (*_NAMED, ("expiry_us", U64))),
    147: Operation("delete_personal_access_token", _NAMED),
    148: Operation("join_consumer_group", _GROUP),
    149: Operation("leave_consumer_group", _GROUP),
    # since 0.12, instead of the updates of a stream, a topic or a user
    UPDATE_RESOURCE: Operation("update_resource", (("resource", RESOURCE), ("reset", NAMES), ("options", OPTIONS))),
    SEND_MESSAGES: Operation(
        "send_messages",
        (("metadata_bytes", U32), *_TOPIC, ("partitioning", PARTITIONING), ("count", U32), ("batch", REST)),
    ),
    STORE_OFFSET: Operation("store_consumer_offset", (*_OFFSET, ("offset", U64), ("ack", U8))),
    DELETE_OFFSET: Operation("delete_consumer_offset", (*_OFFSET, ("ack", U8))),
}
"""Operations that change something, by their operation byte."""


def find_operation(operation: int, code: int) -> Operation | None:
    """Return the row that a request's header names, or None if there is none."""
    return READS.get(code) if operation == NON_REPLICATED else WRITES.get(operation)


def parse_body(operation: Operation, body: memoryview) -> dict[str, Any]:
    """Return the fields of a body by name. Raises MalformedMessage if bytes are left over or missing."""
    values: dict[str, Any] = {}
    at = 0
    for name, codec in operation.fields:
        values[name], at = codec.read(body, at)
    if at != len(body):
        raise MalformedMessage(f"{len(body) - at} bytes are left behind {operation.name}", at=at)
    return values


def encode_body(operation: Operation, **values: Any) -> bytes:
    """Encode the body of a request with these fields. Raises LocalError for values that do not fit them."""
    return b"".join(codec.write(values[name]) for name, codec in operation.fields)


SECRET_BYTES: Final = 32
"""A secret of a session, before name and password (``ProtocolVersion.binds_sessions``)."""


def parse_login(rest: memoryview) -> tuple[str | None, str]:
    """Return the user name and password after the versions of a login, or None and a token.

    Raises MalformedMessage if the bytes are neither. A login by token has one text less, so that its context ends with
    the body.
    """
    for is_token in (True, False):
        try:
            first, at = SECRET.read(rest, 0)
            second, at = (first, at) if is_token else SECRET.read(rest, at)
            size_bytes, at = U32.read(rest, at)
            if at + size_bytes == len(rest):
                return (None, first) if is_token else (first, second)
        except MalformedMessage:
            continue
    raise MalformedMessage("a login has neither name and password nor a token", reason=Reason.MALFORMED)


def encode_send(stream: Identifier, topic: Identifier, partitioning: Partitioning, count: int, batch: bytes) -> bytes:
    """Encode the body of a send: its destination and one batch of ``count`` messages."""
    where = IDENTIFIER.write(stream) + IDENTIFIER.write(topic) + PARTITIONING.write(partitioning) + U32.write(count)
    return U32.write(len(where)) + where + batch

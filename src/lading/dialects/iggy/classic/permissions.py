"""Permissions of Iggy's users, since 0.1: flags for all, for streams and for topics (iggy-current.md B3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from ....model.errors import MalformedMessage
from ....model.lazy_dataclass import lazy_dataclass
from .primitives import BOOL, U32, Codec, read_bytes

GLOBAL_FLAGS: Final = (
    "manage_servers", "read_servers", "manage_users", "read_users", "manage_streams", "read_streams", "manage_topics",
    "read_topics", "poll_messages", "send_messages",
)  # fmt: skip
STREAM_FLAGS: Final = (
    "manage_stream", "read_stream", "manage_topics", "read_topics", "poll_messages", "send_messages",
)  # fmt: skip
TOPIC_FLAGS: Final = ("manage_topic", "read_topic", "poll_messages", "send_messages")
"""In the order in which they lie."""

Flags = frozenset[str]


@lazy_dataclass(frozen=True, slots=True)
class StreamPermissions:
    """The permissions on a stream, and on topics in it by id."""

    flags: Flags = frozenset()
    topics: Mapping[int, Flags] = field(default_factory=dict)


@lazy_dataclass(frozen=True, slots=True)
class Permissions:
    """The permissions of a user; streams by id."""

    flags: Flags = frozenset()
    streams: Mapping[int, StreamPermissions] = field(default_factory=dict)


ALL: Final = Permissions(frozenset(GLOBAL_FLAGS))


def _read_flags(names: Sequence[str], data: memoryview, at: int) -> tuple[Flags, int]:
    found = set()
    for name in names:
        is_set, at = BOOL.read(data, at)
        if is_set:
            found.add(name)
    return frozenset(found), at


def _write_flags(names: Sequence[str], flags: Flags) -> bytes:
    return bytes(name in flags for name in names)


def _read_permissions(data: memoryview, at: int) -> tuple[Permissions, int]:
    flags, at = _read_flags(GLOBAL_FLAGS, data, at)
    streams: dict[int, StreamPermissions] = {}
    is_more, at = BOOL.read(data, at)
    while is_more:
        stream, at = U32.read(data, at)
        own, at = _read_flags(STREAM_FLAGS, data, at)
        topics: dict[int, Flags] = {}
        is_topic, at = BOOL.read(data, at)
        while is_topic:
            topic, at = U32.read(data, at)
            topics[topic], at = _read_flags(TOPIC_FLAGS, data, at)
            is_topic, at = BOOL.read(data, at)
        streams[stream] = StreamPermissions(own, topics)
        is_more, at = BOOL.read(data, at)
    return Permissions(flags, streams), at


def _write_permissions(value: Permissions) -> bytes:
    parts = [_write_flags(GLOBAL_FLAGS, value.flags)]
    for stream, permissions in sorted(value.streams.items()):
        parts += [BOOL.write(True), U32.write(stream), _write_flags(STREAM_FLAGS, permissions.flags)]
        for topic, flags in sorted(permissions.topics.items()):
            parts += [BOOL.write(True), U32.write(topic), _write_flags(TOPIC_FLAGS, flags)]
        parts.append(BOOL.write(False))
    return b"".join([*parts, BOOL.write(False)])


PERMISSIONS: Final[Codec[Permissions]] = Codec(_read_permissions, _write_permissions)
"""Ten flags; ``[more u8]`` before each stream with its six, and so before each of its topics with four."""


def _read_some(data: memoryview, at: int) -> tuple[Permissions | None, int]:
    is_there, at = BOOL.read(data, at)
    if not is_there:
        return None, at
    size_bytes, at = U32.read(data, at)
    block, end = read_bytes(data, at, size_bytes, "permissions")
    permissions, used = PERMISSIONS.read(memoryview(block), 0)
    if used != size_bytes:
        raise MalformedMessage(f"{size_bytes - used} bytes are left after permissions", at=at + used)
    return permissions, end


def _write_some(value: Permissions | None) -> bytes:
    if value is None:
        return BOOL.write(False)
    block = PERMISSIONS.write(value)
    return BOOL.write(True) + U32.write(len(block)) + block


SOME_PERMISSIONS: Final[Codec[Permissions | None]] = Codec(_read_some, _write_some)
"""``[is there u8][len u32][permissions]``."""

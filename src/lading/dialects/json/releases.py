"""How each release of Iggy writes and reads JSON over HTTP, as data (docs/reference/protocols/iggy.md#http-releases).

Each release is made from the one before it: what is written here is what changed. Ids and partitions are counted from 1
inside; a release that counts from 0 says so in what it reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from operator import attrgetter
from typing import Any, Final

from ..iggy_classic import commands as c
from ..iggy_classic import later_commands as later
from ..iggy_classic import responses as r
from ..iggy_classic.primitives import Identifier
from ..iggy_classic.releases import BY_NAME, Release, guess_release
from ..iggy_current.versions import SERVER_VERSION, SERVER_VERSION_NUMBER
from .byte_sizes import SIZE, write_size
from .commands import (
    ANSWERS,
    BODIES,
    QUERIES,
    READING,
    TRANSPORTS,
    Answers,
    Listed,
    Members,
    Part,
    Parts,
    identifier,
    inside,
    same,
    single,
)
from .documents import IDENTIFIER, TEXT, U32, U64, Form, convert_form, optional
from .users import STATUS_WORDS, permissions_document, user_bodies

_MICROSECONDS: Final = 1_000_000
UNLIMITED: Final = (1 << 64) - 1
"""An expiry or a size without a bound, since 0.5."""


class MessagesForm(Enum):
    """The form of messages in the documents of sends and polls."""

    LISTED = "a list"
    """A poll is the list of its messages; headers are an object by key."""
    PLACED = "a list with its partition"
    """The list stands beside partition and current offset."""
    HEADED = "messages with a header"
    """Each message has a header with what the server knows of it; headers as before."""
    TYPED = "messages with typed keys"
    """Headers are a list of keys and values, both with kinds."""
    BATCHED = "messages of batches"
    """The same; sends tell where their messages are."""


@dataclass(frozen=True, slots=True, eq=False)
class JsonRelease:
    """The documents that the HTTP clients of a release send and expect."""

    name: str
    """The oldest version of the crate, as settings and docs write it."""
    release: Release
    """The same over a connection; the newest of the classic framing for the current generation."""
    bodies: Parts
    queries: Parts
    answers: Answers
    messages: MessagesForm = MessagesForm.LISTED
    first_id: int = 1
    """How its clients count streams, topics, groups and users."""
    has_users: bool = False
    """Its clients log in, and send a token with each request."""
    has_refresh_tokens: bool = False
    """A login gives a second token, which is for new ones alone."""
    tells_created: bool = False
    """What was created is answered, with 200."""
    is_current: bool = False
    """It is the current generation: changes have its options, limits and names."""

    def identify(self, path_part: str) -> Identifier:
        """Return a stream, topic, group or user as a path names it."""
        named = identifier(path_part)
        return named + 1 - self.first_id if isinstance(named, int) else named


# -- requests

_OPTIONAL_ID: Final = optional(convert_form(U32, lambda value: value or None))
_NAME: Final = Part("name", ("name",), TEXT)
_EXPIRY_S: Final = optional(convert_form(U32, lambda seconds: seconds * _MICROSECONDS or None))
_EXPIRY_US: Final = optional(convert_form(U64, lambda us: None if us in (0, UNLIMITED) else us))
_SIZE: Final = optional(convert_form(SIZE, lambda size: None if size in (0, UNLIMITED) else size))
_CONSUMER: Final = Part("consumer", ("consumer_id", "id"), IDENTIFIER, 1)


def _partition(first: int) -> Part:
    """Return the part for a partition counted from ``first``.

    A missing partition means the first one, as does 0 where partitions are counted from 1.
    """
    form: Form = optional(convert_form(U32, lambda number: number + 1 - first or 1), 1)
    return Part("partition_id", ("partition_id",), form, 1)


def _positions(first: int) -> tuple[Parts, Parts]:
    """Return the bodies and the queries for polls and stored offsets, with partitions counted from ``first``."""
    place = (_CONSUMER, _partition(first))
    return (
        {c.StoreOffset: (*place, Part("offset", ("offset",), U64))},
        {
            c.GetOffset: place,
            c.PollMessages: (*place, *READING),
            later.DeleteOffset: place[1:],
            later.DeleteSegments: (Part("segments_count", ("segments_count",), U32),),
        },
    )


def _updates(expiry: Form) -> Parts:
    """Return the bodies of changes of streams and topics."""
    kept = (
        Part("expiry_us", ("message_expiry",), expiry, None),
        Part("size_bytes_max", ("max_topic_size",), _SIZE, None),
    )
    return {later.UpdateStream: (_NAME,), later.UpdateTopic: (_NAME, *kept)}


def _new_topic(expiry: Form) -> tuple[Part, ...]:
    return (
        Part("topic_id", ("topic_id",), _OPTIONAL_ID, None),
        Part("partitions_count", ("partitions_count",), U32),
        _NAME,
        Part("expiry_us", ("message_expiry",), expiry, None),
        Part("size_bytes_max", ("max_topic_size",), _SIZE, None),
    )


_BODIES_FROM_1, _QUERIES_FROM_1 = _positions(1)
_BODIES_FROM_0, _QUERIES_FROM_0 = _positions(0)
_BODIES_0_1: Final[Parts] = {
    **BODIES,
    **_BODIES_FROM_1,
    **user_bodies(_EXPIRY_S),
    c.CreateStream: (Part("stream_id", ("stream_id",), _OPTIONAL_ID, None), _NAME),
    c.CreateTopic: _new_topic(_EXPIRY_S),
    **_updates(_EXPIRY_S),
    c.CreateGroup: (Part("group_id", ("group_id", "consumer_group_id"), _OPTIONAL_ID, None), _NAME),
}
_BODIES_0_5: Final[Parts] = {
    **_BODIES_0_1,
    **user_bodies(_EXPIRY_US),
    **_updates(_EXPIRY_US),
    c.CreateTopic: _new_topic(_EXPIRY_US),
}


# -- answers


def _shift(name: str, by: int, take: Callable[[Any], int] | None = None) -> tuple[str, Callable[[Any], int]]:
    """Return a member whose number is sent as ``by`` less than it is."""
    found = attrgetter(name) if take is None else take
    return name, lambda value: found(value) - by


_CREATED: Final = ("created_at", attrgetter("created_us"))


def _expiry_s(topic: r.TopicInfo) -> int | None:
    return None if topic.expiry_us is None else min(max(topic.expiry_us // _MICROSECONDS, 1), 0xFFFF_FFFF)


def _bound(name: str) -> Callable[[Any], int]:
    def take(value: Any) -> int:
        bound: int | None = getattr(value, name)
        return UNLIMITED if bound is None else bound

    return take


def _sizes(*names: str) -> Members:
    """Return members that are sizes with units, under names that do not mention bytes."""
    return [(name, _SizeOf(name)) for name in names]


@dataclass(frozen=True, slots=True)
class _SizeOf:
    field: str

    def __call__(self, value: Any) -> str:
        return write_size(getattr(value, self.field))


_SIZE_0_1: Final = same("size_bytes")
_SIZE_0_4: Final[Members] = [("size", _SizeOf("size_bytes"))]


def _entities(size: Members, kept: Members, behind: Members = (), id_shift: int = 0, part_shift: int = 0) -> Answers:
    """Streams, topics, partitions and groups.

    ``size`` is how their bytes are told, ``kept`` what a topic says of how long its messages stay, ``behind`` what both
    kinds say at last.
    """
    ident = _shift("id", id_shift)
    stream: Members = [ident, _CREATED, *same("name"), *size, *same("messages_count", "topics_count"), *behind]
    topic: Members = [
        ident,
        _CREATED,
        *same("name"),
        *size,
        *kept,
        *same("messages_count", "partitions_count"),
        *behind,
    ]
    group: Members = [ident, *same("name", "partitions_count", "members_count")]
    return {
        r.StreamInfo: stream,
        r.StreamDetails: [*inside("stream", stream), ("topics", Listed("topics"))],
        r.TopicInfo: topic,
        r.TopicDetails: [*inside("topic", topic), ("partitions", Listed("partitions"))],
        r.PartitionInfo: [
            _shift("id", part_shift),
            _CREATED,
            *same("segments_count", "current_offset"),
            *size,
            *same("messages_count"),
        ],
        r.GroupInfo: group,
        r.GroupDetails: [*inside("group", group), ("members", Listed("members"))],
        r.MemberInfo: [
            *same("id"),
            ("partitions_count", lambda member: len(member.partitions)),
            ("partitions", lambda member: [number - part_shift for number in member.partitions]),
        ],
        r.StoredOffset: [
            _shift("partition_id", part_shift),
            *same("current_offset"),
            ("stored_offset", attrgetter("offset")),
        ],
    }


def _connections(group_name: str, id_shift: int = 0) -> Answers:
    client: Members = [
        ("client_id", attrgetter("id")),
        ("user_id", attrgetter("user_id")),
        *same("address"),
        ("transport", lambda client: TRANSPORTS.get(client.transport, str(client.transport))),
        ("consumer_groups_count", attrgetter("groups_count")),
    ]
    return {
        r.ClientInfo: client,
        r.ClientDetails: [*inside("client", client), ("consumer_groups", Listed("groups"))],
        r.ConsumerGroupInfo: [
            _shift("stream_id", id_shift),
            _shift("topic_id", id_shift),
            _shift(group_name, id_shift, attrgetter("group_id")),
        ],
    }


def _stats(run_time_unit: int, behind: Members = ()) -> Answers:
    counts = same("streams_count", "topics_count", "partitions_count", "segments_count", "messages_count")
    return {
        r.StatsInfo: [
            *same("process_id"),
            ("cpu_usage", lambda stats: single(stats.cpu_usage)),
            ("total_cpu_usage", lambda stats: single(stats.total_cpu_usage)),
            *_sizes("memory_usage", "total_memory", "available_memory"),
            ("run_time", lambda stats: stats.run_time * run_time_unit),
            ("start_time", lambda stats: stats.start_time * _MICROSECONDS),
            *_sizes("read_bytes", "written_bytes", "messages_size_bytes"),
            *counts,
            *same("clients_count"),
            ("consumer_groups_count", attrgetter("groups_count")),
            *same("hostname", "os_name", "os_version", "kernel_version"),
            *behind,
        ]
    }


_VERSION: Final[Members] = [
    ("iggy_server_version", attrgetter("server_version")),
    ("iggy_server_semver", lambda stats: None),
    ("cache_metrics", lambda stats: {}),
]
_COMPRESSION: Final = ("compression_algorithm", lambda topic: "none")
_REPLICATION: Final = ("replication_factor", lambda topic: 1)
_KEPT_0_1: Final[Members] = [("message_expiry", _expiry_s)]
_KEPT_0_4: Final[Members] = [
    *_KEPT_0_1,
    _COMPRESSION,
    ("max_topic_size", lambda topic: None if topic.size_bytes_max is None else write_size(topic.size_bytes_max)),
    _REPLICATION,
]
_KEPT_0_11: Final[Members] = [
    ("message_expiry", _bound("expiry_us")),
    _COMPRESSION,
    ("max_topic_size", _bound("size_bytes_max")),
]
_KEPT_0_5: Final[Members] = [*_KEPT_0_11, _REPLICATION]


def _users(expiry: str, id_shift: int = 0, behind: Members = ()) -> Answers:
    """Return the documents of users and tokens; ``expiry`` is the name of the member for a token's end."""
    user: Members = [
        _shift("id", id_shift),
        _CREATED,
        ("status", lambda user: STATUS_WORDS[user.status]),
        ("username", attrgetter("name")),
        *behind,
    ]
    return {
        r.UserInfo: user,
        r.UserDetails: [*inside("user", user), ("permissions", lambda found: permissions_document(found.permissions))],
        r.TokenInfo: [*same("name"), (expiry, lambda token: token.ends_us or None)],
        r.RawToken: same("token"),
    }


_NO_OPTIONS: Final[Members] = [("options", lambda value: {})]
_DISK_0_10: Final[Members] = [
    ("iggy_server_version", lambda stats: SERVER_VERSION),
    ("iggy_server_semver", lambda stats: SERVER_VERSION_NUMBER),
    ("cache_metrics", lambda stats: {}),
    *same("threads_count"),
    *_sizes("free_disk_space", "total_disk_space"),
]

_0_0_40: Final = JsonRelease("0.0.40", BY_NAME["0.0.40"], BODIES, QUERIES, ANSWERS)
_0_1: Final = JsonRelease(
    "0.1",
    BY_NAME["0.1"],
    bodies=_BODIES_0_1,
    queries={**QUERIES, **_QUERIES_FROM_1},
    answers={
        **ANSWERS,
        **_entities(_SIZE_0_1, _KEPT_0_1),
        **_connections("consumer_group_id"),
        **_users("expiry"),
    },
    messages=MessagesForm.PLACED,
    has_users=True,
    has_refresh_tokens=True,
)
_0_4: Final = replace(
    _0_1,
    name="0.4",
    release=BY_NAME["0.4"],
    answers={**_0_1.answers, **_entities(_SIZE_0_4, _KEPT_0_4), **_connections("group_id"), **_stats(1)},
)
_0_5: Final = replace(
    _0_4,
    name="0.5",
    release=BY_NAME["0.5"],
    bodies=_BODIES_0_5,
    answers={
        **_0_4.answers,
        **_entities(_SIZE_0_4, _KEPT_0_5),
        **_stats(_MICROSECONDS),
        **_users("expiry_at"),
    },
    has_refresh_tokens=False,
    tells_created=True,
)
_0_6: Final = replace(
    _0_5,
    name="0.6",
    release=BY_NAME["0.6"],
    answers={**_0_5.answers, **_stats(_MICROSECONDS, _VERSION)},
)
_0_7: Final = replace(_0_6, name="0.7", release=BY_NAME["0.7"], messages=MessagesForm.HEADED)
_0_8: Final = replace(
    _0_7,
    name="0.8",
    release=BY_NAME["0.8"],
    bodies={**_BODIES_0_5, **_BODIES_FROM_0},
    queries={**QUERIES, **_QUERIES_FROM_0},
    answers={**_0_7.answers, **_entities(_SIZE_0_4, _KEPT_0_5, part_shift=1)},
)
_0_9: Final = replace(_0_8, name="0.9", release=BY_NAME["0.9"], messages=MessagesForm.TYPED)
_0_10: Final = replace(
    _0_9, name="0.10", release=BY_NAME["0.10"], answers={**_0_9.answers, **_stats(_MICROSECONDS, _DISK_0_10)}
)
_0_11: Final = replace(
    _0_10,
    name="0.11",
    answers={
        **_0_10.answers,
        **_entities(_SIZE_0_4, _KEPT_0_11, _NO_OPTIONS, id_shift=1, part_shift=1),
        **_connections("group_id", id_shift=1),
        **_users("expiry_at", 1, _NO_OPTIONS),
    },
    messages=MessagesForm.BATCHED,
    first_id=0,
    is_current=True,
)

_CURRENT_VERSION: Final = (0, 11)

JSON_RELEASES: Final[Mapping[str, JsonRelease]] = {
    one.name: one
    for one in (
        replace(_0_0_40, name="0.0.30", release=BY_NAME["0.0.30"]),
        _0_0_40,
        _0_1,
        _0_4,
        _0_5,
        _0_6,
        replace(_0_6, name="0.6.60", release=BY_NAME["0.6.60"]),
        _0_7,
        _0_8,
        _0_9,
        _0_10,
        _0_11,
    )
}
"""Every release by its name, oldest first."""

SILENT: Final = replace(
    _0_4, name="0.1 or 0.4", answers={**_0_4.answers, **_entities([*_SIZE_0_1, *_SIZE_0_4], _KEPT_0_4)}
)
"""What a login without a version is: both read what they know of these documents, but for the figures of the server,
which are 0.4's."""
BY_TOKEN: Final[Mapping[str, JsonRelease]] = {**JSON_RELEASES, SILENT.name: SILENT}
"""The same with the one that no setting names, for what tokens say."""


def release_of_http_login(version: str | None, context: str = "") -> JsonRelease:
    """Return the release of a client by what its login says; None for a login without a version, which may be empty."""
    parts = (version or "").split(".")[:2]
    is_told = all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts)
    if is_told and tuple(map(int, parts)) >= _CURRENT_VERSION:
        return _0_11
    found = guess_release(version, context).release
    return SILENT if found.is_silent else JSON_RELEASES[found.name]

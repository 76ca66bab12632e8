"""The documents of responses, composed from the differences between releases: names, units, and first numbers."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from ....model.kinds import Kind
from ....model.lazy_dataclass import lazy_dataclass
from ..classic import responses as r
from ..current.commands import OptionInfo
from ..current.releases import V_0_11
from .byte_sizes import write_size
from .commands import TRANSPORTS, Answers, Listed, Members, inside, same, single
from .users import STATUS_WORDS, permissions_document

MICROSECONDS: Final = 1_000_000
UNLIMITED: Final = (1 << 64) - 1
"""An expiry or a size without a bound, since 0.5."""


def _shift(name: str, by: int, take: Callable[[Any], int] | None = None) -> tuple[str, Callable[[Any], int]]:
    """Return a member whose number is sent reduced by ``by``."""
    found = attrgetter(name) if take is None else take
    return name, lambda value: found(value) - by


_CREATED: Final = ("created_at", attrgetter("created_us"))


def _expiry_s(topic: r.TopicInfo) -> int | None:
    return None if topic.expiry_us is None else min(max(topic.expiry_us // MICROSECONDS, 1), 0xFFFF_FFFF)


def _take_bound(name: str) -> Callable[[Any], int]:
    def take(value: Any) -> int:
        bound: int | None = getattr(value, name)
        return UNLIMITED if bound is None else bound

    return take


def _size_members(*names: str) -> Members:
    """Return members that are sizes with units, under names that do not mention bytes."""
    return [(name, _SizeOf(name)) for name in names]


@lazy_dataclass(frozen=True, slots=True)
class _SizeOf:
    field: str

    def __call__(self, value: Any) -> str:
        return write_size(getattr(value, self.field))


SIZE_0_1: Final = same("size_bytes")
SIZE_0_4: Final[Members] = [("size", _SizeOf("size_bytes"))]


def entity_answers(
    size: Members, kept: Members, behind: Members = (), id_shift: int = 0, part_shift: int = 0
) -> Answers:
    """Return the documents of streams, topics, partitions and groups.

    ``size`` are the members for their bytes, ``kept`` those for a topic's retention time, ``behind`` the last members
    of streams and topics.
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


def connection_answers(group_name: str, id_shift: int = 0) -> Answers:
    """Return the documents of connected clients; ``group_name`` is the name of the member for a group's id."""
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


def stats_answers(run_time_unit: int, behind: Members = ()) -> Answers:
    """Return the document of the server's statistics; ``run_time_unit`` stands for a second of its run time."""
    counts = same("streams_count", "topics_count", "partitions_count", "segments_count", "messages_count")
    return {
        r.StatsInfo: [
            *same("process_id"),
            ("cpu_usage", lambda stats: single(stats.cpu_usage)),
            ("total_cpu_usage", lambda stats: single(stats.total_cpu_usage)),
            *_size_members("memory_usage", "total_memory", "available_memory"),
            ("run_time", lambda stats: stats.run_time * run_time_unit),
            ("start_time", lambda stats: stats.start_time * MICROSECONDS),
            *_size_members("read_bytes", "written_bytes", "messages_size_bytes"),
            *counts,
            *same("clients_count"),
            ("consumer_groups_count", attrgetter("groups_count")),
            *same("hostname", "os_name", "os_version", "kernel_version"),
            *behind,
        ]
    }


VERSION_0_6: Final[Members] = [
    ("iggy_server_version", attrgetter("server_version")),
    ("iggy_server_semver", lambda stats: None),
    ("cache_metrics", lambda stats: {}),
]
_COMPRESSION: Final = ("compression_algorithm", lambda topic: "none")
_REPLICATION: Final = ("replication_factor", lambda topic: 1)
KEPT_0_1: Final[Members] = [("message_expiry", _expiry_s)]
KEPT_0_4: Final[Members] = [
    *KEPT_0_1,
    _COMPRESSION,
    ("max_topic_size", lambda topic: None if topic.size_bytes_max is None else write_size(topic.size_bytes_max)),
    _REPLICATION,
]
KEPT_0_11: Final[Members] = [
    ("message_expiry", _take_bound("expiry_us")),
    _COMPRESSION,
    ("max_topic_size", _take_bound("size_bytes_max")),
]
KEPT_0_5: Final[Members] = [*KEPT_0_11, _REPLICATION]


def user_answers(expiry: str, id_shift: int = 0, behind: Members = ()) -> Answers:
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


def context_document(incarnation_us: int) -> dict[str, int]:
    """Return the history of a partition, for clients of protocol 0.12; those of 0.11 ignore it."""
    return {"incarnation": incarnation_us, "owner_generation": 0, "metadata_op": 0}


CONTEXTS: Final[Members] = [
    ("context", lambda partition: context_document(partition.created_us)),
    ("members", lambda partition: [0]),
    ("in_sync_members", lambda partition: [0]),
]
"""The last member of a partition's document since protocol 0.12: the only node has all messages."""
SERVER_ANSWERS: Final[Answers] = {
    r.ClusterInfo: [*same("name"), ("nodes", Listed("nodes"))],
    r.NodeInfo: [
        *same("name"),
        ("ip", attrgetter("host")),
        ("endpoints", lambda node: dict(zip(("tcp", "quic", "http", "websocket"), node.ports, strict=True))),
        ("role", lambda node: "leader"),
        ("status", lambda node: "healthy"),
    ],
    OptionInfo: [
        *same("key"),
        ("kind", lambda option: Kind(option.kind).word),
        ("default_value", lambda option: list(option.default)),
        *same("description"),
    ],
}
"""Responses about the server and its settings, the same for all releases."""
NO_OPTIONS: Final[Members] = [("options", lambda value: {})]
DISK_0_10: Final[Members] = [
    ("iggy_server_version", lambda stats: V_0_11.server),
    ("iggy_server_semver", lambda stats: V_0_11.server_number),
    ("cache_metrics", lambda stats: {}),
    *same("threads_count"),
    *_size_members("free_disk_space", "total_disk_space"),
]

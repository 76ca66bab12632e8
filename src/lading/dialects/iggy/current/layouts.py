"""Layouts of commands and responses in the releases of the current generation, the newest first rows of the table.

Each table is made from the one before it: what is written here is what changed (iggy-current.md B3, V).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final, TypeVar

from ..classic import commands as c
from ..classic import later_commands as later
from ..classic import responses as r
from ..classic.command_table import CommandSpec, ExactCommandTable
from ..classic.expiries import EXPIRY_US
from ..classic.later_codecs import FROM_ZERO, SIZE_MAX_OR_DEFAULT
from ..classic.later_layouts import if_any, lay_out_offset
from ..classic.permissions import SOME_PERMISSIONS
from ..classic.primitives import (
    BOOL,
    F32,
    PARTITIONING,
    REST,
    STRATEGY,
    TEXT,
    U8,
    U32,
    U64,
    Codec,
    ignore,
    imply,
    map_values,
    optional,
    read_bytes,
    repeat_counted,
    repeat_to_end,
)
from ..classic.records import layout, record
from ..classic.responses import NOTHING
from . import commands as own
from .codecs import (
    BLOCK,
    CONSUMER,
    IDENTIFIER_FROM_ZERO,
    NAME,
    NAMED_PARTITION,
    OPTIONS,
    PERMISSIONS,
    PORTS,
    SECRET,
    read_block,
)
from .options import DESCRIBED_OPTIONS, TOPIC_OPTIONS, Option, encode_options
from .responses import context_block

T = TypeVar("T")

_STREAM: Final[dict[str, Codec[Any]]] = {"stream": IDENTIFIER_FROM_ZERO}
_ENTITY: Final[dict[str, Codec[Any]]] = {**_STREAM, "topic": IDENTIFIER_FROM_ZERO}
_GROUP_NAME: Final[dict[str, Codec[Any]]] = {**_ENTITY, "group_id": IDENTIFIER_FROM_ZERO}
_POSITION: Final[dict[str, Codec[Any]]] = {"consumer": CONSUMER, **_ENTITY, "partition_id": NAMED_PARTITION}
_USER: Final[dict[str, Codec[Any]]] = {"user": IDENTIFIER_FROM_ZERO}
_QUORUM: Final = 1
"""A stored offset is acknowledged when it is replicated; others are acknowledged in the same way here."""
_NODE: Final = 0
"""The number of the one node of a cluster."""


def _skip_block(data: memoryview, at: int) -> tuple[None, int]:
    return None, read_block(data, at)[1]


def _skip_two_blocks(data: memoryview, at: int) -> tuple[None, int]:
    return _skip_block(data, _skip_block(data, at)[1])


_NO_OPTIONS: Final[Codec[Any]] = Codec(_skip_block, lambda _value: bytes(4))
"""The options of a stream or a user, which has none."""
_NO_OPTIONS_12: Final[Codec[Any]] = Codec(_skip_two_blocks, lambda _value: bytes(8))
"""The codec of empty options since 0.12: another block follows, with the options that the server chose."""


def _write_options(chosen: Mapping[str, Option] | None) -> bytes:
    given = chosen or {}
    return BLOCK.write(encode_options(given)) + _encode_defaults(tuple(key for key in _DESCRIBED if key not in given))


_DESCRIBED: Final = sorted(DESCRIBED_OPTIONS)


@cache
def _encode_defaults(keys: tuple[str, ...]) -> bytes:
    """Return the block of options at their defaults; most topics leave the same ones there."""
    return BLOCK.write(
        encode_options({key: Option(TOPIC_OPTIONS[key].kind, TOPIC_OPTIONS[key].default) for key in keys})
    )


_TOPIC_OPTIONS: Final[Codec[Any]] = Codec(_skip_two_blocks, _write_options)
"""The options of a topic, then those that it leaves at their defaults; a client has no use for either."""


def _with_bounds(topic: r.TopicInfo) -> r.TopicInfo:
    """Return a topic with its bounds among its options, as they are since 0.12."""
    bounds = {"message_expiry": topic.expiry_us, "max_topic_size": topic.size_bytes_max}
    given = {
        key: Option(TOPIC_OPTIONS[key].kind, U64.write(bound)) for key, bound in bounds.items() if bound is not None
    }
    return replace(topic, options={**(topic.options or {}), **given})


def _as_read(value: T) -> T:
    return value


_TOPIC_11: Final = record(
    r.TopicInfo, id=FROM_ZERO, created_us=U64, partitions_count=U32, expiry_us=EXPIRY_US, compression=U8,
    size_bytes_max=SIZE_MAX_OR_DEFAULT, size_bytes=U64, messages_count=U64, name=NAME, options=_TOPIC_OPTIONS,
)  # fmt: skip
_TOPIC_12: Final = map_values(
    record(
        r.TopicInfo, id=FROM_ZERO, created_us=U64, partitions_count=U32, size_bytes=U64, messages_count=U64, name=NAME,
        options=_TOPIC_OPTIONS,
    ),
    _as_read,
    _with_bounds,
)  # fmt: skip


def _append_bytes(codec: Codec[T], size_bytes: int, write: Callable[[T], bytes]) -> Codec[T]:
    """Return ``codec`` with ``size_bytes`` more bytes, which are skipped on reading and written by ``write``."""

    def read(data: memoryview, at: int) -> tuple[T, int]:
        value, at = codec.read(data, at)
        return value, read_bytes(data, at, size_bytes, "the rest of a record")[1]

    return Codec(read, lambda value: codec.write(value) + write(value))


_PARTITION_11: Final = record(
    r.PartitionInfo, id=FROM_ZERO, created_us=U64, segments_count=U32, current_offset=U64, size_bytes=U64,
    messages_count=U64,
)  # fmt: skip
_PARTITION_12: Final = _append_bytes(_PARTITION_11, 24, lambda partition: context_block(partition.created_us))
# one node has it, and it is in step with itself
_PARTITION_12_2: Final = _append_bytes(_PARTITION_12, 4, lambda _partition: bytes((1, _NODE, 1, _NODE)))

_GROUP: Final = record(r.GroupInfo, id=FROM_ZERO, partitions_count=U32, members_count=U32, name=NAME)
_GROUP_DETAILS: Final = record(
    r.GroupDetails,
    group=_GROUP,
    members=repeat_to_end(record(r.MemberInfo, id=U32, partitions=repeat_counted(FROM_ZERO))),
)
_CLIENT: Final = record(r.ClientInfo, id=U32, user_id=FROM_ZERO, transport=U8, address=TEXT, groups_count=U32)
_CLIENT_DETAILS: Final = record(
    r.ClientDetails,
    client=_CLIENT,
    groups=repeat_to_end(record(r.ConsumerGroupInfo, stream_id=FROM_ZERO, topic_id=FROM_ZERO, group_id=FROM_ZERO)),
)


def _stream_rows(no_options: Codec[Any], topic: Codec[Any]) -> tuple[CommandSpec, ...]:
    """Return the rows of the commands whose responses are streams."""
    stream = record(
        r.StreamInfo, id=FROM_ZERO, created_us=U64, topics_count=U32, size_bytes=U64, messages_count=U64, name=NAME,
        _options=no_options,
    )  # fmt: skip
    details = record(r.StreamDetails, stream=stream, topics=repeat_to_end(topic))
    new_stream = record(c.CreateStream, stream_id=imply(None), name=NAME, options=OPTIONS)
    return (
        CommandSpec(200, "get_stream", c.GetStream, if_any(details), record(c.GetStream, **_STREAM)),
        CommandSpec(201, "get_streams", c.GetStreams, repeat_to_end(stream)),
        CommandSpec(202, "create_stream", c.CreateStream, details, new_stream, operation=128),
    )


def _topic_rows(topic: Codec[Any], partition: Codec[Any]) -> tuple[CommandSpec, ...]:
    """Return the rows of the commands whose responses are topics."""
    details = record(r.TopicDetails, topic=topic, partitions=repeat_to_end(partition))
    topics = repeat_counted(topic)
    new_topic = record(c.CreateTopic, **_STREAM, topic_id=imply(None), partitions_count=U32, name=NAME, options=OPTIONS)
    return (
        CommandSpec(300, "get_topic", c.GetTopic, if_any(details), record(c.GetTopic, **_ENTITY)),
        # a stream that does not exist has no topics
        CommandSpec(
            301,
            "get_topics",
            c.GetTopics,
            Codec(topics.read, lambda found: topics.write(found or ())),
            record(c.GetTopics, **_STREAM),
        ),
        CommandSpec(302, "create_topic", c.CreateTopic, details, new_topic, operation=132),
    )


def _user_rows(no_options: Codec[Any]) -> tuple[CommandSpec, ...]:
    """Return the rows of the commands whose responses are users."""
    user = record(r.UserInfo, id=FROM_ZERO, created_us=U64, status=U8, name=NAME, _options=no_options)
    details = record(r.UserDetails, user=user, permissions=PERMISSIONS)
    new_user = record(
        later.CreateUser, name=NAME, password=SECRET, status=U8, permissions=SOME_PERMISSIONS, options=OPTIONS
    )
    return (
        CommandSpec(31, "get_user", later.GetUser, if_any(details), record(later.GetUser, **_USER)),
        CommandSpec(32, "get_users", later.GetUsers, repeat_to_end(user)),
        CommandSpec(33, "create_user", later.CreateUser, details, new_user, operation=141),
    )


_US: Final[Codec[int]] = map_values(U64, lambda us: us // 1_000_000, lambda seconds: seconds * 1_000_000)


def _stats_row(server: str, number: int) -> CommandSpec:
    """Return the row of the server's figures, which names the real server of the release and its version."""
    fields: dict[str, Codec[Any]] = {}
    for name, codec in layout(r.StatsInfo):
        fields[name] = _US if name in ("run_time", "start_time") else codec
        if name == "cpu_usage":
            fields["total_cpu_usage"] = F32
    figures = record(
        r.StatsInfo, **fields, _server=ignore(TEXT, server), _semver=ignore(U32, number), _caches=ignore(U32, 0),
        threads_count=U32, free_disk_space=U64, total_disk_space=U64,
    )  # fmt: skip
    return CommandSpec(
        10,
        "get_stats",
        c.Stats,
        map_values(figures, _as_read, lambda stats: replace(stats, kernel_version=stats.kernel)),
    )


def _cluster_row(**number: Codec[Any]) -> CommandSpec:
    """Return the row of the cluster, all of whose nodes are healthy leaders; ``number`` is in front of a node."""
    leader_and_healthy = ignore(U8, 0)
    node = record(
        r.NodeInfo, **number, name=TEXT, host=TEXT, ports=PORTS, _role=leader_and_healthy, _status=leader_and_healthy
    )
    cluster = record(r.ClusterInfo, name=TEXT, nodes=repeat_counted(node))
    return CommandSpec(12, "get_cluster_metadata", later.GetClusterMetadata, cluster)


def _describe_options_row(**flags: Codec[Any]) -> CommandSpec:
    """Return the row of the options that exist; ``flags`` come after the kind of an option."""
    option = record(own.OptionInfo, key=NAME, kind=U8, **flags, default=BLOCK, description=TEXT)
    return CommandSpec(13, "describe_options", own.DescribeOptions, repeat_counted(option))


def _change_rows(*rows: tuple[int, int, str, type[Any], Mapping[str, Codec[Any]]]) -> tuple[CommandSpec, ...]:
    """Return the rows of commands that only succeed or fail: code, operation, name, class and fields of each."""
    return tuple(
        CommandSpec(code, name, kind, NOTHING, record(kind, **fields), operation)
        for code, operation, name, kind, fields in rows
    )


_POLLING: Final[dict[str, Codec[Any]]] = {"strategy": STRATEGY, "count": U32, "auto_commit": BOOL}
_NEW_USER: Final[dict[str, Codec[Any]]] = {"name": optional(NAME), "status": optional(U8)}
_SEGMENTS: Final[dict[str, Codec[Any]]] = {**_ENTITY, "partition_id": FROM_ZERO, "segments_count": U32}
_ACK: Final = ignore(U8, _QUORUM)

TABLE_0_11: Final = ExactCommandTable(
    (
        CommandSpec(1, "ping", c.Ping, NOTHING),
        _stats_row("0.9.0", 9_000),
        CommandSpec(11, "get_snapshot", later.GetSnapshot, REST),
        _cluster_row(),
        _describe_options_row(),
        CommandSpec(16, "update_resource", own.UpdateResource, NOTHING, operation=150),
        CommandSpec(17, "get_metadata_changes", own.GetMetadataChanges, NOTHING),
        CommandSpec(20, "get_me", c.Me, _CLIENT_DETAILS),
        CommandSpec(21, "get_client", c.GetClient, _CLIENT_DETAILS),
        CommandSpec(22, "get_clients", c.GetClients, repeat_to_end(_CLIENT)),
        *_user_rows(_NO_OPTIONS),
        CommandSpec(39, "logout", later.LogoutUser, NOTHING, operation=3),
        CommandSpec(40, "register", own.Register, NOTHING, operation=1),
        CommandSpec(41, "get_personal_access_tokens", later.GetTokens, repeat_to_end(record(r.TokenInfo))),
        CommandSpec(
            42,
            "create_personal_access_token",
            later.CreateToken,
            record(r.RawToken),
            record(later.CreateToken, name=NAME, expiry_us=EXPIRY_US),
            operation=146,
        ),
        CommandSpec(100, "poll_messages", c.PollMessages, REST, record(c.PollMessages, **_POSITION, **_POLLING)),
        CommandSpec(
            101,
            "send_messages",
            c.SendMessages,
            REST,
            record(c.SendMessages, _metadata_bytes=ignore(U32, 0), **_ENTITY, partitioning=PARTITIONING, messages=REST),
            operation=160,
        ),
        CommandSpec(105, "get_partition_route", own.GetPartitionRoute, record(own.PartitionRoute)),
        CommandSpec(106, "poll_messages_deferred", own.PollDeferred, REST),
        CommandSpec(108, "cancel_deferred_request", own.CancelDeferred, NOTHING),
        CommandSpec(109, "fetch_messages", own.FetchMessages, REST),
        CommandSpec(
            120, "get_consumer_offset", c.GetOffset, if_any(lay_out_offset(FROM_ZERO)), record(c.GetOffset, **_POSITION)
        ),
        *_stream_rows(_NO_OPTIONS, _TOPIC_11),
        *_topic_rows(_TOPIC_11, _PARTITION_11),
        CommandSpec(600, "get_consumer_group", c.GetGroup, if_any(_GROUP_DETAILS), record(c.GetGroup, **_GROUP_NAME)),
        CommandSpec(601, "get_consumer_groups", c.GetGroups, repeat_to_end(_GROUP), record(c.GetGroups, **_ENTITY)),
        CommandSpec(
            602,
            "create_consumer_group",
            c.CreateGroup,
            _GROUP_DETAILS,
            record(c.CreateGroup, **_ENTITY, group_id=imply(None), name=NAME),
            operation=139,
        ),
        CommandSpec(606, "sync_consumer_group", own.SyncGroup, if_any(record(own.GroupAssignment))),
        *_change_rows(
            (34, 143, "delete_user", later.DeleteUser, _USER),
            (35, 142, "update_user", later.UpdateUser, {**_USER, **_NEW_USER, "options": OPTIONS}),
            (36, 145, "update_permissions", later.UpdatePermissions, {**_USER, "permissions": SOME_PERMISSIONS}),
            (37, 144, "change_password", later.ChangePassword, {**_USER, "current": SECRET, "new": SECRET}),
            (43, 147, "delete_personal_access_token", later.DeleteToken, {"name": NAME}),
            (
                102,
                0,
                "flush_unsaved_buffer",
                later.FlushMessages,
                {**_ENTITY, "partition_id": FROM_ZERO, "fsync": BOOL},
            ),
            (121, 161, "store_consumer_offset", c.StoreOffset, {**_POSITION, "offset": U64, "_ack": _ACK}),
            (122, 162, "delete_consumer_offset", later.DeleteOffset, {**_POSITION, "_ack": _ACK}),
            (203, 130, "delete_stream", c.DeleteStream, _STREAM),
            (204, 129, "update_stream", later.UpdateStream, {**_STREAM, "name": NAME, "options": OPTIONS}),
            (205, 131, "purge_stream", later.PurgeStream, _STREAM),
            (303, 134, "delete_topic", c.DeleteTopic, _ENTITY),
            (304, 133, "update_topic", later.UpdateTopic, {**_ENTITY, "name": NAME, "options": OPTIONS}),
            (305, 135, "purge_topic", later.PurgeTopic, _ENTITY),
            (402, 136, "create_partitions", c.CreatePartitions, {**_ENTITY, "partitions_count": U32}),
            (403, 137, "delete_partitions", c.DeletePartitions, {**_ENTITY, "partitions_count": U32}),
            (503, 138, "delete_segments", later.DeleteSegments, _SEGMENTS),
            (603, 140, "delete_consumer_group", c.DeleteGroup, _GROUP_NAME),
            (604, 148, "join_consumer_group", c.JoinGroup, _GROUP_NAME),
            (605, 149, "leave_consumer_group", c.LeaveGroup, _GROUP_NAME),
        ),
    )
)
"""The crate 0.11.0: options, ids from 0. Commands of 0.12 are understood from its clients too."""

TABLE_0_12: Final = TABLE_0_11.replace_rows(
    _stats_row("0.10.0", 10_000),
    _cluster_row(_number=ignore(U8, _NODE)),
    _describe_options_row(flags=U8),
    *_user_rows(_NO_OPTIONS_12),
    *_stream_rows(_NO_OPTIONS_12, _TOPIC_12),
    *_topic_rows(_TOPIC_12, _PARTITION_12),
)
"""Streams and users have options that the server chose, too, and the bounds of a topic are among its options.

Options say which of them can be changed, partitions have a history and nodes a number.
"""

TABLE_0_12_2: Final = TABLE_0_12.replace_rows(*_topic_rows(_TOPIC_12, _PARTITION_12_2))
"""Partitions say which nodes have them."""

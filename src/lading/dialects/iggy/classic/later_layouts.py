"""Layouts of the same commands and responses in releases after 0.0.40 (docs/reference/protocols/iggy.md#releases).

Each table is made from the one before it: what is written here is what changed.
"""

from __future__ import annotations

from typing import Any, Final

from ....model.errors import Reason
from . import commands as c
from . import later_commands as later
from . import responses as r
from .command_table import CommandSpec
from .expiries import EXPIRY_S, EXPIRY_US
from .later_codecs import FLAGGED_PARTITION, FROM_ZERO, LOGIN, OPTIONAL_ID, PARTITION, SIZE_MAX, SIZE_MAX_OR_DEFAULT
from .primitives import (
    BOOL,
    F32,
    IDENTIFIER,
    NAMED_CONSUMER,
    REST,
    SHORT_TEXT,
    STRATEGY,
    TEXT,
    U8,
    U32,
    U64,
    Codec,
    ignore,
    imply,
    repeat_counted,
    repeat_to_end,
    short_text,
)
from .records import layout, record
from .responses import NOTHING

_STREAM_NAME: Final = short_text(Reason.INVALID_STREAM_NAME)
_TOPIC_NAME: Final = short_text(Reason.INVALID_TOPIC_NAME)
_ENTITY: Final[dict[str, Codec[Any]]] = {"stream": IDENTIFIER, "topic": IDENTIFIER}
_UNCOMPRESSED: Final = ignore(U8, 1)
_UNREPLICATED: Final = ignore(U8, 1)

_STREAM: Final = record(
    r.StreamInfo, id=U32, created_us=U64, topics_count=U32, size_bytes=U64, messages_count=U64, name=SHORT_TEXT
)
_GROUP: Final = record(r.GroupInfo, id=U32, partitions_count=U32, members_count=U32, name=SHORT_TEXT)
_CLIENT: Final = record(r.ClientInfo, id=U32, user_id=U32, transport=U8, address=TEXT, groups_count=U32)
_MEMBERSHIP: Final = record(r.ConsumerGroupInfo, stream_id=U32, topic_id=U32, group_id=U32)
_CLIENT_DETAILS: Final = record(r.ClientDetails, client=_CLIENT, groups=repeat_to_end(_MEMBERSHIP))


def _poll_response_codec(partition: Codec[int]) -> Codec[r.PolledMessages]:
    return record(r.PolledMessages, partition_id=partition, current_offset=U64, count=U32, messages=REST)


def lay_out_offset(partition: Codec[int]) -> Codec[r.StoredOffset]:
    """Return the Codec of a stored offset next to the last offset of its partition."""
    # the number of the consumer is not sent any more
    return record(r.StoredOffset, partition_id=partition, current_offset=U64, offset=U64, consumer_id=imply(0))


def _at_partition(kind: type[Any], partition: Codec[int], **rest: Codec[Any]) -> Codec[Any]:
    return record(kind, consumer=NAMED_CONSUMER, **_ENTITY, partition_id=partition, **rest)


def if_any(codec: Codec[Any]) -> Codec[Any]:
    """Return the Codec of a response that may be empty: no bytes stand for None."""
    return Codec(
        lambda data, at: codec.read(data, at) if at < len(data) else (None, at),
        lambda value: b"" if value is None else codec.write(value),
    )


def _position_rows(partition: Codec[int]) -> tuple[CommandSpec, ...]:
    """Return the rows of polls and stored offsets; ``partition`` is the Codec by which they name a partition."""
    polling: dict[str, Codec[Any]] = {"strategy": STRATEGY, "count": U32, "auto_commit": BOOL}
    numbered = FROM_ZERO if partition is FLAGGED_PARTITION else U32
    return (
        CommandSpec(
            100,
            "message.poll",
            c.PollMessages,
            _poll_response_codec(numbered),
            _at_partition(c.PollMessages, partition, **polling),
        ),
        CommandSpec(
            120,
            "consumer_offset.get",
            c.GetOffset,
            if_any(lay_out_offset(numbered)),
            _at_partition(c.GetOffset, partition),
        ),
        CommandSpec(
            121, "consumer_offset.store", c.StoreOffset, NOTHING, _at_partition(c.StoreOffset, partition, offset=U64)
        ),
        CommandSpec(
            122, "consumer_offset.delete", later.DeleteOffset, NOTHING, _at_partition(later.DeleteOffset, partition)
        ),
    )


def _update_topic_row(**kept: Codec[Any]) -> CommandSpec:
    """Return the row of changes of topics; ``kept`` are the fields between topic and name."""
    return CommandSpec(
        304, "topic.update", later.UpdateTopic, NOTHING, record(later.UpdateTopic, **_ENTITY, **kept, name=_TOPIC_NAME)
    )


def _topic_codecs(number: Codec[int], **later: Codec[Any]) -> tuple[Codec[Any], Codec[Any]]:
    """Return the Codecs of a topic and of a topic with its partitions.

    ``later`` are the fields that a release sends between the number of partitions and the sizes.
    """
    topic = record(
        r.TopicInfo, id=U32, created_us=U64, partitions_count=U32, **later, size_bytes=U64, messages_count=U64,
        name=SHORT_TEXT,
    )  # fmt: skip
    partition = record(
        r.PartitionInfo, id=number, created_us=U64, segments_count=U32, current_offset=U64, size_bytes=U64,
        messages_count=U64,
    )  # fmt: skip
    return topic, record(r.TopicDetails, topic=topic, partitions=repeat_to_end(partition))


def _entity_rows(topic: Codec[Any], topic_details: Codec[Any]) -> tuple[CommandSpec, ...]:
    """Return the rows of the commands that query streams and topics."""
    stream_details = record(r.StreamDetails, stream=_STREAM, topics=repeat_to_end(topic))
    return (
        CommandSpec(200, "stream.get", c.GetStream, stream_details),
        CommandSpec(201, "stream.list", c.GetStreams, repeat_to_end(_STREAM)),
        CommandSpec(300, "topic.get", c.GetTopic, topic_details),
        CommandSpec(301, "topic.list", c.GetTopics, repeat_to_end(topic)),
    )


def _group_details(number: Codec[int]) -> Codec[Any]:
    """Return the Codec of a group with its members; ``number`` is the Codec of a partition's number."""
    member = record(r.MemberInfo, id=U32, partitions=repeat_counted(number))
    return record(r.GroupDetails, group=_GROUP, members=repeat_to_end(member))


def _group_rows(number: Codec[int]) -> tuple[CommandSpec, ...]:
    """Return the rows of the commands that name a group, except creation: almost every release has its own."""
    return (
        CommandSpec(
            600, "group.get", c.GetGroup, _group_details(number), record(c.GetGroup, **_ENTITY, group_id=IDENTIFIER)
        ),
        CommandSpec(601, "group.list", c.GetGroups, repeat_to_end(_GROUP)),
        *(
            CommandSpec(code, name, kind, NOTHING, record(kind, **_ENTITY, group_id=IDENTIFIER))
            for code, name, kind in (
                (603, "group.delete", c.DeleteGroup),
                (604, "group.join", c.JoinGroup),
                (605, "group.leave", c.LeaveGroup),
            )
        ),
    )


def _stats_codec(**behind: Codec[Any]) -> Codec[r.StatsInfo]:
    """Return the Codec of the statistics, with the CPU usage of all processors.

    ``behind`` are the fields that a release sends after them.
    """
    fields: dict[str, Codec[Any]] = {}
    for name, codec in layout(r.StatsInfo):
        fields[name] = codec
        if name == "cpu_usage":
            fields["total_cpu_usage"] = F32
    return record(r.StatsInfo, **fields, **behind)


_USERS: Final = (
    CommandSpec(31, "user.get", later.GetUser, record(r.UserDetails)),
    CommandSpec(32, "user.list", later.GetUsers, repeat_to_end(record(r.UserInfo))),
    CommandSpec(33, "user.create", later.CreateUser, NOTHING),
    CommandSpec(34, "user.delete", later.DeleteUser, NOTHING),
    CommandSpec(35, "user.update", later.UpdateUser, NOTHING),
    CommandSpec(36, "user.permissions", later.UpdatePermissions, NOTHING),
    CommandSpec(37, "user.password", later.ChangePassword, NOTHING),
    CommandSpec(39, "user.logout", later.LogoutUser, NOTHING),
    CommandSpec(41, "personal_access_token.list", later.GetTokens, repeat_to_end(record(r.TokenInfo))),
    # until 0.4 in seconds
    CommandSpec(
        42,
        "personal_access_token.create",
        later.CreateToken,
        record(r.RawToken),
        record(later.CreateToken, name=SHORT_TEXT, expiry_us=EXPIRY_S),
    ),
    CommandSpec(43, "personal_access_token.delete", later.DeleteToken, NOTHING),
)
_NEW_TOPIC: Final[dict[str, Codec[Any]]] = {"stream": IDENTIFIER, "topic_id": OPTIONAL_ID, "partitions_count": U32}
_TOPIC_1, _TOPIC_DETAILS_1 = _topic_codecs(U32, expiry_us=EXPIRY_S)

TABLE_0_0_40: Final = c.TABLE.replace_rows(
    CommandSpec(38, "user.login", later.LoginUser, record(r.IdentityInfo), LOGIN),
    CommandSpec(44, "personal_access_token.login", later.LoginWithToken, record(r.IdentityInfo)),
)
"""Commands that a connection may send before its release is known.

Its own clients never log in, those of all later releases do.
"""

TABLE_0_1: Final = TABLE_0_0_40.replace_rows(
    CommandSpec(20, "me", c.Me, _CLIENT_DETAILS),
    CommandSpec(21, "client.get", c.GetClient, _CLIENT_DETAILS),
    CommandSpec(22, "client.list", c.GetClients, repeat_to_end(_CLIENT)),
    *_USERS,
    *_position_rows(PARTITION),
    *_entity_rows(_TOPIC_1, _TOPIC_DETAILS_1),
    CommandSpec(
        202,
        "stream.create",
        c.CreateStream,
        NOTHING,
        record(c.CreateStream, stream_id=OPTIONAL_ID, name=_STREAM_NAME),
    ),
    CommandSpec(
        302,
        "topic.create",
        c.CreateTopic,
        NOTHING,
        record(c.CreateTopic, **_NEW_TOPIC, expiry_us=EXPIRY_S, name=_TOPIC_NAME),
    ),
    *_group_rows(U32),
    CommandSpec(
        602,
        "group.create",
        c.CreateGroup,
        NOTHING,
        record(c.CreateGroup, **_ENTITY, group_id=OPTIONAL_ID, name=SHORT_TEXT),
    ),
    CommandSpec(204, "stream.update", later.UpdateStream, NOTHING),
    CommandSpec(205, "stream.purge", later.PurgeStream, NOTHING),
    _update_topic_row(expiry_us=EXPIRY_S),
    CommandSpec(305, "topic.purge", later.PurgeTopic, NOTHING),
)
"""Users, names of groups, partition and current offset in front of polled messages."""

_KEPT_2: Final[dict[str, Codec[Any]]] = {
    "expiry_us": EXPIRY_S,
    "size_bytes_max": SIZE_MAX,
    "_replication": _UNREPLICATED,
}

TABLE_0_2: Final = TABLE_0_1.replace_rows(
    *_entity_rows(*_topic_codecs(U32, **_KEPT_2)),
    CommandSpec(
        302, "topic.create", c.CreateTopic, NOTHING, record(c.CreateTopic, **_NEW_TOPIC, **_KEPT_2, name=_TOPIC_NAME)
    ),
    _update_topic_row(**_KEPT_2),
)
"""Topics have a bound in bytes and a replication factor."""

_TOPIC_4, _TOPIC_DETAILS_4 = _topic_codecs(
    U32, expiry_us=EXPIRY_S, _compression=_UNCOMPRESSED, size_bytes_max=SIZE_MAX, _replication=_UNREPLICATED
)

TABLE_0_4: Final = TABLE_0_1.replace_rows(
    CommandSpec(10, "stats", c.Stats, _stats_codec()),
    *_entity_rows(_TOPIC_4, _TOPIC_DETAILS_4),
    CommandSpec(
        302,
        "topic.create",
        c.CreateTopic,
        NOTHING,
        record(
            c.CreateTopic,
            **_NEW_TOPIC,
            _compression=_UNCOMPRESSED,
            expiry_us=EXPIRY_S,
            size_bytes_max=SIZE_MAX,
            _replication=_UNREPLICATED,
            name=_TOPIC_NAME,
        ),
    ),
    _update_topic_row(
        _compression=_UNCOMPRESSED, expiry_us=EXPIRY_S, size_bytes_max=SIZE_MAX, _replication=_UNREPLICATED
    ),
)
"""Topics have a compression too."""

# the version as a number, and how many figures of caches follow
_VERSIONED: Final[dict[str, Codec[Any]]] = {
    "server_version": TEXT,
    "_semver": ignore(U32, 0),
    "_caches": ignore(U32, 0),
}
_KEPT_6: Final[dict[str, Codec[Any]]] = {
    "expiry_us": EXPIRY_US,
    "_compression": _UNCOMPRESSED,
    "size_bytes_max": SIZE_MAX_OR_DEFAULT,
    "_replication": _UNREPLICATED,
}
_ASKED_6: Final[dict[str, Codec[Any]]] = {
    "_compression": _UNCOMPRESSED,
    "expiry_us": EXPIRY_US,
    "size_bytes_max": SIZE_MAX_OR_DEFAULT,
    "_replication": _UNREPLICATED,
    "name": _TOPIC_NAME,
}
_TOPIC_6, _TOPIC_DETAILS_6 = _topic_codecs(U32, **_KEPT_6)
_STREAM_DETAILS_6: Final = record(r.StreamDetails, stream=_STREAM, topics=repeat_to_end(_TOPIC_6))
_NEW_STREAM: Final = record(c.CreateStream, stream_id=OPTIONAL_ID, name=_STREAM_NAME)
_NEW_GROUP: Final = record(c.CreateGroup, **_ENTITY, group_id=OPTIONAL_ID, name=SHORT_TEXT)

TABLE_0_6: Final = TABLE_0_4.replace_rows(
    CommandSpec(10, "stats", c.Stats, _stats_codec(**_VERSIONED)),
    # since 0.6.50
    CommandSpec(11, "snapshot", later.GetSnapshot, REST),
    CommandSpec(33, "user.create", later.CreateUser, record(r.UserDetails)),
    CommandSpec(42, "personal_access_token.create", later.CreateToken, record(r.RawToken)),
    CommandSpec(102, "message.flush_unsaved_buffer", later.FlushMessages, NOTHING),
    *_entity_rows(_TOPIC_6, _TOPIC_DETAILS_6),
    CommandSpec(202, "stream.create", c.CreateStream, _STREAM_DETAILS_6, _NEW_STREAM),
    CommandSpec(302, "topic.create", c.CreateTopic, _TOPIC_DETAILS_6, record(c.CreateTopic, **_NEW_TOPIC, **_ASKED_6)),
    CommandSpec(602, "group.create", c.CreateGroup, _group_details(U32), _NEW_GROUP),
    _update_topic_row(**{name: codec for name, codec in _ASKED_6.items() if name != "name"}),
    CommandSpec(503, "segment.delete", later.DeleteSegments, NOTHING),
)
"""Times in microseconds; the response to a creation describes the new object; the login names the client's version."""

_TOPIC_8, _TOPIC_DETAILS_8 = _topic_codecs(FROM_ZERO, **_KEPT_6)

TABLE_0_8: Final = TABLE_0_6.replace_rows(
    CommandSpec(12, "cluster.metadata", later.GetClusterMetadata, NOTHING),
    *_position_rows(FLAGGED_PARTITION),
    *_entity_rows(_TOPIC_8, _TOPIC_DETAILS_8),
    CommandSpec(
        202,
        "stream.create",
        c.CreateStream,
        _STREAM_DETAILS_6,
        record(c.CreateStream, stream_id=imply(None), name=_STREAM_NAME),
    ),
    CommandSpec(
        302,
        "topic.create",
        c.CreateTopic,
        _TOPIC_DETAILS_8,
        record(c.CreateTopic, stream=IDENTIFIER, topic_id=imply(None), partitions_count=U32, **_ASKED_6),
    ),
    *_group_rows(FROM_ZERO),
    CommandSpec(
        503,
        "segment.delete",
        later.DeleteSegments,
        NOTHING,
        record(later.DeleteSegments, **_ENTITY, partition_id=FROM_ZERO, segments_count=U32),
    ),
    CommandSpec(
        602,
        "group.create",
        c.CreateGroup,
        _group_details(FROM_ZERO),
        record(c.CreateGroup, **_ENTITY, group_id=imply(None), name=SHORT_TEXT),
    ),
)
"""The server chooses ids; partitions are counted from 0, and a flag says whether one is named."""

TABLE_0_10: Final = TABLE_0_8.replace_rows(
    CommandSpec(
        10,
        "stats",
        c.Stats,
        _stats_codec(**_VERSIONED, threads_count=U32, free_disk_space=U64, total_disk_space=U64),
    ),
)
"""The figures of the server include its threads and its disk."""

"""Every command of Iggy 0.0.40 as a dataclass, and how it lies in bytes (iggy.md A1-A3, M).

Later releases have the same commands in other bytes, and more of them: ``releases.py``. Nothing here opens a socket
or asks a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

from ....model.errors import Reason
from ....model.lazy_dataclass import lazy_dataclass
from .command_table import CommandSpec, CommandTable
from .primitives import (
    BOOL,
    CONSUMER,
    IDENTIFIER,
    PARTITIONING,
    REST,
    STRATEGY,
    U32,
    U64,
    Bytes,
    ConsumerIdentifier,
    Identifier,
    Partitioning,
    Strategy,
    name_to_end,
    repeat_to_end,
)
from .records import record
from .responses import (
    NOTHING,
    ClientDetails,
    ClientInfo,
    GroupDetails,
    GroupInfo,
    PolledMessages,
    StatsInfo,
    StoredOffset,
    StreamDetails,
    StreamInfo,
    TopicDetails,
    TopicInfo,
)
from .state_commands import OWN_CODES_FROM, GetStates, ListedStates, SetStates, SetStatesWhere, StatesProgress
from .validation import (
    CLIENT_ID,
    FIRST_PARTITIONS,
    GROUP_ID,
    MORE_PARTITIONS,
    POLL_COUNT,
    SOME_MESSAGES,
    STREAM_ID,
    STREAM_NAME,
    TOPIC_ID,
    TOPIC_NAME,
)


@lazy_dataclass(frozen=True, slots=True)
class Kill:
    """Stop the server; refused with UNKNOWN_COMMAND, as by a server built without it."""


@lazy_dataclass(frozen=True, slots=True)
class Ping:
    """Check that the server is reachable."""


@lazy_dataclass(frozen=True, slots=True)
class Stats:
    """Returns StatsInfo."""


@lazy_dataclass(frozen=True, slots=True)
class Me:
    """Returns ClientDetails of the caller."""


@lazy_dataclass(frozen=True, slots=True)
class GetClient:
    """Returns ClientDetails."""

    client_id: Annotated[int, U32, CLIENT_ID]


@lazy_dataclass(frozen=True, slots=True)
class GetClients:
    """Returns ClientInfo for every connection."""


@lazy_dataclass(frozen=True, slots=True)
class PollMessages:
    """Poll messages; the response is PolledMessages. A group ignores ``partition_id``: the member's partitions take
    turns."""

    consumer: Annotated[ConsumerIdentifier, CONSUMER]
    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    partition_id: Annotated[int | None, U32]
    strategy: Annotated[Strategy, STRATEGY]
    count: Annotated[int, U32, POLL_COUNT]
    auto_commit: Annotated[bool, BOOL]


@lazy_dataclass(frozen=True, slots=True)
class SendMessages:
    """Target of messages, and their bytes unparsed (a view into the request, if it was parsed from one)."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    partitioning: Annotated[Partitioning, PARTITIONING]
    messages: Annotated[Bytes, REST, SOME_MESSAGES]


@lazy_dataclass(frozen=True, slots=True)
class GetOffset:
    """Returns StoredOffset. Since 0.11 ``partition_id`` is None if the client names no partition."""

    consumer: Annotated[ConsumerIdentifier, CONSUMER]
    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    partition_id: Annotated[int | None, U32]


@lazy_dataclass(frozen=True, slots=True)
class StoreOffset:
    """Remember the last consumed offset; as a group, of the partition this member polled last."""

    consumer: Annotated[ConsumerIdentifier, CONSUMER]
    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    partition_id: Annotated[int | None, U32]
    offset: Annotated[int, U64]


@lazy_dataclass(frozen=True, slots=True)
class GetStream:
    """Returns StreamDetails."""

    stream: Annotated[Identifier, IDENTIFIER]


@lazy_dataclass(frozen=True, slots=True)
class GetStreams:
    """Returns StreamInfo for every stream."""


@lazy_dataclass(frozen=True, slots=True)
class CreateStream:
    """``stream_id`` from 1, None for one that is free; the name is stored normalised (``validation.normalised``).

    Since 0.6.0 the response is StreamDetails.
    """

    stream_id: Annotated[int | None, U32, STREAM_ID]
    name: Annotated[str, name_to_end(Reason.INVALID_STREAM_NAME), STREAM_NAME]
    options: Mapping[str, Any] | None = None
    """Since 0.11."""


@lazy_dataclass(frozen=True, slots=True)
class DeleteStream:
    """The stream and all it holds."""

    stream: Annotated[Identifier, IDENTIFIER]


@lazy_dataclass(frozen=True, slots=True)
class GetTopic:
    """Returns TopicDetails."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]


@lazy_dataclass(frozen=True, slots=True)
class GetTopics:
    """Returns TopicInfo for every topic of the stream."""

    stream: Annotated[Identifier, IDENTIFIER]


@lazy_dataclass(frozen=True, slots=True)
class CreateTopic:
    """``topic_id`` from 1, None for one that is free, 0 to 100,000 partitions; the name is stored normalised.

    Later releases say how long messages are kept; since 0.6.0 the response is TopicDetails.
    """

    stream: Annotated[Identifier, IDENTIFIER]
    topic_id: Annotated[int | None, U32, TOPIC_ID]
    partitions_count: Annotated[int, U32, FIRST_PARTITIONS]
    name: Annotated[str, name_to_end(Reason.INVALID_TOPIC_NAME), TOPIC_NAME]
    expiry_us: int | None = None
    size_bytes_max: int | None = None
    """Bytes of all partitions together."""
    options: Mapping[str, Any] | None = None
    """Since 0.11, whose clients say by options alone how long messages are kept."""


@lazy_dataclass(frozen=True, slots=True)
class DeleteTopic:
    """The topic and all it holds."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]


@lazy_dataclass(frozen=True, slots=True)
class CreatePartitions:
    """1 to 100,000 more partitions, numbered on."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    partitions_count: Annotated[int, U32, MORE_PARTITIONS]


@lazy_dataclass(frozen=True, slots=True)
class DeletePartitions:
    """The highest-numbered partitions; more than there are deletes all."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    partitions_count: Annotated[int, U32, MORE_PARTITIONS]


@lazy_dataclass(frozen=True, slots=True)
class GetGroup:
    """Returns GroupDetails."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    group_id: Annotated[Identifier, U32, GROUP_ID]


@lazy_dataclass(frozen=True, slots=True)
class GetGroups:
    """Returns GroupInfo for every group of the topic."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]


@lazy_dataclass(frozen=True, slots=True)
class CreateGroup:
    """``group_id`` from 1, None for one that is free; groups have names since 0.0.90. Since 0.5.0: GroupDetails."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    group_id: Annotated[int | None, U32, GROUP_ID]
    name: str | None = None


@lazy_dataclass(frozen=True, slots=True)
class DeleteGroup:
    """The group, its memberships and its positions."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    group_id: Annotated[Identifier, U32, GROUP_ID]


@lazy_dataclass(frozen=True, slots=True)
class JoinGroup:
    """Become a member; twice is fine."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    group_id: Annotated[Identifier, U32, GROUP_ID]


@lazy_dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Cease to be a member; allowed for clients that are not members, too."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    group_id: Annotated[Identifier, U32, GROUP_ID]


Command = (
    Kill | Ping | Stats | Me | GetClient | GetClients | PollMessages | SendMessages | GetOffset | StoreOffset
    | GetStream | GetStreams | CreateStream | DeleteStream | GetTopic | GetTopics | CreateTopic | DeleteTopic
    | CreatePartitions | DeletePartitions | GetGroup | GetGroups | CreateGroup | DeleteGroup | JoinGroup | LeaveGroup
    | GetStates | SetStates | SetStatesWhere
)  # fmt: skip


ROWS: Final[Sequence[CommandSpec]] = (
    CommandSpec(0, "kill", Kill, NOTHING),
    CommandSpec(1, "ping", Ping, NOTHING),
    CommandSpec(10, "stats", Stats, record(StatsInfo)),
    CommandSpec(20, "me", Me, record(ClientDetails)),
    CommandSpec(21, "client.get", GetClient, record(ClientDetails)),
    CommandSpec(22, "client.list", GetClients, repeat_to_end(record(ClientInfo))),
    CommandSpec(100, "message.poll", PollMessages, record(PolledMessages)),
    CommandSpec(101, "message.send", SendMessages, NOTHING),
    CommandSpec(120, "consumer_offset.get", GetOffset, record(StoredOffset)),
    CommandSpec(121, "consumer_offset.store", StoreOffset, NOTHING),
    CommandSpec(200, "stream.get", GetStream, record(StreamDetails)),
    CommandSpec(201, "stream.list", GetStreams, repeat_to_end(record(StreamInfo))),
    CommandSpec(202, "stream.create", CreateStream, NOTHING),
    CommandSpec(203, "stream.delete", DeleteStream, NOTHING),
    CommandSpec(300, "topic.get", GetTopic, record(TopicDetails)),
    CommandSpec(301, "topic.list", GetTopics, repeat_to_end(record(TopicInfo))),
    CommandSpec(302, "topic.create", CreateTopic, NOTHING),
    CommandSpec(303, "topic.delete", DeleteTopic, NOTHING),
    CommandSpec(402, "partitions.create", CreatePartitions, NOTHING),
    CommandSpec(403, "partitions.delete", DeletePartitions, NOTHING),
    CommandSpec(600, "group.get", GetGroup, record(GroupDetails)),
    CommandSpec(601, "group.list", GetGroups, repeat_to_end(record(GroupInfo))),
    CommandSpec(602, "group.create", CreateGroup, NOTHING),
    CommandSpec(603, "group.delete", DeleteGroup, NOTHING),
    CommandSpec(604, "group.join", JoinGroup, NOTHING),
    CommandSpec(605, "group.leave", LeaveGroup, NOTHING),
    CommandSpec(OWN_CODES_FROM + 1, "states.get", GetStates, record(ListedStates)),
    CommandSpec(OWN_CODES_FROM + 2, "states.set", SetStates, record(StatesProgress)),
    CommandSpec(OWN_CODES_FROM + 3, "states.set_where", SetStatesWhere, record(StatesProgress)),
)

TABLE: Final = CommandTable(ROWS)
"""The commands of 0.0.40; those of other releases are made from these in ``releases.py``."""

ROW_BY_CODE: Final = TABLE.row_by_code
ROW_BY_REQUEST: Final = TABLE.row_by_request
parse_request: Final[Callable[[int, Bytes], Command]] = TABLE.parse_request
encode_request = TABLE.encode_request
encode_response = TABLE.encode_response
parse_response = TABLE.parse_response

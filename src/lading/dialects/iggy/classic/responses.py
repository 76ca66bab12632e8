"""Responses of Iggy classic: the entity blocks of iggy.md A3 and the bodies made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from ....model.errors import MalformedMessage
from ....model.lazy_dataclass import lazy_dataclass
from .permissions import SOME_PERMISSIONS, Permissions
from .primitives import F32, REST, SHORT_TEXT, TEXT, U8, U32, U64, Bytes, Codec, repeat_counted, repeat_to_end
from .records import record

TRANSPORT_TCP, TRANSPORT_QUIC, TRANSPORT_WEBSOCKET = 1, 2, 4
"""Values of ``ClientInfo.transport``."""


@lazy_dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream in a list, or at the head of its details."""

    id: Annotated[int, U32]
    topics_count: Annotated[int, U32]
    size_bytes: Annotated[int, U64]
    messages_count: Annotated[int, U64]
    name: Annotated[str, TEXT]
    created_us: int = 0


@lazy_dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic in a list, or at the head of its details."""

    id: Annotated[int, U32]
    partitions_count: Annotated[int, U32]
    size_bytes: Annotated[int, U64]
    messages_count: Annotated[int, U64]
    name: Annotated[str, TEXT]
    created_us: int = 0
    expiry_us: int | None = None
    size_bytes_max: int | None = None
    compression: int = 1
    """1 is uncompressed, 2 is gzip: clients set it, but nothing is compressed here."""
    options: Mapping[str, Any] | None = None
    """Options that were chosen, besides expiry and size; since 0.11."""


@lazy_dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition, repeat_counted from 1; ``current_offset`` is that of the last message, 0 without any."""

    id: Annotated[int, U32]
    segments_count: Annotated[int, U32]
    current_offset: Annotated[int, U64]
    size_bytes: Annotated[int, U64]
    messages_count: Annotated[int, U64]
    created_us: int = 0


@lazy_dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group; the partitions are those of its topic."""

    id: Annotated[int, U32]
    partitions_count: Annotated[int, U32]
    members_count: Annotated[int, U32]
    name: str = ""


@lazy_dataclass(frozen=True, slots=True)
class MemberInfo:
    """A member of a group, by client id, and the partitions it holds."""

    id: Annotated[int, U32]
    partitions: Annotated[Sequence[int], repeat_counted(U32)]


@lazy_dataclass(frozen=True, slots=True)
class ClientInfo:
    """A connection: its id is the CRC-32 of ``address``, which is ``ip:port`` of the peer."""

    id: Annotated[int, U32]
    transport: Annotated[int, U8]
    address: Annotated[str, TEXT]
    groups_count: Annotated[int, U32]
    user_id: int = 0
    """0: it has not logged in."""


@lazy_dataclass(frozen=True, slots=True)
class ConsumerGroupInfo:
    """A group that a client is in, in the order the server writes (the Rust client reads it reversed, iggy.md A3)."""

    group_id: Annotated[int, U32]
    topic_id: Annotated[int, U32]
    stream_id: Annotated[int, U32]


@lazy_dataclass(frozen=True, slots=True)
class StreamDetails:
    """A stream and its topics."""

    stream: Annotated[StreamInfo, record(StreamInfo)]
    topics: Annotated[Sequence[TopicInfo], repeat_to_end(record(TopicInfo))]


@lazy_dataclass(frozen=True, slots=True)
class TopicDetails:
    """A topic and its partitions."""

    topic: Annotated[TopicInfo, record(TopicInfo)]
    partitions: Annotated[Sequence[PartitionInfo], repeat_to_end(record(PartitionInfo))]


@lazy_dataclass(frozen=True, slots=True)
class GroupDetails:
    """A group and its members."""

    group: Annotated[GroupInfo, record(GroupInfo)]
    members: Annotated[Sequence[MemberInfo], repeat_to_end(record(MemberInfo))]


@lazy_dataclass(frozen=True, slots=True)
class ClientDetails:
    """A connection and the groups it is in."""

    client: Annotated[ClientInfo, record(ClientInfo)]
    groups: Annotated[Sequence[ConsumerGroupInfo], repeat_to_end(record(ConsumerGroupInfo))]


@lazy_dataclass(frozen=True, slots=True)
class StatsInfo:
    """The server at a glance: bytes for memory and sizes, seconds for run and start time, percent of a core for CPU."""

    process_id: Annotated[int, U32]
    cpu_usage: Annotated[float, F32]
    memory_usage: Annotated[int, U64]
    total_memory: Annotated[int, U64]
    available_memory: Annotated[int, U64]
    run_time: Annotated[int, U64]
    start_time: Annotated[int, U64]
    read_bytes: Annotated[int, U64]
    written_bytes: Annotated[int, U64]
    messages_size_bytes: Annotated[int, U64]
    streams_count: Annotated[int, U32]
    topics_count: Annotated[int, U32]
    partitions_count: Annotated[int, U32]
    segments_count: Annotated[int, U32]
    messages_count: Annotated[int, U64]
    clients_count: Annotated[int, U32]
    groups_count: Annotated[int, U32]
    hostname: Annotated[str, TEXT]
    os_name: Annotated[str, TEXT]
    os_version: Annotated[str, TEXT]
    kernel_version: Annotated[str, TEXT]
    total_cpu_usage: float = 0.0
    server_version: str = ""
    threads_count: int = 0
    free_disk_space: int = 0
    total_disk_space: int = 0
    kernel: str = ""
    """``kernel_version`` without the name and version of this broker, which it contains if no other field does."""


@lazy_dataclass(frozen=True, slots=True)
class StoredOffset:
    """The last consumed offset of a consumer or group, 0 also when nothing was stored."""

    consumer_id: Annotated[int, U32]
    offset: Annotated[int, U64]
    partition_id: int = 0
    current_offset: int = 0
    """The offset of the last message of the partition."""


@lazy_dataclass(frozen=True, slots=True)
class PolledMessages:
    """Number of messages, and their bytes one after the other, for the codec in ``messages``."""

    count: Annotated[int, U32]
    messages: Annotated[Bytes, REST]
    partition_id: int = 0
    current_offset: int = 0


@lazy_dataclass(frozen=True, slots=True)
class UserInfo:
    """A user; ``status`` 1 is active, 2 is not."""

    id: Annotated[int, U32]
    created_us: Annotated[int, U64]
    status: Annotated[int, U8]
    name: Annotated[str, SHORT_TEXT]


@lazy_dataclass(frozen=True, slots=True)
class UserDetails:
    """A user and what it may do; None is nothing."""

    user: Annotated[UserInfo, record(UserInfo)]
    permissions: Annotated[Permissions | None, SOME_PERMISSIONS] = None


@lazy_dataclass(frozen=True, slots=True)
class TokenInfo:
    """A personal access token; ``ends_us`` is a date, 0 for never."""

    name: Annotated[str, SHORT_TEXT]
    ends_us: Annotated[int, U64]


@lazy_dataclass(frozen=True, slots=True)
class RawToken:
    """A new token, which is returned once."""

    token: Annotated[str, SHORT_TEXT]


@lazy_dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node of a cluster; its ports are those for TCP, QUIC, HTTP and WebSocket, 0 if it does not listen there."""

    name: str
    host: str
    ports: tuple[int, int, int, int]


@lazy_dataclass(frozen=True, slots=True)
class ClusterInfo:
    """A cluster and its nodes, the first of which leads."""

    name: str
    nodes: Sequence[NodeInfo]


@lazy_dataclass(frozen=True, slots=True)
class IdentityInfo:
    """The user that has logged in."""

    user_id: Annotated[int, U32]


NOTHING: Codec[None] = Codec(lambda _data, at: (None, at), lambda _value: b"")
"""The body of every command that only succeeds or fails."""


def parse_whole(codec: Codec[Any], body: Bytes, what: str) -> Any:
    """Return the value that ``body`` encodes. Raises MalformedMessage if bytes are left over or missing."""
    data = memoryview(body)
    value, end = codec.read(data, 0)
    if end != len(data):
        raise MalformedMessage(f"{len(data) - end} bytes are left after {what}", at=end)
    return value

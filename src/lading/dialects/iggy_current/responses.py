"""The blocks that replies of the current Iggy are made of (iggy-current.md B3): plain facts in, bytes out.

Ids are the wire's, from 0; times are microseconds since 1970.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from ...model.lazy_dataclass import lazy_dataclass
from ..iggy_classic.permissions import SOME_PERMISSIONS, Permissions
from .operations import NAME
from .options import DESCRIBED_OPTIONS, TOPIC_OPTIONS, UNLIMITED, Option, OptionSpec, encode_options, option_flags
from .versions import ProtocolVersion

U32: Final = struct.Struct("<I")
U64: Final = struct.Struct("<Q")
_RESULT = struct.Struct("<III")
_STREAM = struct.Struct("<IQIQQ")
_TOPIC = struct.Struct("<IQIQBQQQ")
_LATER_TOPIC = struct.Struct("<IQIQQ")
_PARTITION = struct.Struct("<IQIQQQ")
_GROUP = struct.Struct("<III")
_PLACE = struct.Struct("<IIIIQ")
_OFFSET = struct.Struct("<IQQ")
_LOGIN = struct.Struct("<IQI")
_STATS = struct.Struct("<IffQQQQQQQQIIIIQII")
_DISK = struct.Struct("<IQQ")
_ROUTE = struct.Struct("<QQIIB")
_CONTEXT = struct.Struct("<QQQ")
_SECTION = struct.Struct("<IIQI")
_SECTION_END = struct.Struct("<QI")
POLLED: Final = struct.Struct("<IQI")
"""Head of polled batches: partition, its last offset, and how many messages."""

OK: Final = U32.pack(0)
"""A result section that says that all went well; a payload follows."""

LEADER, HEALTHY = 0, 0
NODE: Final = 0
"""The number of the one node of a cluster."""
TRANSPORT_TCP, TRANSPORT_QUIC, TRANSPORT_WEBSOCKET = 1, 2, 4


def rejection(code: int) -> bytes:
    """Encode a result section that refuses with this error code."""
    return _RESULT.pack(1, 0, code)


def text(value: str) -> bytes:
    """Encode text as ``[len u32][utf8]``."""
    raw = value.encode()
    return U32.pack(len(raw)) + raw


def prefix_size(block: bytes) -> bytes:
    """Encode a block with its size before it: ``[len u32][block]``."""
    return U32.pack(len(block)) + block


def context_block(incarnation: int) -> bytes:
    """Encode the history of a partition: no owner of a group counts here, and no change of topics is waited for."""
    return _CONTEXT.pack(incarnation, 0, 0)


def route_block(incarnation: int, partitions_count: int) -> bytes:
    """Encode the way to a partition: it leads to the one node there is."""
    return _ROUTE.pack(incarnation, 0, 0, partitions_count, NODE)


def section_block(
    partition: int, status: int, last_offset: int, messages_count: int, incarnation: int, next_offset: int, size: int
) -> bytes:
    """Encode a line of the table before fetched messages; ``size`` is how many bytes of them are this partition's."""
    head = _SECTION.pack(partition, status, last_offset, messages_count)
    return head + context_block(incarnation) + _SECTION_END.pack(next_offset, size)


def login_block(user_id: int, session: int, version: int, server: str) -> bytes:
    """Encode the response to a login."""
    return _LOGIN.pack(user_id, session, version) + NAME.write(server)


UNCOMPRESSED, GZIP = 1, 2
"""Compression of a topic as clients name it; nothing is compressed here."""


@lazy_dataclass(frozen=True, slots=True)
class StreamFacts:
    """A stream and what it holds."""

    id: int
    created_us: int
    topics_count: int
    size_bytes: int
    messages_count: int
    name: str


def no_options_block(version: ProtocolVersion) -> bytes:
    """Encode that a stream or a user has no options: neither its own nor, where they are told, derived ones."""
    return prefix_size(b"") * (2 if version.derives_options else 1)


def stream_block(facts: StreamFacts, version: ProtocolVersion) -> bytes:
    """Encode a stream as it stands in a list, or at the head of its details."""
    numbers = facts.id, facts.created_us, facts.topics_count, facts.size_bytes, facts.messages_count
    return _STREAM.pack(*numbers) + NAME.write(facts.name) + no_options_block(version)


@lazy_dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic and what it holds; None is no bound."""

    id: int
    created_us: int
    partitions_count: int
    expiry_us: int | None
    max_bytes: int | None
    size_bytes: int
    messages_count: int
    name: str
    options: Mapping[str, Option]
    """Those that were chosen."""


def topic_block(facts: TopicFacts, version: ProtocolVersion) -> bytes:
    """Encode a topic as it stands in a list, or at the head of its details.

    Its own options come first, then those that it leaves at their defaults.
    """
    if version.derives_options:
        counts = facts.id, facts.created_us, facts.partitions_count, facts.size_bytes, facts.messages_count
        options = _topic_options({**facts.options, **_bounds(facts)})
        return _LATER_TOPIC.pack(*counts) + NAME.write(facts.name) + options
    bounds = (UNLIMITED if bound is None else bound for bound in (facts.expiry_us, facts.max_bytes))
    expiry, max_bytes = bounds
    algorithm = facts.options.get("compression_algorithm")
    compression = GZIP if algorithm is not None and algorithm.value.lower() == b"gzip" else UNCOMPRESSED
    numbers = (
        facts.id, facts.created_us, facts.partitions_count, expiry, compression, max_bytes, facts.size_bytes,
        facts.messages_count,
    )  # fmt: skip
    return _TOPIC.pack(*numbers) + NAME.write(facts.name) + _topic_options(facts.options)


def _bounds(facts: TopicFacts) -> dict[str, Option]:
    """Return the bounds of a topic that has some as options."""
    bounds = {"message_expiry": facts.expiry_us, "max_topic_size": facts.max_bytes}
    return {key: Option(TOPIC_OPTIONS[key].kind, U64.pack(bound)) for key, bound in bounds.items() if bound is not None}


def _topic_options(own: Mapping[str, Option]) -> bytes:
    rest = sorted(DESCRIBED_OPTIONS.keys() - own.keys())
    derived = {key: Option(TOPIC_OPTIONS[key].kind, TOPIC_OPTIONS[key].default) for key in rest}
    return prefix_size(encode_options(own)) + prefix_size(encode_options(derived))


def partition_block(
    version: ProtocolVersion,
    number: int,
    created_us: int,
    segments_count: int,
    last_offset: int,
    size_bytes: int,
    messages_count: int,
) -> bytes:
    """Encode a partition; ``number`` counts from 0."""
    block = _PARTITION.pack(number, created_us, segments_count, last_offset, size_bytes, messages_count)
    if version.has_contexts:
        block += context_block(created_us)
    # one node has it, and it is in step with itself
    return block + (bytes((1, NODE, 1, NODE)) if version.lists_members else b"")


def group_block(ident: int, partitions_count: int, members_count: int, name: str) -> bytes:
    """Encode a consumer group as it stands in a list, or at the head of its details."""
    return _GROUP.pack(ident, partitions_count, members_count) + NAME.write(name)


def numbers_block(numbers: Sequence[int]) -> bytes:
    """Encode numbers as ``[count u32]`` and as many u32."""
    return struct.pack(f"<{1 + len(numbers)}I", len(numbers), *numbers)


def offset_block(partition: int, last_offset: int, offset: int) -> bytes:
    """Encode a stored offset beside the last offset of its partition."""
    return _OFFSET.pack(partition, last_offset, offset)


def place_block(stream: int, topic: int, partition: int, base_offset: int) -> bytes:
    """Encode the place of a send's one batch."""
    return _PLACE.pack(1, stream, topic, partition, base_offset)


def client_block(ident: int, user_id: int, transport: int, address: str, groups_count: int) -> bytes:
    """Encode a connection."""
    return U32.pack(ident) + U32.pack(user_id) + bytes((transport,)) + text(address) + U32.pack(groups_count)


def user_block(ident: int, created_us: int, status: int, name: str, version: ProtocolVersion) -> bytes:
    """Encode a user."""
    head = U32.pack(ident) + U64.pack(created_us) + bytes((status,))
    return head + NAME.write(name) + no_options_block(version)


def permissions_block(permissions: Permissions | None) -> bytes:
    """Encode the permissions that follow a user: four zero bytes for None."""
    return U32.pack(0) if permissions is None else SOME_PERMISSIONS.write(permissions)


def token_block(name: str, ends_us: int) -> bytes:
    """Encode a personal access token as it stands in a list; an ``ends_us`` of 0 means that it does not expire."""
    return NAME.write(name) + U64.pack(ends_us)


def cluster_block(version: ProtocolVersion, name: str, host: str, ports: Sequence[int]) -> bytes:
    """Encode a cluster of one healthy leader with these ports for TCP, QUIC, HTTP and WebSocket.

    A port is 0 if the server does not listen there.
    """
    node = text(name) + text(host) + struct.pack("<4H", *ports) + bytes((LEADER, HEALTHY))
    if version.has_contexts:
        node = bytes((NODE,)) + node
    return text("single-node") + U32.pack(1) + node


def describe_block(version: ProtocolVersion, options: Mapping[str, OptionSpec]) -> bytes:
    """Encode the options that exist, with their defaults and a sentence about each."""
    rows = [
        NAME.write(key)
        + (bytes((spec.kind, option_flags(key))) if version.derives_options else bytes((spec.kind,)))
        + prefix_size(spec.default)
        + text(spec.description)
        for key, spec in options.items()
    ]
    return U32.pack(len(rows)) + b"".join(rows)


def stats_block(numbers: Sequence[float], texts: Sequence[str], version: int, disk: tuple[int, int, int]) -> bytes:
    """Encode the server's statistics: 18 numbers, 5 texts, its packed version, no cache figures, threads and disk."""
    return _STATS.pack(*numbers) + b"".join(map(text, texts)) + U32.pack(version) + U32.pack(0) + _DISK.pack(*disk)

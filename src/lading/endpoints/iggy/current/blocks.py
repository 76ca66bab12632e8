"""Streams, topics and groups of the broker as blocks of replies, with the ids that clients know."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from ....dialects.iggy_current import responses
from ....dialects.iggy_current.responses import StreamFacts, TopicFacts
from ....model.errors import Reason, Refusal
from ...base.sizes import MeasuredStream, MeasuredTopic
from ..topic_bounds import find_bound
from .caller import to_wire
from .topic_options import find_options

if TYPE_CHECKING:
    from ....broker.core.topology import Stream
    from ....broker.iggy.groups import IggyGroup
    from ....dialects.iggy_current.versions import ProtocolVersion

Outcome = bytes | Awaitable[bytes]
"""The body of a reply, or what is awaited for it."""
NOTHING: Final = b""
"""Responses to requests for what does not exist, and to those that succeeded without a result."""


_NOT_FOUND: Final = frozenset({
    Reason.STREAM_ID_NOT_FOUND, Reason.STREAM_NAME_NOT_FOUND, Reason.TOPIC_ID_NOT_FOUND, Reason.TOPIC_NAME_NOT_FOUND,
    Reason.GROUP_NOT_FOUND,
})  # fmt: skip


def nothing_if_missing(refusal: Refusal, *others: Reason) -> bytes:
    """Return the empty body for a refusal of something that does not exist; raise any other."""
    if refusal.reason in _NOT_FOUND or refusal.reason in others:
        return NOTHING
    raise refusal


def describe_stream(version: ProtocolVersion, stream: Stream, size: MeasuredStream) -> bytes:
    """Return a stream in a list, or at the head of its details."""
    facts = StreamFacts(
        to_wire(stream.id), stream.created_us, len(size.topics), size.size_bytes, size.messages_count, stream.name
    )
    return responses.stream_block(facts, version)


def describe_topic(version: ProtocolVersion, one: MeasuredTopic) -> bytes:
    """Return a topic in a list, or at the head of its details."""
    topic = one.topic
    facts = TopicFacts(
        to_wire(topic.id),
        topic.created_us,
        one.partitions_count,
        topic.settings.retention_age_us,
        find_bound(topic.settings, one.partitions_count),
        one.size_bytes,
        one.messages_count,
        topic.name,
        find_options(topic.settings),
    )
    return responses.topic_block(facts, version)


def describe_topic_with_partitions(version: ProtocolVersion, one: MeasuredTopic) -> bytes:
    """Return a topic and its partitions."""
    parts = [describe_topic(version, one)]
    for partition in one.topic.partitions:
        log = partition.log
        parts.append(
            responses.partition_block(
                version,
                partition.number,
                one.topic.created_us,
                log.segments_count,
                max(log.next_offset - 1, 0),
                log.size_bytes,
                partition.messages_count,
            )
        )
    return b"".join(parts)


def describe_group(group: IggyGroup) -> bytes:
    """Return a group in a list, or at the head of its details."""
    return responses.group_block(to_wire(group.id), len(group.topic.partitions), len(group.members), group.name)

"""Streams, topics, partitions and groups as Iggy's responses show them, and the settings of new topics by its
clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...broker.core.settings import TopicSettings
from ...dialects.iggy.classic import commands as c
from ...dialects.iggy.classic import responses as r
from ...dialects.iggy.classic.later_commands import UpdateTopic
from ..base.sizes import MeasuredStream, MeasuredTopic
from .topic_bounds import RETENTION_MAX, divide_bound, find_bound
from .topic_options import find_compression, find_options, merge_options, refuse_lasting_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...broker.core.topology import Partition, Stream, Topic
    from ...broker.iggy.groups import IggyGroup, IggyGroupMember


def describe_stream(stream: Stream, size: MeasuredStream) -> r.StreamInfo:
    """Return the entry of a stream in a list of streams."""
    return r.StreamInfo(
        stream.id, len(size.topics), size.size_bytes, size.messages_count, stream.name, stream.created_us
    )


def describe_topic(one: MeasuredTopic) -> r.TopicInfo:
    """Return the entry of a topic in a list of topics; its size bound is that of all partitions together."""
    topic = one.topic
    options = find_options(topic.settings)
    return r.TopicInfo(
        topic.id,
        one.partitions_count,
        one.size_bytes,
        one.messages_count,
        topic.name,
        topic.created_us,
        topic.settings.retention_age_us,
        find_bound(topic.settings, one.partitions_count),
        find_compression(options),
        options,
    )


def describe_partition(partition: Partition) -> r.PartitionInfo:
    """Return the entry of a partition in the details of its topic."""
    log = partition.log
    return r.PartitionInfo(
        partition.number + 1,
        log.segments_count,
        max(log.next_offset - 1, 0),
        log.size_bytes,
        partition.messages_count,
        partition.topic.created_us,
    )


def describe_group(group: IggyGroup, members_count: int) -> r.GroupInfo:
    """Return the entry of a group in a list of groups."""
    return r.GroupInfo(group.id, len(group.topic.partitions), members_count, group.name)


def describe_group_with_members(group: IggyGroup, members: Sequence[IggyGroupMember]) -> r.GroupDetails:
    """Return the details of a group, with its members and their partitions."""
    rows = [r.MemberInfo(member.id, [number + 1 for number in member.partitions]) for member in members]
    return r.GroupDetails(describe_group(group, len(members)), rows)


def change_settings(topic: Topic, command: UpdateTopic, segment_bytes: int) -> TopicSettings:
    """Return the settings of a topic with the retention that an update requests; see ``settings_of``."""
    if command.options is not None:
        refuse_lasting_options(command.options)
        return merge_options(topic.settings, command.options, len(topic.partitions), segment_bytes)
    return topic.settings.merge(_bounds_of(command, len(topic.partitions), topic.settings))


def settings_of(command: c.CreateTopic, segment_bytes: int) -> TopicSettings:
    """Return the retention that the creator of a topic asks for; omitted values are those of the broker's settings.

    Iggy bounds a topic, Lading each partition: the bytes are divided among them. ``segment_bytes`` is the smallest
    bound that a topic with options may have.
    """
    if command.options is not None:
        return merge_options(TopicSettings(), command.options, command.partitions_count, segment_bytes)
    return TopicSettings(**_bounds_of(command, command.partitions_count, TopicSettings()))


def _bounds_of(command: c.CreateTopic | UpdateTopic, partitions_count: int, before: TopicSettings) -> dict[str, Any]:
    return {
        "retention_age_us": command.expiry_us and min(command.expiry_us, RETENTION_MAX),
        **divide_bound(command.size_bytes_max, partitions_count, before.inert_configs),
    }

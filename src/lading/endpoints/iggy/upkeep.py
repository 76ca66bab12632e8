"""Changes to streams and topics that exist, by clients of every release: empty, rename and alter them."""

from __future__ import annotations

from collections.abc import Awaitable
from itertools import islice
from typing import TYPE_CHECKING

from ...broker.core.upkeep.record_deletion import delete_before

if TYPE_CHECKING:
    from ...broker.core.change import Change
    from ...broker.core.settings import TopicSettings
    from ...broker.core.topology import Partition, Stream, Topic
    from ..base.services import Services


def rename_stream(services: Services, stream: Stream, name: str) -> Awaitable[None]:
    """Give a stream the name that a client wants."""
    broker = services.broker
    return services.changes.make_in_turn(stream, broker.renames.rename_stream(stream, name), broker.access)


def update_topic(services: Services, topic: Topic, name: str, settings: TopicSettings) -> Awaitable[None]:
    """Give a topic the name and the settings that a client wants."""
    broker = services.broker
    if name == topic.name:
        return services.changes.make_in_turn(topic, broker.changes.alter_topic(topic, settings))

    def change() -> Change[None]:
        yield from broker.renames.rename_topic(topic, name)
        yield from broker.changes.alter_topic(topic, settings)

    return services.changes.make_in_turn(topic, change(), broker.access)


def purge_topic(topic: Topic) -> None:
    """Delete all messages that can be seen; offsets go on, so that no stored one points at another message."""
    for partition in topic.partitions:
        delete_before(partition, partition.log.last_stable_offset)


def purge_stream(stream: Stream) -> None:
    """Purge all topics of a stream."""
    for topic in list(stream.topics.values()):
        purge_topic(topic)


def delete_segments(partition: Partition, count: int) -> None:
    """Delete the ``count`` oldest segments of a partition, or fewer: never the one that is written to."""
    closed = partition.log.segments()[:-1]
    end = max((segment.end_offset for segment in islice(closed, count)), default=0)
    # what is not decided yet stays, as with every other deletion
    delete_before(partition, min(end, partition.log.last_stable_offset))

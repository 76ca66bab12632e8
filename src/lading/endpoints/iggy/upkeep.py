"""Changes to streams and topics that exist, by clients of every generation: empty them, and not rename them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ...broker.core.record_deletion import delete_before
from ...dialects.iggy_classic import later_commands as later
from ...dialects.iggy_classic.validation import normalise_name
from ...model.errors import Reason, Refusal
from .poll import consumer_of

if TYPE_CHECKING:
    from ...broker.broker import Broker
    from ...broker.core.topology import Partition, Stream, Topic


def refuse_new_name(name: str, wanted: str) -> None:
    """Raise a Refusal if a stream or topic is to be called otherwise."""
    if wanted != name:
        raise Refusal(
            Reason.FEATURE_UNAVAILABLE, f"{name!r} cannot be called {wanted!r}: streams and topics keep their names"
        )


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


def _update_stream(broker: Broker, command: later.UpdateStream) -> None:
    refuse_new_name(broker.topology.stream(command.stream).name, normalise_name(command.name))


def _purge_stream(broker: Broker, command: later.PurgeStream) -> None:
    purge_stream(broker.topology.stream(command.stream))


def _purge_topic(broker: Broker, command: later.PurgeTopic) -> None:
    purge_topic(broker.topology.topic(command.stream, command.topic))


def _delete_segments(broker: Broker, command: later.DeleteSegments) -> None:
    topic = broker.topology.topic(command.stream, command.topic)
    delete_segments(topic.partition(command.partition_id - 1), command.segments_count)


def _delete_offset(broker: Broker, command: later.DeleteOffset) -> None:
    topic = broker.topology.topic(command.stream, command.topic)
    consumer = consumer_of(command.consumer, topic, broker.groups)
    if not broker.poller.delete_position(topic, consumer, command.partition_id - 1):
        raise Refusal(Reason.OFFSET_NOT_FOUND, "nothing is stored for this consumer")


UPKEEP_HANDLERS: Final[Mapping[type[Any], Callable[[Broker, Any], None]]] = {
    later.UpdateStream: _update_stream,
    later.PurgeStream: _purge_stream,
    later.PurgeTopic: _purge_topic,
    later.DeleteSegments: _delete_segments,
    later.DeleteOffset: _delete_offset,
}
"""Handlers of those commands of the classic releases that do not wait for the disk."""

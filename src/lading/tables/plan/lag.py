"""The lag of a reader by topic: what it has not read yet, in messages, bytes and time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from ...model.errors import LadingError
from ...model.scan_request import ScanRequest
from ...transports.interface import TopicMeta, Transport
from .offsets import OffsetsDocument, PartitionOffsets, parse_document
from .planning import bytes_per_row
from .source_planner import SourcePlanner

PARTITIONS_ASKED_MAX: Final = 16
"""At most this many partitions are asked for the time of their first unread message, those with most messages first."""
LOOK_BYTES: Final = 1


class TopicLag(NamedTuple):
    """The lag in one topic.

    ``size_bytes`` is estimated from the topic's average message, None if the server does not report sizes. ``seconds``
    is the age of the oldest waiting message in the partitions that were asked; 0 if nothing waits, None if unknown.
    """

    messages: int
    size_bytes: int | None
    seconds: float | None
    source: str = ""
    """The topic for people: ``lading://127.0.0.1:7070 flights (3 partitions)``."""

    def document(self) -> dict[str, Any]:
        """Return the lag as JSON."""
        return {"messages": self.messages, "bytes": self.size_bytes, "seconds": self.seconds, "source": self.source}


def measure_lag(source: SourcePlanner, positions: OffsetsDocument, now_us: int) -> dict[str, TopicLag]:
    """Return the lag of a reader at ``positions``, by topic; a topic without positions waits from its beginning."""
    waiting: dict[tuple[str, int], tuple[int, int]] = {}
    metas: dict[str, TopicMeta] = {}
    for topic, planner in source.look_at_topics().items():
        metas[topic] = meta = planner.topic()
        done: PartitionOffsets = parse_document(topic, positions) if topic in positions else {}
        for part in meta.partitions:
            mark = done.get(part.number)
            offset = part.first_offset if mark is None else max(mark.offset, part.first_offset)
            if offset < part.end_offset:
                waiting[topic, part.number] = offset, part.end_offset - offset
    times_us = _read_times(source.transport, waiting)
    server = source.transport.url.partition("?")[0]
    return {topic: _of_topic(meta, server, waiting, times_us, now_us) for topic, meta in metas.items()}


def _of_topic(
    meta: TopicMeta,
    server: str,
    waiting: Mapping[tuple[str, int], tuple[int, int]],
    times_us: Mapping[tuple[str, int], int],
    now_us: int,
) -> TopicLag:
    messages = sum(count for (topic, _), (_, count) in waiting.items() if topic == meta.name)
    count = len(meta.partitions)
    described = f"{server} {meta.name} ({count} partition{'s' * (count != 1)})"
    if not messages:
        return TopicLag(0, 0, 0.0, described)
    size_bytes = bytes_per_row([meta])
    oldest_us = min((time_us for (topic, _), time_us in times_us.items() if topic == meta.name), default=None)
    return TopicLag(
        messages,
        None if size_bytes is None else round(messages * size_bytes),
        None if oldest_us is None else round(max(0, now_us - oldest_us) / 1e6, 3),
        described,
    )


def _read_times(transport: Transport, waiting: Mapping[tuple[str, int], tuple[int, int]]) -> dict[tuple[str, int], int]:
    """Return the time of the first message that waits, of the partitions with most of them; errors leave it out."""
    found: dict[tuple[str, int], int] = {}
    most = sorted(waiting, key=lambda place: -waiting[place][1])[:PARTITIONS_ASKED_MAX]
    for topic, partition in most:
        offset = waiting[topic, partition][0]
        with suppress(LadingError, OSError):
            fetched = transport.fetch(topic, partition, offset, max_bytes=LOOK_BYTES)
            for decoded in fetched.decode(ScanRequest(offset, fields=frozenset({"timestamp"})), states="all"):
                if decoded.count:
                    found[topic, partition] = decoded.columns["timestamp"][0].value
                    break
    return found

"""Offsets from the leaders of partitions: by time, the end of the log, and the end of an earlier leader's part.

An epoch is the time of one leader (KIP-320). Kafka counts epochs from 0; here 0 means that none is known, so all are
one higher than Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ...dialects.kafka import errors
from ...dialects.kafka.commands import READ_COMMITTED
from .cluster import KafkaCluster, raise_for_code
from .socket import KafkaSocket

T = TypeVar("T")
Place = tuple[str, int]
"""Topic and partition."""


class OffsetAndEpoch(NamedTuple):
    """An offset, -1 for none, and the epoch that came with it."""

    offset: int
    epoch: int


def list_offsets(cluster: KafkaCluster, places: Iterable[Place], timestamp_ms: int) -> dict[Place, OffsetAndEpoch]:
    """Return the result of ListOffsets for each partition among committed messages; also takes EARLIEST and LATEST."""

    def ask(broker: KafkaSocket, asked: Sequence[Place]) -> list[tuple[Place, int, OffsetAndEpoch]]:
        part = {"current_leader_epoch": -1, "timestamp": timestamp_ms}
        topics = _by_topic(asked, "name", lambda place: {"partition_index": place[1], **part})
        answer = broker.ask("ListOffsets", replica_id=-1, isolation_level=READ_COMMITTED, topics=topics)
        return [
            (
                (row.name, part.partition_index),
                part.error_code,
                OffsetAndEpoch(part.offset, to_epoch(part.leader_epoch)),
            )
            for row in answer.topics
            for part in row.partitions
        ]

    return _at_leaders(cluster, places, ask)


def epoch_ends(cluster: KafkaCluster, epochs: Mapping[Place, int]) -> dict[Place, int]:
    """Return from the leaders the end of the log that was written under these epochs, by partition.

    The end is 0 if a log does not know the epoch. Epochs that are 0 or that a broker cannot look up are left out.
    """

    def ask(broker: KafkaSocket, asked: Sequence[Place]) -> list[tuple[Place, int, int | None]]:
        if not broker.speaks("OffsetForLeaderEpoch"):
            return [(place, 0, None) for place in asked]

        def row(place: Place) -> dict[str, Any]:
            now = cluster.leader_epoch(*place)
            return {"partition": place[1], "current_leader_epoch": now, "leader_epoch": epochs[place] - 1}

        answer = broker.ask("OffsetForLeaderEpoch", replica_id=-1, topics=_by_topic(asked, "topic", row))
        return [
            ((row.topic, part.partition), part.error_code, max(part.end_offset, 0))
            for row in answer.topics
            for part in row.partitions
        ]

    ends = _at_leaders(cluster, [place for place, epoch in epochs.items() if epoch > 0], ask)
    return {place: end for place, end in ends.items() if end is not None}


def to_epoch(epoch: int | None) -> int:
    """Return an epoch of Kafka (-1: none) as Lading counts it (0: none)."""
    return 0 if epoch is None else max(epoch, -1) + 1


def _by_topic(
    places: Iterable[Place], called: str, row: Callable[[Place], Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    topics: dict[str, list[Any]] = {}
    for place in places:
        topics.setdefault(place[0], []).append(row(place))
    return [{called: name, "partitions": parts} for name, parts in topics.items()]


def _at_leaders(
    cluster: KafkaCluster,
    places: Iterable[Place],
    ask: Callable[[KafkaSocket, Sequence[Place]], Collection[tuple[Place, int, T]]],
) -> dict[Place, T]:
    """Yield (place, error code, response) of the leaders, each for its partitions; repeated while leaders move."""
    left = set(places)
    found: dict[Place, T] = {}

    def once() -> dict[Place, T]:
        by_leader: dict[KafkaSocket, list[Place]] = {}
        for place in sorted(left):
            by_leader.setdefault(cluster.leader(*place), []).append(place)
        for broker, asked in by_leader.items():
            try:
                answers = ask(broker, asked)
            except OSError:
                broker.close()
                for name, _ in asked:
                    cluster.forget(name)
                raise
            for place, code, value in answers:
                if code in errors.RETRIABLE:
                    cluster.forget(place[0])
                raise_for_code(f"topic {place[0]!r}, partition {place[1]}", code)
                found[place] = value
                left.discard(place)
        return found

    return cluster.retry(once) if left else found

"""Reading one partition of a Kafka cluster: the leader's batches as chunks, truncation, and losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...dialects.kafka import errors, layout
from ...dialects.kafka.commands import FetchResponse
from ...dialects.kafka.messages import CODE, Batches, read_batches, visible
from ...model.chunk_table import (
    BASE_OFFSET,
    BODY_END,
    BODY_START,
    COUNT,
    LAST_OFFSET,
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
)
from ...model.errors import ChecksumMismatch, CorruptError, DataLoss
from ...model.run import Run
from ..fetched import FetchResult
from .cluster import KafkaCluster, Retriable, raise_for_code
from .offsets import Place, epoch_ends, to_epoch
from .socket import KafkaSocket
from .topics import KafkaTopics

if TYPE_CHECKING:
    from numpy.typing import NDArray


class KafkaReader:
    """Fetches of all partitions, with the offset that each was read up to, and under which leader."""

    def __init__(self, cluster: KafkaCluster, topics: KafkaTopics, url: str) -> None:
        self._cluster = cluster
        self._topics = topics
        self._url = url
        self._reached: dict[Place, _ReadPosition] = {}

    def fetch(self, topic: str, partition: int, offset: int, max_bytes: int, wait_ms: int) -> FetchResult:
        """Return committed batches from ``offset`` on; see KafkaTransport.fetch."""
        if topic not in self._topics.ids:
            self._topics.look_up(topic)
        place = (topic, partition)
        try:
            answer, data = self._fetch_from_leader(place, offset, max_bytes, wait_ms)
            if answer.error in errors.OTHER_TOPIC:
                # the caller decides about it, because it knows the topic that it began with
                self._reached.pop(place, None)
                return FetchResult(topic, partition, [], offset, topic_id=self._topics.ids.get(topic))
            since = offset
            if answer.error == errors.OFFSET_OUT_OF_RANGE:
                since = self._first_above(place, offset)
                answer, data = self._fetch_from_leader(place, since, max_bytes, wait_ms)
            found = _read_response(answer, data, place, since)
            if not len(found.table) and found.reason:
                answer, data = self._fetch_from_leader(place, since, max_bytes, wait_ms)
                found = _read_response(answer, data, place, since)
                if not len(found.table) and found.reason:
                    raise _unreadable_error(found.reason, topic, partition, since)
        except _CutBack as cut:
            epochs = ((max(to_epoch(self._cluster.leader_epoch(*place)), cut.epoch + 1), cut.end),)
            return FetchResult(
                topic, partition, [], offset, epoch=cut.epoch, epochs=epochs, topic_id=self._topics.ids.get(topic)
            )
        end = offset
        if len(found.table):
            end = int(found.table[-1, layout.LAST]) + 1
            epoch_at = int(found.table[-1, layout.START]) + layout.EPOCH_AT
            epoch = int.from_bytes(data[epoch_at : epoch_at + 4].tobytes(), "big", signed=True)
            self._reached[place] = _ReadPosition(end, to_epoch(epoch), self._cluster.leader_epoch(*place))
        chunks = _to_chunks(found.table, visible(found.table, answer.aborted), since)
        runs = [Run(CODE, data, chunks)] if len(chunks) else []
        reached = self._reached.get(place)
        return FetchResult(
            topic, partition, runs, end, answer.first_offset, answer.last_stable_offset,
            topic_id=self._topics.ids.get(topic),
            epoch=0 if reached is None else reached.epoch,
        )  # fmt: skip

    def _fetch_from_leader(
        self, place: Place, offset: int, max_bytes: int, wait_ms: int
    ) -> tuple[FetchResponse, NDArray[np.uint8]]:
        """Return the leader's response. Raises _CutBack if the leader took over without messages that were read before
        ``offset``.
        """
        topic, partition = place

        def ask(broker: KafkaSocket) -> tuple[FetchResponse, NDArray[np.uint8]] | None:
            epoch = self._cluster.leader_epoch(topic, partition)
            reached = self._reached.get(place)
            if reached is not None and reached.leader_epoch != epoch and offset <= reached.offset:
                return None
            topic_id = self._topics.ids.get(topic)
            how: Any = {"topic_id": topic_id, "leader_epoch": epoch, "max_bytes": max_bytes, "wait_ms": wait_ms}
            broker.send_fetch(topic, partition, offset, **how)
            answer, data = broker.receive_fetch(wait_ms)
            if answer.error in errors.OTHER_TOPIC and self._topics.look_up(topic).topic_id != topic_id:
                return answer, data
            is_empty = not answer.error and answer.last_stable_offset < 0
            code = errors.THROTTLING_QUOTA_EXCEEDED if is_empty and answer.throttle_ms > 0 else answer.error
            if code in errors.RETRIABLE:
                raise_for_code(f"topic {topic!r}, partition {partition}", code)
            return answer, data

        while (found := self._cluster.at_leader(topic, partition, ask)) is None:
            reached = self._reached.pop(place)
            end = epoch_ends(self._cluster, {place: reached.epoch}).get(place, offset)
            if offset > end:
                raise _CutBack(reached.epoch, end)
            self._reached[place] = reached._replace(leader_epoch=self._cluster.leader_epoch(topic, partition))
        return found

    def _first_above(self, place: Place, offset: int) -> int:
        """Return the first kept offset if it is above a missing one. Raises DataLoss if it is not."""
        topic, partition = place
        part = self._topics.look_up(topic).partitions[partition]
        if offset >= part.first_offset:
            raise DataLoss(
                f"topic {topic!r}, partition {partition} at {self._url} has no offset {offset}: offsets "
                f"{part.first_offset} to {part.end_offset - 1} exist; was the topic created again, or truncated?"
            )
        return part.first_offset


class _ReadPosition(NamedTuple):
    """Position in a partition: the next offset, the epoch of the last batch, and Kafka's of its leader then."""

    offset: int
    epoch: int
    leader_epoch: int


class _CutBack(Exception):
    """Truncation: messages that were read under an epoch end at ``end`` in the log of the new leader."""

    def __init__(self, epoch: int, end: int) -> None:
        super().__init__(epoch, end)
        self.epoch, self.end = epoch, end


def _read_response(answer: FetchResponse, data: NDArray[np.uint8], place: Place, since: int) -> Batches:
    raise_for_fetch_error(answer, *place)
    return read_batches(data, answer.start, answer.end, first=since)


def raise_for_fetch_error(answer: FetchResponse, topic: str, partition: int) -> None:
    """Raise an error that names the place unless the broker responded with batches."""
    try:
        raise_for_code(f"topic {topic!r}, partition {partition} cannot be read", answer.error)
    except Retriable as refused:
        raise refused.error from None


def _unreadable_error(reason: int, topic: str, partition: int, offset: int) -> CorruptError:
    where = f"topic {topic!r}, partition {partition}, offset {offset}"
    sentence = f"{where}: the record batch {layout.REASONS[reason]}"
    if reason == layout.BAD_CRC:
        return ChecksumMismatch(f"{sentence}, also when requested once more; to continue, read after it")
    return CorruptError(sentence)


def _to_chunks(table: NDArray[np.int64], seen: NDArray[np.bool_], since: int) -> NDArray[np.int64]:
    """Return the visible batches as chunks of a Run, each beginning at the end of the one before."""
    kept = table[seen]
    chunks = np.zeros((len(kept), 8), np.int64)
    chunks[:, BODY_START], chunks[:, BODY_END] = kept[:, layout.START], kept[:, layout.END]
    chunks[:, LAST_OFFSET], chunks[:, COUNT] = kept[:, layout.LAST], kept[:, layout.COUNT]
    if len(kept):
        chunks[0, BASE_OFFSET] = min(since, int(kept[0, layout.BASE]))
        chunks[1:, BASE_OFFSET] = kept[:-1, layout.LAST] + 1
    chunks[:, MIN_TIMESTAMP_US] = np.clip(kept[:, layout.BASE_TIME_MS], 0, layout.TIME_MS_MAX) * 1000
    chunks[:, MAX_TIMESTAMP_US] = np.clip(kept[:, layout.MAX_TIME_MS], 0, layout.TIME_MS_MAX) * 1000
    return chunks

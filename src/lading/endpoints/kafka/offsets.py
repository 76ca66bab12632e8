"""ListOffsets and OffsetForLeaderEpoch: the first and last offsets of a partition, and offsets by time.

* ListOffsets 1-11. 2 isolation level (KIP-98); 4 leader epoch (KIP-320); 6 tagged fields; 7 the offset of the greatest
  time, -3 (KIP-734); 8 earliest local, -4 (KIP-405); 9 latest tiered, -5 (KIP-1005); 10 a
  time-out for remote tiers (KIP-1075); 11 what waits for upload, -6 (KIP-1023).
* OffsetForLeaderEpoch 2-4. 3 replica id; 4 tagged fields (KIP-320).

Here: nothing is tiered, so that -4 means the earliest offset, and -5 and -6 have no offset. A leader epoch begins when
a log is opened that was not closed cleanly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...broker.core import offsets_for_times
from ...dialects.kafka.errors import (
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    UNKNOWN_LEADER_EPOCH,
    UNSUPPORTED_VERSION,
    code_of,
)
from ...dialects.kafka.versions import LIST_OFFSETS, NEVER, OFFSET_FOR_LEADER_EPOCH
from ...model.errors import LadingError
from ...runtime.turns import TurnCounter, Turns, take_turns
from .handling import Answer, Context, Fields, Handler, Request, Session, rows_by_topic

if TYPE_CHECKING:
    from ...broker.core.topology import Partition

READ_COMMITTED: Final = 1
TIME_MS_MAX: Final = ((1 << 63) - 1) // 1000
_EPOCH_OF_OLD_MARKERS: Final = 0
"""The epoch in control records from before they held their log's epoch; logs begin with epoch 1, so none has this one.

Groups that stopped after such a record stored it, and it may have been written in any epoch: the messages that they
have read exist up to the end. If this epoch were reported to end at the first offset, Java's consumers would read
everything again.
"""


class OffsetAndTimestamp(NamedTuple):
    """An offset and the time of the message there, -1 if the request was not by time."""

    offset: int
    timestamp_ms: int = -1


NOTHING: Final = OffsetAndTimestamp(-1)


def _to_offset_and_timestamp(found: offsets_for_times.Timed | None) -> OffsetAndTimestamp:
    return NOTHING if found is None else OffsetAndTimestamp(found.offset, found.timestamp_us // 1000)


_ENDS: Final[dict[int, Callable[[Partition, int], OffsetAndTimestamp]]] = {
    -1: lambda partition, end: OffsetAndTimestamp(end),
    -2: lambda partition, end: OffsetAndTimestamp(partition.log.first_offset),
    -3: lambda partition, end: _to_offset_and_timestamp(offsets_for_times.latest(partition)),
    -4: lambda partition, end: OffsetAndTimestamp(partition.log.first_offset),
    -5: lambda partition, end: NOTHING,
    -6: lambda partition, end: NOTHING,
}
"""Special values in place of a time: latest, earliest, latest time, earliest local, and two for tiers, which have no
offset.
"""

_FIRST_VERSIONS: Final = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
"""The first version with each of these values; in earlier ones, and for any other value, the error is
UNSUPPORTED_VERSION.
"""


def handlers(context: Context) -> Mapping[int, Handler]:
    """ListOffsets and OffsetForLeaderEpoch."""
    answers = _Handlers(context)
    return {LIST_OFFSETS: answers.list_offsets, OFFSET_FOR_LEADER_EPOCH: answers.epoch_ends}


def _find_repeated(topics: Sequence[Any]) -> Turns[set[tuple[str, int]]]:
    """Return the partitions that are requested more than once; Apache Kafka refuses all of their rows."""
    turn = TurnCounter()
    # one set for each topic: a set of 100,000 pairs keeps the loop for 15 ms when it is freed
    seen: defaultdict[str, set[int]] = defaultdict(set)
    repeated: set[tuple[str, int]] = set()
    for topic in topics:
        seen_of_topic = seen[topic.name]
        for asked in topic.partitions:
            index = asked.partition_index
            if index in seen_of_topic:
                repeated.add((topic.name, index))
            seen_of_topic.add(index)
            if turn.is_over():
                yield
        # also a topic without partitions takes time
        if turn.is_over():
            yield
    return repeated


class _Handlers:
    def __init__(self, context: Context) -> None:
        self._context = context

    def list_offsets(self, session: Session, request: Request) -> Answer:
        return take_turns(self._list_offsets(request.body, request.version))

    def _list_offsets(self, body: Any, version: int) -> Turns[Fields]:
        committed = body.isolation_level == READ_COMMITTED
        repeated = yield from _find_repeated(body.topics)

        def row(name: str, asked: Any) -> Fields:
            if repeated and (name, asked.partition_index) in repeated:
                return {"partition_index": asked.partition_index, "error_code": INVALID_REQUEST}
            if asked.timestamp < 0 and version < _FIRST_VERSIONS.get(asked.timestamp, NEVER):
                return {"partition_index": asked.partition_index, "error_code": UNSUPPORTED_VERSION}
            return self._offset_row(name, asked, committed)

        return (yield from rows_by_topic(body.topics, "name", row))

    def _offset_row(self, name: str, asked: Any, committed: bool) -> Fields:
        row = {"partition_index": asked.partition_index}
        error, partition = self._find_partition(name, asked.partition_index, asked.current_leader_epoch)
        if partition is None or error:
            return {**row, "error_code": error}
        log = partition.log
        if asked.timestamp < 0:
            end = log.last_stable_offset if committed else log.high_watermark
            found = _ENDS[asked.timestamp](partition, end)
        else:
            found = _to_offset_and_timestamp(
                offsets_for_times.first_since(partition, min(asked.timestamp, TIME_MS_MAX) * 1000)
            )
        epoch = log.epoch if found.offset >= 0 else -1
        return {
            **row,
            "error_code": 0,
            "offset": found.offset,
            "timestamp": found.timestamp_ms,
            "leader_epoch": epoch,
        }

    def epoch_ends(self, session: Session, request: Request) -> Answer:
        return take_turns(rows_by_topic(request.body.topics, "topic", self._epoch_end))

    def _epoch_end(self, name: str, asked: Any) -> Fields:
        row = {"partition": asked.partition}
        error, partition = self._find_partition(name, asked.partition, asked.current_leader_epoch)
        if partition is None or error:
            return {**row, "error_code": error}
        log = partition.log
        before = [epoch for epoch, _ in log.epochs if epoch <= asked.leader_epoch]
        after = [first for epoch, first in log.epochs if epoch > asked.leader_epoch]
        if asked.leader_epoch < 0 or asked.leader_epoch > log.epoch:
            return {**row, "error_code": 0}
        if asked.leader_epoch == _EPOCH_OF_OLD_MARKERS:
            return {**row, "error_code": 0, "leader_epoch": asked.leader_epoch, "end_offset": log.high_watermark}
        end = max(after[0], log.first_offset) if after else log.high_watermark
        # an epoch before the first known one has nothing left: it ended at the start of the first
        return {**row, "error_code": 0, "leader_epoch": before[-1] if before else asked.leader_epoch, "end_offset": end}

    def _find_partition(self, name: str, index: int, epoch: int) -> tuple[int, Partition | None]:
        try:
            partition = self._context.topics.find(name).partition(index)
        except LadingError as error:
            return code_of(error), None
        if 0 <= epoch < partition.log.epoch:
            return FENCED_LEADER_EPOCH, partition
        return (UNKNOWN_LEADER_EPOCH if epoch > partition.log.epoch else 0), partition

"""Several partition readers, round robin: which one reads next, and the wait if none has new messages."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from ..model.errors import LadingError
from ..model.scan_request import MAX_OFFSET
from ..transports.interface import LongPollTransport, Position, TopicMeta, Transport
from .patience import Patience
from .read_bounds import ReadBounds, TopicPartition
from .reading import PartitionReader, Selection

if TYPE_CHECKING:
    import pyarrow as pa

LONG_POLL_MS = 500
"""The longest wait of one request for new messages; an idle consumer does its maintenance at this interval."""
IDLE_LOOK_S = 0.05
"""Interval at which an idle reader of several partitions checks them for new messages."""


class PartitionBatches(NamedTuple):
    """Result of one read of a partition: ``batches``, read from the offset ``start``."""

    place: TopicPartition
    start: int
    batches: list[pa.RecordBatch]


class Readers:
    """The partitions that one consumer reads, by (topic, partition), round robin."""

    def __init__(self, transport: Transport, max_bytes: int) -> None:
        self._transport = transport
        self._max_bytes = max_bytes
        self._readers: dict[TopicPartition, PartitionReader] = {}
        self._turn: deque[TopicPartition] = deque()
        self._wait_ms = 0
        self._patience = Patience(transport.url)

    def __contains__(self, place: TopicPartition) -> bool:
        return place in self._readers

    def add(
        self,
        meta: TopicMeta,
        partition: int,
        offset: int,
        *,
        end: int | None = None,
        is_explicit: bool = True,
        epoch: int = 0,
    ) -> None:
        """Start reading a partition at ``offset``; the other arguments are those of PartitionReader."""
        place = (meta.name, partition)
        if place not in self._readers:
            self._turn.append(place)
        self._readers[place] = PartitionReader(
            self._transport, meta, partition, offset, end=end, sure=is_explicit, epoch=epoch, max_bytes=self._max_bytes
        )

    def keep(self, places: Collection[TopicPartition]) -> None:
        """Stop reading all partitions but these."""
        self._readers = {place: reader for place, reader in self._readers.items() if place in places}
        self._turn = deque(place for place in self._turn if place in self._readers)

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Continue at an offset that the caller named."""
        reader = self._readers[place]
        self.add(reader.meta, place[1], offset, end=reader.end, epoch=0)

    def rewind(self, place: TopicPartition, offset: int) -> None:
        """Continue at an offset that was read before."""
        if place in self._readers:
            self._readers[place].position = offset

    def meta(self, place: TopicPartition) -> TopicMeta:
        """Return the topic of a partition, as it was when reading began."""
        return self._readers[place].meta

    def position(self, place: TopicPartition) -> Position:
        """Return the position at which the next read of a partition starts."""
        reader = self._readers[place]
        return Position(reader.position, reader.epoch)

    def positions(self) -> dict[TopicPartition, Position]:
        """Return the position at which the next read of each partition starts."""
        return {place: self.position(place) for place in self._readers}

    def damage(self) -> dict[TopicPartition, list[tuple[int, int]]]:
        """Return the damaged ranges that were skipped, for each partition that has some."""
        return {place: list(reader.damaged) for place, reader in self._readers.items() if reader.damaged}

    def spans(self) -> list[ReadBounds]:
        """Return the range that is still to be read of each partition."""
        return [
            ReadBounds(reader.meta, place[1], reader.position, False, reader.end if reader.end != MAX_OFFSET else None)
            for place, reader in self._readers.items()
        ]

    def next(
        self,
        selection: Selection,
        timeout_s: float | None,
        *,
        passed: Callable[[TopicPartition], None],
        on_round: Callable[[], None],
        endless: bool,
    ) -> PartitionBatches | None:
        """Return batches of the next partition that has some; None at the time-out, or at the end if not ``endless``.

        ``passed`` is called with partitions whose position moved without a message for the caller; ``on_round`` before
        each round, at least every half second. Without ``timeout_s`` the call waits for an unreachable server.
        """  # fmt: skip
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._wait_ms = 0
        while True:
            try:
                on_round()
                found, moved = self._round(selection, passed)
                self._patience.reset()
                if found is not None:
                    return found
                if moved:
                    self._wait_ms = 0
                    continue
                if not endless and all(reader.done for reader in self._readers.values()):
                    return None
                left_ms = LONG_POLL_MS if deadline is None else min(LONG_POLL_MS, (deadline - time.monotonic()) * 1000)
                if left_ms <= 0:
                    return None
                self._wait_ms = max(1, int(left_ms)) if len(self._turn) == 1 else 0
                if not self._wait_ms:
                    self._wait_for_news(left_ms / 1000)
            except LadingError as error:
                if deadline is not None:
                    raise
                self._patience.wait(error)

    def _round(
        self, selection: Selection, passed: Callable[[TopicPartition], None]
    ) -> tuple[PartitionBatches | None, bool]:
        """Read the partitions round robin up to the first with batches; return these, and whether a position moved."""
        moved = False
        for _ in range(len(self._turn)):
            place = self._turn[0]
            self._turn.rotate(-1)
            reader = self._readers[place]
            before = reader.position
            batches = reader.read(selection, self._wait_ms)
            if batches:
                return PartitionBatches(place, before, batches), moved
            if reader.position != before:
                moved = True
                passed(place)
        return None, moved

    def _wait_for_news(self, longest_s: float) -> None:
        """Sleep until a partition has something new, with one request per topic instead of one per partition."""
        waiting = {place: reader.position for place, reader in self._readers.items() if not reader.done}
        if waiting and isinstance(self._transport, LongPollTransport):
            self._transport.wait_for_news(waiting, int(longest_s * 1000))
            return
        until = time.monotonic() + longest_s
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(min(IDLE_LOOK_S, left_s))
            if not self._turn:
                # a group gives partitions at any time
                return
            for name in {topic for topic, _ in self._turn}:
                for part in self._transport.topic(name).partitions:
                    reader = self._readers.get((name, part.number))
                    if reader is not None and not reader.done and part.end_offset > reader.position:
                        return

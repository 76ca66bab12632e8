"""Records of the topic ``__lading_states``: the states of messages, by partition and block of offsets.

The topic is compacted. A record has all ranges of its block that are not available, and the block's next number. If two
records have the same number the first counts, and the gateway that wrote the second writes again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..log.intervals import Intervals
from ..model.state import State

LOG: Final = logging.getLogger("lading.store")
STATES_TOPIC: Final = "__lading_states"
VERSION: Final = 1
BLOCK_OFFSETS: Final = 4096
RANGES_MAX: Final = 200_000
"""Limit of the ranges of all topics in memory, beyond which a gateway sets no states: about 40 MB."""
Ranges = tuple[tuple[int, int, int], ...]
"""First offset, end and state."""


class BlockPlace(NamedTuple):
    """A block: its topic by flat name, partition and number."""

    topic: str
    partition: int
    block: int

    @property
    def key(self) -> bytes:
        """The key of its record: names of topics have no slash."""
        return f"{self.topic}/{self.partition}/{self.block}".encode()

    @property
    def first(self) -> int:
        """Its first offset."""
        return self.block * BLOCK_OFFSETS


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """The states of one block."""

    topic_id: str
    """The cluster's id of the topic, in hexadecimal: a topic that is created again has no states."""
    serial: int
    ranges: Ranges

    def pack(self) -> bytes:
        """Return the value."""
        document = {"version": VERSION, "topic_id": self.topic_id, "serial": self.serial, "ranges": self.ranges}
        return json.dumps(document).encode()

    def change(self, topic_id: str, first: int, end: int, state: int) -> BlockRecord:
        """Return the next record, with another state of a range within the block."""
        intervals = Intervals()
        for one in self.ranges if self.topic_id == topic_id else ():
            intervals.set(*one)
        intervals.set(first, end, None if state == State.AVAILABLE else state)
        return BlockRecord(topic_id, self.serial + 1, tuple(intervals.all()))


NO_RECORD: Final = BlockRecord("", 0, ())


class StateRecords:
    """The blocks of all records up to one offset; used by the thread that reads them."""

    def __init__(self) -> None:
        self.blocks: dict[BlockPlace, BlockRecord] = {}
        self.ranges_count = 0

    def apply(self, key: bytes | None, value: bytes | None) -> BlockPlace | None:
        """Apply the next record; return its block if it counts. A record of another kind is logged."""
        try:
            topic, partition, block = (key or b"").decode().split("/")
            place = BlockPlace(topic, int(partition), int(block))
            before = self.blocks.get(place, NO_RECORD)
            if value is None:
                record = NO_RECORD
            else:
                record = _parse(value, place)
                if record.serial <= before.serial:
                    return None
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            LOG.warning(
                "topic %s: a record with key %r is not of this version (%s) and is left out; is another program "
                "writing there?", STATES_TOPIC, (key or b"")[:200], error,
            )  # fmt: skip
            return None
        self.ranges_count += len(record.ranges) - len(before.ranges)
        if record is NO_RECORD:
            self.blocks.pop(place, None)
        else:
            self.blocks[place] = record
        return place


def _parse(value: bytes, place: BlockPlace) -> BlockRecord:
    document = json.loads(value)
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ValueError("its value has another version")
    ranges = tuple((int(first), int(end), int(state)) for first, end, state in document["ranges"])
    states = set(State)
    if not all(
        place.first <= first < end <= place.first + BLOCK_OFFSETS and state in states for first, end, state in ranges
    ):
        raise ValueError("a range is not one of its block")
    return BlockRecord(str(document["topic_id"]), int(document["serial"]), ranges)


def split_by_block(
    topic: str, partition: int, ranges: Iterable[tuple[int, int]]
) -> Iterator[tuple[BlockPlace, int, int]]:
    """Yield ranges as parts of one block each."""
    for first, end in ranges:
        while first < end:
            place = BlockPlace(topic, partition, first // BLOCK_OFFSETS)
            stop = min(end, place.first + BLOCK_OFFSETS)
            yield place, first, stop
            first = stop


class StateTable:
    """The states of all partitions, for readers. Threads: the event loop alone."""

    def __init__(self) -> None:
        self._partitions: dict[tuple[str, int], tuple[str, Intervals]] = {}

    def take(self, changes: Sequence[tuple[BlockPlace, BlockRecord]]) -> None:
        """Apply blocks from their records."""
        for place, record in changes:
            topic_id, intervals = self._partitions.get((place.topic, place.partition), ("", Intervals()))
            if topic_id != record.topic_id:
                # the topic was deleted, or had no states before
                intervals = Intervals()
                self._partitions[place.topic, place.partition] = record.topic_id, intervals
            intervals.set(place.first, place.first + BLOCK_OFFSETS, None)
            for one in record.ranges:
                intervals.set(*one)

    def find(self, place: tuple[str, int], topic_id: bytes) -> Intervals | None:
        """Return the ranges of a partition that are not available, None if it has none."""
        found = self._partitions.get(place)
        return found[1] if found is not None and found[0] == topic_id.hex() else None

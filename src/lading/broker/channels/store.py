"""The stored part of channels: names are in the catalog at once, positions a moment later.

A channel is a group row (protocol ``channel``, the topic's id, its name) and one position row per partition: everything
before its offset is done, and ``extra`` lists the messages after it that are not done or were set aside. After a crash,
messages finished in the last moments are delivered again; none is lost.

``extra``, little-endian: ``version u8 · flags u8 · reserved u16 · ranges u32 · entries u32 · end u64``, the ranges of
messages that are not done as (first u64, end u64), then the entries as (offset u64, due in µs u64, deliveries u64).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from ...log.catalog import Catalog
from ...log.catalog_rows import GroupRow, PositionRow
from ...model.lazy_dataclass import lazy_dataclass
from ...model.ranges import ranges_of_rising
from ..core.topology import Partition, Topic
from .in_flight import DispatcherState
from .omissions import Omissions, decode_omissions
from .partition_dispatcher import PartitionDispatcher

CHANNEL: Final = "channel"
ORIGIN: Final = ""
"""The name, in place of a channel's, of rows that hold the end of a topic's last channel."""
PAUSED_TOPIC: Final = "channel-topic-paused"
"""The protocol of rows that name paused topics."""
OMITTED_MESSAGES: Final = "channel-omitted"
"""The protocol of rows that list the messages that a channel skips.

A row named ``ORIGIN`` lists them for the topic's queue; its offset is that of the first delayed message in the queue.
"""
RANGES_MAX: Final = 4096
"""At most this many ranges are stored; if a window has more, messages after them are delivered again after a crash."""
PAUSED, SKIPPING, ORDERED, UNCOMMITTED = 1, 2, 4, 8

_HEAD: Final = struct.Struct("<BBHIIQ")
_VERSION: Final = 1


@lazy_dataclass(frozen=True, slots=True)
class StoredLane:
    """Position of a channel in one partition, the epoch of the log that it is valid for, and the channel's settings."""

    state: DispatcherState
    epoch: int | None
    flags: int


class ChannelStore:
    """Reads and writes the catalog's rows of channels."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def channels(self) -> Iterator[tuple[bytes, str]]:
        """(topic id, name) of every channel."""
        for row in self._catalog.groups(CHANNEL):
            yield row.scope, row.name

    def list_paused_topics(self) -> set[bytes]:
        """Return the ids of the topics that are paused."""
        return {row.scope for row in self._catalog.groups(PAUSED_TOPIC)}

    def set_paused(self, topic: Topic, paused: bool) -> None:
        """Set whether a topic is paused; on disk on return."""
        if paused:
            self._catalog.put_group(GroupRow(PAUSED_TOPIC, topic.uuid, "", 1))
        else:
            self._catalog.remove_group(PAUSED_TOPIC, topic.uuid, "")

    def lanes(self) -> dict[tuple[bytes, str], dict[int, StoredLane]]:
        """Stored lanes by (topic id, channel name) and partition number."""
        found: dict[tuple[bytes, str], dict[int, StoredLane]] = {}
        for row in self._catalog.positions(CHANNEL):
            state, flags = _decode_state(row.offset, row.extra or b"")
            stored = StoredLane(state, row.epoch, flags)
            found.setdefault((row.topic, row.consumer), {})[row.partition] = stored
        return found

    def omissions(self) -> dict[tuple[bytes, str, int], tuple[int, bytes]]:
        """Stored omissions by (topic id, channel name, partition number), each with the offset of its row."""
        return {
            (row.topic, row.consumer, row.partition): (row.offset, row.extra or b"")
            for row in self._catalog.positions(OMITTED_MESSAGES)
        }

    def put_starts(self, starts: Iterable[tuple[Partition, int, int, Omissions]]) -> None:
        """Store the start of a topic's queue: partition, offset, offset of delayed messages, omitted messages."""
        rows: list[PositionRow] = []
        for partition, offset, delayed_from, omissions in starts:
            rows += [origin_row(partition, offset), omissions_row(partition, ORIGIN, omissions, delayed_from)]
            omissions.changed = False
        self._catalog.put_positions(rows)

    def confirm(self, topic: Topic, name: str, rows: Iterable[PositionRow]) -> None:
        """Store a channel with its positions and settings; durable on return."""
        self._catalog.put_positions(rows)
        self._catalog.put_group(GroupRow(CHANNEL, topic.uuid, name, 1))

    def put(self, rows: Iterable[PositionRow]) -> None:
        """Store the positions of channels."""
        self._catalog.put_positions(rows)

    def remove(self, topic: Topic, name: str) -> None:
        """Delete the stored state of a channel."""
        self._catalog.remove_group(CHANNEL, topic.uuid, name)
        self._catalog.remove_positions(CHANNEL, topic.uuid, name)
        self._catalog.remove_positions(OMITTED_MESSAGES, topic.uuid, name)


def row_of(name: str, lane: PartitionDispatcher, flags: int, now_us: int, shift_us: int = 0) -> PositionRow:
    """Return the row of one lane as it is now; ``shift_us`` converts due times to dates, which stay valid after a
    restart.
    """
    partition: Partition = lane.partition
    state = lane.state()
    return PositionRow(
        CHANNEL,
        partition.topic.uuid,
        partition.number,
        name,
        state.first,
        partition.log.epoch,
        _encode_state(state._replace(entries=[_shift_entry(entry, shift_us) for entry in state.entries]), flags),
        now_us,
    )


def _shift_entry(entry: tuple[int, int, int], shift_us: int) -> tuple[int, int, int]:
    offset, due_us, attempts = entry
    # 0 and 1 are not times: 0 means not deferred, 1 due at once
    return (offset, due_us + shift_us, attempts) if due_us > 1 else entry


def origin_row(partition: Partition, offset: int) -> PositionRow:
    """Return the row with the offset at which the first channel of a topic begins in a partition."""
    epoch = partition.log.epoch
    return PositionRow(CHANNEL, partition.topic.uuid, partition.number, ORIGIN, offset, epoch, None, 0)


def omissions_row(partition: Partition, name: str, omissions: Omissions, offset: int = 0) -> PositionRow:
    """Return the row of the messages that a channel skips in a partition."""
    epoch, extra = partition.log.epoch, omissions.encode()
    return PositionRow(OMITTED_MESSAGES, partition.topic.uuid, partition.number, name, offset, epoch, extra, 0)


def load_omissions(extra: bytes, partition: Partition, delayed_end: int) -> Omissions:
    """Return stored omissions without messages that the logs lost when they were truncated."""
    omissions = decode_omissions(extra, partition.log.next_offset, delayed_end)
    omissions.changed = False
    return omissions


def after_cut(stored: StoredLane, partition: Partition) -> DispatcherState:
    """Return the state without messages that the log lost when it was truncated: their offsets are used again."""
    limit = partition.log.next_offset
    if stored.epoch is not None:
        limit = min([limit, *(first for epoch, first in partition.log.epochs if epoch > stored.epoch)])
    state = stored.state
    if max(state.first, state.end) <= limit:
        return state
    return DispatcherState(
        min(state.first, limit),
        min(state.end, limit),
        state.pending[state.pending < limit],
        [entry for entry in state.entries if entry[0] < limit],
    )


def _encode_state(state: DispatcherState, flags: int) -> bytes:
    ranges = ranges_of_rising(state.pending).astype("<i8")
    end = state.end
    if len(ranges) > RANGES_MAX:
        end = int(ranges[RANGES_MAX, 0])
        ranges = ranges[:RANGES_MAX]
    entries = np.array(state.entries, "<i8").reshape(-1, 3)
    entries = entries[entries[:, 0] < end]
    head = _HEAD.pack(_VERSION, flags, 0, len(ranges), len(entries), end)
    return head + ranges.tobytes() + entries.tobytes()


def _decode_state(first: int, extra: bytes) -> tuple[DispatcherState, int]:
    """Return (state, flags). If ``extra`` is invalid, only the offset is used, which repeats messages but
    loses none.
    """
    empty = DispatcherState(first, first, np.empty(0, np.int64), [])
    if len(extra) < _HEAD.size:
        return empty, 0
    version, flags, _, ranges_count, entries_count, end = _HEAD.unpack_from(extra)
    if version != _VERSION or len(extra) != _HEAD.size + 16 * ranges_count + 24 * entries_count:
        return empty, 0
    ranges = np.frombuffer(extra, "<i8", 2 * ranges_count, _HEAD.size).reshape(-1, 2)
    entries = np.frombuffer(extra, "<i8", 3 * entries_count, _HEAD.size + 16 * ranges_count).reshape(-1, 3)
    parts = [np.arange(one, other) for one, other in ranges.tolist()]
    pending = np.concatenate(parts) if parts else np.empty(0, np.int64)
    return DispatcherState(first, end, pending, [(one, due, tries) for one, due, tries in entries.tolist()]), flags

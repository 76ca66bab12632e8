"""A partition of the cluster as the broker reads it: Kafka's own offsets, and a cache of the messages read last.

Nothing is appended here (``appender``). The ends of the log come from ``ends``; messages that are not in the cache are
loaded, and the reader tries again afterwards (``NotLoaded``).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Protocol

from ..broker.core.callbacks import ignore
from ..broker.core.empty_log import EmptyLog
from ..log.disk import File
from ..log.interface import (
    ClosedSegment,
    ClosingSteps,
    Damage,
    RecoveryReport,
    SegmentInfo,
    Snapshot,
    Span,
)
from ..model.errors import LadingError, NotLoaded, Reason, Refusal
from ..runtime.clock import Dates
from .refusals import refuse

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .state_records import StateTable


Loaded = Callable[[LadingError | None], None]
TIMES_MAX: Final = 64
"""Offsets by time that a log remembers until a reader has used them."""


class RangeLoader(Protocol):
    """Loads messages of a log that are not in memory; each method returns a function that adds a callback."""

    def load(self, log: ClusterLog, offset: int, max_bytes: int) -> Callable[[Loaded], None]:
        """Load messages from ``offset`` on."""

    def find_time(self, log: ClusterLog, timestamp_us: int) -> Callable[[Loaded], None]:
        """Find the first offset at a time."""


class CachedStretch(NamedTuple):
    """Whole chunks that were loaded together, with the offsets ``base_offset`` to ``end_offset``."""

    region: NDArray[np.uint8]
    base_offset: int
    end_offset: int
    starts: Sequence[int]
    """The position of each chunk, and the end of the last."""
    bases: Sequence[int]
    """The first offset of each chunk."""


class StretchCache:
    """The stretches of all logs that are in memory; the least recently read one is dropped first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._size_bytes = 0
        self._used: OrderedDict[tuple[ClusterLog, int], int] = OrderedDict()

    def add(self, log: ClusterLog, stretch: CachedStretch) -> None:
        """Add a stretch of a log, and drop others to make room for it."""
        self._used[log, stretch.base_offset] = stretch.region.nbytes
        self._size_bytes += stretch.region.nbytes
        while self._size_bytes > self._bytes_max and len(self._used) > 1:
            owner, base_offset = next(iter(self._used))
            owner.forget(base_offset)

    def use(self, log: ClusterLog, base_offset: int) -> None:
        """Note that a stretch was read."""
        self._used.move_to_end((log, base_offset))

    def remove(self, log: ClusterLog, base_offset: int) -> None:
        """Remove a stretch from the count."""
        self._size_bytes -= self._used.pop((log, base_offset))


class ClusterLog(EmptyLog):
    """One partition of one topic. Threads: the event loop alone; others post to it.

    Like an EmptyLog it has no files, damage or control records: a fetch from the cluster checks batches and
    leaves out aborted messages. Its ``size_bytes`` is 0.
    """

    def __init__(self, place: tuple[str, int], topic_id: bytes, first_offset: int, end_offset: int) -> None:
        self._on_end_asked: Callable[[tuple[str, int]], None] = _ignore
        self.place = place
        super().__init__(topic_id)
        self.epoch = 1
        self.epochs = [(1, 0)]
        self.first_offset = first_offset
        self.next_offset = self.high_watermark = self.last_stable_offset = self.cluster_end = end_offset
        self.refusal: Refusal | None = None
        self.watched = False
        self.dates = Dates()
        self.recovery = RecoveryReport(True, end_offset)
        self.path = Path()
        self.segment_bytes = 0
        self.on_synced: Callable[[], None] | None = None
        self.is_begun = True
        self.on_refusal: Callable[[Refusal | None], None] = _ignore
        self.on_damage: Callable[[Sequence[Damage]], None] = _ignore
        self.on_opened: Callable[[], None] = ignore
        self.on_rest: Callable[[], None] = ignore
        self._loader: RangeLoader | None = None
        self._cache: StretchCache | None = None
        self._stretches: dict[int, CachedStretch] = {}
        self._bases: list[int] = []
        self._times: OrderedDict[int, int] = OrderedDict()
        self._append_time_us = 0
        self._states: StateTable | None = None

    def show_states(self, states: StateTable) -> None:
        """Have readers see the states of messages in a table."""
        self._states = states

    def unavailable_ranges(self, first: int, end: int, count_max: int | None = None) -> list[tuple[int, int, int]]:
        """Return (first, end, state) of the ranges that are not available, the first ``count_max``."""
        found = None if self._states is None else self._states.find(self.place, self.topic_id)
        return [] if found is None else found.overlapping(first, end, count_max)

    @property
    def has_unavailable(self) -> bool:
        """Whether any message is not available."""
        found = None if self._states is None else self._states.find(self.place, self.topic_id)
        return found is not None and len(found) > 0

    def attach(
        self,
        loader: RangeLoader,
        cache: StretchCache,
        on_end_asked: Callable[[tuple[str, int]], None] | None = None,
    ) -> None:
        """Set the ``loader`` of messages that are not in memory.

        ``on_end_asked`` gets the place when a reader needs its end.
        """
        self._loader, self._cache = loader, cache
        self._on_end_asked = on_end_asked or _ignore

    @property
    def last_stable_offset(self) -> int:
        """The end for readers. A reader requests it first, so that the partition is watched from then on."""
        self._on_end_asked(self.place)
        return self._stable_end

    @last_stable_offset.setter
    def last_stable_offset(self, offset: int) -> None:
        self._stable_end = offset

    # -- reports of the cluster

    def advance(self, end_offset: int) -> None:
        """Let readers see up to ``end_offset``, and call back waiting ones; does nothing if it is known already."""
        if end_offset > self.cluster_end:
            self.cluster_end = end_offset
            self._set_end(end_offset)
            if self.on_synced is not None:
                self.on_synced()

    def withhold(self, first_offset: int, offset: int) -> None:
        """Let readers see only up to ``offset`` until messages arrive: offsets up to ``cluster_end`` have
        no message.
        """
        self.first_offset = max(self.first_offset, first_offset)
        self._set_end(offset)

    def cut_back(self, end_offset: int) -> None:
        """Accept an end below the known one, since a new leader has fewer messages. The stretches in memory
        are dropped.
        """
        self.cluster_end = end_offset
        self._set_end(end_offset)
        self.close()

    def _set_end(self, end_offset: int) -> None:
        for timestamp_us in [one for one, offset in self._times.items() if offset >= self.high_watermark]:
            # forget offsets by time: there may be a message of that time now
            del self._times[timestamp_us]
        self.next_offset = self.high_watermark = self.last_stable_offset = end_offset

    def add(self, stretch: CachedStretch) -> None:
        """Keep a loaded stretch; it replaces those that it overlaps."""
        for base_offset in [one for one in self._bases if stretch.base_offset <= one < stretch.end_offset]:
            self.forget(base_offset)
        self._stretches[stretch.base_offset] = stretch
        insort(self._bases, stretch.base_offset)
        if self._cache is not None:
            self._cache.add(self, stretch)

    def add_time(self, timestamp_us: int, offset: int) -> None:
        """Remember the first offset at a time."""
        self._times[timestamp_us] = offset
        if len(self._times) > TIMES_MAX:
            self._times.popitem(last=False)

    def forget(self, base_offset: int) -> None:
        """Drop a stretch from memory."""
        del self._stretches[base_offset]
        self._bases.remove(base_offset)
        if self._cache is not None:
            self._cache.remove(self, base_offset)
        self.on_rest()

    # -- readers

    def read(self, offset: int, max_bytes: int) -> Span | None:
        """Return whole chunks from the one with ``offset``, or None at the end. Raises NotLoaded."""
        offset = max(offset, self.first_offset)
        if offset >= self.high_watermark:
            return None
        number = bisect_right(self._bases, offset) - 1
        stretch = self._stretches[self._bases[number]] if number >= 0 else None
        if stretch is None or offset >= stretch.end_offset:
            assert self._loader is not None, "attached before it is read"
            raise NotLoaded(self._loader.load(self, offset, max_bytes))
        if self._cache is not None:
            self._cache.use(self, stretch.base_offset)
        at = bisect_right(stretch.bases, offset) - 1
        end = at + 1
        while end < len(stretch.bases) and stretch.starts[end + 1] - stretch.starts[at] <= max_bytes:
            end += 1
        end_offset = stretch.bases[end] if end < len(stretch.bases) else stretch.end_offset
        return Span(stretch.region, stretch.starts[at], stretch.starts[end], stretch.bases[at], end_offset)

    def offset_at(self, timestamp_us: int) -> int:
        """Return the first offset at or after a time, or ``high_watermark``. Raises NotLoaded."""
        known = self._times.get(timestamp_us)
        if known is not None or self.first_offset >= self.high_watermark:
            return self.high_watermark if known is None else min(known, self.high_watermark)
        assert self._loader is not None, "attached before it is read"
        raise NotLoaded(self._loader.find_time(self, timestamp_us))

    def segments(self) -> list[SegmentInfo]:
        """Return one segment, which the broker's retention never deletes: the cluster has its own retention."""
        return [SegmentInfo(self.first_offset, self.high_watermark, 0, 0)]

    # -- for writers: everything is refused or does nothing, as messages go to the cluster

    def reserve(self, dialect: int, flags: int, room_bytes: int) -> NoReturn:
        """Refuse: appends go through ``appender`` only."""
        raise Refusal(Reason.READ_ONLY, f"partition {self.place}: messages go to the cluster; send them to the topic")

    def append_time_us(self, now_us: int) -> int:
        """Return the date of ``now_us``, or the last one returned if that is later."""
        self._append_time_us = max(self._append_time_us, self.dates.of(now_us))
        return self._append_time_us

    def flush(self) -> None:
        """Do nothing: chunks are sent, not kept open."""

    def begin_sync(self) -> Sequence[File]:
        """Return no files: they are the cluster's."""
        return ()

    def complete_sync(self) -> None:
        """Do nothing."""

    def fail_sync(self, error: OSError) -> None:
        """Do nothing."""

    def set_state(self, first: int, end: int, state: int, now_us: int) -> None:
        """Refuse: states are set by ``ClusterStates``, and this way is only used for dead letters."""
        refuse("dead letters")

    def sync_states(self) -> None:
        """Do nothing, as states are refused."""

    def hold_last_stable_offset(self, offset: int | None) -> None:
        """Do nothing: transactions are the cluster's."""

    def stop_writing(self, problem: str) -> None:
        """Remember why appends are refused."""
        self.refusal = Refusal(Reason.READ_ONLY, problem)

    def truncate_before(self, offset: int) -> None:
        """Refuse."""
        refuse("purge")

    def snapshot(self, name: str, data: bytes) -> None:
        """Keep nothing over a restart."""

    def snapshot_at_close(self, name: str, data: bytes) -> None:
        """Do nothing, as for ``snapshot``."""

    def forget_snapshot(self, name: str) -> None:
        """Do nothing, as for ``snapshot``."""

    def load_snapshot(self, name: str) -> Snapshot | None:
        """Return None, as for ``snapshot``."""
        return None

    def rest(self) -> bool:
        """Return True: files are the cluster's."""
        return True

    def maintain(self, now_us: int) -> int | None:
        """Return None: nothing is deferred."""
        return None

    def close(self) -> None:
        """Drop the stretches in memory."""
        for base_offset in list(self._stretches):
            self.forget(base_offset)

    def close_in_steps(self) -> ClosingSteps:
        self.close()
        yield from ()

    drop = close

    def roll(self) -> bool:
        """Return False: segments are the cluster's own."""
        return False

    def list_closed_segments(self) -> list[ClosedSegment]:
        """Return none, as for ``roll``."""
        return []


def _ignore(_value: object) -> None:
    return None

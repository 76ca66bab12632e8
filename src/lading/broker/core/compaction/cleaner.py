"""Cleaning of one partition: find the last offset of each key, then rewrite the segments that hold older messages.

It works on files alone, from any thread, a slice of a segment at a time; whatever belongs to the event loop is a step
that it yields, and that the owner of the log carries out. Rules, as Apache Kafka has them:

* The last message of each key is kept, also if its state is not "available". Messages without a key are kept.
* A message without a payload (a tombstone) removes the earlier ones of its key, and goes itself once it has been below
  ``Cleaning.due_end`` (see ``progress``).
* Messages of aborted transactions are removed and decide nothing. The control record of a transaction goes like a
  tombstone, after all messages of the transaction were removed.
* A segment with damage is left alone: its keys remove nothing, and after it no tombstone is removed.

Neighbouring segments become one as long as they have no more bytes together than a segment may have.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....chunk.envelope import ENVELOPE_BYTES, seal
from ....chunk.overlay import RangeKind
from ....chunk.runs import runs
from ....dialects import codes, registry
from ....dialects.compaction import Bytes, CompactableDialect, KeptPart
from ....dialects.kafka.batch_slicing import empty
from ....dialects.sequenced import SequencedDialect
from ....log.interface import ClosedSegment, Damage, RewrittenSegment, Span
from ....log.rewriting import SegmentRewriter, open_closed, settle
from ....log.segment import LogPosition
from ....model.chunk_table import (
    BASE_OFFSET,
    BODY_END,
    BODY_START,
    COUNT,
    FLAGS,
    LAST_OFFSET,
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
)
from ....model.errors import LocalError, MalformedMessage
from ....model.run import Run
from ....model.scan_request import ScanRequest
from .key_offsets import Digests, KeyOffsets

SLICE_BYTES: Final = 1 << 17
"""Bytes of a segment that are read at a time: some milliseconds of work, after which a thread rests."""
JOINED_BYTES_MAX: Final = (1 << 20) - ENVELOPE_BYTES
_MAP_FIELDS: Final = frozenset({"offset", "key"})
_KEEP_FIELDS: Final = frozenset({"offset", "key", "payload", "timestamp"})

Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Cleaning:
    """The closed segments of a partition that are to be cleaned, in order, with the ranges of their messages."""

    segments: Sequence[ClosedSegment]
    first_offset: int
    """The first offset of the partition; earlier messages are deleted."""
    clean_end: int
    """Before it every key has only one message, but for those in segments that were left alone."""
    due_end: int
    """The offset before which tombstones and control records may be removed."""
    aborted: Ranges
    control: Ranges
    states: Ranges
    memory_bytes: int
    segment_bytes: int
    """Segments with at most this many bytes together are joined."""


class Replace(NamedTuple):
    """A step: replace segments. The generator is sent whether that was done."""

    rewritten: RewrittenSegment


Step = Replace | None
"""None: a slice is done."""


@dataclass(slots=True)
class Cleaned:
    """Result: every key has one message before ``end``, save in segments that were left alone."""

    end: int = 0
    read_bytes: int = 0
    removed_bytes: int = 0
    removed_messages: int = 0
    left_alone: list[int] = field(default_factory=list)
    """Base offsets of the segments that were left alone."""
    damage: list[Damage] = field(default_factory=list)
    is_interrupted: bool = False
    """Whether segments could not be replaced: old messages are left in them, and ``end`` stays as before."""
    forgotten: dict[RangeKind, list[tuple[int, int]]] = field(default_factory=lambda: {kind: [] for kind in RangeKind})
    """Ranges of the overlay of which no message is left."""


def clean(cleaning: Cleaning) -> Generator[Step, bool | None, Cleaned]:
    """Clean in slices. Raises OSError if the disk refuses something, CorruptLog if a file cannot be read."""
    cleaned = Cleaned()
    keys = KeyOffsets(cleaning.memory_bytes)
    damaged = {segment.base_offset for segment in cleaning.segments if segment.is_damaged}
    cleaned.end = yield from _map_keys(cleaning, keys, damaged, cleaned)
    open_writers: dict[bytes, bool] = {}
    keeps_tombstones = False
    waiting = [segment for segment in cleaning.segments if segment.base_offset < cleaned.end]
    while waiting:
        group = _take_group(waiting, damaged, cleaning.segment_bytes)
        if not group:
            cleaned.left_alone.append(waiting.pop(0).base_offset)
            keeps_tombstones = True
            continue
        before = dict(open_writers)
        rewriting = _GroupCleaning(cleaning, group, keys, open_writers, keeps_tombstones, cleaned)
        broken = yield from rewriting.run()
        if broken is None:
            del waiting[: len(group)]
        else:
            # without it, the others are cleaned
            damaged.add(broken.base_offset)
            open_writers = before
    if cleaned.is_interrupted:
        cleaned.end = cleaning.clean_end
    return cleaned


def _take_group(segments: Sequence[ClosedSegment], damaged: set[int], size_bytes_max: int) -> list[ClosedSegment]:
    """Return the first segments that may be joined; an empty list if the first is damaged."""
    group: list[ClosedSegment] = []
    size_bytes = 0
    for segment in segments:
        size_bytes += segment.size_bytes
        if segment.base_offset in damaged or (group and size_bytes > size_bytes_max):
            break
        group.append(segment)
    return group


def _map_keys(
    cleaning: Cleaning, keys: KeyOffsets, damaged: set[int], cleaned: Cleaned
) -> Generator[Step, bool | None, int]:
    """Add the keys from ``clean_end`` on until the memory is full; return the offset that was reached."""
    end = cleaning.clean_end
    for segment in cleaning.segments:
        if segment.end_offset <= end:
            continue
        if segment.base_offset in damaged:
            end = segment.end_offset
            continue
        spans = _SegmentSpans(segment, cleaned)
        try:
            for span in spans:
                for rows in _decode_rows(span, _MAP_FIELDS, end, segment.end_offset):
                    wanted = np.flatnonzero(rows.has_key & ~_are_inside(rows.offsets, cleaning.aborted))
                    digests = keys.digest([rows.keys[row] for row in wanted.tolist()])
                    taken = keys.add(digests, rows.offsets[wanted])
                    if taken < len(wanted):
                        return int(rows.offsets[wanted[taken]])
                end = max(end, span.end_offset)
                yield None
        except (MalformedMessage, LocalError):
            # what its dialect cannot read is served as before, and must not keep the other segments from being cleaned
            spans.is_damaged = True
        if spans.is_damaged:
            # found now: keys of it may be in the map, and messages that they replace may go; that it holds the later
            # ones was read just now
            damaged.add(segment.base_offset)
        end = segment.end_offset
    return end


class _SegmentSpans:
    """The slices of a segment, up to damage."""

    def __init__(self, segment: ClosedSegment, cleaned: Cleaned) -> None:
        self._segment = segment
        self._cleaned = cleaned
        self.is_damaged = False

    def __iter__(self) -> Iterator[Span]:
        reader, at = open_closed(self._segment), self._segment.base_offset
        reader.on_damage = self._cleaned.damage.extend
        end = LogPosition(*self._segment.end)
        while at < end.offset:
            span = reader.span(at, end, SLICE_BYTES)
            if span is None or span.damaged or span.base_offset != at or reader.damage:
                self.is_damaged = True
                return
            self._cleaned.read_bytes += span.end - span.start
            yield span
            at = span.end_offset


class _Rows(NamedTuple):
    """Messages of a slice: ``keys`` and ``has_payload`` are only those that were asked for."""

    offsets: NDArray[np.int64]
    keys: Any
    has_key: NDArray[np.bool_]
    has_payload: NDArray[np.bool_]
    times_us: NDArray[np.int64]


def _decode_rows(span: Span, fields: frozenset[str], first: int, end: int) -> Iterator[_Rows]:
    for run in runs(span.region, span.start, span.end, verify=False):
        yield from _decode_run(run, fields, first, end)


def _decode_run(run: Run, fields: frozenset[str], first: int, end: int) -> Iterator[_Rows]:
    for part in registry.decode(run, ScanRequest(first, end, fields)):
        offsets = part.columns["offset"].to_numpy()
        keys: Any = part.columns.get("key")
        payloads: Any = part.columns.get("payload")
        times: Any = part.columns.get("timestamp")
        count = part.count
        yield _Rows(
            offsets,
            [None] * count if keys is None else keys.to_pylist(),
            np.zeros(count, np.bool_) if keys is None else keys.is_valid().to_numpy(zero_copy_only=False),
            np.ones(count, np.bool_) if payloads is None else payloads.is_valid().to_numpy(zero_copy_only=False),
            np.zeros(count, np.int64) if times is None else times.cast("int64").to_numpy(zero_copy_only=False),
        )


def _are_inside(offsets: NDArray[np.int64], ranges: Ranges) -> NDArray[np.bool_]:
    """Return which offsets are in one of the ranges, which are ascending and disjoint."""
    if not ranges:
        return np.zeros(len(offsets), np.bool_)
    firsts, ends = np.array(ranges, np.int64).T
    places = np.searchsorted(firsts, offsets, "right") - 1
    inside: NDArray[np.bool_] = (places >= 0) & (offsets < ends[np.maximum(places, 0)])
    return inside


class _GroupCleaning:
    """Neighbouring segments on their way to being rewritten as one."""

    def __init__(
        self,
        cleaning: Cleaning,
        group: Sequence[ClosedSegment],
        keys: KeyOffsets,
        open_writers: dict[bytes, bool],
        keeps_tombstones: bool,
        cleaned: Cleaned,
    ) -> None:
        """``open_writers`` says of each writer whether a message of its transaction was kept so far."""
        self._cleaning, self._group, self._keys, self._cleaned = cleaning, group, keys, cleaned
        self._open_writers = open_writers
        self._due_end = 0 if keeps_tombstones else cleaning.due_end
        self._removed = 0
        span = group[0].base_offset, group[-1].end_offset
        self._aborted, self._control, self._states = (
            _clip_ranges(ranges, *span) for ranges in (cleaning.aborted, cleaning.control, cleaning.states)
        )
        self._kept_in: dict[RangeKind, set[tuple[int, int]]] = {kind: set() for kind in RangeKind}

    def run(self) -> Generator[Step, bool | None, ClosedSegment | None]:
        """Rewrite the segments if something is removed, or if they are several.

        Returns a segment that has to be left alone because of damage, and then nothing was done, or None.
        """
        rewriter = SegmentRewriter(self._group)
        joiner = _ChunkJoiner(rewriter, self._group[0].base_offset)
        segment = self._group[0]
        try:
            for segment in self._group:
                spans = _SegmentSpans(segment, self._cleaned)
                for span in spans:
                    for run in runs(span.region, span.start, span.end, verify=False):
                        self._keep_run(run, joiner)
                    yield None
                if spans.is_damaged:
                    return segment
            if self._removed or len(self._group) > 1:
                joiner.finish(segment.end_offset)
                rewritten = rewriter.finish()
                if not (yield Replace(rewritten)):
                    # one of them was deleted meanwhile; the others still have messages that later ones replace
                    self._cleaned.is_interrupted = True
                else:
                    settle(rewritten)
                    self._cleaned.removed_messages += self._removed
                    size_bytes = sum(source.size_bytes for source in self._group)
                    self._cleaned.removed_bytes += size_bytes - rewritten.size_bytes
                    for kind, ranges in self._list_forgotten().items():
                        self._cleaned.forgotten[kind] += ranges
            return None
        except (MalformedMessage, LocalError):
            # what its dialect cannot read stays as it is, and is served as before
            return segment
        finally:
            rewriter.abandon()

    def _keep_run(self, run: Run, joiner: _ChunkJoiner) -> None:
        dialect = registry.dialect(run.dialect)
        if not isinstance(dialect, CompactableDialect):
            raise LocalError(f"dialect {dialect.name}: cannot be compacted; set another cleanup_policy")
        found = list(_decode_run(run, _KEEP_FIELDS, self._cleaning.first_offset, 1 << 62))
        offsets = np.concatenate([rows.offsets for rows in found]) if found else np.empty(0, np.int64)
        times = np.concatenate([rows.times_us for rows in found]) if found else np.empty(0, np.int64)
        kept = np.concatenate([self._choose(rows) for rows in found]) if found else np.empty(0, np.bool_)
        for number, chunk in enumerate(run.chunks.tolist()):
            low, high = np.searchsorted(offsets, (chunk[BASE_OFFSET], chunk[LAST_OFFSET] + 1)).tolist()
            alone = Run(run.dialect, run.region, run.chunks[number : number + 1])
            self._keep_chunk(dialect, alone, chunk, (offsets[low:high], kept[low:high], times[low:high]), joiner)

    def _choose(self, rows: _Rows) -> NDArray[np.bool_]:
        """Return which messages are kept."""
        latest = np.full(len(rows.offsets), -1, np.int64)
        with_key = np.flatnonzero(rows.has_key)
        digests: Digests = self._keys.digest([rows.keys[row] for row in with_key.tolist()])
        latest[with_key] = self._keys.find(digests)
        kept: NDArray[np.bool_] = rows.offsets >= latest
        kept &= ~_are_inside(rows.offsets, self._aborted)
        return kept & (rows.has_payload | ~rows.has_key | (rows.offsets >= self._due_end))

    def _keep_chunk(
        self,
        dialect: CompactableDialect,
        run: Run,
        chunk: list[int],
        rows: tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]],
        joiner: _ChunkJoiner,
    ) -> None:
        offsets, kept, times = rows
        control = self._keep_control_records(dialect, run, offsets, kept)
        removed = len(kept) - int(np.count_nonzero(kept)) + (chunk[COUNT] if control is False else 0)
        self._removed += removed
        self._note_kept(offsets[kept], chunk if control else None)
        if control is False or (not control and not kept.any()):
            return
        if not removed:
            end = chunk[LAST_OFFSET] + 1 if dialect.has_offsets_in_body else chunk[BASE_OFFSET] + chunk[COUNT]
            body = run.region.data[chunk[BODY_START] : chunk[BODY_END]]
            part = KeptPart(chunk[BASE_OFFSET], end, chunk[FLAGS], body)
            joiner.add(run.dialect, dialect, part, chunk[COUNT], chunk[MIN_TIMESTAMP_US], chunk[MAX_TIMESTAMP_US])
            return
        for part in dialect.keep(run, _ranges_of(offsets, kept)):
            low, high = np.searchsorted(offsets, (part.base_offset, part.end_offset)).tolist()
            of_part = np.maximum(times[low:high][kept[low:high]], 0)
            joiner.add(run.dialect, dialect, part, len(of_part), int(of_part.min()), int(of_part.max()))

    def _keep_control_records(
        self, dialect: CompactableDialect, run: Run, offsets: NDArray[np.int64], kept: NDArray[np.bool_]
    ) -> bool | None:
        """Return whether a control record is kept; None for a chunk of messages."""
        if not int(run.chunks[0, FLAGS]) or not isinstance(dialect, SequencedDialect):
            return None
        outcome = None
        for batch in dialect.iter_batches(run, 0):
            if batch.outcome is not None:
                had_kept = self._open_writers.pop(batch.writer, False)
                outcome = had_kept or batch.base_offset >= self._due_end
            elif batch.transactional:
                low, high = np.searchsorted(offsets, (batch.base_offset, batch.end_offset)).tolist()
                before = self._open_writers.get(batch.writer, False)
                self._open_writers[batch.writer] = before or bool(kept[low:high].any())
        return outcome

    def _note_kept(self, offsets: NDArray[np.int64], control: list[int] | None) -> None:
        """Note the ranges of the overlay that still have a message."""
        if control is not None:
            self._note(RangeKind.CONTROL, self._control, np.array([control[BASE_OFFSET]]))
        if len(offsets):
            self._note(RangeKind.STATE, self._states, offsets)
            self._note(RangeKind.ABORTED, self._aborted, offsets)

    def _note(self, kind: RangeKind, ranges: Ranges, offsets: NDArray[np.int64]) -> None:
        if not ranges:
            return
        firsts, ends = np.array(ranges, np.int64).T
        with_some = np.searchsorted(offsets, ends) > np.searchsorted(offsets, firsts)
        self._kept_in[kind].update(ranges[number] for number in np.flatnonzero(with_some).tolist())

    def _list_forgotten(self) -> dict[RangeKind, list[tuple[int, int]]]:
        before = {
            RangeKind.STATE: self._states, RangeKind.ABORTED: self._aborted, RangeKind.CONTROL: self._control,
        }  # fmt: skip
        return {kind: [one for one in ranges if one not in self._kept_in[kind]] for kind, ranges in before.items()}


def _clip_ranges(ranges: Ranges, first: int, end: int) -> list[tuple[int, int]]:
    return [(max(low, first), min(high, end)) for low, high in ranges if low < end and high > first]


def _ranges_of(offsets: NDArray[np.int64], kept: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the ranges of messages that are kept and follow one another."""
    edges = np.flatnonzero(np.diff(kept.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
    return [(int(offsets[low]), int(offsets[high - 1]) + 1) for low, high in edges.tolist()]


class _ChunkJoiner:
    """Joins the kept messages into chunks that cover all offsets of a segment, and passes them on."""

    def __init__(self, rewriter: SegmentRewriter, base_offset: int) -> None:
        self._rewriter = rewriter
        self._base_offset = base_offset
        """The first offset of the next chunk."""
        self._dialect = self._flags = self._count = self._size_bytes = 0
        self._end_offset = base_offset
        """The offset after the last message of the chunk."""
        self._times_us = 0, 0
        self._bodies: list[Bytes] = []

    def add(self, code: int, dialect: CompactableDialect, part: KeptPart, count: int, min_us: int, max_us: int) -> None:
        """Add a part, to the chunk before if one chunk may hold both."""
        follows = dialect.has_offsets_in_body or part.base_offset == self._end_offset
        fits = self._size_bytes + len(part.body) <= JOINED_BYTES_MAX
        if not (self._bodies and follows and fits and not part.flags and (self._dialect, self._flags) == (code, 0)):
            self._write(part.base_offset)
            self._dialect, self._flags = code, part.flags
            self._times_us = min_us, max_us
        self._bodies.append(part.body)
        self._size_bytes += len(part.body)
        self._count += count
        self._end_offset = part.end_offset
        self._times_us = min(self._times_us[0], min_us), max(self._times_us[1], max_us)

    def finish(self, end_offset: int) -> None:
        """Write the last chunk."""
        self._write(end_offset)

    def _write(self, end_offset: int) -> None:
        """Write the chunk, which covers the offsets up to ``end_offset``."""
        if not self._bodies:
            if end_offset == self._base_offset:
                return
            # nothing is kept before the first message of a segment: a batch without records, as Apache Kafka leaves one
            self._dialect, self._flags, self._count, self._times_us = codes.KAFKA, 0, 0, (0, 0)
            self._bodies = [empty(self._base_offset, end_offset)]
            self._size_bytes = len(self._bodies[0])
        array = np.empty(ENVELOPE_BYTES + self._size_bytes, np.uint8)
        at = ENVELOPE_BYTES
        for body in self._bodies:
            array[at : at + len(body)] = np.frombuffer(body, np.uint8)
            at += len(body)
        seal(
            array, 0, array.size,
            dialect=self._dialect, flags=self._flags, base_offset=self._base_offset, count=self._count,
            last_offset_delta=end_offset - 1 - self._base_offset,
            min_timestamp_us=self._times_us[0], max_timestamp_us=self._times_us[1],
        )  # fmt: skip
        self._rewriter.add(array.data, end_offset, self._times_us[1])
        self._base_offset = self._end_offset = end_offset
        self._bodies, self._size_bytes, self._count = [], 0, 0

"""The files next to the messages of a partition: watermark, states of ranges, snapshots.

They determine the limits of readers; if one of them cannot be written, the log refuses messages.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Sequence
from dataclasses import replace as replaced
from pathlib import Path

from ..chunk.overlay import OverlayRecord, RangeKind
from ..model.errors import Reason, Refusal
from ..runtime.clock import Dates
from . import snapshots, watermark
from .disk import Disk, refusal
from .interface import Damage, RecoveryReport, Snapshot
from .overlay import FILE_NAME as STATES_FILE
from .overlay import Overlay
from .recovery import RecoveredLog, apply_repairs, open_tail
from .segments import Segments
from .watermark_file import WatermarkFile, WatermarkSlot


class LogSidecars:
    """The part of a partition's log that does not write messages."""

    recovery: RecoveryReport

    def __init__(self, disk: Disk, path: Path, topic_id: bytes, found: RecoveredLog, now_us: int) -> None:
        self.path = path
        self.topic_id = topic_id
        self.epochs, self.epoch = found.epochs, found.epochs[-1][0]
        self.first_offset = found.first_offset
        self.next_offset = self.high_watermark = self.last_stable_offset = found.next_offset
        self.refusal: Refusal | None = None
        self.on_refusal: Callable[[Refusal | None], None] = _ignore
        self.on_damage: Callable[[Sequence[Damage]], None] = _ignore
        self.on_opened: Callable[[], None] = do_nothing
        self.on_rest: Callable[[], None] = do_nothing
        self._disk = disk
        self._found: RecoveredLog | None = found
        self._clock_us = found.clock_us
        self.dates = Dates()
        self._held: int | None = found.stable_before if found.next_offset else None
        has_states = STATES_FILE in found.names
        self._overlay = Overlay(disk, path, found.states, is_missing=not has_states)
        self.recovery = found.report
        if self._overlay.notes:
            self.recovery = replaced(
                found.report,
                clean=found.report.clean and not self._overlay.lost,
                notes=[*found.report.notes, *self._overlay.notes],
                states_lost=self._overlay.lost,
            )
        self._is_loading = True
        """Whether what the log's own messages say of others is still being read: nothing was held back yet."""
        if has_states:
            self._overlay.forget_from(found.next_offset)
        self._segments = Segments(disk, path, found.closed, open_tail(disk, path, found), found.gaps)
        # looked up when they are called: they are set after this
        self._segments.watch(lambda damage: self.on_damage(damage), lambda: self.on_opened())

        self._mark = WatermarkFile(disk, path, now_us)
        self._update_last_stable_offset()
        self._mark.stale = False
        # what is lost of the states is found by the next reader of the log, before ``hold_stable``; until then the
        # watermark goes on to say that something is missing, so that a crash in between is noticed too
        if not self._overlay.lost and (not found.report.clean or self._overlay.needs_rewrite):
            with contextlib.suppress(Refusal):
                self._mend()

    def _unwatch(self) -> None:
        """Reset the callbacks to their defaults."""
        self.on_refusal = self.on_damage = _ignore
        self.on_opened = self.on_rest = do_nothing
        self._segments.watch(_ignore, do_nothing)

    def _require_writable(self) -> None:
        if self.refusal is not None and self._read_only:
            raise Refusal(Reason.READ_ONLY, str(self.refusal))

    @property
    def _read_only(self) -> bool:
        return self.refusal is not None and self.refusal.reason is Reason.READ_ONLY

    def _refuse(self, error: OSError, what: str) -> Refusal:
        before, self.refusal = self.refusal, refusal(self.path, error, what)
        if before is None or before.reason is not self.refusal.reason:
            self.on_refusal(self.refusal)
        return Refusal(self.refusal.reason, str(self.refusal))

    def stop_writing(self, problem: str) -> None:
        self.refusal = Refusal(Reason.READ_ONLY, problem)
        self.on_refusal(self.refusal)

    def _wake(self) -> None:
        self._segments.active.wake()
        self._mark.wake()

    def _begin_writing(self) -> None:
        """Prepare the first write since opening: record durably that the log is not closed cleanly any more."""
        self._wake()
        if self._found is not None or self._overlay.needs_rewrite:
            self._mend()
        self._mark.begin(self._now_marked())

    def _mend(self) -> None:
        """Apply the repairs of recovery before anything is appended."""
        found = self._found
        try:
            if self._overlay.needs_rewrite:
                self._overlay.compact(self.first_offset)
            if found is not None and not found.report.clean:
                apply_repairs(self._disk, self.path, found.repairs, self._head())
                self._segments.active.on_truncated()
        except OSError as error:
            raise self._refuse(error, "could not be repaired") from error
        self._found = None

    def _head(self) -> bytes:
        return watermark.pack(self.topic_id, self.first_offset, *self._now_marked()[:3], self.epochs)

    def _now_marked(self) -> WatermarkSlot:
        return WatermarkSlot(self.high_watermark, self.last_stable_offset, self._clock_us, self._overlay.mark)

    def _update_last_stable_offset(self) -> None:
        end = self.high_watermark
        floor = self._overlay.unsynced_floor
        if self._held is not None and self._held < end:
            end = self._held
        if floor is not None and floor < end:
            end = floor
        if end != self.last_stable_offset:
            self.last_stable_offset = end
            self._mark.stale = True

    def hold_last_stable_offset(self, offset: int | None) -> None:
        self._held, self._is_loading = offset, False
        self._update_last_stable_offset()
        if self._overlay.lost:
            self._overlay.lost = False
            with contextlib.suppress(Refusal, OSError):
                self._begin_writing()

    # ------------------------------------------------------------------------------------------ states

    def set_state(self, first: int, end: int, state: int, now_us: int) -> None:
        self._note(RangeKind.STATE, state, first, end, now_us)

    def add_aborted(self, first: int, end: int, now_us: int = 0) -> None:
        self._note(RangeKind.ABORTED, 0, first, end, now_us)

    def add_control(self, first: int, end: int, now_us: int = 0) -> None:
        self._note(RangeKind.CONTROL, 0, first, end, now_us)

    def _note(self, kind: RangeKind, state: int, first: int, end: int, now_us: int) -> None:
        first, end = max(first, self.first_offset), min(end, self.next_offset)
        if first >= end:
            return
        record = OverlayRecord(kind, state, first, end, max(now_us, 0))
        if not self._is_loading:
            self._require_writable()
        try:
            self._mark.wake()
            self._overlay.add(record)
        except OSError as error:
            refused = self._refuse(error, "could not keep a state")
            if kind is RangeKind.STATE and not self._is_loading:
                raise refused from error
            # the log's own messages have decided it, and a snapshot of their writers may not show it any more: readers
            # stop before it until ``maintain`` or ``sync_states`` has it on disk
            self._overlay.remember(record)
            self._mark.stale = True
        self._update_last_stable_offset()

    def unavailable_ranges(self, first: int, end: int) -> list[tuple[int, int, int]]:
        return self._overlay.unavailable_ranges(first, end)

    def aborted_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        return self._overlay.ranges(RangeKind.ABORTED, first, end)

    def control_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        return self._overlay.ranges(RangeKind.CONTROL, first, end)

    # ------------------------------------------------------------------------------------------ snapshots

    def snapshot(self, name: str, data: bytes) -> None:
        try:
            snapshots.save(self._disk, self.path, name, self.epoch, self.next_offset, data)
        except OSError as error:
            raise self._refuse(error, f"could not keep the snapshot {name!r}") from error

    def forget_snapshot(self, name: str) -> None:
        try:
            snapshots.remove(self._disk, self.path, name)
        except OSError as error:
            # no offset that it covers may be given out again: nothing is appended any more
            refused = OSError(errno.EIO, error.strerror or str(error))
            raise self._refuse(refused, f"could not delete the snapshot {name!r}") from error

    def load_snapshot(self, name: str) -> Snapshot | None:
        return snapshots.load(self._disk, self.path, name, self.epochs, self.next_offset)


def _ignore(news: object) -> None:
    """Do nothing with an event: the default of callbacks."""


def do_nothing() -> None:
    """Do nothing: the default of callbacks without arguments."""

"""The watermark file of an open log: slots are written alternately, the head is replaced."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final, NamedTuple

from . import watermark
from .disk import Disk, File, replace

_EVERY_US: Final = 40_000
"""Readers in other processes see new messages at most this late; a write for each append would be a system call
more.
"""


class WatermarkSlot(NamedTuple):
    """The content of a slot: high watermark, last stable offset, time of the log, extent of its states."""

    high_watermark: int
    last_stable_offset: int
    clock_us: int
    states: watermark.StatesMark | None = None


class WatermarkFile:
    """The file, written to between ``begin`` and ``close``. Methods raise OSError and can then be called again."""

    def __init__(self, disk: Disk, directory: Path, now_us: int) -> None:
        self.stale = False
        """Whether there is something new that no slot contains yet."""
        self._disk = disk
        self._directory = directory
        self._file: File | None = None
        self._resting = False
        self._slots_at = self._sequence = 0
        self._due_us = now_us

    @property
    def path(self) -> Path:
        """The file's path."""
        # made when it is asked for: a start makes thousands of these, and opens few files
        return self._directory / watermark.FILE_NAME

    @property
    def begun(self) -> bool:
        """Whether the file says that the log is being written to."""
        return self._file is not None or self._resting

    def rest(self) -> None:
        """Close the file until there is something to write."""
        if self._file is not None:
            self._file.close()
            self._file, self._resting = None, True

    def wake(self) -> None:
        """Open the file again, if it rests."""
        if self._resting:
            self._file = self._disk.open(self.path, write=True)
            self._resting = False

    @property
    def file(self) -> File:
        """The open file. The caller has called ``begin``, and ``wake`` since the last ``rest``."""
        assert self._file is not None
        return self._file

    def begin(self, mark: WatermarkSlot) -> None:
        """Record that the log is not closed cleanly any more; the caller syncs the file."""
        file = self._disk.open(self.path, write=True)
        found = watermark.unpack(file.read(0, file.size()))
        assert found is not None
        self._slots_at, self._sequence = found.slots_at, found.sequence
        # both slots: a torn one must not bring back an older one that says "closed in order"
        for _ in range(2):
            self._write(file, mark, clean=False)
        self._file = file

    def begin_again(self, head: bytes, mark: WatermarkSlot) -> None:
        """Replace the whole file by ``head`` and continue in it; durable on return."""
        replace(self._disk, self.path, head)
        self.leave_open()
        self.begin(mark)
        self.file.sync()

    def write_when_due(self, mark: WatermarkSlot, now_us: int) -> None:
        """Write a slot if there is something new, at most every 40 ms."""
        if self._file is None or not self.stale or -_EVERY_US < now_us - self._due_us < 0:
            return
        self.stale = False
        self._due_us = now_us + _EVERY_US
        # a watermark that cannot be written is an older one: readers of the directory wait
        with contextlib.suppress(OSError):
            self._write(self._file, mark, clean=False)

    def forget_states(self, mark: WatermarkSlot) -> None:
        """Remove the extent of ``states.log``, which is about to be replaced, from all slots; on disk on return."""
        if self._file is None:
            return
        for _ in range(2):
            self._write(self._file, mark._replace(states=None), clean=False)
        self._file.sync()
        self.stale = True

    def finish(self, mark: WatermarkSlot) -> None:
        """Record that the log is cleanly closed; the caller syncs the file."""
        assert self._file is not None
        self._write(self._file, mark, clean=True)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        self.leave_open()

    def leave_open(self) -> None:
        """Drop the file; a sync thread that still has it closes it."""
        self._file, self._resting = None, False

    def _write(self, file: File, mark: WatermarkSlot, *, clean: bool) -> None:
        self._sequence += 1
        file.write(
            watermark.pack_slot(self._sequence, *mark[:3], clean=clean, states=mark.states),
            self._slots_at + watermark.SECTOR * (self._sequence % 2),
        )

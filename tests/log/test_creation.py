"""Many new logs are made in the time of a few: they wait for the disk together."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from lading.log import watermark
from lading.log.creation import create_logs
from lading.log.disk import File, RealDisk, RealFile, sync_each
from lading.log.partition import open_partition

TOPIC_ID = bytes(range(16))
TOGETHER = 4


class MeetingFile(RealFile):
    """A file whose sync waits for others that are synced at the same time."""

    __slots__ = ("_syncs",)

    def __init__(self, path: Path, flags: int, syncs: MeetingDisk) -> None:
        super().__init__(path, flags)
        self._syncs = syncs

    def sync(self) -> None:
        self._syncs.meeting.wait(30)
        with self._syncs.lock:
            self._syncs.count += 1
        super().sync()


class MeetingDisk(RealDisk):
    """A disk on which no sync ends that is alone."""

    def __init__(self) -> None:
        self.meeting = threading.Barrier(TOGETHER)
        self.lock = threading.Lock()
        self.count = 0

    def open(self, path: Path | str, *, write: bool = False) -> File:
        return MeetingFile(Path(path), os.O_RDWR | os.O_CREAT if write else os.O_RDONLY, self)

    def sync_paths(self, paths: Sequence[Path]) -> None:
        sync_each(self, paths)


def test_new_logs_are_synced_together_and_twice_each(tmp_path: Path) -> None:
    directories = [tmp_path / str(number) for number in range(4 * TOGETHER)]
    for directory in directories:
        directory.mkdir()
    disk = MeetingDisk()
    create_logs(disk, directories, TOPIC_ID, 7)
    assert disk.count == 2 * len(directories)
    for directory in directories:
        mark = watermark.unpack((directory / watermark.FILE_NAME).read_bytes())
        assert mark is not None and mark.clean and list(mark.epochs) == [(7, 0)]
        log = open_partition(RealDisk(), directory, TOPIC_ID, segment_bytes=1 << 20, now_us=0)
        assert log.recovery.clean and not log.recovery.notes and log.epoch == 7
        log.close()

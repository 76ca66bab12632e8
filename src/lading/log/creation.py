"""New logs, made together: what each waits for the disk is waited for once by all, not by one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from . import watermark
from .disk import Disk, sync_all
from .segment import LOG_SUFFIX


def create_logs(disk: Disk, directories: Sequence[Path], topic_id: bytes, first_epoch: int) -> None:
    """Make a log without messages in each of these directories, which are there and hold none; on disk on return.

    A crash in between leaves directories without a watermark or with one that is whole. Raises OSError.
    """
    content = watermark.pack(topic_id, 0, 0, 0, 0, [(first_epoch, 0)], clean=True)
    temporary = [directory / f"{watermark.FILE_NAME}.tmp" for directory in directories]
    for path in temporary:
        file = disk.open(path, write=True)
        try:
            file.resize(0)
            file.write(content, 0)
        finally:
            file.close()
    sync_all(disk, temporary)
    for directory, path in zip(directories, temporary, strict=True):
        disk.rename(path, directory / watermark.FILE_NAME)
        # a file without content needs no sync of its own
        disk.open(directory / f"{0:020}{LOG_SUFFIX}", write=True).close()
    sync_all(disk, directories)

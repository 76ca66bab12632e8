"""Creation of many logs together, so that they share the waits for the disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from . import watermark
from .disk import Disk
from .segment import segment_name


def create_logs(disk: Disk, directories: Sequence[Path], topic_id: bytes, first_epoch: int) -> None:
    """Create an empty log in each of these existing directories; on disk on return.

    A crash meanwhile leaves directories without a watermark file or with a complete one. Raises OSError.
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
    disk.sync_paths(temporary)
    for directory, path in zip(directories, temporary, strict=True):
        disk.rename(path, directory / watermark.FILE_NAME)
        # a file without content needs no sync of its own
        disk.open(directory / segment_name(0), write=True).close()
    disk.sync_paths(directories)

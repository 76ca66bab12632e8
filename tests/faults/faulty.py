"""The real disk with a fault put in front of one operation."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lading.log.disk import RealDisk, RealFile, sync_each

Fault = Callable[[str, Path, Any], Any]
"""(operation, path, its data) -> the data to use instead; or it raises."""


class FaultyFile(RealFile):
    """A file whose writes and syncs ask first."""

    def __init__(self, path: Path, flags: int, fault: Fault) -> None:
        super().__init__(path, flags)
        self._fault = fault

    def write(self, data: Any, at: int) -> None:
        data = self._fault("write", Path(self.path), data)
        if data is not None:
            super().write(data, at)

    def sync(self) -> None:
        self._fault("sync", Path(self.path), None)
        super().sync()


class FaultyDisk(RealDisk):
    """Every write and sync goes by ``fault``, which does nothing at first."""

    def __init__(self) -> None:
        self.fault: Fault = lambda operation, path, data: data

    def open(self, path: Path | str, *, write: bool = False) -> FaultyFile:
        flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
        return FaultyFile(Path(path), flags, lambda operation, at, data: self.fault(operation, at, data))

    def sync_paths(self, paths: Sequence[Path]) -> None:
        sync_each(self, paths)


def failing(operation: str, number: int, *, at: str = "", error: int = errno.EIO) -> Fault:
    """A fault at the ``number``-th (from 0) such operation on a path that ends with ``at``, and not again."""
    seen = 0

    def fault(which: str, path: Path, data: Any) -> Any:
        nonlocal seen
        if which == operation and path.name.endswith(at):
            seen += 1
            if seen == number + 1:
                raise OSError(error, os.strerror(error), str(path))
        return data

    return fault

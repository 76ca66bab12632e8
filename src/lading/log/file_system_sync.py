"""Sync of a whole file system, Linux's ``syncfs``: a thousand new files in one wait for the disk.

A journaling file system writes new files to the disk together anyway; a sync of each file asks it a thousand times, and
after each call the thread takes the interpreter from the loop. Measured on ext4: 1,000 new files of 80 bytes take 30 ms
instead of 300. The call also writes the data of other processes on the same file system, which may take longer.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

KERNEL_MIN: Final = (5, 8)
"""Before this version of Linux ``syncfs`` does not report failed writes (syncfs(2), Notes)."""
KNOWN_TYPES: Final = frozenset({0xEF53, 0x5846_5342, 0x9123_683E})
"""File systems that are known to make everything durable at ``syncfs``: ext4, xfs, btrfs (statfs(2)). A file system in
user space, for instance, is not notified of it."""
_STATFS_BYTES: Final = 256
"""More bytes than a ``struct statfs`` has; it begins with the type, a long."""

Call = Callable[..., int]


def sync_file_systems(paths: Iterable[Path]) -> bool:
    """Make everything durable on the file systems of these paths, if that is known to work; return whether it is done.

    Raises OSError if something could not be written there.
    """
    if _CALLS is None:
        return False
    statfs, syncfs = _CALLS
    # one path for each file system, nearly always only one
    places = {path.stat().st_dev: path for path in paths}.values()
    descriptors: list[int] = []
    try:
        for place in places:
            descriptors.append(os.open(place, os.O_RDONLY | os.O_CLOEXEC))
            if _type_of(statfs, descriptors[-1]) not in KNOWN_TYPES:
                return False
        for place, descriptor in zip(places, descriptors, strict=True):
            if syncfs(descriptor) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), str(place))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return True


def _type_of(statfs: Call, descriptor: int) -> int | None:
    found = (ctypes.c_char * _STATFS_BYTES)()
    if statfs(descriptor, found) != 0:
        return None
    return ctypes.c_ulong.from_buffer(found).value


def _find_calls() -> tuple[Call, Call] | None:
    """Return the C library's ``fstatfs`` and ``syncfs``, or None if they are missing or do not report errors."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release) if sys.platform == "linux" else None
    if release is None or (int(release[1]), int(release[2])) < KERNEL_MIN:
        return None
    try:
        library: Any = ctypes.CDLL(None, use_errno=True)
        return library.fstatfs, library.syncfs
    except (OSError, AttributeError):
        return None


_CALLS: Final = _find_calls()

"""Calls of sockets in plain Python: what the kernels of the same names are held against."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

from .arrays import Bytes, Longs, Table


@cache
def _epoll_wait() -> Any:
    # select.epoll takes no number of an epoll that it does not close
    return ctypes.CDLL(None, use_errno=True).epoll_wait


def wait_ready(epoll: int, events: Bytes, count_max: int) -> int:
    """Fill ``events`` with the files that are ready now, ``count_max`` at most, and return how many there are."""
    found = int(_epoll_wait()(epoll, ctypes.c_void_p(events.ctypes.data), count_max, 0))
    return found if found >= 0 else -ctypes.get_errno()


def receive(file: int, target: Bytes, at: int, size: int) -> int:
    """Read at most ``size`` bytes of a socket to ``target[at:]`` and return how many; 0: it has ended.

    A result below 0 is an error number with its sign changed.
    """
    try:
        return os.readv(file, [target[at : at + size].data])
    except OSError as error:
        return -(error.errno or 0)


def send_alike(files: Longs, data: Bytes, unsent: Table) -> int:
    """Send ``data`` to each of these sockets, none of which blocks, and return how many have not taken all of it.

    ``unsent`` gets a row for each of those: its file number, and how much it has taken, 0 also for an error. If it has
    fewer rows than there are sockets, nothing is sent, and -1 is returned.
    """
    failed = 0
    if unsent.shape[0] < files.size or unsent.shape[1] < 2:
        return -1
    for file in files.tolist():
        try:
            sent = os.write(file, data.data)
        except OSError:
            sent = 0
        if sent != data.size:
            unsent[failed] = file, sent
            failed += 1
    return failed

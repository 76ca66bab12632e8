"""Calls of sockets in plain Python: what the kernels of the same names are held against."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import cache
from typing import Any

from .arrays import Bytes, Longs, Table
from .lent_layout import (
    BUSY,
    ENDED,
    EVENT_BYTES,
    EVENT_FD,
    IS_LENT,
    OTHER_COLUMNS,
    OWED,
    PASS_BYTES_MAX,
    READ_BYTES_MAX,
    ROW_COLUMNS,
    SCRATCH_BYTES,
)


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


def receive_ready(
    epoll: int, events: Bytes, rows: Table, scratch: Bytes, files: Longs, spans: Table, others: Table
) -> tuple[int, int, int]:
    """Read each lent socket that is ready once: ``files`` gets those that had bytes, ``spans`` their places in scratch.

    ``rows``, ``others`` and ``scratch`` are as ``lent_layout`` has them. A socket that has ended, and one that waits
    for its last response, is among the others. Returns how many were read, how many others there are, and how many were
    ready, or an error number of epoll with its sign changed. If an array has no room for all that may come, nothing is
    read.
    """
    most = files.size
    if (
        events.size < most * EVENT_BYTES
        or rows.shape[1] != ROW_COLUMNS
        or scratch.size < SCRATCH_BYTES
        or spans.shape[0] < most
        or spans.shape[1] != 2
        or others.shape[0] < most
        or others.shape[1] != OTHER_COLUMNS
    ):
        return 0, 0, -1
    ready = wait_ready(epoll, events, most)
    count, rest, at = 0, 0, 0
    for index in range(ready):
        place = index * EVENT_BYTES + EVENT_FD
        file = int.from_bytes(events[place : place + 4].tobytes(), sys.byteorder)
        if file >= len(rows) or not rows[file, IS_LENT]:
            continue
        if at > PASS_BYTES_MAX:
            break
        if rows[file, OWED]:
            others[rest], rest = (file, at, at, BUSY), rest + 1
            continue
        got = receive(file, scratch, at, READ_BYTES_MAX)
        if got == -errno.EAGAIN:
            continue
        if got > 0:
            files[count], spans[count], count = file, (at, at + got), count + 1
            at += got
        else:
            others[rest], rest = (file, at, at, ENDED), rest + 1
    return count, rest, ready


def send_responses(files: Longs, data: Bytes, size: int, unsent: Table) -> int:
    """Send each of these sockets, none of which blocks, ``size`` bytes, and return how many have not taken all of it.

    ``data`` is one response, which all get, or one for each socket, one after the other. ``unsent`` gets a row for each
    socket that has not taken its response: its index in ``files``, and how much it has taken, 0 also for an error. If
    an array is too short, nothing is sent, and -1 is returned.
    """
    failed = 0
    step = 0 if data.size == size else size
    if size < 0 or data.size < (files.size - 1) * step + size or unsent.shape[0] < files.size or unsent.shape[1] < 2:
        return -1
    for index, file in enumerate(files.tolist()):
        try:
            sent = os.write(file, data[index * step :][:size].data)
        except OSError:
            sent = 0
        if sent != size:
            unsent[failed] = index, sent
            failed += 1
    return failed

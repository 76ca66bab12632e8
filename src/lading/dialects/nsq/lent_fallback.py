"""Reading sockets whose next bytes are known, in plain Python: the reference for the kernel of the same name."""

from __future__ import annotations

import errno
import sys

from lading.kernels.arrays import Bytes, Longs, Table
from lading.kernels.lent_layout import (
    BUSY,
    COUNT,
    ENDED,
    EVENT_BYTES,
    EVENT_FD,
    HEARD_US,
    IS_LENT,
    LINE,
    LINE_BYTES_MAX,
    OTHER_COLUMNS,
    OWED,
    PASS_BYTES_MAX,
    READ_BYTES_MAX,
    ROW_COLUMNS,
    SCRATCH_BYTES,
    UNKNOWN,
)
from lading.kernels.socket_fallback import receive, wait_ready

from .send_layout import SIZE_BYTES


def receive_publications(
    epoll: int,
    events: Bytes,
    rows: Table,
    lines: Bytes,
    sizes: Longs,
    scratch: Bytes,
    files: Longs,
    spans: Table,
    others: Table,
    now_us: int,
) -> tuple[int, int, int, int, int]:
    """Read each ready lent socket once, and separate single publications with its line from all other input.

    ``rows``, ``others`` and ``scratch`` are as ``lent_layout`` has them; ``lines`` has room of LINE_BYTES_MAX for each
    line, and ``sizes`` their sizes. Whole publications lie one after the other from the front of ``scratch`` on:
    ``files`` gets their sockets, ``spans`` their places, and their rows count them at ``now_us``. All that is not
    exactly one publication of its line lies at the end of ``scratch``, for ``others``.

    Returns how many publications there are, how many others, the bytes of the publications, the number of their line,
    -1 if they have several, and the sockets that were ready, or an error number of epoll with its sign changed. If an
    array has no room for all that may come, nothing is read.
    """
    most = files.size
    if not (
        events.size >= most * EVENT_BYTES
        and rows.shape[1] == ROW_COLUMNS
        and lines.size >= sizes.size * LINE_BYTES_MAX
        and scratch.size >= SCRATCH_BYTES
        and spans.shape[0] >= most
        and spans.shape[1] == 2
        and others.shape[0] >= most
        and others.shape[1] == OTHER_COLUMNS
    ):
        return 0, 0, 0, -1, -1
    ready = wait_ready(epoll, events, most)
    taken, rest, at, top, met = 0, 0, 0, SCRATCH_BYTES, set()
    for index in range(ready):
        place = index * EVENT_BYTES + EVENT_FD
        file = int.from_bytes(events[place : place + 4].tobytes(), sys.byteorder)
        if file >= len(rows) or not rows[file, IS_LENT]:
            continue
        if at + SCRATCH_BYTES - top > PASS_BYTES_MAX:
            break
        if rows[file, OWED]:
            others[rest], rest = (file, at, at, BUSY), rest + 1
            continue
        got = receive(file, scratch, at, READ_BYTES_MAX)
        if got == -errno.EAGAIN:
            continue
        data = scratch[at : at + max(got, 0)].tobytes()
        line = int(rows[file, LINE])
        known = lines[line * LINE_BYTES_MAX :][: sizes[line]].tobytes() if 0 <= line < sizes.size else b""
        if _is_publication(data, known):
            rows[file, COUNT] += 1
            rows[file, HEARD_US] = now_us
            met.add(line)
            files[taken], spans[taken], taken = file, (at, at + got), taken + 1
            at += got
        elif got > 0:
            top -= got
            scratch[top : top + got] = scratch[at : at + got].copy()
            others[rest], rest = (file, top, top + got, UNKNOWN), rest + 1
        else:
            others[rest], rest = (file, at, at, ENDED), rest + 1
    return taken, rest, at, met.pop() if len(met) == 1 else -1, ready


def _is_publication(data: bytes, line: bytes) -> bool:
    body = len(line) + SIZE_BYTES
    is_known = 0 < len(line) <= LINE_BYTES_MAX and len(data) > body and data.startswith(line)
    return is_known and int.from_bytes(data[len(line) : body], "big") == len(data) - body

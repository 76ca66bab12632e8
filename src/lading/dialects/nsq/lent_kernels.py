"""Kernel that reads sockets whose next bytes are known; ``lent_fallback.py`` says the same in plain Python.

In bounds: ``_has_room`` compares the sizes of all arrays once. The system writes at most as many events as were asked
for, a file number is compared with the rows before its row is read, and each read has READ_BYTES_MAX of scratch left.
"""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Longs, Table
from lading.kernels.big_endian import big32
from lading.kernels.lent_layout import (
    BUSY,
    COUNT,
    END,
    ENDED,
    EVENT_BYTES,
    EVENT_FD,
    FILE,
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
    START,
    STATE,
    UNKNOWN,
)
from lading.kernels.memory import base, load8, load32, memcpy
from lading.kernels.signature import (
    BYTES,
    INT,
    LONG,
    LONGS,
    OUT_BYTES,
    OUT_LONGS,
    OUT_TABLE,
    int32,
    int64,
    kernel,
    routine,
    several,
)
from lading.kernels.system_calls import receive, wait_ready

from .send_layout import SIZE_BYTES

_AGAIN = -11
"""EAGAIN of Linux, as ``receive`` returns it."""


@routine
def _has_room(
    events: Bytes, rows: Table, lines: Bytes, sizes: Longs, scratch: Bytes, files: Longs, spans: Table, others: Table
) -> bool:
    most = files.size
    return (
        events.size >= most * EVENT_BYTES
        and rows.shape[1] == ROW_COLUMNS
        and lines.size >= sizes.size * LINE_BYTES_MAX
        and scratch.size >= SCRATCH_BYTES
        and spans.shape[0] >= most
        and spans.shape[1] == 2
        and others.shape[0] >= most
        and others.shape[1] == OTHER_COLUMNS
    )


@routine
def _is_publication(scratch: Bytes, at: int, end: int, lines: Bytes, line: int, size: int) -> bool:
    """Whether these bytes are one whole command with this line."""
    data, known = base(scratch), base(lines)
    body = at + size + SIZE_BYTES
    if size <= 0 or size > LINE_BYTES_MAX or body >= end:
        return False
    step = 0
    while step < size:
        if load8(data, at + step) != load8(known, line + step):
            return False
        step += 1
    return big32(data, at + size) == end - body


@kernel(several(5)(INT, OUT_BYTES, OUT_TABLE, BYTES, LONGS, OUT_BYTES, OUT_LONGS, OUT_TABLE, OUT_TABLE, LONG))
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
    """See ``lent_fallback.receive_publications``."""
    if not _has_room(events, rows, lines, sizes, scratch, files, spans, others):
        return 0, 0, 0, -1, -1
    ready = wait_ready(epoll, events, int32(files.size))
    taken, rest, at, top = 0, 0, 0, SCRATCH_BYTES
    one_line = int64(-1)
    for index in range(min(ready, files.size)):
        file = int64(load32(events, index * EVENT_BYTES + EVENT_FD))
        if file >= rows.shape[0] or rows[file, IS_LENT] == 0:
            continue
        if at + SCRATCH_BYTES - top > PASS_BYTES_MAX:
            break
        state, start, end = BUSY, at, at
        if rows[file, OWED] == 0:
            got = receive(int32(file), scratch, at, READ_BYTES_MAX)
            if got == _AGAIN:
                continue
            line = rows[file, LINE]
            end = at + max(got, 0)
            state = ENDED if got <= 0 else UNKNOWN
            is_known = 0 <= line < sizes.size
            if is_known and _is_publication(scratch, at, end, lines, line * LINE_BYTES_MAX, sizes[line]):
                rows[file, COUNT] += 1
                rows[file, HEARD_US] = now_us
                one_line = line if taken == 0 or one_line == line else int64(-1)
                files[taken] = file
                spans[taken, 0], spans[taken, 1] = at, end
                taken += 1
                at = end
                continue
            if got > 0:
                # out of the way: publications lie one after the other; two reads are left between ``at`` and ``top``
                top -= got
                memcpy(scratch, top, scratch, at, got)
                start, end = top, top + got
        others[rest, FILE], others[rest, START], others[rest, END], others[rest, STATE] = file, start, end, state
        rest += 1
    return taken, rest, at, one_line, ready

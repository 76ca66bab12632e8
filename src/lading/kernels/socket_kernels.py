"""Kernels that read and write many sockets; ``socket_fallback.py`` says the same in plain Python.

In bounds: each kernel compares the sizes of its arrays once. The system writes at most as many events as were asked
for, a file number is compared with the rows before its row is read, and each read has READ_BYTES_MAX of scratch left.
"""

from __future__ import annotations

from .arrays import Bytes, Longs, Table
from .lent_layout import (
    BUSY,
    END,
    ENDED,
    EVENT_BYTES,
    EVENT_FD,
    FILE,
    IS_LENT,
    OTHER_COLUMNS,
    OWED,
    PASS_BYTES_MAX,
    READ_BYTES_MAX,
    ROW_COLUMNS,
    SCRATCH_BYTES,
    START,
    STATE,
)
from .memory import load32
from .signature import BYTES, INT, LONG, LONGS, OUT_BYTES, OUT_LONGS, OUT_TABLE, TABLE, int32, int64, kernel, several
from .system_calls import receive, send_part, wait_ready

_AGAIN = -11
"""EAGAIN of Linux, as ``receive`` returns it."""


@kernel(several(3)(INT, OUT_BYTES, TABLE, OUT_BYTES, OUT_LONGS, OUT_TABLE, OUT_TABLE))
def receive_ready(
    epoll: int, events: Bytes, rows: Table, scratch: Bytes, files: Longs, spans: Table, others: Table
) -> tuple[int, int, int]:
    """See ``socket_fallback.receive_ready``."""
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
    ready = wait_ready(epoll, events, int32(most))
    count, rest, at = 0, 0, 0
    for index in range(min(ready, most)):
        file = int64(load32(events, index * EVENT_BYTES + EVENT_FD))
        if file >= rows.shape[0] or rows[file, IS_LENT] == 0:
            continue
        if at > PASS_BYTES_MAX:
            break
        state = BUSY
        if rows[file, OWED] == 0:
            got = receive(int32(file), scratch, at, READ_BYTES_MAX)
            if got == _AGAIN:
                continue
            if got > 0:
                files[count] = file
                spans[count, 0], spans[count, 1] = at, at + got
                count += 1
                at += got
                continue
            state = ENDED
        others[rest, FILE], others[rest, START], others[rest, END], others[rest, STATE] = file, at, at, state
        rest += 1
    return count, rest, ready


@kernel(LONG(LONGS, BYTES, LONG, OUT_TABLE))
def send_responses(files: Longs, data: Bytes, size: int, unsent: Table) -> int:
    """See ``socket_fallback.send_responses``."""
    failed = 0
    step = 0 if data.size == size else size
    if size < 0 or data.size < (files.size - 1) * step + size or unsent.shape[0] < files.size or unsent.shape[1] < 2:
        return -1
    for index in range(files.size):
        sent = send_part(int32(files[index]), data, index * step, size)
        if sent != size:
            unsent[failed, 0] = index
            unsent[failed, 1] = max(sent, 0)
            failed += 1
    return failed

"""Kernel that finds sends whose beginning is known; ``single_send_fallback.py`` is its reference.

In bounds: the kernel compares the sizes of its arrays once, and each place of ``spans`` with ``scratch``, before it
reads there. A request is read up to its end only, and of a line as much as its room has.
"""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Longs, Table
from lading.kernels.lent_layout import (
    COUNT,
    END,
    FILE,
    HEARD_US,
    LINE,
    LINE_BYTES_MAX,
    OTHER_COLUMNS,
    ROW_COLUMNS,
    START,
    STATE,
    UNKNOWN,
)
from lading.kernels.memory import base, load8, load32
from lading.kernels.signature import (
    BYTES,
    LONG,
    LONGS,
    OUT_LONGS,
    OUT_TABLE,
    int64,
    kernel,
    routine,
    several,
)

from .single_send_layout import LENGTH_BYTES


@routine
def _is_request(scratch: Bytes, at: int, end: int, lines: Bytes, line: int, size: int) -> bool:
    """Whether these bytes are one whole request with this line, and more after it."""
    data, known = base(scratch), base(lines)
    if size <= 0 or size > LINE_BYTES_MAX or end - at <= LENGTH_BYTES + size:
        return False
    if int64(load32(data, at)) != end - at - LENGTH_BYTES:
        return False
    step = 0
    while step < size and load8(data, at + LENGTH_BYTES + step) == load8(known, line + step):
        step += 1
    return step == size


@kernel(several(4)(BYTES, LONG, OUT_LONGS, OUT_TABLE, LONG, OUT_TABLE, BYTES, LONGS, OUT_TABLE, LONG))
def judge_sends(
    scratch: Bytes,
    read_count: int,
    files: Longs,
    spans: Table,
    rest: int,
    rows: Table,
    lines: Bytes,
    sizes: Longs,
    others: Table,
    now_us: int,
) -> tuple[int, int, int, int]:
    """See ``single_send_fallback.judge_sends``."""
    if (
        read_count < 0
        or rest < 0
        or files.size < read_count
        or spans.shape[0] < read_count
        or spans.shape[1] != 2
        or rows.shape[1] != ROW_COLUMNS
        or lines.size < sizes.size * LINE_BYTES_MAX
        or others.shape[0] < rest + read_count
        or others.shape[1] != OTHER_COLUMNS
    ):
        return 0, 0, 0, -2
    taken, size_bytes, one_line = 0, int64(0), int64(-1)
    for index in range(read_count):
        file, start, end = files[index], spans[index, 0], spans[index, 1]
        if file < 0 or file >= rows.shape[0] or start < 0 or end > scratch.size:
            continue
        line = rows[file, LINE]
        is_known = 0 <= line < sizes.size
        if not is_known or not _is_request(scratch, start, end, lines, line * LINE_BYTES_MAX, sizes[line]):
            others[rest, FILE], others[rest, START], others[rest, END], others[rest, STATE] = file, start, end, UNKNOWN
            rest += 1
            continue
        one_line = line if taken == 0 or one_line == line else int64(-1)
        rows[file, COUNT] += 1
        rows[file, HEARD_US] = now_us
        files[taken] = file
        spans[taken, 0], spans[taken, 1] = start, end
        size_bytes += end - start
        taken += 1
    return taken, rest, size_bytes, one_line

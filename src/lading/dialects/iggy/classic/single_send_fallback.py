"""Sends whose beginning is known, in plain Python: the reference for the kernel of the same name."""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Longs, Table
from lading.kernels.lent_layout import (
    COUNT,
    HEARD_US,
    LINE,
    LINE_BYTES_MAX,
    OTHER_COLUMNS,
    ROW_COLUMNS,
    UNKNOWN,
)

from .single_send_layout import LENGTH_BYTES


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
    """Keep single requests that begin with the line of their socket apart from all else that was read.

    ``files`` and ``spans`` have the sockets that were read and the places of their bytes in ``scratch``; ``rows``,
    ``others`` (of which ``rest`` are in use) and ``lines`` are as ``lent_layout`` of ``kernels`` has them. A request is
    taken if it is all that was read, and more follows its line. ``files`` and ``spans`` then have those at the front,
    and their rows count them at ``now_us``. All else is added to ``others``.

    Returns how many are taken, how many others there are, the bytes of the requests, and their line, -1 if they have
    several, or without any; or 0, 0, 0 and -2 if an array has no room for all that may come.
    """
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
    taken, size_bytes, kinds = 0, 0, set()
    for index in range(read_count):
        file, (start, end) = int(files[index]), spans[index].tolist()
        if not 0 <= file < len(rows) or start < 0 or end > scratch.size:
            continue
        number = int(rows[file, LINE])
        known = lines[number * LINE_BYTES_MAX :][: sizes[number]].tobytes() if 0 <= number < sizes.size else b""
        data = scratch[start:end].tobytes()
        length = int.from_bytes(data[:LENGTH_BYTES], "little")
        if (
            not 0 < len(known) <= LINE_BYTES_MAX
            or len(data) <= LENGTH_BYTES + len(known)
            or length != len(data) - LENGTH_BYTES
            or not data.startswith(known, LENGTH_BYTES)
        ):
            others[rest], rest = (file, start, end, UNKNOWN), rest + 1
            continue
        kinds.add(number)
        rows[file, COUNT] += 1
        rows[file, HEARD_US] = now_us
        files[taken], spans[taken] = file, (start, end)
        size_bytes += end - start
        taken += 1
    return taken, rest, size_bytes, kinds.pop() if len(kinds) == 1 else -1

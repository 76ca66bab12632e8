"""The sync loop in plain Python, for as long as its kernel is not loaded, and as what the kernel is held against."""

from __future__ import annotations

import os
import struct

from numpy.typing import NDArray

_sync = getattr(os, "fdatasync", os.fsync)


def sync_round(inp: int, out: int, capacity: int) -> int:
    """Sync the files whose numbers are next in the pipe, at most ``capacity``. Return how many; 0 at the pipe's end."""
    data = os.read(inp, 4 * capacity)
    while data and len(data) % 4:
        more = os.read(inp, 4 - len(data) % 4)
        data = data + more if more else b""
    fds = struct.unpack(f"<{len(data) // 4}i", data)
    answers = bytes(map(_answer, fds))
    while answers:
        answers = answers[os.write(out, answers) :]
    return len(fds)


def sync_rounds(inp: int, out: int, fds: NDArray, answers: NDArray) -> int:  # type: ignore[type-arg]
    """As the kernel of the same name; the arrays only say how many files one turn takes."""
    done = 0
    while count := sync_round(inp, out, min(fds.size // 4, answers.size)):
        done += count
    return done


def _answer(fd: int) -> int:
    try:
        _sync(fd)
    except OSError as error:
        return error.errno if error.errno is not None and 0 < error.errno < 255 else 255
    return 0

"""The loop of the sync thread: file numbers in, one response byte for each out, never taking the interpreter's lock.

The Python fallback is ``sync_fallback.py``.
"""

from __future__ import annotations

import errno
import sys
from typing import Any

import numba
import numpy as np

from .arrays import Bytes
from .error_number import read_error_number
from .memory import address, load32, store8
from .signature import INT, LONG, OUT_BYTES, kernel, routine

types: Any = numba.types

_transfer = types.int64(types.int32, types.voidptr, types.int64)
_read = types.ExternalFunction("read", _transfer)
_write = types.ExternalFunction("write", _transfer)
_sync = types.ExternalFunction("fdatasync" if sys.platform == "linux" else "fsync", types.int32(types.int32))
_EINTR = errno.EINTR
_UNKNOWN = 255
"""A response is one byte."""


@routine
def _fill(inp: int, buffer: Bytes, have: int, want: int) -> int:
    """Read until ``buffer`` holds at least ``want`` bytes; how many it holds, or -1 at the end of the pipe."""
    while have < want:
        got = _read(inp, address(buffer, have), buffer.size - have)
        if got > 0:
            have += got
        elif got == 0 or read_error_number() != _EINTR:
            return -1
    return have


@kernel(LONG(INT, INT, OUT_BYTES, OUT_BYTES))
def sync_rounds(inp: int, out: int, fds: Bytes, answers: Bytes) -> int:
    """Until ``inp`` ends: read file numbers (int32 each), sync each file, write one byte for each to ``out``.

    A byte is 0 for done, else the error number (255 if it does not fit). ``fds`` is room for at least one number,
    ``answers`` for as many bytes as ``fds`` has numbers. An interrupted call is repeated, a failed sync never. Returns
    the number of files synced.
    """
    done = 0
    # in bounds: at most ``fds.size`` bytes are read, so ``count`` numbers lie in it and as many bytes in ``answers``
    if fds.size < 4 or answers.size < fds.size // 4:
        return done
    while True:
        have = _fill(inp, fds, 0, 4)
        if have > 0 and have % 4:
            have = _fill(inp, fds, have, have + 4 - have % 4)
        if have < 0:
            return done
        count = have // 4
        for index in range(count):
            answer = 0
            while _sync(np.int32(load32(fds, 4 * index))) != 0:
                answer = read_error_number()
                if answer != _EINTR:
                    break
                answer = 0
            store8(answers, index, answer if 0 <= answer < _UNKNOWN else _UNKNOWN)
        done += count
        sent = 0
        while sent < count:
            wrote = _write(out, address(answers, sent), count - sent)
            if wrote > 0:
                sent += wrote
            elif wrote == 0 or read_error_number() != _EINTR:
                return done

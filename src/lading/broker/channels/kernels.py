"""Kernels of a channel's window. The twins in ``fallback.py`` say what they do."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

njit: Any = numba.njit
types: Any = numba.types

_i64 = types.int64
_offsets = types.Array(types.int64, 1, "C", readonly=True)
_owners = types.int32[::1]
_times = types.int64[::1]
_counts = types.uint16[::1]
_tries = types.int64[::1]

_DONE, _WAITING = -1, -2
_ATTEMPTS_MAX = 0xFFFF


@njit(types.UniTuple(_i64, 2)(_offsets, _i64, _owners, _i64, _i64, _i64), nogil=True, cache=True)
def finish(offsets: Any, start: Any, owners: Any, first: Any, end: Any, owner: Any) -> Any:
    mask = owners.shape[0] - 1
    at = start
    while at < offsets.shape[0]:
        offset = offsets[at]
        if offset < first or offset >= end or owners[offset & mask] != owner:
            break
        owners[offset & mask] = _DONE
        at += 1
    while first < end and owners[first & mask] == _DONE:
        first += 1
    return at, first


@njit(
    types.void(_offsets, _i64, _i64, _i64, _owners, _times, _times, _counts, _tries),
    nogil=True,
    cache=True,
)
def hand_over(
    offsets: Any,
    owner: Any,
    now_us: Any,
    deadline_us: Any,
    owners: Any,
    deadlines: Any,
    delivered: Any,
    attempts: Any,
    counted: Any,
) -> Any:
    mask = owners.shape[0] - 1
    for at in range(offsets.shape[0]):
        slot = offsets[at] & mask
        owners[slot] = owner
        deadlines[slot] = deadline_us
        delivered[slot] = now_us
        tries = np.int64(attempts[slot])
        if tries < _ATTEMPTS_MAX:
            tries += 1
        attempts[slot] = tries
        counted[at] = tries


@njit(types.UniTuple(_i64, 2)(_i64, _i64, _owners, _times, _i64, types.int64[::1]), nogil=True, cache=True)
def expire(first: Any, end: Any, owners: Any, deadlines: Any, now_us: Any, late: Any) -> Any:
    mask = owners.shape[0] - 1
    found = 0
    soonest = np.int64(0x7FFFFFFFFFFFFFFF)
    for offset in range(first, end):
        slot = offset & mask
        if owners[slot] > 0:
            if deadlines[slot] <= now_us and found < late.shape[0]:
                late[found] = offset
                found += 1
            elif deadlines[slot] < soonest:
                soonest = deadlines[slot]
    return found, soonest

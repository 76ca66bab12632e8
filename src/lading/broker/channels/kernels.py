"""Kernels of a channel's window. The fallbacks in ``fallback.py`` say what they do."""

from __future__ import annotations

from lading.kernels.arrays import Ints, Longs, Shorts
from lading.kernels.signature import LONG, LONGS, NOTHING, OUT_INTS, OUT_LONGS, OUT_SHORTS, int64, kernel, several

from .window_layout import ATTEMPTS_MAX, DONE, NEVER_US


@kernel(several(2)(LONGS, LONG, OUT_INTS, LONG, LONG, LONG))
def finish(offsets: Longs, start: int, owners: Ints, first: int, end: int, owner: int) -> tuple[int, int]:
    mask = owners.shape[0] - 1
    at = start
    while at < offsets.shape[0]:
        offset = offsets[at]
        if offset < first or offset >= end or owners[offset & mask] != owner:
            break
        owners[offset & mask] = DONE
        at += 1
    while first < end and owners[first & mask] == DONE:
        first += 1
    return at, first


@kernel(NOTHING(LONGS, LONG, LONG, LONG, OUT_INTS, OUT_LONGS, OUT_LONGS, OUT_SHORTS, OUT_LONGS))
def hand_over(
    offsets: Longs,
    owner: int,
    now_us: int,
    deadline_us: int,
    owners: Ints,
    deadlines: Longs,
    delivered: Longs,
    attempts: Shorts,
    counted: Longs,
) -> None:
    mask = owners.shape[0] - 1
    for at in range(offsets.shape[0]):
        slot = offsets[at] & mask
        owners[slot] = owner
        deadlines[slot] = deadline_us
        delivered[slot] = now_us
        tries = int64(attempts[slot])
        if tries < ATTEMPTS_MAX:
            tries += 1
        attempts[slot] = tries
        counted[at] = tries


@kernel(several(2)(LONG, LONG, OUT_INTS, OUT_LONGS, LONG, OUT_LONGS))
def expire(first: int, end: int, owners: Ints, deadlines: Longs, now_us: int, late: Longs) -> tuple[int, int]:
    mask = owners.shape[0] - 1
    found = 0
    soonest = int64(NEVER_US)
    for offset in range(first, end):
        slot = offset & mask
        if owners[slot] > 0:
            if deadlines[slot] <= now_us and found < late.shape[0]:
                late[found] = offset
                found += 1
            elif deadlines[slot] < soonest:
                soonest = deadlines[slot]
    return found, soonest

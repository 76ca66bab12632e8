"""Readable fallbacks of the kernels of a channel's window: same names, same arguments, same results."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .window_layout import ATTEMPTS_MAX, DONE, NEVER_US

Offsets = NDArray[np.int64]
Owners = NDArray[np.int32]
Times = NDArray[np.int64]
Counts = NDArray[np.uint16]


def finish(offsets: Offsets, start: int, owners: Owners, first: int, end: int, owner: int) -> tuple[int, int]:
    """Mark ``offsets[start:]`` done, up to the first one that is outside ``first`` to ``end`` or belongs to another
    owner.

    Returns the index of that one (or the length), and the new beginning of the window, after its leading done messages.
    """
    mask = len(owners) - 1
    at = start
    while at < len(offsets):
        offset = int(offsets[at])
        if not first <= offset < end or owners[offset & mask] != owner:
            break
        owners[offset & mask] = DONE
        at += 1
    while first < end and owners[first & mask] == DONE:
        first += 1
    return at, first


def hand_over(
    offsets: Offsets,
    owner: int,
    now_us: int,
    deadline_us: int,
    owners: Owners,
    deadlines: Times,
    delivered: Times,
    attempts: Counts,
    counted: Offsets,
) -> None:
    """Give ``offsets`` to ``owner`` until ``deadline_us``; write into ``counted`` which attempt this is for each."""
    slots = offsets & (len(owners) - 1)
    owners[slots] = owner
    deadlines[slots] = deadline_us
    delivered[slots] = now_us
    counted[:] = np.minimum(attempts[slots].astype(np.int64) + 1, ATTEMPTS_MAX)
    attempts[slots] = counted


def expire(first: int, end: int, owners: Owners, deadlines: Times, now_us: int, late: Offsets) -> tuple[int, int]:
    """Fill ``late`` with offsets whose deadline has passed. Return how many, and the earliest deadline of
    the others.
    """
    offsets = np.arange(first, end)
    slots = offsets & (len(owners) - 1)
    owned = owners[slots] > 0
    over = np.flatnonzero(owned & (deadlines[slots] <= now_us))[: len(late)]
    late[: len(over)] = offsets[over]
    owned[over] = False
    return len(over), int(deadlines[slots][owned].min(initial=NEVER_US))

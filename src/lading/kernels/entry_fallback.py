"""``entry_kernels`` in NumPy: the reference in tests, and what serves until the kernels are loaded."""

from __future__ import annotations

import numpy as np

from .arrays import Bytes, Ints, Kinds, Longs


def find_last(lists: Ints, keys: Bytes, key_ends: Ints, key: Bytes, found: Longs) -> None:
    """Write the position of the last entry of each list whose key is ``key`` into ``found``, or -1.

    ``lists`` holds n + 1 list ends, entry j has the key ``keys[key_ends[j] : key_ends[j + 1]]``.
    """
    found[:] = -1
    first, end = int(lists[0]), int(lists[-1])
    begins = key_ends[first:end].astype(np.int64)
    entries = np.flatnonzero(key_ends[first + 1 : end + 1] - begins == len(key))
    for index, octet in enumerate(key.tolist()):
        entries = entries[keys[begins[entries] + index] == octet]
    entries += first
    # assignment in the order of entries: the last one stays
    found[np.searchsorted(lists, entries, side="right") - 1] = entries


def locate_last(
    lists: Ints,
    keys: Bytes,
    key_ends: Ints,
    key: Bytes,
    kinds: Kinds,
    value_ends: Ints,
    valid: Bytes,
    valid_at: int,
    start: Longs,
    length: Longs,
    kind: Kinds,
) -> None:
    """Write the position of the value of the last entry with ``key`` for each list, in the form of ``Located``.

    Lists and keys are those of ``find_last``. Entry j has ``kinds[j]`` and a value from ``value_ends[j]`` to
    ``value_ends[j + 1]``; it is null if bit ``valid_at + j`` of ``valid``, which is empty if none is null, is 0.
    """
    last = np.empty(len(start), np.int64)
    find_last(lists, keys, key_ends, key, last)
    start[:], length[:], kind[:] = 0, -1, 0
    read_values(last, kinds, value_ends, valid, valid_at, start, length, kind)


def read_values(
    last: Longs, kinds: Kinds, value_ends: Ints, valid: Bytes, valid_at: int, start: Longs, length: Longs, kind: Kinds
) -> None:
    """Write the positions of the values of entries, as ``locate_last`` does; -1 in ``last`` means no entry."""
    present = last >= 0
    chosen = last[present]
    start[present] = value_ends[chosen]
    kind[present] = kinds[chosen]
    sizes = (value_ends[chosen + 1] - value_ends[chosen]).astype(np.int64)
    if len(valid):
        bits = chosen + valid_at
        sizes[(valid[bits >> 3] >> (bits & 7).astype(np.uint8)) & 1 == 0] = -2
    length[present] = sizes

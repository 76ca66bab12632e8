"""One header of each list of headers that Arrow holds; ``entry_fallback.py`` says the same in NumPy.

In bounds: Arrow's ends of lists, keys and values bound the entries and their bytes, the caller gives one kind for each
entry, and a bit of ``valid`` for each unless that is empty.
"""

from __future__ import annotations

from .arrays import Bytes, Ints, Kinds, Longs
from .memory import base, load8
from .signature import BYTES, INTS, KINDS, LONG, NOTHING, OUT_KINDS, OUT_LONGS, Address, int64, kernel, step


@step
def _find_last(first: int, end: int, keys: Address, key_ends: Ints, key: Address, size: int) -> int:
    """The last entry before ``end`` that has the key, or -1."""
    entry = end - 1
    while entry >= first:
        at = int64(key_ends[entry])
        if key_ends[entry + 1] - at == size:
            same = int64(0)
            while same < size and load8(keys, at + same) == load8(key, same):
                same += 1
            if same == size:
                return entry
        entry -= 1
    return int64(-1)


@kernel(NOTHING(INTS, BYTES, INTS, BYTES, OUT_LONGS))
def find_last(lists: Ints, keys: Bytes, key_ends: Ints, key: Bytes, found: Longs) -> None:
    """See ``entry_fallback.find_last``."""
    key_data, wanted, size = base(keys), base(key), int64(key.size)
    for row in range(found.size):
        found[row] = _find_last(int64(lists[row]), int64(lists[row + 1]), key_data, key_ends, wanted, size)


@kernel(NOTHING(INTS, BYTES, INTS, BYTES, KINDS, INTS, BYTES, LONG, OUT_LONGS, OUT_LONGS, OUT_KINDS))
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
    """See ``entry_fallback.locate_last``."""
    key_data, wanted, size = base(keys), base(key), int64(key.size)
    for row in range(start.size):
        entry = _find_last(int64(lists[row]), int64(lists[row + 1]), key_data, key_ends, wanted, size)
        if entry < 0:
            start[row], length[row], kind[row] = 0, -1, 0
            continue
        at = int64(value_ends[entry])
        start[row] = at
        kind[row] = kinds[entry]
        bit = valid_at + entry
        if valid.size > 0 and (valid[bit >> 3] >> (bit & 7)) & 1 == 0:
            length[row] = -2
        else:
            length[row] = value_ends[entry + 1] - at

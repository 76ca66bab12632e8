"""The last offset of each key, in a fixed amount of memory: keys as digests of 16 bytes, sorted, in NumPy arrays."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

DIGEST_BYTES: Final = 16
_KEY_BYTES: Final = 96
"""A row has 24 bytes; while rows are sorted there are two copies of them, the order, and rows that wait."""
_WAITING_SHARE: Final = 4
"""New keys wait, and are sorted in together once less than this share of the memory is free."""
KEYS_MIN: Final = 64

Digests = NDArray[np.uint64]
"""Two words for each key."""


class KeyOffsets:
    """The last offset of each key that was added; the number of keys is limited by ``memory_bytes``.

    Digests are keyed with a secret of this object: nobody can make two keys that are taken for one.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._keys_max = max(memory_bytes // _KEY_BYTES, KEYS_MIN)
        self._secret = secrets.token_bytes(DIGEST_BYTES)
        self._digests: Digests = np.empty((0, 2), np.uint64)
        self._offsets: NDArray[np.int64] = np.empty(0, np.int64)
        self._waiting: list[tuple[Digests, NDArray[np.int64]]] = []
        self._waiting_count = 0

    def __len__(self) -> int:
        self._sort_in()
        return len(self._offsets)

    def digest(self, keys: Iterable[bytes]) -> Digests:
        """Return the digests of keys."""
        secret = self._secret
        data = b"".join([blake2b(key, digest_size=DIGEST_BYTES, key=secret).digest() for key in keys])
        return np.frombuffer(data, np.uint64).reshape(-1, 2)

    def add(self, digests: Digests, offsets: NDArray[np.int64]) -> int:
        """Add keys at ascending offsets, above all that were added before; return how many of these were taken.

        They are fewer than all if the memory is full.
        """
        taken = 0
        while taken < len(offsets):
            room = self._keys_max - len(self._offsets) - self._waiting_count
            if room < max(self._keys_max // _WAITING_SHARE, 1) and self._waiting:
                self._sort_in()
                room = self._keys_max - len(self._offsets)
            if room <= 0:
                break
            count = min(len(offsets) - taken, room, max(self._keys_max // _WAITING_SHARE, 1))
            self._waiting.append((digests[taken : taken + count], offsets[taken : taken + count]))
            self._waiting_count += count
            taken += count
        return taken

    def find(self, digests: Digests) -> NDArray[np.int64]:
        """Return the last offset of each key, or -1 for a key that was not added."""
        self._sort_in()
        found = np.full(len(digests), -1, np.int64)
        if not len(self._offsets) or not len(digests):
            return found
        places = np.searchsorted(self._digests[:, 0], digests[:, 0])
        rows = np.arange(len(digests))
        while len(rows):
            inside = places < len(self._offsets)
            rows, places = rows[inside], places[inside]
            same_first = self._digests[places, 0] == digests[rows, 0]
            rows, places = rows[same_first], places[same_first]
            same = self._digests[places, 1] == digests[rows, 1]
            found[rows[same]] = self._offsets[places[same]]
            # as good as never: other keys with the same first word
            rows, places = rows[~same], places[~same] + 1
        return found

    def _sort_in(self) -> None:
        if not self._waiting:
            return
        digests: Any = np.concatenate([self._digests, *(rows for rows, _ in self._waiting)])
        offsets = np.concatenate([self._offsets, *(rows for _, rows in self._waiting)])
        self._waiting, self._waiting_count = [], 0
        # stable: of equal digests the later offset comes last
        order = np.lexsort((digests[:, 1], digests[:, 0]))
        digests, offsets = digests[order], offsets[order]
        is_last = np.ones(len(offsets), np.bool_)
        is_last[:-1] = (digests[1:] != digests[:-1]).any(axis=1)
        self._digests, self._offsets = np.ascontiguousarray(digests[is_last]), offsets[is_last]

"""Ids that are drawn for messages without one: random UUIDs (version 4) in the bytes of the wire."""

from __future__ import annotations

import os
import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

_MASK: Final = (1 << 64) - 1
IDS_PER_SEED: Final = 1 << 16
DRAWN, SEED, WORDS = 4, 5, 6
"""Places in the six words, after the four of the generator: the number of ids drawn, and a seed for hashing."""


def random_state() -> NDArray[np.uint64]:
    """Return the state for drawing ids: four words of xoshiro256**, a count, a seed for hashing; one for each thread.

    Seeded by the operating system, and again after every 65,536 ids: ids are unique and well spread, but not secret.
    """
    return np.frombuffer(os.urandom(32) + bytes(8) + os.urandom(8), np.uint64).copy()


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & _MASK


def draw_uuid4(state: NDArray[np.uint64]) -> bytes:
    """Draw a random UUID (version 4) from xoshiro256**, four words in ``state[:4]``; ``state[4]`` counts the draws."""
    s0, s1, s2, s3 = state[:4].tolist()
    words = []
    for _ in range(2):
        words.append(_rotate(s1 * 5 & _MASK, 7) * 9 & _MASK)
        shifted = s1 << 17 & _MASK
        s2 ^= s0
        s3 ^= s1
        s1 ^= s2
        s0 ^= s3
        s2 ^= shifted
        s3 = _rotate(s3, 45)
    state[:4] = s0, s1, s2, s3
    state[DRAWN] += np.uint64(1)
    uuid = bytearray(struct.pack("<2Q", *words))
    uuid[6] = uuid[6] & 0x0F | 0x40
    uuid[8] = uuid[8] & 0x3F | 0x80
    return bytes(uuid)

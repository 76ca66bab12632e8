"""Ids drawn inside kernels; ``ids.py`` is what needs no Numba. In bounds: callers hold the six words of the state."""

from __future__ import annotations

from lading.kernels.memory import load64, store64
from lading.kernels.signature import Data, inline, step, uint64

_KEEP_LOW, _VERSION = uint64(0xFF0FFFFFFFFFFFFF), uint64(0x0040000000000000)
_KEEP_HIGH, _VARIANT = uint64(0xFFFFFFFFFFFFFF3F), uint64(0x80)
_NO_ID = uint64(0)


@inline
def _rotate(word: int, bits: int) -> int:
    return (word << uint64(bits)) | (word >> uint64(64 - bits))


@inline
def _next(state: Data) -> int:
    """xoshiro256**: the next 64 bits, from four words at an address."""
    s0, s1, s2, s3 = load64(state, 0), load64(state, 8), load64(state, 16), load64(state, 24)
    result = _rotate(s1 * uint64(5), 7) * uint64(9)
    shifted = s1 << uint64(17)
    s2 ^= s0
    s3 ^= s1
    store64(state, 0, s0 ^ s3)
    store64(state, 8, s1 ^ s2)
    store64(state, 16, s2 ^ shifted)
    store64(state, 24, _rotate(s3, 45))
    return result


@step
def draw_uuid4(state: Data) -> tuple[int, int]:
    """The next random UUID (version 4) as two words of the wire; counted in the fifth word of the state."""
    low = (_next(state) & _KEEP_LOW) | _VERSION
    high = (_next(state) & _KEEP_HIGH) | _VARIANT
    store64(state, 32, load64(state, 32) + uint64(1))
    return low, high


@step
def read_id(data: Data, at: int, state: Data) -> tuple[int, int]:
    """The 16 bytes of a sent message's id as two words, or the next random UUID if they are zero."""
    # in bounds: callers hold the whole head of the message
    low, high = load64(data, at), load64(data, at + 8)
    if low == _NO_ID and high == _NO_ID:
        low, high = draw_uuid4(state)
    return low, high

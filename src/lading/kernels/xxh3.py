"""XXH3-64 (seed 0, the default secret) inside kernels, after the public specification of xxHash 0.8.

``xxh3_64(array, start, size)`` is the one to call; the fallback that needs no Numba is ``xxhash.xxh3_64_intdigest``. In
bounds: words are read up to ``start + size`` only, which callers keep inside their array, and inside the secret.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _intrinsic

from .memory import load8, load32, load64
from .signature import Data, int64, routine, step, uint64

intrinsic: Any = _intrinsic

_SECRET = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
        "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a"
        "51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8f"
        "f8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
    np.uint8,
)
_P32_1, _P32_2, _P32_3 = uint64(0x9E3779B1), uint64(0x85EBCA77), uint64(0xC2B2AE3D)
_P64_1, _P64_2, _P64_3 = uint64(0x9E3779B185EBCA87), uint64(0xC2B2AE3D27D4EB4F), uint64(0x165667B19E3779F9)
_P64_4, _P64_5 = uint64(0x85EBCA77C2B2AE63), uint64(0x27D4EB2F165667C5)
_MIX_1, _MIX_2 = uint64(0x165667919E3779F9), uint64(0x9FB21C651E98DF25)
_LOW = uint64(0xFFFFFFFF)
_STRIPE, _STRIPES_IN_BLOCK, _BLOCK = 64, 16, 1024
_SCRAMBLE_AT, _LAST_AT, _MERGE_AT, _MIDDLE_LAST_AT = 128, 121, 11, 119
"""Positions in the secret that scrambling, the last stripe, merging, and the last part of a middle input begin at."""


@intrinsic
def _fold(typing_context: Any, x: Any, y: Any) -> Any:
    """The halves of a product of 128 bits, exclusive-ored."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(arg, wide) for arg in args))
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))
        return builder.xor(builder.trunc(product, ir.IntType(64)), high)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def _swap(typing_context: Any, word: Any) -> Any:
    """The bytes of a word in the other order."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bswap(args[0])

    return types.uint64(types.uint64), generate


@step
def _avalanche(word: int) -> int:
    word ^= word >> uint64(37)
    word *= _MIX_1
    return word ^ (word >> uint64(32))


@step
def _avalanche_64(word: int) -> int:
    """The end of XXH64, which the shortest inputs take."""
    word ^= word >> uint64(33)
    word *= _P64_2
    word ^= word >> uint64(29)
    word *= _P64_3
    return word ^ (word >> uint64(32))


@step
def _mix(data: Data, at: int, key: int) -> int:
    """16 bytes with 16 of the secret."""
    low: int = _fold(load64(data, at) ^ load64(_SECRET, key), load64(data, at + 8) ^ load64(_SECRET, key + 8))
    return low


@routine
def _hash_short(data: Data, at: int, size: int) -> int:
    """Up to 16 bytes."""
    length = uint64(size)
    if size > 8:
        low = load64(data, at) ^ load64(_SECRET, 24) ^ load64(_SECRET, 32)
        high = load64(data, at + size - 8) ^ load64(_SECRET, 40) ^ load64(_SECRET, 48)
        return _avalanche(length + _swap(low) + high + _fold(low, high))
    if size >= 4:
        word = uint64(load32(data, at + size - 4)) + (uint64(load32(data, at)) << uint64(32))
        word = uint64(word ^ load64(_SECRET, 8) ^ load64(_SECRET, 16))
        word ^= ((word << uint64(49)) | (word >> uint64(15))) ^ ((word << uint64(24)) | (word >> uint64(40)))
        word *= _MIX_2
        word ^= (word >> uint64(35)) + length
        word *= _MIX_2
        return word ^ (word >> uint64(28))
    if size > 0:
        ends = (uint64(load8(data, at)) << uint64(16)) | uint64(load8(data, at + size - 1))
        word = ends | (uint64(load8(data, at + (size >> 1))) << uint64(24)) | (length << uint64(8))
        return _avalanche_64(word ^ uint64(load32(_SECRET, 0) ^ load32(_SECRET, 4)))
    return _avalanche_64(load64(_SECRET, 56) ^ load64(_SECRET, 64))


@routine
def _hash_middle(data: Data, at: int, size: int) -> int:
    """17 to 240 bytes."""
    word = uint64(size) * _P64_1
    end = at + size
    if size <= 128:
        pair = 0
        while 32 * pair < size:
            word += _mix(data, at + 16 * pair, 32 * pair) + _mix(data, end - 16 * pair - 16, 32 * pair + 16)
            pair += 1
        return _avalanche(word)
    for part in range(8):
        word += _mix(data, at + 16 * part, 16 * part)
    word = _avalanche(word)
    for part in range(8, size // 16):
        word += _mix(data, at + 16 * part, 16 * part - 125)
    return _avalanche(word + _mix(data, end - 16, _MIDDLE_LAST_AT))


Lanes = tuple[int, int, int, int, int, int, int, int]


@step
def _lane(own: int, neighbour: int, word: int, key: int) -> int:
    """One of eight sums: the word of the neighbour, and a product of the halves of its own."""
    mixed = word ^ key
    return own + neighbour + (mixed & _LOW) * (mixed >> uint64(32))


@step
def _accumulate(a: Lanes, data: Data, at: int, key: int) -> Lanes:
    """Take in a stripe of 64 bytes."""
    w0, w1, w2, w3 = load64(data, at), load64(data, at + 8), load64(data, at + 16), load64(data, at + 24)
    w4, w5, w6, w7 = load64(data, at + 32), load64(data, at + 40), load64(data, at + 48), load64(data, at + 56)
    return (
        _lane(a[0], w1, w0, load64(_SECRET, key)),
        _lane(a[1], w0, w1, load64(_SECRET, key + 8)),
        _lane(a[2], w3, w2, load64(_SECRET, key + 16)),
        _lane(a[3], w2, w3, load64(_SECRET, key + 24)),
        _lane(a[4], w5, w4, load64(_SECRET, key + 32)),
        _lane(a[5], w4, w5, load64(_SECRET, key + 40)),
        _lane(a[6], w7, w6, load64(_SECRET, key + 48)),
        _lane(a[7], w6, w7, load64(_SECRET, key + 56)),
    )


@step
def _scramble(word: int, number: int) -> int:
    word ^= (word >> uint64(47)) ^ load64(_SECRET, _SCRAMBLE_AT + 8 * number)
    return word * _P32_1


@routine
def _hash_long(data: Data, at: int, size: int) -> int:
    """More than 240 bytes."""
    a = (_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1)
    end = at + size
    stripe = 0
    # the last stripe is taken by itself, and may overlap the one before
    for _ in range((size - 1) // _STRIPE):
        a = _accumulate(a, data, at, 8 * stripe)
        at += _STRIPE
        stripe += 1
        if stripe == _STRIPES_IN_BLOCK:
            stripe = 0
            a = (
                _scramble(a[0], 0),
                _scramble(a[1], 1),
                _scramble(a[2], 2),
                _scramble(a[3], 3),
                _scramble(a[4], 4),
                _scramble(a[5], 5),
                _scramble(a[6], 6),
                _scramble(a[7], 7),
            )
    a = _accumulate(a, data, end - _STRIPE, _LAST_AT)
    word = uint64(size) * _P64_1
    word += _fold(a[0] ^ load64(_SECRET, _MERGE_AT), a[1] ^ load64(_SECRET, _MERGE_AT + 8))
    word += _fold(a[2] ^ load64(_SECRET, _MERGE_AT + 16), a[3] ^ load64(_SECRET, _MERGE_AT + 24))
    word += _fold(a[4] ^ load64(_SECRET, _MERGE_AT + 32), a[5] ^ load64(_SECRET, _MERGE_AT + 40))
    word += _fold(a[6] ^ load64(_SECRET, _MERGE_AT + 48), a[7] ^ load64(_SECRET, _MERGE_AT + 56))
    return _avalanche(word)


@routine
def xxh3_64(data: Data, start: int, size: int) -> int:
    """XXH3-64 of ``data[start : start + size]``, an unsigned number."""
    at, size = int64(start), int64(size)
    if size > 240:
        return _hash_long(data, at, size)
    if size > 16:
        return _hash_middle(data, at, size)
    return _hash_short(data, at, size)

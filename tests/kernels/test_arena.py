"""Arenas: aligned places, Arrow keeps them, and they are used again only when Arrow has let go."""

from __future__ import annotations

import gc
from itertools import pairwise

import numpy as np
import pyarrow as pa

from lading.kernels.arena import ALIGNMENT, POOL_BYTES_MAX, SMALL_BYTES, Arena, Pool


def test_places_are_aligned_and_apart() -> None:
    memory = Arena([3, -1, 100, 0, 64])
    places = memory.places.tolist()
    assert places[1] == -1
    address = memory.memory.ctypes.data
    wanted = [(place, size) for place, size in zip(places, [3, -1, 100, 0, 64], strict=True) if place >= 0]
    assert all((address + place) % ALIGNMENT == 0 for place, _ in wanted)
    assert all(one + size <= other for (one, size), (other, _) in pairwise(wanted))
    assert wanted[-1][0] + 64 <= memory.memory.size


def test_memory_in_use_is_never_given_out_again() -> None:
    kept = []
    for round_ in range(20):
        memory = Arena([8 * 1000])
        at = int(memory.places[0])
        memory.memory[at : at + 8000].view(np.int64)[:] = round_
        (buffer,) = memory.buffers()
        array = pa.Array.from_buffers(pa.int64(), 1000, [None, buffer])
        del memory, buffer
        if round_ % 3 == 0:
            kept.append((round_, array))
        del array
    gc.collect()
    for round_, array in kept:
        assert array.unique().to_pylist() == [round_]


def test_memory_comes_back_with_the_last_view_of_it() -> None:
    pool = Pool(3)
    answer = pool.memory(SMALL_BYTES + 5)
    answer[:] = 7
    place, body = answer.ctypes.data, answer[100:200]
    buffer = pa.py_buffer(body.data)
    del answer, body
    assert not pool._free
    other = pool.memory(SMALL_BYTES)
    other[:] = 9
    assert other.ctypes.data != place
    assert buffer.to_pybytes() == b"\7" * 100
    del buffer
    again = pool.memory(SMALL_BYTES)
    assert (again.ctypes.data, len(again), again.flags.c_contiguous) == (place, SMALL_BYTES, True)


def test_what_is_too_small_or_too_large_is_not_kept() -> None:
    pool = Pool(3)
    for size_bytes in (0, 1, SMALL_BYTES - 1, POOL_BYTES_MAX + 1):
        assert len(pool.memory(size_bytes)) == size_bytes
    assert not pool._free


def test_a_small_piece_kept_makes_room_for_a_larger_one() -> None:
    pool = Pool(3)
    pool.memory(SMALL_BYTES)
    larger = pool.memory(4 * SMALL_BYTES)
    larger[-1] = 1
    assert len(larger) == 4 * SMALL_BYTES

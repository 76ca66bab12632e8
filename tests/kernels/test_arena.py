"""Arenas: aligned places, Arrow keeps them, and they are used again only when Arrow has let go."""

from __future__ import annotations

import gc
from itertools import pairwise

import numpy as np
import pyarrow as pa

from lading.kernels.arena import ALIGNMENT, Arena


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

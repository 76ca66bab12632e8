"""One flipped bit anywhere in a chunk is found and put right; more damage is never taken for it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from lading.chunk import envelope, fallback
from lading.chunk.bit_repair import repair_chunk
from lading.kernels import engine

BODY_BYTES = 150


@pytest.fixture(scope="module")
def chunk() -> NDArray[np.uint8]:
    data = np.zeros(envelope.ENVELOPE_BYTES + BODY_BYTES, np.uint8)
    data[envelope.ENVELOPE_BYTES :] = np.frombuffer(random.Random(1).randbytes(BODY_BYTES), np.uint8)
    envelope.seal(
        data, 0, data.size, dialect=2, flags=0, base_offset=5, count=3, last_offset_delta=2, min_timestamp_us=1,
        max_timestamp_us=2,
    )  # fmt: skip
    return data


def test_every_single_bit_is_put_right(chunk: NDArray[np.uint8]) -> None:
    for bit in range(8 * chunk.size):
        damaged = np.concatenate([np.zeros(7, np.uint8), chunk, np.zeros(9, np.uint8)])
        damaged[7 + bit // 8] ^= np.uint8(1 << bit % 8)
        found = repair_chunk(damaged, 7, 7 + chunk.size)
        assert found is not None, bit
        assert np.array_equal(found, chunk), bit


def test_two_or_three_bits_are_left_alone(chunk: NDArray[np.uint8]) -> None:
    generator = random.Random(2)
    for _ in range(2_000):
        damaged = chunk.copy()
        # the length is known from the neighbours, so its own damage does not count
        for bit in generator.sample(range(32, 8 * chunk.size), generator.choice((2, 3))):
            damaged[bit // 8] ^= np.uint8(1 << bit % 8)
        found = repair_chunk(damaged, 0, damaged.size)
        assert found is None or not np.array_equal(found, chunk)


def test_two_bits_are_never_mistaken_for_one(chunk: NDArray[np.uint8]) -> None:
    for first in range(64, 8 * chunk.size, 97):
        for second in range(first + 1, 8 * chunk.size, 131):
            damaged = chunk.copy()
            damaged[first // 8] ^= np.uint8(1 << first % 8)
            damaged[second // 8] ^= np.uint8(1 << second % 8)
            assert repair_chunk(damaged, 0, damaged.size) is None


def test_the_kernel_is_its_twin() -> None:
    kernels = engine.load(envelope.KERNEL_MODULE)
    generator = random.Random(3)
    for changed in [0, 1, 0x80, 0xFFFFFFFF, *(generator.getrandbits(32) for _ in range(50))]:
        assert kernels.find_flipped_bit(changed, 90) == fallback.find_flipped_bit(changed, 90)

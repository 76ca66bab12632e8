"""Memory of answers is used again, and never while somebody looks at it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lading.transports import received
from lading.transports.received import KEPT_BYTES_MAX, SMALL_BYTES, memory


@pytest.fixture(autouse=True)
def no_pool() -> None:
    received._pool.clear()


def test_memory_comes_back_with_the_last_view_of_it() -> None:
    answer = memory(SMALL_BYTES + 5)
    answer[:] = 7
    place, body = answer.ctypes.data, answer[100:200]
    buffer = pa.py_buffer(body.data)
    del answer, body
    assert not received._pool
    other = memory(SMALL_BYTES)
    other[:] = 9
    assert other.ctypes.data != place
    assert buffer.to_pybytes() == b"\7" * 100
    del buffer
    again = memory(SMALL_BYTES)
    assert (again.ctypes.data, len(again), again.flags.c_contiguous) == (place, SMALL_BYTES, True)


def test_what_is_too_small_or_too_large_is_not_kept() -> None:
    for size_bytes in (0, 1, SMALL_BYTES - 1, KEPT_BYTES_MAX + 1):
        assert len(memory(size_bytes)) == size_bytes
    assert not received._pool


def test_a_small_piece_kept_makes_room_for_a_larger_one() -> None:
    memory(SMALL_BYTES)
    larger = memory(4 * SMALL_BYTES)
    larger[-1] = 1
    assert len(larger) == 4 * SMALL_BYTES

"""The checksum kernels against zlib, google-crc32c and xxhash, and against the published check values."""

from __future__ import annotations

import zlib
from typing import Any

import google_crc32c
import numpy as np
import pytest
import xxhash

from lading.kernels import engine

numba = pytest.importorskip("numba")

from lading.kernels import crc32, crc32c, xxh3  # noqa: E402
from lading.kernels.cpu import HAS_PCLMUL, HAS_SSE42  # noqa: E402

CHECK = np.frombuffer(b"123456789", np.uint8)
NOISE = np.random.default_rng(20230821).integers(0, 256, 70_000, dtype=np.uint8)
SIZES = [*range(80), 127, 128, 129, 255, 4096, 12_287, 12_288, 12_289, 24_577, 65_536]


def callable_of(inlined: Any) -> Any:
    return numba.njit(lambda array, start, size: inlined(array, start, size))


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(crc32.crc32_folding, marks=pytest.mark.skipif(not HAS_PCLMUL, reason="this CPU has no PCLMULQDQ")),
        crc32.crc32_tables,
    ],
)
def test_crc32_is_zlibs_at_every_size_and_alignment(kernel: Any) -> None:
    crc = callable_of(kernel)
    assert crc(CHECK, 0, 9) == 0xCBF43926
    for size in SIZES:
        for start in (0, 1, 3, 8, 13):
            assert crc(NOISE, start, size) == zlib.crc32(NOISE[start : start + size].tobytes()), (size, start)


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(
            crc32c.crc32c_lanes,
            marks=pytest.mark.skipif(not (HAS_SSE42 and HAS_PCLMUL), reason="this CPU has no SSE4.2 or PCLMULQDQ"),
        ),
        crc32c.crc32c_tables,
    ],
)
def test_crc32c_is_googles_at_every_size_and_alignment(kernel: Any) -> None:
    assert kernel(CHECK, 0, 9) == 0xE3069283
    for size in SIZES:
        for start in (0, 1, 3, 8, 13):
            want = google_crc32c.value(NOISE[start : start + size].tobytes())
            assert kernel(NOISE, start, start + size) == want, (size, start)


def test_the_cpus_without_the_instructions_get_the_tables() -> None:
    import subprocess
    import sys

    program = (
        "from lading.kernels import crc32, crc32c\n"
        "assert crc32.crc32 is crc32.crc32_tables and crc32c.crc32c is crc32c.crc32c_tables\n"
    )
    environment = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "PATH": ""}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=60)
    assert engine.get_loaded("lading.nowhere") is None


def test_xxh3_is_xxhashs_at_every_size_and_alignment() -> None:
    """Every size up to two blocks of 1,024 bytes: each of the four algorithms for a size, and each of their ends."""
    xxh3_64 = callable_of(xxh3.xxh3_64)
    # what the specification gives for no bytes
    assert xxh3_64(NOISE, 0, 0) == 0x2D06800538D394C2
    for size in [*range(2060), *SIZES]:
        for start in (0, 13):
            want = xxhash.xxh3_64_intdigest(NOISE[start : start + size].tobytes())
            assert xxh3_64(NOISE, start, size) == want, (size, start)

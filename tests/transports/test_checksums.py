"""Checking payloads against the CRC-32 beside them: the kernel and its fallback name the rows that zlib names."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pyarrow as pa
import pytest

from lading.kernels import engine
from lading.transports import checksums, fallback


@pytest.mark.parametrize("half", ["kernel", "twin"])
def test_rows_of_another_checksum_are_found(half: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels: Any = engine.load(checksums.KERNEL_MODULE) if half == "kernel" else fallback
    monkeypatch.setattr(engine, "select", lambda home, twin, size_bytes: kernels)
    generator = random.Random(7)
    payloads: list[bytes | None] = [generator.randbytes(generator.randrange(40)) for _ in range(200)]
    sums: list[int | None] = [zlib.crc32(payload or b"") ^ (row % 3 == 1) for row, payload in enumerate(payloads)]
    payloads[4] = payloads[10] = sums[7] = sums[10] = None
    wrong = [row for row in range(200) if row % 3 == 1 and row not in (4, 7, 10)]
    columns = pa.array(payloads, pa.binary()), pa.array(sums, pa.uint32())
    assert checksums.mismatches(*columns).tolist() == wrong
    # the last row of a slice ends before its data does
    for start, end in ((0, 2), (1, 2), (5, 100), (199, 200), (10, 11), (3, 3)):
        found = checksums.mismatches(*(column.slice(start, end - start) for column in columns))
        assert (found + start).tolist() == [row for row in wrong if start <= row < end]

"""Carriers that are written with the records: the same bytes as carriers made first, on kernels and twins."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading.dialects.carrier import NAME, carry, restore
from lading.dialects.kafka.encode import Producer, Records
from lading.dialects.kafka.messages import decode_columns
from lading.model.batch import FIELDS, SCHEMA
from tests.dialects.kafka import run_of
from tests.dialects.test_carrier import Header, Row, batch_of, rows_of

ROWS = 400
ROWS_FULL = 40_000
WHO = Producer(7, 1, 40)


def times_of(batch: pa.RecordBatch) -> Any:
    times: Any = batch.column("timestamp").cast(pa.int64()).fill_null(9_000)
    return np.ascontiguousarray(times.to_numpy(zero_copy_only=False))


def random_row(rng: random.Random) -> Row:
    def header() -> Header:
        key = rng.choice(["a", "b", "", "ü", "lading-carrie", "lading-kind-er", "k" * rng.choice([8, 127, 128, 300])])
        return (
            key,
            rng.choice([1, 1, 2, 6, 15, 0, -3, 127]),
            rng.choice([None, b"", b"UA", rng.randbytes(16), bytes(300)]),
        )

    headers = [header() for _ in range(rng.choice([0, 1, 3, 3, 64]))]
    time_us = rng.choice([None, 5_000, 5_001, -1, -7_000, (1 << 62) - 1])
    id_ = rng.choice([None, None, bytes(16), rng.randbytes(16)])
    return id_, rng.choice([None, b"", b"key"]), headers, rng.choice([None, b"", b"x" * 200]), time_us


def carried_first(batch: pa.RecordBatch, low: int, high: int, compression: Any = None) -> bytes:
    return bytes(Records(carry(batch, "kafka").batch, times_of(batch)).encode(low, high, WHO, compression))


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_the_same_bytes_as_carriers_made_before(half: str, full: bool, compression: Any) -> None:
    rng, count = random.Random(20261121), ROWS_FULL if full and half == "kernel" else ROWS
    whole = batch_of([random_row(rng) for _ in range(count)])
    for batch in (whole, whole.slice(count // 3, count // 2)):
        records = Records.carrying(batch, times_of(batch))
        assert records is not None
        # sizes bound what is written: cuts rest on them
        for low, high in records.cuts(bytes_max=20_000):
            made = bytes(records.encode(low, high, WHO, compression))
            assert made == carried_first(batch, low, high, compression)
            assert compression or len(made) <= 61 + int(records.sizes[low:high].sum())


def test_what_is_sent_is_read_again(half: str) -> None:
    rng = random.Random(3)
    # Kafka has no times before 1970: whole milliseconds there are read as none
    batch = batch_of([row for row in (random_row(rng) for _ in range(60)) if row[4] != -7_000])
    records = Records.carrying(batch, times_of(batch))
    assert records is not None
    (read,) = decode_columns(run_of(bytes(records.encode(0, batch.num_rows))))
    restored = restore(pa.RecordBatch.from_arrays([read.columns[name] for name in FIELDS], schema=SCHEMA))
    given = [(*row[:4], 9_000 if row[4] is None else row[4]) for row in rows_of(batch)]
    assert rows_of(restored) == given


@pytest.mark.parametrize("key", ["\\xff", "\\\\x", NAME, f"{NAME}.1", f"{NAME}-odd"])
def test_names_that_need_more_are_left_to_carry(half: str, key: str) -> None:
    rows: list[Row] = [(None, None, [("a", 2, b"x")], b"", 0), (None, None, [("a", 2, b"x"), (key, 1, b"")], b"", 0)]
    batch = batch_of(rows)
    assert Records.carrying(batch, times_of(batch)) is None
    assert Records.carrying(batch.slice(0, 1), times_of(batch)[:1]) is not None


def test_very_many_headers_are_left_to_carry(half: str) -> None:
    batch = batch_of([(None, None, [(f"h{n}", 2, b"x") for n in range(65)], b"", 0)])
    assert Records.carrying(batch, times_of(batch)) is None

"""Carriers that are written with the records: the same bytes as carriers made first, on kernels and twins."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading.dialects.carrier import NAME, carry, restore
from lading.dialects.carrier.layout import HEADERS_MAX
from lading.dialects.carrier_decoding import decode_restored
from lading.dialects.kafka.carrier_decoding import decode_located
from lading.dialects.kafka.encode import ProducerSequence, RecordEncoder
from lading.dialects.kafka.messages import decode_columns
from lading.model.batch import FIELDS, SCHEMA
from lading.model.errors import MalformedMessage
from lading.model.run import Decoded
from lading.model.scan_request import ScanRequest
from tests.dialects.kafka import run_of
from tests.dialects.targets import TARGETS
from tests.dialects.test_carrier import Header, Row, batch_of, rows_of

ROWS = 400
ROWS_FULL = 40_000
WHO = ProducerSequence(7, 1, 40)


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


def _arrived_us(row: Row) -> int:
    """The time as it is read: whole milliseconds, unless a carrier is there for something else."""
    if row[4] is None:
        return 9_000
    fine = row[0] is not None or any(kind != 1 for _, kind, _ in row[2])
    return row[4] if fine else row[4] // 1000 * 1000


def carried_first(batch: pa.RecordBatch, low: int, high: int, compression: Any = None) -> bytes:
    return bytes(
        RecordEncoder(carry(batch, TARGETS["kafka"]).batch, times_of(batch)).encode(low, high, WHO, compression)
    )


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.turns(3)
def test_the_same_bytes_as_carriers_made_before(half: str, full: bool, compression: Any) -> None:
    rng, count = random.Random(20261121), ROWS_FULL if full and half == "kernel" else ROWS
    whole = batch_of([random_row(rng) for _ in range(count)])
    for batch in (whole, whole.slice(count // 3, count // 2)):
        records = RecordEncoder.carrying(batch, times_of(batch))
        assert records is not None
        # sizes bound what is written: cuts rest on them
        for low, high in records.split_batches(bytes_max=20_000):
            made = bytes(records.encode(low, high, WHO, compression))
            assert made == carried_first(batch, low, high, compression)
            assert compression or len(made) <= 61 + int(records.sizes[low:high].sum())


def test_what_is_sent_is_read_again(half: str) -> None:
    rng = random.Random(3)
    batch = batch_of([random_row(rng) for _ in range(60)])
    records = RecordEncoder.carrying(batch, times_of(batch))
    assert records is not None
    (read,) = decode_columns(run_of(bytes(records.encode(0, batch.num_rows))))
    restored = restore(pa.RecordBatch.from_arrays([read.columns[name] for name in FIELDS], schema=SCHEMA))
    given = [(*row[:4], _arrived_us(row)) for row in rows_of(batch)]
    assert rows_of(restored) == given


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.turns(3)
def test_located_headers_are_those_of_whole_messages(half: str, full: bool, compression: Any) -> None:
    rng, keys = random.Random(20261122), ("a", "k" * 8, "ü", "absent", "")
    for number in range(200 if full else 20):
        batch = batch_of([random_row(rng) for _ in range(rng.choice([1, 7, 60]))])
        stored = bytearray(carried_first(batch, 0, batch.num_rows, compression))
        if number % 4 == 3 and not compression:
            # somebody wrote on a header or on a carrier: what does not fit any more is left alone
            stored[61 + rng.randrange(len(stored) - 61)] ^= 1 << rng.randrange(8)
        told: list[Any] = []
        for decode in (decode_located, partial(decode_restored, decode_columns)):
            fields = frozenset({"offset", "timestamp", "id"})
            request = ScanRequest(0, 1 << 62, fields, keys, max_rows=20, max_bytes=1 << 20)
            try:
                parts = list(decode(run_of(bytes(stored)), request))
            except MalformedMessage:
                told.append(None)
                continue
            told.append([(columns_of(parts), [values_of(parts, key) for key in keys])])
        assert told[0] == told[1]


@pytest.mark.parametrize("add", [("last", b"1"), (NAME, b"2"), ("a", None), (f"{NAME}.1", b"3"), ("\\xff", b"4")])
def test_headers_that_others_added_stay(half: str, add: tuple[str, bytes | None]) -> None:
    batch = carry(
        batch_of([(None, None, [("a", 6, b"abcd"), ("b", 2, b"x")], b"p", 5_001)] * 3), TARGETS["kafka"]
    ).batch
    rows = [(*row[:2], [*row[2], (add[0], 1, add[1])], *row[3:]) for row in rows_of(batch)]
    more = batch_of(rows)
    stored = bytes(RecordEncoder(more, times_of(more)).encode(0, 3, WHO))
    request = ScanRequest(0, 9, frozenset({"timestamp"}), ("a", "b", add[0]), max_rows=9, max_bytes=9000)
    one, two = (
        list(decode(run_of(stored), request)) for decode in (decode_located, partial(decode_restored, decode_columns))
    )
    assert columns_of(one) == columns_of(two)
    assert [values_of(one, key) for key in request.keys] == [values_of(two, key) for key in request.keys]


def columns_of(parts: list[Decoded]) -> list[Any]:
    # some times are none of Python's
    columns = [dict(part.columns) for part in parts]
    for one in columns:
        one["timestamp"] = one["timestamp"].cast(pa.int64())
    return [{name: column.to_pylist() for name, column in one.items()} for one in columns]


def values_of(parts: list[Decoded], key: str) -> list[Any]:
    found = []
    for part in parts:
        at = part.located[key]
        for start, length, kind in zip(at.start.tolist(), at.length.tolist(), at.kind.tolist(), strict=True):
            found.append((kind, length if length < 0 else at.data[start : start + length].tobytes()))
    return found


@pytest.mark.parametrize("key", ["\\xff", "\\\\x", NAME, f"{NAME}.1", f"{NAME}-odd"])
def test_names_that_need_more_are_left_to_carry(half: str, key: str) -> None:
    rows: list[Row] = [(None, None, [("a", 2, b"x")], b"", 0), (None, None, [("a", 2, b"x"), (key, 1, b"")], b"", 0)]
    batch = batch_of(rows)
    assert RecordEncoder.carrying(batch, times_of(batch)) is None
    assert RecordEncoder.carrying(batch.slice(0, 1), times_of(batch)[:1]) is not None


@pytest.mark.parametrize("count", [64, 65, 127, 128, 129, HEADERS_MAX])
def test_many_headers_are_written_and_read_as_few_are(half: str, count: int) -> None:
    """In the kernels alone, with the bytes that ``carry`` makes: from 128 on their count has two bytes."""
    headers = [(f"h{n % (count - 1)}", 2 if n % 3 else 6, b"%04d" % n) for n in range(count)]
    batch = batch_of([(None, None, list(headers), b"x", 0)])
    records = RecordEncoder.carrying(batch, times_of(batch))
    assert records is not None
    run = run_of(bytes(records.encode(0, 1)))
    (shown,) = decode_columns(run)
    carried = carry(batch, TARGETS["kafka"]).batch
    assert shown.columns["headers"].to_pylist() == carried.column("headers").to_pylist()
    assert rows_of(restore(carried)) == rows_of(batch)
    (located,) = decode_located(run, ScanRequest(0, 1, frozenset({"offset"}), ("h0", "h1")))
    assert [located.located[key].kind.tolist() for key in ("h0", "h1")] == [[2 if (count - 1) % 3 else 6], [2]]


def test_many_headers_cost_in_proportion(half: str) -> None:
    """CPU of a header of 1,000 is that of one of 50: their names are looked up, not compared with each before."""
    spent_s: dict[int, float] = {}
    for count in (50, 1000):
        headers = [(f"name-{n:04d}", 6, b"%04d" % n) for n in range(count)]
        batch = batch_of([(None, None, list(headers), b"x", 0)] * (4000 // count))
        rounds = []
        for _ in range(5):
            begun_s = time.thread_time()
            records = RecordEncoder.carrying(batch, times_of(batch))
            assert records is not None
            list(decode_columns(run_of(bytes(records.encode(0, batch.num_rows)))))
            rounds.append(time.thread_time() - begun_s)
        spent_s[count] = min(rounds)
    assert spent_s[1000] < 2.5 * spent_s[50], spent_s


def test_very_many_headers_are_left_to_carry(half: str) -> None:
    batch = batch_of([(None, None, [(f"h{n}", 2, b"x") for n in range(HEADERS_MAX + 1)], b"", 0)])
    assert RecordEncoder.carrying(batch, times_of(batch)) is None

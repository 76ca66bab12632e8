"""The time of the client that sent a message, in carriers: bytes of the reference page, all targets, both halves."""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lading.dialects.carrier import NAME, carry, is_reserved, restore
from lading.dialects.iggy.current import encode as current
from lading.dialects.iggy.current.messages import decode_columns, find_batches
from lading.dialects.registry import to_batch
from lading.model.batch import FIELDS_WITH_ORIGIN, ORIGIN_TIMESTAMP, SCHEMA_WITH_ORIGIN
from lading.model.scan_request import ScanRequest
from tests.dialects.targets import TARGETS
from tests.dialects.test_carrier import batch_of, rows_of
from tests.dialects.test_kafka_carrying import random_row

SENT_US = 1_700_000_000_123_456


def with_origins(batch: pa.RecordBatch, origins_us: list[int | None]) -> pa.RecordBatch:
    column = pa.array(origins_us, pa.int64()).cast(SCHEMA_WITH_ORIGIN.field(ORIGIN_TIMESTAMP).type)
    return pa.RecordBatch.from_arrays([*batch.columns, column], schema=SCHEMA_WITH_ORIGIN)


def origins_of(batch: pa.RecordBatch) -> list[int | None]:
    found: list[int | None] = batch.column(ORIGIN_TIMESTAMP).cast(pa.int64()).to_pylist()
    return found


def test_the_bytes_of_the_page() -> None:
    body = b"\x01\x81\x01k" + struct.pack("<q", SENT_US)
    batch = with_origins(batch_of([(None, b"k", [], b"x", 5)]), [SENT_US])
    shown = carry(batch, TARGETS["iggy"]).batch
    (header,) = shown.column("headers")[0].as_py()
    assert header == {"key": NAME, "kind": 1, "value": body + struct.pack("<I", zlib.crc32(body))}
    assert ORIGIN_TIMESTAMP not in shown.schema.names


@pytest.mark.parametrize("target", ["iggy", "kafka", "nsq"])
def test_origin_times_come_back_from_every_carrier(target: str, half: str) -> None:
    rng = random.Random(15)
    rows = [random_row(rng) for _ in range(200)]
    origins = [rng.choice([None, 0, SENT_US + rng.randrange(1 << 40)]) for _ in rows]
    batch = with_origins(batch_of(rows), origins)
    shown = carry(batch, TARGETS[target])
    assert not shown.unholdable
    assert ORIGIN_TIMESTAMP not in shown.batch.schema.names
    back = restore(with_origins(shown.batch, [None] * len(rows)))
    without = rows_of(carry(batch_of(rows), TARGETS[target]).batch)
    has_carrier = [any(is_reserved(header[0]) for header in row[2]) for row in without]
    assert sum(has_carrier) > 100
    assert origins_of(back) == [origin if kept else None for origin, kept in zip(origins, has_carrier, strict=True)]
    # alone it is no reason for a carrier
    shown_with = [any(is_reserved(header[0]) for header in row[2]) for row in rows_of(shown.batch)]
    assert shown_with == has_carrier
    assert all(one[:4] == other[:4] for one, other in zip(rows_of(back), rows, strict=True))
    # who does not ask for them gets the same messages without
    bare = restore(shown.batch)
    assert ORIGIN_TIMESTAMP not in bare.schema.names
    assert rows_of(bare) == rows_of(back)


@pytest.mark.parametrize("target", ["iggy_sent", "iggy_unordered", "nsq_sent"])
def test_it_is_a_reason_where_a_server_stamps_its_own_time(target: str, half: str) -> None:
    rows: list[Any] = [(None, None, [("a", 2, b"b")], b"x", None), (None, None, [], b"y", None)] * 20
    origins = [SENT_US, None, None, SENT_US + 1] * 10
    batch = with_origins(batch_of(rows), origins)
    shown = carry(batch, TARGETS[target]).batch
    has_carrier = [any(is_reserved(header[0]) for header in row[2]) for row in rows_of(shown)]
    # nsqd needs one for the kind of the header, too
    assert [one for one, row in zip(has_carrier, rows, strict=True) if not row[2]] == [False, True] * 10
    back = restore(with_origins(shown, [None] * len(rows)))
    assert origins_of(back) == origins
    assert rows_of(back) == rows_of(batch_of(rows))


def test_nothing_is_carried_where_there_is_nothing_or_the_target_has_the_field() -> None:
    batch = batch_of([(None, None, [("a", 2, b"b")], b"x", 5)])
    empty = carry(with_origins(batch, [None]), TARGETS["kafka"]).batch
    assert rows_of(empty) == rows_of(carry(batch, TARGETS["kafka"]).batch)
    sent = with_origins(batch, [SENT_US])
    assert carry(sent, replace(TARGETS["iggy"], origin_time=True)).batch is sent


def test_batches_of_the_current_iggy_hold_any_origin_times(half: str) -> None:
    origins: list[int | None] = [SENT_US, SENT_US + 3, SENT_US + 1, None, SENT_US + (1 << 40), 0]
    plain = batch_of([(None, None, [], b"x", 1_800_000_000_000_000)] * len(origins))
    polled = find_batches(current.encode_stored(with_origins(plain, origins)))
    (decoded,) = decode_columns(polled, ScanRequest(fields=FIELDS_WITH_ORIGIN))
    found = to_batch(decoded)
    assert origins_of(found) == [1_800_000_000_000_000 if origin is None else origin for origin in origins]
    assert found.column("offset").to_pylist() == list(range(5, 5 + len(origins)))
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [1_800_000_000_000_000] * len(origins)

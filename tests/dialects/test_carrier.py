"""The carrier for Iggy: hand-written vectors, what others may do on the way, limits, and the round-trip property."""

from __future__ import annotations

import base64
import json
import os
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lading.dialects.carrier import NAME, carry, fallback, is_reserved, restore, typed
from lading.dialects.carrier.encoding import decode
from lading.dialects.carrier.rows import items_of
from lading.dialects.carrier.targets import losses
from lading.kernels import engine
from lading.model.batch import SCHEMA
from lading.model.errors import MalformedMessage, Reason
from lading.model.names import key_bytes
from tests.dialects.targets import TARGETS

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "carrier.json").read_text())
ROUND_TRIPS = 300 if os.environ.get("LADING_TEST_FULL") == "1" else 40
ROUND_TRIPS_FULL = 100_000

Header = tuple[str, int, bytes | None]
Row = tuple[bytes | None, bytes | None, list[Header], bytes | None, int | None]
"""id, key, headers, payload, timestamp in microseconds (None: what a server is to give)."""


def batch_of(rows: list[Row], *, checksums: bool = False) -> pa.RecordBatch:
    columns = {
        "offset": range(5, 5 + len(rows)),
        "state": [1] * len(rows),
        "timestamp": [row[4] for row in rows],
        "id": [row[0] for row in rows],
        "checksum": [zlib.crc32(row[3]) if checksums and row[3] is not None else None for row in rows],
        "key": [row[1] for row in rows],
        "headers": [[{"key": key, "kind": kind, "value": value} for key, kind, value in row[2]] for row in rows],
        "payload": [row[3] for row in rows],
    }
    arrays = [pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    return [
        (row["id"], row["key"], [(h["key"], h["kind"], h["value"]) for h in row["headers"]], row["payload"], time_us)
        for row, time_us in zip(
            batch.drop_columns(["timestamp"]).to_pylist(), batch["timestamp"].cast(pa.int64()).to_pylist(), strict=True
        )
    ]


def data_of(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def row_of(document: dict[str, Any]) -> Row:
    headers = [(h["key"], h["kind"], data_of(h["value_hex"])) for h in document["headers"]]
    id_, key, payload = (data_of(document.get(name)) for name in ("id_hex", "key_hex", "payload_hex"))
    return id_, key, headers, payload, document.get("timestamp_us")


@pytest.mark.parametrize("vector", VECTORS["carried"], ids=lambda vector: vector["name"])
def test_carried_vector(vector: dict[str, Any]) -> None:
    message, shown = row_of(vector["message"]), row_of(vector["shown"])
    if message[4] is not None:
        shown = (*shown[:4], message[4])  # the column stays; a server replaces it
    carried = carry(batch_of([message]), TARGETS[vector["target"]])
    assert not carried.unholdable
    assert rows_of(carried.batch) == [shown]
    assert rows_of(restore(batch_of([shown]))) == [message]


@pytest.mark.parametrize("vector", VECTORS["transit"], ids=lambda vector: vector["name"])
def test_what_others_did_on_the_way(vector: dict[str, Any]) -> None:
    assert rows_of(restore(batch_of([row_of(vector["arrived"])]))) == [row_of(vector["restored"])]


def test_a_batch_that_loses_nothing_is_the_same_object() -> None:
    batch = batch_of([(bytes(range(16)), None, [("a", 2, b"x"), ("é", 15, b"12345678")], b"p", 7)] * 3)
    assert carry(batch, TARGETS["iggy"]).batch is batch
    assert restore(batch) is batch
    empty = batch.slice(0, 0)
    assert carry(empty, TARGETS["iggy"]).batch is empty
    assert restore(empty) is empty


def test_only_the_rows_that_lose_something_change_also_in_a_slice() -> None:
    rows: list[Row] = [(None, None, [("a", 2, b"%d" % n)], b"p", n) for n in range(10)]
    rows[4] = (None, b"key", [("a", 2, b"4")], b"p", 4)
    batch = batch_of(rows).slice(2, 6)
    carried = carry(batch, TARGETS["iggy"]).batch
    assert [len(headers) for _, _, headers, *_ in rows_of(carried)] == [1, 1, 2, 1, 1, 1]
    assert carried.drop_columns(["key", "headers"]).equals(batch.drop_columns(["key", "headers"]))
    assert restore(carried).equals(batch)
    assert restore(carried.slice(1, 3)).equals(batch.slice(1, 3))


def test_other_columns_and_checksums_come_back() -> None:
    batch = batch_of([(None, None, [], b"", 1), (None, None, [], b"p", 2), (None, b"k", [], b"p", 3)], checksums=True)
    carried = carry(batch, TARGETS["iggy"]).batch
    assert carried["checksum"].to_pylist() == [zlib.crc32(b"\x00"), zlib.crc32(b"p"), zlib.crc32(b"p")]
    assert restore(carried).equals(batch)


def test_a_damaged_stand_in_payload_keeps_its_wrong_checksum() -> None:
    carried = carry(batch_of([(None, None, [], b"", 1)], checksums=True), TARGETS["iggy"]).batch
    at = SCHEMA.get_field_index("checksum")
    damaged = carried.set_column(at, SCHEMA.field("checksum"), pa.array([7], pa.uint32()))
    assert restore(damaged).to_pylist()[0] | {"headers": []} == damaged.to_pylist()[0] | {"headers": []}


def test_limits_that_no_carrier_meets_are_told_per_row() -> None:
    many: list[Header] = [(f"h{n}", 1, b"v" * 255) for n in range(402)]  # 102,510 bytes
    most: list[Header] = [*many[:401], ("h401", 1, b"v" * 145)]  # 102,400 bytes
    rows: list[Row] = [
        (None, None, many, b"p", 0),
        (None, None, most, b"p", 0),
        (None, b"k", most, b"p", 0),
        (None, None, [], b"p" * (10 << 20), 0),
        (None, None, [], b"p" * ((10 << 20) + 1), 0),
        (None, None, [("blob", 1, b"v" * 102_400)], b"p", 0),
        (None, None, [("blob", 1, b"v" * 102_300)], b"p", 0),
    ]
    batch = batch_of(rows)
    carried = carry(batch, TARGETS["iggy"])
    found = [(each.row, each.reason) for each in carried.unholdable]
    assert found == [
        (0, Reason.HEADERS_TOO_LARGE),
        (2, Reason.HEADERS_TOO_LARGE),
        (4, Reason.PAYLOAD_TOO_LARGE),
        (5, Reason.HEADERS_TOO_LARGE),
    ]
    assert "102400" in carried.unholdable[0].sentence
    back = rows_of(restore(carried.batch))
    for row in (1, 3, 6):
        assert back[row] == rows[row]
    stub = back[0]
    assert (stub[2][0][0], stub[3]) == ("lading-unholdable", b"\x00")
    assert carried.batch["offset"].equals(batch["offset"])


@pytest.mark.parametrize(
    ("key", "reserved"),
    [
        ("lading-carrier", True),
        ("lading-carrier.1", True),
        ("lading-carrier.400", True),
        ("lading-carrier.0", False),
        ("lading-carrier.01", False),
        ("lading-carrier.", False),
        ("Lading-carrier", False),
        ("lading-carrier\n", False),
    ],
)
def test_reserved_names(key: str, reserved: bool) -> None:
    assert is_reserved(key) is reserved


@given(st.binary(max_size=40))
def test_any_bytes_are_a_carrier_or_malformed(data: bytes) -> None:
    sealed = data + zlib.crc32(data).to_bytes(4, "little")
    try:
        decode(sealed)
    except MalformedMessage:
        return


def can_hold(rows: list[Row]) -> bool:
    """What Iggy's own server takes, written from its rules (iggy.md A6), not from the table under test."""
    for id_, key, headers, payload, _ in rows:
        wire = [key_bytes(header[0]) for header in headers]
        if key is not None or not payload or id_ == bytes(16) or len(set(wire)) < len(wire):
            return False
        if any(kind != 2 or not 1 <= len(raw) <= 255 or (not raw.isascii() and not raw.decode()) for raw, kind in wire):
            return False
        if any(value is None or not 1 <= len(value) <= 255 or not 1 <= kind <= 15 for _, kind, value in headers):
            return False
    return True


KEYS = st.sampled_from(
    ["a", "b", "", "k" * 255, "k" * 256, NAME, f"{NAME}.1", "lading-json", "\\xff", "\\\\x", "\\k1:00", "\\z", "\\x61"]
)
VALUES = st.none() | st.binary(max_size=6) | st.sampled_from([b"v" * 255, b"v" * 256, b"v" * 3000])
HEADERS = st.lists(
    st.tuples(KEYS | st.text(max_size=6), st.integers(-128, 127) | st.integers(1, 15), VALUES), max_size=6
)
IDS = st.none() | st.binary(min_size=16, max_size=16) | st.just(bytes(16))
TIMES = st.none() | st.integers(-(1 << 62), 1 << 62)
ROWS = st.tuples(IDS, st.none() | st.binary(max_size=9), HEADERS, st.none() | st.binary(max_size=9), TIMES)


def kafka_can_hold(rows: list[Row]) -> bool:
    """No id, and of every header key and bytes alone."""
    return all(row[0] is None and all(kind == 1 for _, kind, _ in row[2]) for row in rows)


def nsq_can_hold(rows: list[Row]) -> bool:
    """What JSON, as it is read back, can be: each name once, text, numbers, words; written from nsq.md 3 and JSON."""
    for id_, key, headers, payload, _ in rows:
        if (
            id_ is not None
            or key is not None
            or not payload
            or len({key_bytes(key) for key, _, _ in headers}) < len(headers)
        ):
            return False
        for name, kind, value in headers:
            key_bytes(name)[0].decode()
            if name == NAME and kind == 1 and value is not None:
                continue
            if kind == 2 and value is not None:
                value.decode()
            elif (kind, None if value is None else len(value)) not in ((1, None), (3, 1), (7, 8), (15, 8)):
                return False
    return True


def test_nsq_shows_what_a_plain_reader_of_json_can_use() -> None:
    nan = b"\x01\x00\xc0\x7f"
    headers: list[Header] = [
        ("text", 2, b"x"), ("raw", 1, b"y"), ("bytes", 1, b"\xff\x00"), ("yes", 3, b"\1"), ("small", 4, b"\xff"),
        ("u32", 11, b"\xff\xff\xff\xff"), ("i64", 7, b"\5" + bytes(7)), ("u128", 13, b"\xff" * 16),
        ("f32", 14, b"\0\0\xc0\x3f"),
        ("nan", 14, nan), ("none", 2, None), ("twice", 2, b"1"), ("twice", 2, b"2"),
        ("##trace_id", 2, b"none"), ("", 2, b""),
    ]  # fmt: skip
    (shown,) = rows_of(carry(batch_of([(None, b"key", headers, None, 5)]), TARGETS["nsq"]).batch)
    assert shown[:2] == (None, None) and shown[3] == b"\0"
    assert shown[2][:-1] == [
        ("text", 2, b"x"), ("raw", 2, b"y"), ("bytes", 2, b"/wA="), ("yes", 3, b"\1"), ("small", 7, b"\xff" * 8),
        ("u32", 7, b"\xff\xff\xff\xff\0\0\0\0"), ("i64", 2, b"5"),
        ("u128", 2, b"340282366920938463463374607431768211455"),
        ("f32", 15, b"\0\0\0\0\0\0\xf8\x3f"), ("nan", 2, b"NaN"), ("none", 1, None), ("twice", 2, b"2"), ("", 2, b""),
    ]  # fmt: skip
    assert shown[2][-1][:2] == (NAME, 1)
    batch = batch_of([(None, None, [("a", 2, "ü".encode()), ("n", 1, None)], b"p", 5)])
    assert carry(batch, TARGETS["nsq"]).batch is batch


def test_what_nsq_takes_no_more_of_is_told() -> None:
    rows: list[Row] = [
        (None, None, [("a", 2, b"x" * 65_500)], b"p", 0),
        (None, None, [("a", 2, b"x" * 65_535)], b"p", 0),
        (None, None, [("a", 1, b"\xff" * 40_000)], b"p", 0),
        (None, None, [("a", 2, b"x")], b"p" * (1 << 20), 0),
        (None, None, [("a", 2, b'"' * 32_750)], b"p", 0),
        (None, None, [("a", 2, b'"' * 32_770)], b"p", 0),
        (None, None, [], b"p" * (1 << 20), 0),
    ]
    found = [(each.row, each.reason) for each in carry(batch_of(rows), TARGETS["nsq"]).unholdable]
    assert found == [
        (1, Reason.HEADERS_TOO_LARGE),
        (2, Reason.HEADERS_TOO_LARGE),
        (3, Reason.PAYLOAD_TOO_LARGE),
        (5, Reason.HEADERS_TOO_LARGE),
    ]


def test_a_carrier_counts_towards_what_a_whole_message_may_have() -> None:
    payload = b"p" * (TARGETS["nsq"].payload_bytes_max - 20)
    rows: list[Row] = [(None, key, [], payload, 0) for key in (b"k", None, b"k" * 4000)]
    carried = carry(batch_of(rows), TARGETS["nsq"])
    assert [(each.row, each.reason) for each in carried.unholdable] == [
        (0, Reason.PAYLOAD_TOO_LARGE),
        (2, Reason.PAYLOAD_TOO_LARGE),
    ]
    assert rows_of(carried.batch)[1] == rows[1]


def test_kafka_shows_raw_bytes_and_the_carrier_has_kinds_id_and_time() -> None:
    headers: list[Header] = [("a", 2, b"x"), ("a", 1, None), ("n", 6, b"\1\0\0\0"), ("\\k4:05", 2, b"")]
    row: Row = (bytes(range(16)), b"k", headers, None, 1_700_000_000_123_456)
    (shown,) = rows_of(carry(batch_of([row]), TARGETS["kafka"]).batch)
    assert shown[:2] == (None, b"k") and shown[3] is None
    assert shown[2][:3] == [("a", 1, b"x"), ("a", 1, None), ("n", 1, b"\1\0\0\0")]
    marks = [zlib.crc32(data) for data in (b"\1a\1\2x\0", b"\1a\1\0\1", b"\1n\1\5\1\0\0\0\0")]
    body = b"\1\x70" + (1_700_000_000_123_456).to_bytes(8, "little") + bytes(range(16)) + b"\4"
    body += b"\2" + marks[0].to_bytes(4, "little") + b"\2" + b"\0" + marks[1].to_bytes(4, "little")
    body += b"\2" + marks[2].to_bytes(4, "little") + b"\6" + b"\1\6\\k4:05\2\1"
    body += zlib.crc32(body).to_bytes(4, "little")
    assert shown[2][3:] == [(NAME, 1, b"v1:" + base64.urlsafe_b64encode(body).rstrip(b"="))]
    before = (*shown[:2], [*shown[2][:3], (NAME, 1, body)], *shown[3:])
    assert rows_of(restore(batch_of([before]))) == rows_of(restore(batch_of([shown]))) == [row], "old bytes are read"
    plain: Row = (None, b"k", [("a", 1, b""), ("a", 1, None)], None, 5_000)
    batch = batch_of([plain])
    assert carry(batch, TARGETS["kafka"]).batch is batch
    fine: Row = (None, b"k", [("a", 1, b""), ("a", 1, None)], None, 5_001)
    batch = batch_of([fine])
    assert carry(batch, TARGETS["kafka"]).batch is batch, "a time that is only cut is no reason for a header more"


HOLDS = {"iggy": can_hold, "kafka": kafka_can_hold, "native": lambda shown: True, "nsq": nsq_can_hold}


@pytest.mark.parametrize("target", TARGETS)
@given(rows=st.lists(ROWS, min_size=1, max_size=4), shuffle=st.randoms(use_true_random=False))
@settings(max_examples=ROUND_TRIPS, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@pytest.mark.turns(4)
def test_round_trip(target: str, rows: list[Row], shuffle: random.Random) -> None:
    batch = batch_of(rows)
    carried = carry(batch, TARGETS[target])
    assert not carried.unholdable
    shown = rows_of(carried.batch)
    protocol = target.partition("_")[0]
    assert protocol in HOLDS, f"say in HOLDS what a message of {protocol} can hold; its carrier has to keep to that"
    assert HOLDS[protocol](shown)
    if target.startswith("kafka"):
        shown = [(*row[:4], None if row[4] is None else row[4] // 1000 * 1000) for row in shown]
    if not TARGETS[target].order:
        for row in shown:
            shuffle.shuffle(row[2])
    if TARGETS[target].time_step_us is None:
        shown = [(*row[:4], None if was[4] is None else 1) for row, was in zip(shown, rows, strict=True)]
    if target.startswith("kafka"):
        # without a carrier the time stays cut
        rows = [was if NAME in {key for key, *_ in row[2]} else (*was[:4], row[4])
                for was, row in zip(rows, shown, strict=True)]  # fmt: skip
    assert rows_of(restore(batch_of(shown))) == rows


def random_row(rng: random.Random) -> Row:
    keys = ["a", "b", "delay", "carrier", "", "k" * 256, NAME, f"{NAME}.1", "\\xff", "\\\\x", "\\z", "\\x61", "ü" * 3]
    values = [None, b"", b"x", b"12345678", rng.randbytes(rng.randrange(40)), b"v" * rng.choice([255, 256, 700])]
    plain: list[Header] = [("carrier", 2, b"UA"), ("delay", 6, rng.randbytes(4))]
    odd = [(rng.choice(keys), rng.randrange(-2, 18), rng.choice(values)) for _ in range(rng.randrange(5))]
    payload = rng.choice([None, b"", b"\x00", rng.randbytes(8)])
    return rng.choice([None, bytes(16), rng.randbytes(16)]), rng.choice([None, b"", b"key"]), plain + odd, payload, 5


def test_round_trip_of_many_rows(full: bool) -> None:
    rng, count = random.Random(20230821), ROUND_TRIPS_FULL if full else 3_000
    carriers = 0
    for _ in range(0, count, 1_000):
        rows = [random_row(rng) for _ in range(1_000)]
        shown = rows_of(carry(batch_of(rows), TARGETS["iggy_unordered"]).batch)
        assert can_hold(shown)
        shown = [(*row[:4], 6) for row in shown]
        for row in shown:
            rng.shuffle(row[2])
            carriers += any(header[0] == NAME for header in row[2])
        assert rows_of(restore(batch_of(shown))) == rows
    print(f"{count} messages through a shuffling Iggy and back, {carriers} with a carrier: all equal")


def test_rows_with_many_different_keys_are_checked_by_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Row] = [(None, None, [(f"k{n}", 1, b"v"), (f"k{n % 7}", 1, b"v")], b"p", n) for n in range(50)]
    batch = batch_of(rows)
    by_table = losses(batch, items_of(batch), TARGETS["iggy"]).headers
    monkeypatch.setattr("lading.dialects.carrier.targets._CELLS_MAX", 0)
    assert np.array_equal(losses(batch, items_of(batch), TARGETS["iggy"]).headers, by_table)
    assert np.flatnonzero(by_table).tolist() == list(range(7))


@pytest.mark.parametrize("half", ["kernel", "twin"], indirect=True)
def test_kafkas_carriers_in_bulk(half: str) -> None:
    rng = random.Random(11)
    rows: list[Row] = []
    for number in range(500):
        kinds: list[Header] = [
            (f"h{at % 3}", rng.randrange(1, 16), rng.choice([None, b"", rng.randbytes(9)])) for at in range(number % 9)
        ]
        id_ = rng.choice([None, bytes(16), rng.randbytes(16)])
        rows.append((id_, rng.choice([None, b"key"]), kinds, rng.choice([None, b"", b"x"]), 1000 * number + number % 2))
    batch = batch_of(rows)
    for part in (batch, batch.slice(100, 333)):
        shown = carry(part, TARGETS["kafka"]).batch
        assert kafka_can_hold(rows_of(shown))
        cut: list[Row] = [(*row[:4], (row[4] or 0) // 1000 * 1000) for row in rows_of(shown)]
        given = [was if was[0] is not None or any(kind != 1 for _, kind, _ in was[2]) else row
                 for was, row in zip(rows_of(part), cut, strict=True)]  # fmt: skip
        assert rows_of(restore(batch_of(cut))) == given
        texts = [value for row in rows_of(shown) for key, _, value in row[2] if key == NAME]
        assert texts and all(value is not None and value.isascii() and value.decode().isprintable() for value in texts)


def test_kernel_and_twin_make_the_same_carriers(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(12)
    rows = [random_row(rng) for _ in range(2_000)]
    made = []
    for half in (engine.load(typed.KERNEL_MODULE), fallback):
        monkeypatch.setattr(engine, "select", lambda home, twin, size, half=half: half)
        made.append(rows_of(carry(batch_of(rows), TARGETS["kafka"]).batch))
    assert made[0] == made[1]
    # somebody changes one header and adds one on the way: the rest is still rebuilt
    for row in made[0]:
        if len(row[2]) > 2:
            row[2][0] = (row[2][0][0], 1, b"changed")
            row[2].append(("added", 1, b""))
    restored = []
    for half in (engine.load(typed.KERNEL_MODULE), fallback):
        monkeypatch.setattr(engine, "select", lambda home, twin, size, half=half: half)
        restored.append(rows_of(restore(batch_of(made[0]))))
    assert restored[0] == restored[1]

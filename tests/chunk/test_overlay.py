"""Overlay records: the bytes of the specification; any tail is told apart from what is valid."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading.chunk.overlay import RECORD_BYTES, OverlayRecord, RangeKind, pack, unpack_all
from lading.model.errors import LimitExceeded

RECORDS = [
    OverlayRecord(RangeKind.STATE, 20, 42, 50, 1_692_643_862_990_111),
    OverlayRecord(RangeKind.ABORTED, 0, 0, 1, 0),
    OverlayRecord(RangeKind.CONTROL, 0, 7, 9, 3),
]


def test_records_are_the_specification(vectors: Any) -> None:
    for vector in vectors["overlay"]:
        data = bytes.fromhex(vector["hex"])
        numbers = {name: vector[name] for name in ("state", "first", "end", "timestamp_us")}
        record = OverlayRecord(RangeKind(vector["kind"]), **numbers)
        assert pack(record) == data
        assert unpack_all(data) == ([record], len(data))


def test_a_torn_tail_is_left_to_the_caller() -> None:
    whole = b"".join(map(pack, RECORDS))
    for size in range(len(whole) + 1):
        ranges, valid = unpack_all(whole[:size])
        assert valid == size // RECORD_BYTES * RECORD_BYTES
        assert ranges == RECORDS[: size // RECORD_BYTES]


def test_any_flipped_bit_ends_the_valid_part() -> None:
    data = bytearray(b"".join(map(pack, RECORDS)))
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        intact = bit // 8 // RECORD_BYTES
        assert unpack_all(data) == (RECORDS[:intact], intact * RECORD_BYTES)
        data[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize(
    "record",
    [
        OverlayRecord(RangeKind.STATE, 2, 0, 1, 0),
        OverlayRecord(RangeKind.ABORTED, 20, 0, 1, 0),
        OverlayRecord(RangeKind.STATE, 1, 5, 5, 0),
        OverlayRecord(RangeKind.STATE, 1, -1, 5, 0),
        OverlayRecord(RangeKind.STATE, 1, 0, 1 << 63, 0),
        OverlayRecord(RangeKind.STATE, 1, 0, 1, -1),
    ],
)
def test_what_no_record_can_say_is_not_packed(record: OverlayRecord) -> None:
    with pytest.raises(LimitExceeded):
        pack(record)


@given(st.binary(max_size=120))
def test_any_bytes_give_a_value(data: bytes) -> None:
    ranges, valid = unpack_all(data)
    assert b"".join(map(pack, ranges)) == data[:valid]

"""Chunk envelopes: the bytes of the specification, and nothing that is not one."""

from __future__ import annotations

from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lading.chunk import fallback, layout
from lading.chunk.envelope import ENVELOPE_BYTES, Envelope, read, seal
from lading.chunk.runs import runs
from lading.kernels import engine
from lading.model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, COUNT, FLAGS, LAST_OFFSET
from lading.model.errors import LimitExceeded, MalformedMessage

FACTS = ("dialect", "flags", "base_offset", "count", "last_offset_delta", "min_timestamp_us", "max_timestamp_us")


def chunk(body: bytes = b"body", **facts: int) -> bytes:
    told = {"dialect": 2, "flags": 0, "base_offset": 7, "count": 2, "last_offset_delta": 1} | facts
    times = {"min_timestamp_us": 5, "max_timestamp_us": 6}
    array = np.zeros(ENVELOPE_BYTES + len(body), np.uint8)
    array[ENVELOPE_BYTES:] = np.frombuffer(body, np.uint8)
    seal(array, 0, array.size, **(times | told))
    return array.tobytes()


def test_seal_and_read_are_the_specification(half: Any, vectors: Any) -> None:
    for vector in vectors["chunks"]:
        data, body = bytes.fromhex(vector["hex"]), bytes.fromhex(vector["body_hex"])
        facts = {name: vector[name] for name in FACTS}
        array = np.zeros(5 + len(data) + 3, np.uint8)
        array[5 + ENVELOPE_BYTES : 5 + len(data)] = np.frombuffer(body, np.uint8)
        seal(array, 5, 5 + len(data), **facts)
        assert array.tobytes() == bytes(5) + data + bytes(3)
        assert read(data) == Envelope(total_bytes=len(data), **facts)
        assert read(array, 5) == read(memoryview(data)) == read(data)
        assert read(data).end_offset == facts["base_offset"] + facts["last_offset_delta"] + 1


def test_any_flipped_bit_is_noticed(half: Any) -> None:
    data = bytearray(chunk(bytes(range(100))))
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MalformedMessage):
            read(data)
        data[bit // 8] ^= 1 << bit % 8
    assert read(data).count == 2


def test_any_cut_is_noticed(half: Any) -> None:
    data = chunk(b"x" * 20)
    for size in range(len(data)):
        with pytest.raises(MalformedMessage):
            read(data[:size])
        with pytest.raises(MalformedMessage):
            read(data, 0, size)
    with pytest.raises(MalformedMessage):
        read(data, -1)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("length", 39, layout.SHORT),
        ("length", 0xFFFFFFFF, layout.CUT),
        ("magic", 0, layout.NO_MAGIC),
        ("version", 2, layout.OTHER_VERSION),
        ("reserved", 1, layout.RESERVED_BITS),
        ("count", 3, layout.BAD_COUNT),
        ("base_offset", 1 << 63, layout.BAD_OFFSET),
        ("base_offset", (1 << 63) - 1, layout.BAD_OFFSET),
        ("min_timestamp_us", 7, layout.BAD_TIME),
        ("max_timestamp_us", 1 << 63, layout.BAD_TIME),
    ],
)
def test_a_wrong_field_has_its_reason(half: Any, field: str, value: int, reason: int) -> None:
    names = ["length", "crc", "magic", "version", "dialect", "flags", "reserved", *FACTS[2:]]
    data = bytearray(chunk())
    fields = dict(zip(names, layout.ENVELOPE.unpack_from(data), strict=True))
    layout.ENVELOPE.pack_into(data, 0, *(fields | {field: value}).values())
    data[4:8] = google_crc32c.value(bytes(data[8:])).to_bytes(4, "little")
    with pytest.raises(MalformedMessage) as raised:
        read(data)
    assert layout.REASONS[reason] in str(raised.value)
    assert raised.value.at == 0


@pytest.mark.parametrize(
    "facts",
    [
        {"count": 3},
        {"count": -1},
        {"dialect": 256},
        {"flags": 65_536},
        {"base_offset": (1 << 63) - 1},
        {"base_offset": -1},
        {"min_timestamp_us": 7},
        {"max_timestamp_us": 1 << 63},
        {"last_offset_delta": -1, "count": 0},
    ],
)
def test_what_no_envelope_can_say_is_not_written(half: Any, facts: dict[str, int]) -> None:
    with pytest.raises(LimitExceeded):
        chunk(b"body", **facts)


def test_runs_are_consecutive_chunks_of_one_dialect(half: Any) -> None:
    parts = [
        chunk(b"a" * 3, base_offset=0, flags=9),
        chunk(b"b", base_offset=2),
        chunk(b"", dialect=1, base_offset=4, count=1, last_offset_delta=0),
        chunk(b"c" * 9, base_offset=5, count=1, last_offset_delta=8),
    ]
    region = np.frombuffer(b"junk" + b"".join(parts) + b"tail", np.uint8)
    found = runs(region, 4, region.size - 4)
    assert [(run.dialect, len(run.chunks)) for run in found] == [(2, 2), (1, 1), (2, 1)]
    bodies = [[region[row[BODY_START] : row[BODY_END]].tobytes() for row in run.chunks] for run in found]
    assert bodies == [[b"aaa", b"b"], [b""], [b"c" * 9]]
    assert found[0].chunks[:, [BASE_OFFSET, COUNT, LAST_OFFSET, FLAGS]].tolist() == [[0, 2, 1, 9], [2, 2, 3, 0]]
    assert found[2].chunks[0, LAST_OFFSET] == 13
    assert all(run.region is region for run in found)
    assert runs(region, 4, 4) == []


def test_runs_take_more_chunks_than_one_table_holds(half: Any) -> None:
    region = np.frombuffer(chunk() * 1200, np.uint8)
    (run,) = runs(region)
    assert run.chunks.shape == (1200, 8)


def test_runs_say_where_the_first_bad_chunk_is(half: Any) -> None:
    good = chunk()
    region = np.frombuffer(good * 2 + b"\xff" + good[1:], np.uint8)
    with pytest.raises(MalformedMessage) as raised:
        runs(region)
    assert raised.value.at == 2 * len(good)
    changed = bytearray(good * 3)
    changed[-1] ^= 1
    with pytest.raises(MalformedMessage):
        runs(np.frombuffer(changed, np.uint8))
    assert len(runs(np.frombuffer(changed, np.uint8), verify=False)[0].chunks) == 3


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_kernel_and_twin_say_the_same_of_any_bytes(data: Any) -> None:
    kernels = engine.load("lading.chunk.kernels")
    bytes_ = bytearray(chunk(b"x" * 5) + chunk(b"yy", dialect=1) + chunk())
    for _ in range(data.draw(st.integers(0, 4))):
        bytes_[data.draw(st.integers(0, len(bytes_) - 1))] = data.draw(st.integers(0, 255))
    region = np.frombuffer(bytes_[: data.draw(st.integers(0, len(bytes_)))], np.uint8)
    verify = data.draw(st.booleans())
    said = []
    for half in (kernels, fallback):
        rows, dialects = np.zeros((2, 8), np.int64), np.zeros(2, np.uint8)
        said.append((half.walk(region, 0, region.size, verify, rows, dialects), rows.tolist(), dialects.tolist()))
    assert said[0] == said[1]

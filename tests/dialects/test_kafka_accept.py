"""What a broker makes of batches that producers sent: kernels and their twin agree, on right bytes and on wrong."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from lading.dialects.kafka import layout, validation, validation_fallback
from lading.kernels import engine
from tests.dialects.kafka import batch, record

BATCHES = json.loads((Path(__file__).parents[1] / "vectors" / "kafka_vectors.json").read_text())
DATA = [bytes.fromhex(next(value for key, value in one.items() if key.endswith("hex"))) for one in BATCHES["vectors"]]
SMALL = [data for data in DATA if len(data) < 20_000]
ROUNDS, ROUNDS_FULL = 60, 5_000


def region(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)


def count_of(data: bytes) -> int:
    return int.from_bytes(data[57:61], "big")


@pytest.fixture(scope="module")
def kernels() -> Any:
    """As a broker has them, linked from their file."""
    return engine.load("lading.dialects.kafka.validation_kernels")


def test_a_checksum_is_crc32c_of_its_span(kernels: Any) -> None:
    for start, end in ((0, 9), (1, 9), (0, 0), (9, 9)):
        expected = google_crc32c.value(b"123456789"[start:end])
        for half in (kernels, validation_fallback):
            assert half.checksum(region(b"123456789"), start, end) == expected


def test_batches_of_real_clients_are_fine(kernels: Any) -> None:
    for data in SMALL:
        found = kernels.judge(region(data), 0, len(data))
        assert found == validation_fallback.judge(region(data), 0, len(data))
        assert found[0] == layout.FINE


def test_wrong_bytes_are_found_alike(kernels: Any, full: bool) -> None:
    chance = random.Random(3)
    plain = [data for data in SMALL if not data[22] & layout.CODEC_BITS and count_of(data) < 100]
    reasons, numbers = set(), set()
    for data in plain:
        for _ in range(ROUNDS_FULL if full else ROUNDS):
            wrong = bytearray(data)
            for _ in range(chance.randint(1, 3)):
                wrong[chance.randrange(61, len(wrong))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            arguments = (region(bytes(wrong)), 61, len(wrong) - chance.randint(0, 1), count_of(data), 1_700_000_000_000)
            found = kernels.judge_records(*arguments)
            assert found == validation_fallback.judge_records(*arguments)
            reasons.add(found[0])
            # also of bytes that were not judged, or were found wrong
            keyless = kernels.find_keyless(*arguments[:4])
            assert keyless == validation_fallback.find_keyless(*arguments[:4])
            numbers.add(keyless >= 0)
            assert kernels.judge(region(bytes(wrong)), 0, len(wrong))[0] in (layout.BAD_CRC, layout.FINE)
    assert {layout.FINE, layout.CUT, layout.BAD_RECORD, layout.BAD_HEADERS, layout.BAD_POSITION} <= reasons
    assert numbers == {False, True}


def test_times_are_judged_as_the_wrapped_sum_that_kafkas_clients_read(kernels: Any) -> None:
    base_ms, now_ms = 1 << 62, 1_700_000_000_000
    data = batch([record(0, time_delta=now_ms - base_ms)], base_time_ms=base_ms, max_time_ms=now_ms)
    for half in (kernels, validation_fallback):
        assert half.judge(region(data), 0, len(data)) == (layout.FINE, now_ms, now_ms)
    facts = validation.parse_batch_header(region(data), 0, len(data), version=9, size_max=1 << 20)
    assert validation.validate_batch(region(data), 0, facts) == (now_ms, now_ms)
    later = validation.Times(now_ms + 1, now_ms + 2)
    with pytest.raises(validation.BatchRejected) as refused:
        validation.require_times(region(data), 0, facts, validation.Times(now_ms, now_ms), later)
    assert f"Timestamp {now_ms} of message" in refused.value.record_errors[0][1]


@pytest.mark.parametrize("data", SMALL[:4])
def test_a_stamp_changes_offset_and_epoch_and_nothing_else(kernels: Any, data: bytes) -> None:
    facts = validation.parse_batch_header(region(data), 0, len(data), version=9, size_max=1 << 20)
    times = validation.validate_batch(region(data), 0, facts)
    target = np.frombuffer(bytearray(data), np.uint8)
    validation.stamp(target, 0, facts, times, 1000, 5, None)
    stamped = target.tobytes()
    assert (stamped[:8], stamped[12:16]) == ((1000).to_bytes(8, "big"), (5).to_bytes(4, "big"))
    assert stamped[8:12] + stamped[16:] == data[8:12] + data[16:]
    validation.stamp(target, 0, facts, times, 1000, 5, 1_800_000_000_000)
    assert target[22] & layout.LOG_APPEND_TIME
    assert kernels.judge(target, 0, len(data))[0] == layout.FINE


def test_the_stored_form_of_the_vectors() -> None:
    [form] = BATCHES["stored_form"]
    stored = bytes.fromhex(next(value for key, value in form.items() if key.endswith("hex")))
    sent = next(data for data in DATA if data[61:] == stored[61:] and len(data) == len(stored))
    facts = validation.parse_batch_header(region(sent), 0, len(sent), version=9, size_max=1 << 20)
    target = np.frombuffer(bytearray(sent), np.uint8)
    offset, epoch = int.from_bytes(stored[:8], "big"), int.from_bytes(stored[12:16], "big")
    validation.stamp(target, 0, facts, validation.validate_batch(region(sent), 0, facts), offset, epoch, None)
    assert target.tobytes() == stored

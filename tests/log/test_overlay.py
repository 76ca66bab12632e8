"""States and ranges: in memory against a plain model, in the file across restarts."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lading.chunk.overlay import RECORD_BYTES, RangeKind
from lading.log.group_commit import SyncNow
from lading.log.intervals import Intervals
from lading.log.overlay import COMPACT_AFTER_RECORDS, Overlay
from lading.log.partition import DiskPartitionLog
from lading.model.state import State
from tests.log.messages import NOW, add, opened

_changes = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), st.sampled_from([None, 10, 20, 30])), max_size=25)


@given(_changes, st.integers(0, 45), st.integers(0, 15))
@settings(max_examples=300, deadline=None)
def test_intervals_answer_as_a_plain_dictionary(
    changes: list[tuple[int, int, int | None]], first: int, size: int
) -> None:
    intervals, plain = Intervals(), dict[int, int]()
    for start, length, value in changes:
        intervals.set(start, start + length, value)
        for offset in range(start, start + length):
            plain.pop(offset, None)
            if value is not None:
                plain[offset] = value
    whole = intervals.all()
    assert {at: value for low, high, value in whole for at in range(low, high)} == plain
    for (low, high, value), (after, _, other) in pairwise([*whole, (1000, 1000, 0)]):
        assert low < high < after or (high == after and value != other)
    asked = range(first, first + size)
    found = {at: v for low, high, v in intervals.overlapping(first, first + size) for at in range(low, high)}
    assert found == {at: plain[at] for at in asked if at in plain}
    gaps = intervals.missing(first, first + size)
    assert [at for low, high in gaps for at in range(low, high)] == [at for at in asked if at not in plain]


def log_of(path: Path, messages: int = 100) -> DiskPartitionLog:
    log = opened(path)
    if not log.next_offset:
        add(log, messages)
        log.flush()
        SyncNow().submit(log)
    return log


def test_the_last_state_counts_and_lasts(tmp_path: Path) -> None:
    log = log_of(tmp_path / "p")
    assert log.unavailable_ranges(0, 100) == []
    log.set_state(10, 20, State.UNAVAILABLE, NOW)
    log.set_state(15, 25, State.POISONED, NOW)
    log.set_state(12, 13, State.AVAILABLE, NOW)
    log.set_state(90, 500, State.MARKED_FOR_DELETION, NOW)
    wanted = [(10, 12, 10), (13, 15, 10), (15, 25, 20), (90, 100, 30)]
    assert log.unavailable_ranges(0, 1000) == wanted
    assert log.unavailable_ranges(14, 16) == [(14, 15, 10), (15, 16, 20)] and log.unavailable_ranges(25, 90) == []
    log.sync_states()
    del log
    assert log_of(tmp_path / "p").unavailable_ranges(0, 1000) == wanted


def test_states_of_many_messages_are_compacted(tmp_path: Path) -> None:
    log = log_of(tmp_path / "p")
    file = tmp_path / "p" / "states.log"
    for number in range(COMPACT_AFTER_RECORDS + 100):
        log.set_state(5, 6, State.POISONED if number % 2 else State.UNAVAILABLE, NOW)
    log.sync_states()
    assert file.stat().st_size == (COMPACT_AFTER_RECORDS + 100) * RECORD_BYTES
    add(log, 1)
    log.flush()
    log.maintain(NOW + 10**7)
    assert file.stat().st_size == RECORD_BYTES
    log.set_state(7, 8, State.UNAVAILABLE, NOW)
    log.sync_states()
    del log
    assert log_of(tmp_path / "p").unavailable_ranges(0, 100) == [(5, 6, 20), (7, 8, 10)]


def test_the_stable_end_waits_for_aborted_ranges_and_open_transactions(tmp_path: Path) -> None:
    log = log_of(tmp_path / "p")
    log.hold_last_stable_offset(60)
    assert (log.last_stable_offset, log.high_watermark) == (60, 100)
    log.add_aborted(60, 80, NOW)
    log.add_control(80, 81, NOW)
    log.hold_last_stable_offset(None)
    assert log.last_stable_offset == 60, "the aborted range is not on disk yet"
    log.sync_states()
    assert log.last_stable_offset == 100
    assert (
        log.aborted_ranges(0, 100) == [(60, 80)]
        and log.aborted_ranges(70, 75) == [(70, 75)]
        and log.control_ranges(0, 100) == [(80, 81)]
    )
    log.add_aborted(90, 95)
    commit = SyncNow()
    assert log.last_stable_offset == 90
    commit.submit(log)
    assert log.last_stable_offset == 100
    del log
    again = log_of(tmp_path / "p")
    assert again.aborted_ranges(0, 100) == [(60, 80), (90, 95)] and again.control_ranges(0, 100) == [(80, 81)]


def test_after_a_restart_the_stable_end_stays_until_the_owner_speaks(tmp_path: Path) -> None:
    from lading.log.disk import RealDisk
    from lading.log.partition import open_partition
    from tests.log.messages import TOPIC

    log = log_of(tmp_path / "p")
    log.hold_last_stable_offset(40)
    log.close()
    log = open_partition(RealDisk(), tmp_path / "p", TOPIC, segment_bytes=1 << 20, now_us=NOW)
    assert (log.last_stable_offset, log.high_watermark) == (40, 100)
    log.hold_last_stable_offset(None)
    assert log.last_stable_offset == 100


@pytest.mark.parametrize("damage", ["torn", "flipped", "zeros"])
def test_what_is_readable_of_a_damaged_file_still_counts(tmp_path: Path, damage: str) -> None:
    log = log_of(tmp_path / "p")
    for first in range(0, 50, 10):
        log.set_state(first, first + 5, State.POISONED, NOW)
    log.sync_states()
    log.close()
    path = tmp_path / "p" / "states.log"
    data = bytearray(path.read_bytes())
    lost = {"torn": 4, "flipped": 2, "zeros": 1}[damage]
    match damage:
        case "torn":
            data = data[:-3]
        case "flipped":
            data[lost * RECORD_BYTES + 20] ^= 4
        case "zeros":
            data[lost * RECORD_BYTES : (lost + 1) * RECORD_BYTES] = bytes(RECORD_BYTES)
    path.write_bytes(data)
    log = log_of(tmp_path / "p")
    kept = [(10 * number, 10 * number + 5, 20) for number in range(5) if number != lost]
    assert log.unavailable_ranges(0, 100) == kept and "states set by them are lost" in " ".join(log.recovery.notes)
    assert (tmp_path / "p" / "states.log.cut").read_bytes() == data
    log.set_state(70, 71, State.UNAVAILABLE, NOW)
    log.sync_states()
    del log
    again = log_of(tmp_path / "p")
    assert again.unavailable_ranges(0, 100) == [*kept, (70, 71, 10)] and not again.recovery.notes


def test_states_of_messages_that_were_cut_do_not_fall_on_others(tmp_path: Path) -> None:
    log = log_of(tmp_path / "p", 10)
    place = log._segments.active.written.position
    add(log, 10)
    log.flush()
    log.set_state(5, 15, State.POISONED, NOW)
    log.add_aborted(12, 14, NOW)
    log.sync_states()
    log.maintain(NOW)
    del log
    with (tmp_path / "p" / f"{0:020}.log").open("r+b") as file:
        file.truncate(place + 10)
    log = log_of(tmp_path / "p")
    assert log.next_offset == 10
    add(log, 10)
    log.flush()
    SyncNow().submit(log)
    for _ in range(2):
        assert log.unavailable_ranges(0, 100) == [(5, 10, 20)] and log.aborted_ranges(0, 100) == []
        log.close()
        log = log_of(tmp_path / "p")


def test_an_empty_overlay_answers_at_once_and_a_large_one_quickly(tmp_path: Path) -> None:
    log = log_of(tmp_path / "p")
    overlay = Overlay(log._disk, tmp_path / "q")
    assert overlay.unavailable_ranges(0, 1 << 40) == [] and overlay.ranges(RangeKind.ABORTED, 0, 1 << 40) == []
    intervals = Intervals()
    random = Random(1)
    for _ in range(100_000):
        first = random.randrange(1 << 40)
        intervals.set(first, first + 1, 20)
    # of this process alone: others may have the processor meanwhile
    started = time.process_time()
    for _ in range(1000):
        first = random.randrange(1 << 40)
        intervals.overlapping(first, first + 1000)
    # a search by halves among 100,000 takes microseconds; a walk over all of them would take ten thousand times that
    assert time.process_time() - started < 2

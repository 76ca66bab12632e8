"""The partition as its owner sees it: refusals, epochs, watermark, truncation, snapshots, retention."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lading.log import recovery, watermark
from lading.log.disk import RealDisk
from lading.log.formats import GATE
from lading.log.found_files import LogFiles
from lading.log.group_commit import SyncNow
from lading.log.interface import PartitionLog, SegmentInfo
from lading.log.partition import DiskPartitionLog, open_partition
from lading.log.reader import DirectoryReader
from lading.log.retention import AgeClock, find_expired_end
from lading.model.errors import LocalError, Reason, Refusal
from lading.model.state import State
from tests.faults.faulty import FaultyDisk, failing
from tests.log.messages import NOW, TOPIC, add, message, messages_of, opened, read_all

COMMIT = SyncNow()


def append(log: DiskPartitionLog, count: int, times: int = 1) -> None:
    for _ in range(times):
        add(log, count, now_us=NOW + log.next_offset)
        log.flush()
    COMMIT.submit(log)


def test_a_new_log_is_empty_and_starts_where_it_is_told(tmp_path: Path) -> None:
    from lading.log.partition import open_partition

    log: PartitionLog = open_partition(
        RealDisk(), tmp_path / "a" / "b", TOPIC, segment_bytes=1 << 20, now_us=NOW, first_epoch=7
    )
    assert (log.first_offset, log.next_offset, log.high_watermark, log.last_stable_offset) == (0, 0, 0, 0)
    assert log.epochs == [(7, 0)] and log.segments_count == 1 and log.size_bytes == 0 and log.read(0, 100) is None
    assert log.recovery.clean
    log.close()
    again = opened(tmp_path / "a" / "b")
    assert again.epochs == [(7, 0)] and again.recovery.clean


def test_a_log_closed_in_order_is_not_looked_at_and_keeps_its_epoch(tmp_path: Path) -> None:
    log = opened(tmp_path / "p")
    append(log, 3, 10)
    log.close()
    for _ in range(3):
        log = opened(tmp_path / "p")
        assert log.recovery.clean and log.recovery.scanned_bytes == 0 and log.epochs == [(1, 0)]
        append(log, 1)
        log.close()


def empty_logs(path: Path) -> dict[str, bool]:
    """Logs whose last segment is empty, each with whether its owner closed it and nobody touched it since."""
    opened(path / "new").close()
    opened(path / "new, not closed")
    for name in ("emptied", "emptied, with states", "emptied, begun again", "emptied, with a byte more"):
        log = opened(path / name)
        append(log, 3, 10)
        if name.endswith("states"):
            log.set_state(0, 5, State.POISONED, NOW)
        log.truncate_before(log.next_offset)
        COMMIT.submit(log)
        if name.endswith("again"):
            log.drop()
            log = opened(path / name)
        log.close()
    with (path / "emptied, with a byte more" / f"{30:020}.log").open("ab") as file:
        file.write(b"x")
    log = opened(path / "not emptied")
    append(log, 3, 10)
    log.close()
    return {
        "new": True, "new, not closed": True, "emptied": True, "emptied, with states": True,
        "emptied, begun again": True, "emptied, with a byte more": False, "not emptied": True,
    }  # fmt: skip


def test_an_empty_log_is_recovered_at_once_as_it_is_step_by_step(tmp_path: Path) -> None:
    """What the format gate has looked up makes a start faster, and nothing else."""
    disk, quick = RealDisk(), []
    for name, is_clean in empty_logs(tmp_path).items():
        path = tmp_path / name
        files = GATE.check_partition(path, disk)
        one, other = (
            recovery.recover(disk, path, known, TOPIC, now_us=NOW, first_epoch=1)
            for known in (files, LogFiles(files.names))
        )
        assert one.report.clean == is_clean, name
        assert one.tail is not None and other.tail is not None, name
        tails = [
            (tail.base_offset, tail.end, tail.max_timestamp_us, len(tail.index)) for tail in (one.tail, other.tail)
        ]
        assert tails[0] == tails[1], name
        assert replace(one, tail=None) == replace(other, tail=None), name
        mark = watermark.unpack(files.watermark or b"")
        assert mark is not None
        if recovery._recover_empty_tail(mark, files) is not None:
            quick.append(name)
    assert quick == ["new", "new, not closed", "emptied", "emptied, with states", "emptied, begun again"]


def test_a_log_that_was_only_read_is_still_closed_in_order(tmp_path: Path) -> None:
    log = opened(tmp_path / "p")
    append(log, 3, 10)
    log.close()
    opened(tmp_path / "p").read(0, 100)
    assert opened(tmp_path / "p").recovery.clean


def test_epochs_tell_who_has_seen_what_is_gone(tmp_path: Path) -> None:
    log = opened(tmp_path / "p")
    append(log, 10, 3)
    seen = (log.epoch, 30)
    place = log._segments.active.written.position
    append(log, 10, 1)
    lost = (log.epoch, 40)
    del log
    # the disk lost what it had said was synced, watermark included
    with (tmp_path / "p" / f"{0:020}.log").open("r+b") as file:
        file.truncate(place)
    log = opened(tmp_path / "p")
    assert log.next_offset == 30 and log.epochs == [(1, 0), (2, 30)]
    append(log, 1, 20)
    assert watermark.is_still_valid(log.epochs, *seen) and not watermark.is_still_valid(log.epochs, *lost)
    assert watermark.is_still_valid(log.epochs, 2, 45)


def test_crashes_without_writes_do_not_pile_up_epochs(tmp_path: Path) -> None:
    log = opened(tmp_path / "p")
    append(log, 10)
    for _ in range(5):
        del log
        log = opened(tmp_path / "p")
    assert len(log.epochs) == 2 and log.epochs[0] == (1, 0) and log.epochs[1][1] == 10


def test_a_lost_watermark_begins_an_epoch_that_never_was(tmp_path: Path) -> None:
    log = opened(tmp_path / "p")
    append(log, 10)
    log.close()
    for content in (None, b"", b"junk" * 400):
        path = tmp_path / "p" / watermark.FILE_NAME
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        log = opened(tmp_path / "p")
        assert log.next_offset == 10 and log.epoch == NOW // 1_000_000 and len(read_all(log)) == 10
        assert "epochs so far are not known" in log.recovery.notes[0]
        log.close()


def test_watermark_bytes_come_back_and_the_newer_whole_slot_counts() -> None:
    epochs = [(1, 0), (4, 1000), (9, 5000)]
    data = bytearray(watermark.pack(TOPIC, 10, 100, 90, NOW, epochs))
    mark = watermark.unpack(bytes(data))
    assert mark is not None and (mark.topic_id, mark.first_offset, list(mark.epochs)) == (TOPIC, 10, epochs)
    assert (mark.high_watermark, mark.last_stable_offset, mark.clean, mark.slots_at) == (100, 90, False, 512)
    for sequence in (1, 2, 3):
        at = mark.slots_at + 512 * (sequence % 2)
        slot = watermark.pack_slot(sequence, 100 + sequence, 95, NOW + sequence, clean=sequence == 3)
        data[at : at + len(slot)] = slot
    mark = watermark.unpack(bytes(data))
    assert mark is not None and (mark.high_watermark, mark.clean, mark.sequence) == (103, True, 3)
    data[mark.slots_at + 512 + 20] ^= 1
    mark = watermark.unpack(bytes(data))
    assert mark is not None and (mark.high_watermark, mark.clean, mark.sequence) == (102, False, 2)
    data[20] ^= 1
    assert watermark.unpack(bytes(data)) is None
    for size in range(0, 1536, 7):
        watermark.unpack(bytes(data[:size]))


def test_a_directory_reader_follows_the_watermark_and_never_passes_it(tmp_path: Path) -> None:
    log = opened(tmp_path / "p", segment_bytes=5000)
    now = NOW
    append(log, 4, 10)
    log.maintain(now)
    reader = DirectoryReader(tmp_path / "p")
    assert (reader.topic_id, reader.epochs, reader.high_watermark, reader.last_stable_offset) == (
        TOPIC,
        [(1, 0)],
        40,
        40,
    )
    at = 0
    for step in range(60):
        now += 50_000
        add(log, 3)
        log.flush()
        if step % 3 == 0:
            COMMIT.submit(log)
            log.maintain(now)
        known = log.high_watermark
        while (span := reader.read(at, 700)) is not None:
            assert span.end_offset <= known
            for offset, data in messages_of(span).items():
                assert data == message(offset)
            at = span.end_offset
        assert at == known
    log.set_state(3, 5, State.POISONED, now)
    log.add_aborted(7, 9, now)
    COMMIT.submit(log)
    log.hold_last_stable_offset(100)
    log.maintain(now + 50_000)
    reader.refresh()
    assert (
        reader.unavailable_ranges(0, 50) == [(3, 5, 20)]
        and reader.aborted_ranges(0, 50) == [(7, 9)]
        and reader.last_stable_offset == 100
    )
    log.truncate_before(90)
    reader.refresh()
    span = reader.read(0, 100)
    assert reader.first_offset == 90 and span is not None and span.end_offset > 90
    log.close()
    reader = DirectoryReader(tmp_path / "p")
    assert reader.high_watermark == log.next_offset
    assert {*read_offsets(reader, 90)} == set(range(90, log.next_offset))


def read_offsets(reader: DirectoryReader, first: int) -> list[int]:
    at = first
    found: list[int] = []
    while (span := reader.read(at, 500)) is not None:
        found += range(max(at, span.base_offset), span.end_offset)
        at = span.end_offset
    return found


def test_a_directory_reader_reads_closed_and_open_logs_of_every_shape(tmp_path: Path) -> None:
    for segment_bytes in (600, 3000, 1 << 20):
        for close in (True, False):
            path = tmp_path / f"{segment_bytes}{close}"
            log = opened(path, segment_bytes=segment_bytes)
            append(log, 2, 37)
            if close:
                log.close()
            else:
                log.maintain(NOW)
            reader = DirectoryReader(path)
            assert read_offsets(reader, 0) == list(range(74))
            assert reader.offset_at(NOW + 50) == 50 and reader.offset_at(NOW + 10**6) == 74


def test_truncate_before_deletes_whole_segments_and_hides_the_rest(tmp_path: Path) -> None:
    log = opened(tmp_path / "p", segment_bytes=2000)
    append(log, 3, 40)
    infos = log.segments()
    assert [info.end_offset for info in infos[:-1]] == [info.base_offset for info in infos[1:]]
    assert sum(info.size_bytes for info in infos) == log.size_bytes and len(infos) == log.segments_count > 4
    held = log.read(0, 300)
    cut = infos[2].base_offset + 1
    log.set_state(0, 5, State.POISONED, NOW)
    log.truncate_before(cut)
    assert log.first_offset == cut and log.segments_count == len(infos) - 2
    span = log.read(0, 100)
    assert span is not None and span.base_offset <= cut < span.end_offset
    assert held is not None and messages_of(held)[0] == message(0), "a span outlives its segment"
    size = log.size_bytes
    del log
    log = opened(tmp_path / "p", segment_bytes=2000)
    assert (log.first_offset, log.size_bytes) == (cut, size)
    assert len(list((tmp_path / "p").glob("0*.log"))) == len(list((tmp_path / "p").glob("0*.index"))) + 1
    assert len(list((tmp_path / "p").glob("0*.log"))) == log.segments_count
    log.truncate_before(10**9)
    assert (log.first_offset, log.next_offset, log.size_bytes, log.segments_count) == (120, 120, 0, 1)
    append(log, 2)
    assert set(read_all(log)) == {120, 121}
    log.close()
    assert set(read_all(opened(tmp_path / "p"))) == {120, 121}


def test_shortening_a_log_leaves_the_open_chunk_to_those_who_append(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path / "p", disk)
    append(log, 3)
    add(log, 2)
    disk.fault = failing("write", 0, at=".log", error=28)
    log.truncate_before(2)
    assert (log.first_offset, log.next_offset) == (2, 5)
    with pytest.raises(Refusal):
        log.flush()
    assert (log.first_offset, log.next_offset) == (2, 3)


def test_a_refused_flush_takes_its_messages_back(tmp_path: Path) -> None:
    """Appends at or above the next offset have not happened; those below it stand."""
    disk = FaultyDisk()
    log = opened(tmp_path / "p", disk)
    append(log, 3)
    add(log, 2)
    log.flush()
    disk.fault = failing("write", 0, at=".log", error=28)
    add(log, 4, flags=1)
    add(log, 4, flags=1)
    assert log.next_offset == 13
    with pytest.raises(Refusal) as caught:
        add(log, 1, flags=0)
    assert caught.value.reason is Reason.DISK_FULL and log.next_offset == 5
    assert log.refusal is not None and log.refusal.reason is Reason.DISK_FULL
    assert add(log, 1) == 5
    log.flush()
    COMMIT.submit(log)
    assert log.refusal is None and log.high_watermark == 6 and set(read_all(log)) == set(range(6))


def test_a_reservation_that_is_not_committed_leaves_no_trace(tmp_path: Path) -> None:
    log = opened(tmp_path / "p")
    array, at, base = log.reserve(2, 0, 1000)
    array[at : at + 1000] = 255
    assert base == 0
    assert add(log, 2) == 0
    log.reserve(2, 0, 1 << 22)
    log.flush()
    COMMIT.submit(log)
    assert log.next_offset == 2 and set(read_all(log)) == {0, 1}


@pytest.mark.parametrize(("settled", "stays"), [(2, False), (6, True)])
def test_a_snapshot_of_messages_that_a_power_cut_took_goes_with_the_first_opening(
    tmp_path: Path, settled: int, stays: bool
) -> None:
    """Also where that opening is ended before anybody has read the log: the next one finds the damage settled."""
    path = tmp_path / "p"
    log = opened(path, segment_bytes=200)
    log.snapshot("before", b"none")
    for _ in range(3):
        append(log, 2)
    log.snapshot("behind", b"six")
    assert [segment.base_offset for segment in log.segments()] == [0, 2, 4]
    del log
    (path / watermark.FILE_NAME).write_bytes(watermark.pack(TOPIC, 0, settled, settled, 0, [(1, 0)]))
    lost = path / f"{2:020}.log"
    lost.write_bytes(bytes(lost.stat().st_size))
    first = open_partition(RealDisk(), path, TOPIC, segment_bytes=200, now_us=NOW)
    assert [(one.first, one.end) for one in first.recovery.damage] == [(2, 4)] * (settled < 4)
    del first
    again = opened(path, segment_bytes=200)
    assert again.next_offset == 6
    assert (again.load_snapshot("behind") is not None) is stays
    assert again.load_snapshot("before") == (0, b"none")


def test_snapshots_last_and_are_not_believed_after_a_cut(tmp_path: Path) -> None:
    log = opened(tmp_path / "p")
    append(log, 5)
    log.snapshot("sequences", b"five")
    place = log._segments.active.written.position
    append(log, 5)
    log.maintain(NOW)
    log.snapshot("windows", b"ten")
    log.snapshot("empty", b"")
    assert log.load_snapshot("sequences") == (5, b"five") and log.load_snapshot("empty") == (10, b"")
    assert log.load_snapshot("none") is None
    with pytest.raises(LocalError):
        log.snapshot("../x", b"")
    log.close()
    assert opened(tmp_path / "p").load_snapshot("windows") == (10, b"ten")
    path = tmp_path / "p" / "windows.snapshot"
    data = bytearray(path.read_bytes())
    for at in range(len(data)):
        data[at] ^= 1
        path.write_bytes(data)
        assert opened(tmp_path / "p").load_snapshot("windows") is None
        data[at] ^= 1
    path.write_bytes(data)
    (tmp_path / "p" / watermark.FILE_NAME).write_bytes(watermark.pack(TOPIC, 0, 5, 5, 0, [(1, 0)]))
    with (tmp_path / "p" / f"{0:020}.log").open("r+b") as file:
        file.truncate(place + 3)
    log = opened(tmp_path / "p")
    append(log, 20)
    assert log.load_snapshot("windows") is None and log.load_snapshot("sequences") == (5, b"five")


def test_retention_by_age_and_size_takes_whole_segments_from_the_front() -> None:
    segments = [SegmentInfo(0, 10, 100, 50), SegmentInfo(10, 20, 100, 200), SegmentInfo(20, 30, 100, 150)]
    wanted = {
        (None, None): None,
        (100, None): None,
        (90, None): 10,
        (40, None): 10,
        (1, None): 10,
        (None, 300): None,
        (None, 200): 10,
        (None, 150): 10,
        (None, 0): 20,
        (90, 100): 20,
    }
    for (age, size), before in wanted.items():
        now = 141 if age in (100, 90) else 201
        assert find_expired_end(segments, now, age, size) == before, (age, size)
    assert find_expired_end(segments, 10_000, 10, None) == 30, "a log nobody writes to empties too"
    assert find_expired_end([SegmentInfo(0, 0, 0, 0)], 10_000, 10, None) is None


def test_the_age_clock_follows_small_corrections_and_no_jumps() -> None:
    clock = AgeClock()
    second = 1_000_000
    assert clock.now_us(1000 * second, 0) == 1000 * second
    assert clock.now_us(1020 * second, 10 * second) == 1020 * second
    assert clock.now_us(90_000 * second, 20 * second) == 1030 * second
    assert clock.now_us(90_010 * second, 30 * second) == 1040 * second
    assert clock.now_us(1060 * second, 40 * second) == 1060 * second
    assert clock.now_us(500 * second, 50 * second) == 500 * second

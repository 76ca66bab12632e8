"""Flipped bits, cut and filled tails, writes that the disk only pretends to do: nothing wrong is ever served."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lading.chunk.envelope import ENVELOPE_BYTES
from lading.kernels import engine
from lading.log.disk import RealDisk
from lading.log.group_commit import SyncNow
from lading.log.partition import DiskPartitionLog
from lading.log.reader import DirectoryReader
from lading.model.errors import CorruptLog
from lading.model.state import State
from tests import case_turns
from tests.faults.faulty import FaultyDisk
from tests.faults.power import Content, MemoryDisk
from tests.log.messages import NOW, add, message, messages_of, opened, read_all

HOME = Path("/data/p")


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    engine.load("lading.chunk.kernels")


def written(seed: int, *, chunks: int, segment_bytes: int, clean: bool) -> MemoryDisk:
    """A log in memory, closed in order or not."""
    random = Random(seed)
    disk = MemoryDisk()
    log = opened(HOME, disk, segment_bytes=segment_bytes)
    for number in range(chunks):
        add(log, random.choice((1, 2, 6)), now_us=NOW + number)
        log.flush()
        SyncNow().submit(log)
        log.maintain(NOW + number * 1_000_000)
    log.set_state(2, 4, State.POISONED, NOW)
    log.sync_states()
    log.maintain(NOW + chunks * 1_000_000)
    if clean:
        log.close()
    return disk


def copy(disk: MemoryDisk) -> MemoryDisk:
    contents = {inode: content.copy() for inode, content in disk.contents.items()}
    return MemoryDisk(contents, dict(disk.names_), numbers=itertools.count(1_000_000))


def flips(disk: MemoryDisk) -> Iterator[tuple[str, int]]:
    """Every byte of every file."""
    for name, inode in disk.names_.items():
        yield from ((name, at) for at in range(disk.contents[inode].written))


@pytest.mark.timeout(3600)
def test_a_flipped_bit_anywhere_is_noticed_or_harmless(full: bool, record_figures: Callable[..., None]) -> None:
    """Segments, indexes, watermark, states: after any flip every message is right, or reported as damaged."""
    figures = {"flips": 0, "reported": 0, "harmless": 0, "refused to open": 0, "wrong": 0, "neighbours lost": 0}
    for seed, clean in ((1, True), (2, False)):
        original = written(seed, chunks=24, segment_bytes=2500, clean=clean)
        end = opened(HOME, copy(original), segment_bytes=2500).high_watermark
        places = list(flips(original))
        if not full:
            places = list(case_turns.choose_part(Random(seed).sample(places, 300), 3))
        for name, at in places:
            disk = copy(original)
            disk.contents[disk.names_[name]].array[at] ^= 1 << (at % 8)
            figures["flips"] += 1
            try:
                _check_flipped(disk, name, end, figures)
            except CorruptLog:
                figures["refused to open"] += 1
            except Exception as error:
                raise AssertionError(f"bit {at % 8} of byte {at} of {name}, closed in order: {clean}") from error
    assert figures["wrong"] == 0 and figures["neighbours lost"] == 0
    record_figures("bit flips", **figures)


def _check_flipped(disk: MemoryDisk, name: str, end: int, figures: dict[str, int]) -> None:
    log = opened(HOME, disk, segment_bytes=2500)
    found = read_all(log)
    figures["wrong"] += sum(data != message(offset) for offset, data in found.items())
    lost = set(range(end)) - set(found)
    reported = {offset for first, stop in log.damaged_ranges(0, end) for offset in range(first, stop)}
    assert lost <= reported or (name.endswith("watermark") and not log.recovery.clean)
    assert log.next_offset >= end or name.endswith(("watermark", ".log"))
    # one flip touches one chunk of at most six messages
    figures["neighbours lost"] += len(lost) > 6
    hidden = log.unavailable_ranges(0, end)
    if hidden != [(2, 4, State.POISONED)]:
        assert name.endswith("states.log") and log.recovery.notes and hidden == []
    figures["reported" if lost or log.recovery.notes else "harmless"] += 1


@pytest.mark.timeout(3600)
def test_many_random_flips_at_once(full: bool, record_figures: Callable[..., None]) -> None:
    original = written(5, chunks=60, segment_bytes=6000, clean=True)
    random = Random(6)
    lost = rounds = 0
    for _ in range(2000 if full else 60):
        disk = copy(original)
        for _ in range(random.choice((2, 10, 50))):
            content = disk.contents[random.choice(list(disk.names_.values()))]
            content.array[random.randrange(max(content.written, 1))] ^= 1 << random.randrange(8)
        rounds += 1
        try:
            log = opened(HOME, disk, segment_bytes=6000)
        except CorruptLog:
            continue
        found = read_all(log)
        assert all(data == message(offset) for offset, data in found.items())
        missing = set(range(log.high_watermark)) - set(found)
        reported = {
            offset for first, stop in log.damaged_ranges(0, log.high_watermark) for offset in range(first, stop)
        }
        assert missing <= reported
        lost += len(missing)
        again = opened(HOME, disk, segment_bytes=6000)
        # what was read once stays; an index that the first start wrote anew may tell the next one more
        assert found.items() <= read_all(again).items()
    record_figures("random flips", logs=rounds, messages_reported_damaged=lost, wrong=0)


@pytest.mark.parametrize("tail", ["cut", "garbage", "zeros", "a copy of an older chunk", "half a chunk, then garbage"])
def test_a_bad_tail_is_cut_back_to_the_last_whole_record(
    tmp_path: Path, tail: str, full: bool, record_figures: Callable[..., None]
) -> None:
    log = opened(tmp_path / "p")
    places = []
    for _ in range(5):
        add(log, 3)
        places.append(log._segments.active.written.position)
        log.flush()
        SyncNow().submit(log)
        log.maintain(10**16 + log.next_offset * 10**6)
    add(log, 4)
    last = log._segments.active.written.position
    log.flush()
    size = log._segments.active.written.position
    del log
    path = tmp_path / "p" / f"{0:020}.log"
    whole = path.read_bytes()[:size]
    cuts = list(range(last, size) if tail == "cut" else range(20))
    cuts = cuts if full else Random(1).sample(cuts, min(12, len(cuts)))
    for number in cuts:
        work = tmp_path / f"{number}" / "p"
        shutil.copytree(tmp_path / "p", work)
        garbage = Random(number).randbytes(200 * number + 1)
        made = {
            "cut": whole[:number],
            "garbage": whole + garbage,
            "zeros": whole + bytes(100 * number),
            "a copy of an older chunk": whole + whole[places[1] : places[2]],
            "half a chunk, then garbage": whole[: last + 60 + number] + garbage,
        }[tail]
        (work / path.name).write_bytes(made)
        log = opened(work)
        survivors = 15 if tail in ("cut", "half a chunk, then garbage") else 19
        assert log.next_offset == survivors and not log.recovery.damage
        assert read_all(log) == {offset: message(offset) for offset in range(survivors)}
        kept = sorted(work.glob("*.cut"))
        after = made[last if survivors == 15 else size :].rstrip(b"\0")
        assert [file.read_bytes() for file in kept] == ([after] if after else [])
        assert [str(cut.kept) for cut in log.recovery.cuts] == [str(file) for file in kept]
        assert add(log, 1) == survivors
    record_figures(f"tail, {tail}", states=len(cuts), lost=0)


def test_a_short_write_is_made_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may write a part and say so; a disk that says so and wrote nothing of it is no worse."""
    real = os.pwrite
    calls = 0

    def short(fd: int, data: Any, at: int) -> int:
        nonlocal calls
        calls += 1
        if calls % 3 == 0 and len(data) > 40:
            return 37
        if calls % 7 == 0 and len(data) > 40:
            return real(fd, data[:20], at)
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", short)
    log = opened(tmp_path / "p")
    for _ in range(200):
        add(log, 2)
        log.flush()
        SyncNow().submit(log)
    monkeypatch.undo()
    assert calls > 250 and read_all(log) == {offset: message(offset) for offset in range(400)}
    again = opened(tmp_path / "p")
    assert not again.recovery.damage and len(read_all(again)) == 400


@pytest.mark.parametrize("keep", [0, 1, 37, 300])
def test_a_write_that_was_only_pretended_is_never_served(tmp_path: Path, keep: int) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path / "p", disk)
    for number in range(30):
        disk.fault = lambda operation, path, data: data
        if number % 5 == 4:
            disk.fault = lambda operation, path, data: data[:keep] if path.suffix == ".log" and data else data
        add(log, 4)
        log.flush()
        SyncNow().submit(log)
    found = read_all(log)
    lied = {offset for number in range(4, 30, 5) for offset in range(4 * number, 4 * number + 4)}
    big = {offset for offset in lied if offset in found}
    assert all(data == message(offset) for offset, data in found.items())
    assert set(range(120)) - set(found) <= lied and len(big) <= (0 if keep < 300 else len(lied))
    reported = {offset for first, end in log.damaged_ranges(0, 120) for offset in range(first, end)}
    assert reported == set(range(120)) - set(found)


def test_the_image_of_a_chunk_in_a_payload_is_not_taken_for_one(tmp_path: Path) -> None:
    """Somebody sends the bytes of a log as a message, and the chunk that holds it is damaged."""
    log = opened(tmp_path / "p", segment_bytes=4 << 20)
    add(log, 3)
    log.flush()
    image = bytearray(_chunk(log))
    log.append(2, 0, b"\0" * 70_000, 1, NOW, NOW)
    log.flush()
    evil = _sealed_at(image, base_offset=5)
    place = log._segments.active.written.position
    log.append(2, 0, b"x" * 500 + evil + b"y" * 500, 1, NOW, NOW)
    log.flush()
    for _ in range(4):
        log.append(2, 0, b"z" * 70_000, 1, NOW, NOW)
        log.flush()
    SyncNow().submit(log)
    log.close()
    path = tmp_path / "p" / f"{0:020}.log"
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\xff\xff\xff\x7f")
    log = opened(tmp_path / "p", segment_bytes=4 << 20)
    at = 0
    while (span := log.read(at, 1)) is not None:
        assert span.start < place or span.start >= place + ENVELOPE_BYTES + len(evil) + 1000
        at = span.end_offset
    assert log.damaged_ranges(0, 100) == [(4, 5)]


def _chunk(log: DiskPartitionLog) -> bytes:
    SyncNow().submit(log)
    span = log.read(0, 1)
    assert span is not None and len(messages_of(span)) == 3
    return span.region[span.start : span.end].tobytes()


def _sealed_at(chunk: bytearray, base_offset: int) -> bytes:
    import google_crc32c

    chunk[16:24] = base_offset.to_bytes(8, "little")
    chunk[4:8] = google_crc32c.value(bytes(chunk[8:])).to_bytes(4, "little")
    return bytes(chunk)


def test_clock_jumps_leave_times_rising_and_messages_kept(tmp_path: Path) -> None:
    from lading.log.retention import AgeClock, find_expired_end

    day = 86_400_000_000
    log = opened(tmp_path / "p", segment_bytes=3000)
    clock = AgeClock()
    jumps = {20: day, 40: -day, 60: -day, 80: day, 90: 3 * day}
    wall, monotonic = NOW, 5_000_000
    times = []
    for step in range(120):
        wall += jumps.get(step, 0) + 1_000_000
        monotonic += 1_000_000
        at = log.append_time_us(wall)
        times.append(at)
        log.append(2, 0, message(log.next_offset), 1, at, at)
        log.flush()
        before = find_expired_end(log.segments(), clock.now_us(wall, monotonic), day // 2, None)
        assert before is None, f"a clock jump made messages old at step {step}"
    assert times == sorted(times) and log.segments_count > 3
    SyncNow().submit(log)
    log.maintain(wall)
    log.close()
    again = opened(tmp_path / "p", segment_bytes=3000, now_us=wall - 5 * day)
    assert again.append_time_us(wall - 5 * day) >= times[-1]


def test_a_topic_in_the_wrong_place_is_refused(tmp_path: Path) -> None:
    from lading.log.partition import open_partition

    opened(tmp_path / "p").close()
    with pytest.raises(CorruptLog, match="belongs to topic"):
        open_partition(RealDisk(), tmp_path / "p", b"x" * 16, segment_bytes=1 << 20, now_us=NOW)
    with pytest.raises(CorruptLog, match="not a readable partition"):
        DirectoryReader(tmp_path)


def test_bad_memory_is_not_taken_before_a_limit_is_checked() -> None:
    """An envelope that claims 4 GB costs nothing."""
    disk = written(1, chunks=4, segment_bytes=1 << 20, clean=False)
    name = next(name for name in disk.names_ if name.endswith(".log"))
    content: Content = disk.contents[disk.names_[name]]
    content.array[0:4] = 255
    log = opened(HOME, disk)
    assert log.damaged_ranges(0, 100) and read_all(log)

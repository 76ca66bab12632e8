"""Segments: reading by offset, by size and by time, rolling, maps of closed ones, indexes that are missing or wrong."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from lading.chunk.envelope import ENVELOPE_BYTES
from lading.kernels import engine
from lading.log import index as index_format
from lading.log import scan as log_scan
from lading.log.disk import File, RealDisk, RealFile
from lading.log.group_commit import SyncNow
from lading.log.index import Index, IndexEntry
from lading.log.partition import DiskPartitionLog
from lading.log.scan import scan
from lading.log.segment import Segment
from lading.model.errors import CorruptLog
from tests.log.messages import NOW, add, message, messages_of, opened, read_all


def filled(path: Path, chunks: int, *, segment_bytes: int = 1 << 20, seed: int = 1) -> DiskPartitionLog:
    """A log of chunks of 1 to 40 messages, one microsecond apart, all synced."""
    random = Random(seed)
    log = opened(path, segment_bytes=segment_bytes)
    for _ in range(chunks):
        add(log, random.choice((1, 2, 40)), now_us=NOW + log.next_offset)
        log.flush()
    SyncNow().submit(log)
    return log


def test_every_offset_can_be_read_in_any_order_and_size(tmp_path: Path) -> None:
    log = filled(tmp_path / "p", 900, segment_bytes=300_000)
    assert log.segments_count > 3
    random = Random(2)
    for _ in range(3000):
        offset = random.randrange(log.high_watermark)
        max_bytes = random.choice((1, 100, 5000, 70_000, 1 << 20))
        span = log.read(offset, max_bytes)
        assert span is not None and span.base_offset <= offset < span.end_offset <= log.high_watermark
        if max_bytes < 10_000:
            assert messages_of(span)[offset] == message(offset)
        one_chunk = span.end_offset - span.base_offset <= 40
        assert span.end - span.start <= max(max_bytes, 1) + 65_536 or one_chunk
    assert log.read(log.high_watermark, 100) is None and log.read(log.high_watermark + 5, 100) is None


def test_a_reader_gets_at_least_one_chunk_and_hardly_more_than_it_asked_for(tmp_path: Path) -> None:
    log = opened(tmp_path / "p")
    for _ in range(50):
        log.append(2, 0, bytes(1000), 1, NOW, NOW)
        log.flush()
    SyncNow().submit(log)
    for asked, given in ((1, 1), (1048, 1), (2095, 1), (2096, 2), (10_480, 10), (1 << 30, 40)):
        span = log.read(10, asked)
        assert span is not None and (span.base_offset, span.end_offset) == (10, 10 + given)


def test_what_arrives_in_one_pass_shares_a_chunk_unless_dialect_or_flags_differ(tmp_path: Path) -> None:
    log = opened(tmp_path / "p")
    for dialect, flags in ((2, 0), (2, 0), (2, 1), (4, 1), (4, 1), (2, 0)):
        log.append(dialect, flags, b"body", 2, NOW + 5, NOW + 9)
    log.flush()
    SyncNow().submit(log)
    span = log.read(0, 1 << 20)
    assert span is not None
    from lading.chunk.runs import runs

    found = [
        (run.dialect, int(row[7]), int(row[2]), int(row[3]))
        for run in runs(span.region, span.start, span.end)
        for row in run.chunks
    ]
    assert found == [(2, 0, 0, 4), (2, 1, 4, 2), (4, 1, 6, 4), (2, 0, 10, 2)]


def test_a_chunk_stays_below_its_limit_unless_one_batch_is_larger(tmp_path: Path) -> None:
    log = opened(tmp_path / "p")
    sizes = [300_000, 300_000, 300_000, 300_000, 3_000_000, 10]
    bodies = [os.urandom(size) for size in sizes]
    for body in bodies:
        log.append(2, 0, body, 1, NOW, NOW)
    log.flush()
    SyncNow().submit(log)
    from lading.chunk.runs import runs

    data = []
    at = 0
    while (span := log.read(at, 1 << 24)) is not None:
        for run in runs(span.region, span.start, span.end):
            data += [run.region[row[0] : row[1]].tobytes() for row in run.chunks.tolist()]
        at = span.end_offset
    assert [len(body) for body in data] == [900_000, 300_000, 3_000_000, 10]
    assert b"".join(data) == b"".join(bodies)


def test_offset_at_finds_the_chunk_of_a_time(tmp_path: Path) -> None:
    log = filled(tmp_path / "p", 700, segment_bytes=200_000)
    random = Random(3)
    for _ in range(500):
        offset = random.randrange(log.high_watermark)
        found = log.offset_at(NOW + offset)
        span = log.read(found, 1)
        assert span is not None and span.base_offset == found <= offset < span.end_offset
    assert log.offset_at(0) == 0
    assert log.offset_at(NOW + log.high_watermark) == log.high_watermark
    log.close()
    again = opened(tmp_path / "p", segment_bytes=200_000)
    assert again.offset_at(NOW + 50) == log.offset_at(NOW + 50)


def test_times_that_rise_and_fall_are_found_at_the_first_place(tmp_path: Path) -> None:
    log = opened(tmp_path / "p")
    for number, at in enumerate((50, 10, 70, 20, 90)):
        log.append(4, number % 2, bytes(40_000), 1, at, at)
    log.flush()
    SyncNow().submit(log)
    wanted = {0: 0, 10: 0, 50: 0, 51: 2, 70: 2, 71: 4, 90: 4, 91: 5}
    assert {at: log.offset_at(at) for at in wanted} == wanted


def test_only_few_list_closed_segments_stay_mapped(tmp_path: Path) -> None:
    log = filled(tmp_path / "p", 1500, segment_bytes=100_000)
    assert log.segments_count > 10
    span = log.read(0, 1000)
    assert span is not None
    assert len(read_all(log)) == log.high_watermark
    assert sum(segment.loaded for segment in log._segments.closed) <= 4
    assert messages_of(span)[0] == message(0), "a span outlives the map of its segment"


def test_a_map_follows_the_growing_file(tmp_path: Path) -> None:
    log = opened(tmp_path / "p", segment_bytes=64 << 20)
    read = 0
    body = os.urandom(400_000)
    for number in range(60):
        log.append(2, 0, body, 1, NOW, NOW)
        log.flush()
        SyncNow().submit(log)
        span = log.read(number, 1)
        assert span is not None and span.end_offset == number + 1
        assert span.region[span.end - 400_000 : span.end].tobytes() == body
        read += 1
    assert read == 60


def test_a_file_made_shorter_under_a_running_log_is_an_error_not_the_end_of_the_process(tmp_path: Path) -> None:
    log = filled(tmp_path / "p", 600)
    # the watermark is what tells the next start how much there was
    log.maintain(NOW + 10**7)
    assert log.read(0, 100) is not None
    os.truncate(tmp_path / "p" / f"{0:020}.log", 4096)
    with pytest.raises(CorruptLog, match="cannot be read"):
        log.read(log.high_watermark - 1, 100)
    [(_, end)] = opened(tmp_path / "p").damaged_ranges(0, log.high_watermark)
    assert end == log.high_watermark


# ---------------------------------------------------------------------------------------------------- the index


def test_index_entries_come_back_as_written_and_any_flip_is_noticed() -> None:
    index = Index()
    for number in range(20):
        index.add(100 + number * 7, number * 70_000, NOW + number)
    index.end = IndexEntry(300, 20 * 70_000, NOW + 50)
    data = index.pack()
    again, fault = index_format.unpack(data, 100)
    assert not fault and again == index
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 1 << (at % 8)
        again, fault = index_format.unpack(bytes(broken), 100)
        assert fault and len(again) <= at // 32
    assert index_format.unpack(data[:-1], 100)[1]
    assert not index_format.unpack(b"", 100)[1]


@pytest.mark.parametrize("how", ["deleted", "emptied", "random", "of another segment", "older"])
def test_an_index_that_is_lost_is_rebuilt_as_it_was(tmp_path: Path, how: str) -> None:
    log = filled(tmp_path / "p", 1000, segment_bytes=400_000)
    log.close()
    files = sorted((tmp_path / "p").glob("*.index"))
    before = {path: path.read_bytes() for path in files}
    assert len(files) > 2 and all(len(data) >= 64 for data in before.values())
    for path in files:
        match how:
            case "deleted":
                path.unlink()
            case "emptied":
                path.write_bytes(b"")
            case "random":
                path.write_bytes(os.urandom(4000))
            case "of another segment":
                path.write_bytes(before[files[0]] if path != files[0] else before[files[1]])
            case "older":
                path.write_bytes(before[path][:32])
    log = opened(tmp_path / "p", segment_bytes=400_000)
    assert read_all(log) == {offset: message(offset) for offset in range(log.high_watermark)}
    assert not log.recovery.damage and log.epoch == 1
    add(log, 1)
    log.flush()
    log.close()
    assert {path: path.read_bytes() for path in files[:-1]} == {path: before[path] for path in files[:-1]}
    assert files[-1].read_bytes()[: len(before[files[-1]]) - 32] == before[files[-1]][:-32]


def test_a_wrong_entry_with_a_right_checksum_is_found_out_when_used(tmp_path: Path) -> None:
    log = filled(tmp_path / "p", 1000, segment_bytes=400_000)
    log.close()
    path = sorted((tmp_path / "p").glob("*.index"))[0]
    index, _ = index_format.unpack(path.read_bytes(), 0)
    for number in range(1, len(index)):
        index.positions[number] += 48
    path.write_bytes(index.pack())
    log = opened(tmp_path / "p", segment_bytes=400_000)
    assert read_all(log) == {offset: message(offset) for offset in range(log.high_watermark)}
    assert log.damaged_ranges(0, 1 << 40) == []


def test_index_rebuild_rate(tmp_path: Path, full: bool, capsys: pytest.CaptureFixture[str]) -> None:
    engine.load("lading.chunk.kernels")
    size = (1 << 30) if full else (32 << 20)
    log = opened(tmp_path / "p", segment_bytes=2 << 30)
    body = np.random.default_rng(1).integers(0, 256, 199_952, np.uint8).tobytes()
    while log.size_bytes < size:
        log.append(2, 0, body, 1000, NOW, NOW)
        log.flush()
    SyncNow().submit(log)
    log.close()
    (tmp_path / "p" / f"{0:020}.index").unlink()
    started = time.perf_counter()
    again = opened(tmp_path / "p", segment_bytes=2 << 30)
    took = time.perf_counter() - started
    assert again.high_watermark == log.high_watermark and again.recovery.scanned_bytes == again.size_bytes
    with capsys.disabled():
        print(f"\nindex rebuilt: {size / took / 1e6:,.0f} MB/s")


@pytest.fixture(autouse=True)
def _kernels() -> Callable[[], None]:
    engine.load("lading.chunk.kernels")
    return lambda: None


def test_bytes_that_change_under_a_scan_are_a_torn_tail(tmp_path: Path) -> None:
    """A backup scans the end of a log that its broker writes to: NumPy counted bytes that were others when found."""
    path = tmp_path / f"{0:020}.log"
    size_bytes = 4 << 10
    path.write_bytes(b"\1" + bytes(size_bytes - 1))
    begun, begins = os.pipe()
    writer = os.fork()
    if not writer:
        # an interpreter of its own, since one that shares ours would stand still while NumPy looks
        with (
            contextlib.suppress(BaseException),
            path.open("r+b") as file,
            mmap.mmap(file.fileno(), size_bytes) as region,
        ):
            os.write(begins, b"x")
            for _ in range(2_000_000):
                region[64:] = b"\2" * (size_bytes - 64)
                region[64:] = bytes(size_bytes - 64)
        os._exit(0)
    try:
        assert os.read(begun, 1) == b"x"
        live = np.memmap(path, np.uint8, "r")
        for _ in range(3_000):
            found = scan(live, IndexEntry(0, 0, 0), size_bytes, path=path)
            assert (found.end_position, found.end_offset, found.damage) == (0, 0, [])
            assert 1 <= found.bad_bytes <= size_bytes
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        os.close(begun)
        os.close(begins)


@pytest.mark.parametrize("torn", ["body", "envelope"])
def test_a_chunk_that_is_completed_under_a_scan_is_no_damage(
    tmp_path: Path, torn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup scans the end of a log that its broker writes to: a half written chunk is whole once others follow."""
    log = filled(tmp_path / "p", 6)
    path, size_bytes, end_offset = next(log.path.glob("*.log")), log.size_bytes, log.next_offset
    whole = path.read_bytes()[:size_bytes]
    (_, *chunks), *_ = log_scan.walk(np.frombuffer(whole, np.uint8), 0, size_bytes, verify=True)
    begins = int(chunks[2][0]) - ENVELOPE_BYTES
    written = begins + (8 if torn == "envelope" else ENVELOPE_BYTES + 1)
    path.write_bytes(whole[:written].ljust(size_bytes, b"\0"))
    looks: list[int] = []
    look = log_scan._last_byte

    def write_on(region: log_scan.Region, start: int, end: int) -> int:
        looks.append(start)
        with path.open("r+b") as file:
            file.write(whole)
        return look(region, start, end)

    # what the scan does first once a chunk is not whole
    monkeypatch.setattr(log_scan, "_last_byte", write_on)
    found = scan(np.memmap(path, np.uint8, "r"), IndexEntry(0, 0, 0), size_bytes, path=path)
    assert looks == [begins]
    assert (found.end_position, found.end_offset, found.damage, found.bad_bytes) == (size_bytes, end_offset, [], 0)
    assert found.index.positions.tolist() == [0]
    log.close()


def test_a_segment_that_is_closed_under_a_scan_is_read_to_its_end(tmp_path: Path) -> None:
    """The broker releases the space ahead of a segment that it closes; a reader may have counted its first page."""
    log = filled(tmp_path / "p", 6)
    path, size_bytes, end_offset = next(log.path.glob("*.log")), log.size_bytes, log.next_offset
    assert path.stat().st_size > size_bytes
    segment = Segment(ClosingDisk(size_bytes), log.path, 0)
    found = segment.scan_to_end(IndexEntry(0, 0, 0))
    assert path.stat().st_size == size_bytes
    assert (found.end_position, found.end_offset, found.damage, found.bad_bytes) == (size_bytes, end_offset, [], 0)
    log.close()


class ClosingFile(RealFile):
    """A file that is made shorter as soon as somebody knows where its data ends."""

    __slots__ = ("_end",)

    def __init__(self, path: Path | str, end: int) -> None:
        super().__init__(path, os.O_RDWR)
        self._end = end

    def data_end(self) -> int:
        found = super().data_end()
        self.resize(self._end)
        return found


class ClosingDisk(RealDisk):
    """A disk of such files."""

    def __init__(self, end: int) -> None:
        self._end = end

    def open(self, path: Path | str, *, write: bool = False) -> File:
        return ClosingFile(path, self._end)

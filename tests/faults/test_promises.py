"""The five promises of the log, each with a test that bears its name (docs/explanation/promises.md)."""

from __future__ import annotations

import ast
import errno
import os
from pathlib import Path
from typing import Any

import pytest

import lading.log
from lading.chunk.envelope import ENVELOPE_BYTES
from lading.log.disk import Disk, RealDisk
from lading.log.group_commit import GroupCommit, SyncNow, WriteOnly
from lading.log.partition import DiskPartitionLog
from lading.log.reader import DirectoryReader
from lading.model.errors import Reason, Refusal
from tests.faults.faulty import FaultyDisk, failing
from tests.log.messages import add, message, opened, read_all

# ---------------------------------------------------------------------------------------------------- promise 1


def test_promise_1_acknowledged_is_on_disk(tmp_path: Path) -> None:
    """Nothing is done or readable before the sync of its file has returned; many appends share one sync."""
    synced_sizes: list[int] = []
    disk = FaultyDisk()

    def fault(operation: str, path: Path, data: Any) -> Any:
        if operation == "sync" and path.suffix == ".log":
            synced_sizes.append(log._segments.active.written.position)
        return data

    log = opened(tmp_path / "p", disk)
    disk.fault = fault
    done: list[int] = []
    for _ in range(3):
        for _ in range(50):
            add(log, 2)
        log.flush()
        assert log.high_watermark == len(done) * 100 and log.read(log.high_watermark, 1 << 20) is None
        SyncNow().submit(log, lambda error: done.append(log.high_watermark))
        assert done[-1] == log.next_offset
    assert done == [100, 200, 300] and len(synced_sizes) == 3
    assert read_all(log) == {offset: message(offset) for offset in range(300)}


def test_promise_1_group_commit_makes_one_sync_of_all_that_arrived_meanwhile(tmp_path: Path) -> None:
    commit = GroupCommit()
    logs = [opened(tmp_path / f"p{number}") for number in range(3)]
    acknowledged: list[tuple[int, int]] = []
    rounds = 200
    for _ in range(rounds):
        for number, log in enumerate(logs):
            end = add(log, 1) + 1
            log.flush()

            def done(error: OSError | None, log: DiskPartitionLog = log, number: int = number, end: int = end) -> None:
                assert error is None and log.high_watermark >= end
                acknowledged.append((number, end))

            commit.submit(log, done)
        commit.complete()
    assert commit.drain()
    for number, log in enumerate(logs):
        assert [end for which, end in acknowledged if which == number] == list(range(1, rounds + 1))
        assert log.high_watermark == rounds and len(read_all(log)) == rounds
        log.close()
    commit.close()


def test_promise_1_durability_os_shows_what_is_written_and_says_so_by_its_class(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path / "p", disk)
    add(log, 5)
    log.flush()
    disk.fault = failing("sync", 0)
    WriteOnly().submit(log)
    assert log.high_watermark == 5 and log.refusal is None


# ---------------------------------------------------------------------------------------------------- promise 2


@pytest.mark.parametrize("number", range(6))
def test_promise_2_a_failed_sync_is_never_acknowledged_and_never_tried_again(tmp_path: Path, number: int) -> None:
    """The partition turns read-only, what was readable stays so, and only a restart makes it writable."""
    disk = FaultyDisk()
    log = opened(tmp_path / "p", disk, segment_bytes=2000)
    add(log, 4)
    log.flush()
    SyncNow().submit(log)
    syncs: list[str] = []
    inner = failing("sync", number)

    def fault(operation: str, path: Path, data: Any) -> Any:
        if operation == "sync":
            syncs.append(path.name)
        return inner(operation, path, data)

    disk.fault = fault
    acknowledged = log.high_watermark
    failures: list[OSError] = []
    for _ in range(40):
        try:
            add(log, 3)
            log.flush()
        except Refusal as refusal:
            assert refusal.reason is Reason.READ_ONLY
            break
        SyncNow().submit(log, lambda error: failures.append(error) if error else None)
        if failures:
            break
        acknowledged = log.high_watermark
    assert len(syncs) == number + 1, "a sync that failed was tried again"
    assert log.high_watermark == acknowledged and len(read_all(log)) == acknowledged
    assert log.refusal is not None and log.refusal.reason is Reason.READ_ONLY
    # clients read it: it names the partition, and not where the data lies on this machine
    assert str(log.path) not in str(log.refusal)
    assert "/".join(log.path.parts[-2:]) in str(log.refusal) and "start again" in str(log.refusal)
    for attempt in (lambda: log.reserve(2, 0, 10), lambda: log.set_state(0, 1, 20, 1)):
        with pytest.raises(Refusal) as caught:
            attempt()
        assert caught.value.reason is Reason.READ_ONLY
    SyncNow().submit(log)
    log.close()
    assert len(syncs) == number + 1
    again = opened(tmp_path / "p", segment_bytes=2000)
    found = read_all(again)
    assert all(found[offset] == message(offset) for offset in range(acknowledged))
    add(again, 1)
    again.flush()


def test_promise_2_through_the_sync_threads(tmp_path: Path) -> None:
    """A file number that cannot be synced fails its own log only."""
    commit = GroupCommit(threads=2)
    good, bad = opened(tmp_path / "p1"), opened(tmp_path / "p2")
    for log in (good, bad):
        add(log, 1)
        log.flush()
    os.close(bad._segments.active.file.fileno())
    results: dict[str, OSError | None] = {}
    commit.submit(good, lambda error: results.__setitem__("good", error))
    commit.submit(bad, lambda error: results.__setitem__("bad", error))
    assert commit.drain()
    assert results["good"] is None and good.high_watermark == 1
    failed = results["bad"]
    assert failed is not None and failed.errno == errno.EBADF and bad.high_watermark == 0
    assert bad.refusal is not None and bad.refusal.reason is Reason.READ_ONLY and good.refusal is None
    bad._segments.active.file._fd = -1  # type: ignore[attr-defined]
    commit.close()


def test_promise_2_a_failed_write_turns_the_partition_read_only(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path / "p", disk)
    add(log, 4)
    log.flush()
    SyncNow().submit(log)
    disk.fault = failing("write", 0, at=".log")
    add(log, 2)
    with pytest.raises(Refusal) as caught:
        log.flush()
    assert caught.value.reason is Reason.READ_ONLY and log.next_offset == 4 and len(read_all(log)) == 4


# ---------------------------------------------------------------------------------------------------- promise 3


def test_promise_3_a_full_disk_refuses_and_resumes_by_itself(small_disk: Path) -> None:
    log = opened(small_disk / "p")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(5 << 20))
    _fill(log)
    assert log.refusal is not None and log.refusal.reason is Reason.DISK_FULL and "disk is full" in str(log.refusal)
    kept = log.next_offset
    assert log.high_watermark == kept and kept > 1000
    for _ in range(20):
        with pytest.raises(Refusal) as caught:
            log.append(2, 0, bytes(600_000), 1, 1, 1)
            log.flush()
        assert caught.value.reason is Reason.DISK_FULL and log.next_offset == kept
    assert read_all(log, max_bytes=1 << 20) == {offset: message(offset) for offset in range(kept)}
    ballast.unlink()
    assert add(log, 10) == kept
    log.flush()
    SyncNow().submit(log)
    assert log.refusal is None and log.high_watermark == kept + 10
    log.close()
    again = opened(small_disk / "p")
    assert again.recovery.clean and not again.recovery.damage
    assert read_all(again, max_bytes=1 << 20) == {offset: message(offset) for offset in range(kept + 10)}


def test_promise_3_a_log_opens_on_a_full_disk_for_readers(small_disk: Path) -> None:
    log = opened(small_disk / "p")
    _fill(log, until_bytes=2 << 20)
    end = log.high_watermark
    # killed with a torn tail: what recovery wants to keep aside has no room
    at = log._segments.active.written.position
    log._segments.active.file.write(os.urandom(899_999) + b"!", at)
    del log
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError as error:
            assert error.errno == errno.ENOSPC
    log = opened(small_disk / "p")
    assert log.refusal is not None and log.refusal.reason is Reason.DISK_FULL
    assert len(read_all(log, max_bytes=1 << 20)) == end
    add(log, 1)
    with pytest.raises(Refusal):
        log.flush()
    ballast.unlink()
    add(log, 3)
    log.flush()
    SyncNow().submit(log)
    assert log.high_watermark == end + 3 and log.refusal is None
    assert [path.stat().st_size for path in (small_disk / "p").glob("*.cut")] == [900_000]
    found = read_all(log, max_bytes=1 << 20)
    assert found == {offset: message(offset) for offset in range(end + 3)}


def _fill(log: DiskPartitionLog, until_bytes: int = 1 << 30) -> None:
    for _ in range(100_000):
        try:
            add(log, 50)
            log.flush()
        except Refusal as refusal:
            assert refusal.reason is Reason.DISK_FULL
            return
        SyncNow().submit(log)
        if log.size_bytes > until_bytes:
            return
    raise AssertionError("the disk never became full")


# ---------------------------------------------------------------------------------------------------- promise 4


def _crashed(path: Path, chunks: int = 6, synced: int | None = None) -> tuple[Path, list[int]]:
    """A log of so many chunks of 3 messages that nobody closed, its segment file, where each chunk begins."""
    log = opened(path)
    places = []
    for number in range(chunks):
        add(log, 3)
        places.append(log._segments.active.written.position)
        log.flush()
        if synced is None or number < synced:
            SyncNow().submit(log)
            log.maintain(10**16 + number * 10**6)
    return log._segments.active.path, [*places, log._segments.active.written.position]


def test_promise_4_a_torn_tail_is_cut_and_kept_aside(tmp_path: Path) -> None:
    """Above the synced end, with nothing whole behind it."""
    path, places = _crashed(tmp_path / "p", synced=4)
    torn = path.read_bytes()[places[5] : places[5] + 30]
    with path.open("r+b") as file:
        file.truncate(places[5] + 30)
    log = opened(tmp_path / "p")
    [cut] = log.recovery.cuts
    kept = torn.rstrip(b"\0")
    assert (cut.position, cut.size_bytes, cut.kept.read_bytes()) == (places[5], len(kept), kept)
    assert f"truncated {len(kept)} bytes of a torn tail" in str(cut)
    assert log.next_offset == 15 and not log.recovery.damage
    assert path.stat().st_size == places[5]
    assert log.epochs == [(1, 0), (2, 15)], "whoever saw what was cut must be able to tell"
    assert read_all(log) == {offset: message(offset) for offset in range(15)}
    assert add(log, 1) == 15


def test_promise_4_a_bad_region_before_a_whole_chunk_is_damage(tmp_path: Path) -> None:
    path, places = _crashed(tmp_path / "p", synced=2)
    _flip(path, places[3] + ENVELOPE_BYTES + 5)
    before = path.read_bytes()
    log = opened(tmp_path / "p")
    [damage] = log.recovery.damage
    assert (damage.first, damage.end, damage.start, damage.stop) == (9, 12, places[3], places[4])
    assert damage.one_chunk and not log.recovery.cuts and "offsets 9 to 11 are damaged" in str(damage)
    assert log.damaged_ranges(0, 100) == [(9, 12)] and log.damaged_ranges(10, 11) == [(10, 11)]
    assert sorted(read_all(log)) == [*range(9), *range(12, 18)]
    span = log.read(10, 4096)
    assert span is not None and span.damaged and (span.base_offset, span.end_offset) == (9, 12)
    assert add(log, 1) == 18
    assert path.read_bytes()[: places[6]] == before[: places[6]], "damage stays where it is"


@pytest.mark.parametrize("how", ["flipped", "truncated", "zeroed"])
def test_promise_4_a_bad_end_below_the_synced_end_is_damage(tmp_path: Path, how: str) -> None:
    """What was acknowledged there is gone, is reported, and its offsets are never given to others."""
    path, places = _crashed(tmp_path / "p")
    with path.open("r+b") as file:
        if how == "flipped":
            file.seek(places[4] + 9)
            file.write(b"\xff\xff\xff")
        else:
            file.truncate(places[4] + 20)
        if how == "zeroed":
            file.seek(places[4])
            file.write(bytes(2000))
    log = opened(tmp_path / "p")
    assert log.next_offset == 18 and not log.recovery.cuts
    lost = [(12, 15)] if how == "flipped" else [(12, 18)]
    assert log.damaged_ranges(0, 100) == lost
    kept = set(range(18)) - set(range(*lost[0]))
    assert set(read_all(log)) == kept
    assert add(log, 2) == 18
    log.flush()
    SyncNow().submit(log)
    for _ in range(2):
        log = opened(tmp_path / "p")
        assert set(read_all(log)) == kept | {18, 19} and log.damaged_ranges(0, 100) == lost


def test_promise_4_a_lost_segment_is_damage(tmp_path: Path) -> None:
    log = opened(tmp_path / "p", segment_bytes=2000)
    for _ in range(30):
        add(log, 3)
        log.flush()
        SyncNow().submit(log)
    second, third = log.segments()[1:3]
    log.close()
    (tmp_path / "p" / f"{second.base_offset:020}.log").unlink()
    log = opened(tmp_path / "p", segment_bytes=2000)
    assert log.damaged_ranges(0, 90) == [(second.base_offset, third.base_offset)]
    assert set(read_all(log)) == set(range(90)) - set(range(second.base_offset, third.base_offset))


def test_promise_4_damage_in_an_old_segment_is_found_when_it_is_read(tmp_path: Path) -> None:
    log = opened(tmp_path / "p", segment_bytes=4000)
    for _ in range(40):
        add(log, 3)
        log.flush()
        SyncNow().submit(log)
    log.close()
    path = tmp_path / "p" / f"{0:020}.log"
    _flip(path, 700)
    log = opened(tmp_path / "p", segment_bytes=4000)
    assert log.recovery.clean and log.damaged_ranges(0, 120) == []
    found = read_all(log)
    [(first, end)] = log.damaged_ranges(0, 120)
    assert end - first == 3 and set(found) == set(range(120)) - set(range(first, end))
    assert all(data == message(offset) for offset, data in found.items())
    reader = DirectoryReader(tmp_path / "p")
    assert reader.read(first, 100) is not None and reader.damaged_ranges(0, 120) == [(first, end)]


def _flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        # two bits: one alone would be mended
        file.write(bytes([byte ^ 3]))


# ---------------------------------------------------------------------------------------------------- promise 5

NOT_THE_LOG = {"disk.py", "file_system_sync.py", "catalog.py", "directory.py"}
"""``disk.py`` is where it happens, for many files by ``file_system_sync.py``; the others keep the catalog and the list
of topics, beside the partition logs."""
PIPES = {"pipe", "read", "write", "close", "set_blocking", "strerror"}
"""What the group commit does with pipes to its threads; it never opens a file."""


def test_promise_5_all_input_and_output_of_the_log_goes_through_the_disk() -> None:
    room = Path(lading.log.__path__[0])
    for path in sorted(room.glob("*.py")):
        if path.name in NOT_THE_LOG:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
                assert not names & {"mmap", "shutil", "io", "tempfile", "fcntl"}, f"{path.name} imports {names}"
                assert "os" not in names or path.name == "group_commit.py", f"{path.name} imports os"
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
                assert node.attr in PIPES, f"{path.name} uses os.{node.attr}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "open", f"{path.name} opens a file"
            if isinstance(node, ast.Attribute):
                assert node.attr not in {"read_bytes", "write_bytes", "read_text", "write_text", "unlink", "memmap"}


def test_promise_5_the_disk_is_small() -> None:
    methods = {name for name in vars(Disk) if not name.startswith("_")}
    assert methods == {"open", "names", "mtime_us", "sync_paths", "make_directory", "rename", "remove"}
    disk: Disk = RealDisk()
    assert disk is not None

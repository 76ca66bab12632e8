"""Group commit in an event loop, with the sync threads in Python and as kernels."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import termios
import time
from pathlib import Path
from typing import ClassVar

import pytest
import uvloop

from lading.kernels import engine
from lading.log import disk, watermark
from lading.log.disk import File, RealDisk
from lading.log.group_commit import GroupCommit, SyncNow, WriteOnly
from lading.log.interface import Commit
from lading.log.partition import DiskPartitionLog
from tests.faults.power import MemoryDisk, PowerCuts
from tests.log.messages import add, opened, read_all

APPENDS = 60


async def _producers(logs: list[DiskPartitionLog], commit: GroupCommit) -> list[int]:
    """So many producers that each wait for their own acknowledgement; how many got one, by log."""
    loop = asyncio.get_running_loop()
    number = commit.fileno()
    assert number is not None
    loop.add_reader(number, commit.complete)
    acknowledged = [0] * len(logs)

    async def produce(which: int) -> None:
        log = logs[which]
        for _ in range(APPENDS):
            end = add(log, 1) + 1
            log.flush()
            done: asyncio.Future[OSError | None] = loop.create_future()
            commit.submit(log, done.set_result)
            assert await asyncio.wait_for(done, 30) is None
            assert log.high_watermark >= end
            acknowledged[which] += 1

    await asyncio.gather(*(produce(number % len(logs)) for number in range(3 * len(logs))))
    loop.remove_reader(number)
    return acknowledged


@pytest.mark.parametrize("threads", ["twin", "kernel"])
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_every_producer_is_answered_in_any_loop(tmp_path: Path, loop: str, threads: str) -> None:
    if threads == "kernel":
        engine.load("lading.kernels.sync")
    logs = [opened(tmp_path / f"p{number}", segment_bytes=3000) for number in range(5)]
    commit = GroupCommit(threads=3)
    run = uvloop.run if loop == "uvloop" else asyncio.run
    assert run(_producers(logs, commit)) == [3 * APPENDS] * 5
    commit.close()
    for number, log in enumerate(logs):
        assert log.segments_count > 2, "segments rolled while syncs were under way"
        log.close()
        again = opened(tmp_path / f"p{number}", segment_bytes=3000)
        assert again.recovery.clean and len(read_all(again)) == 3 * APPENDS


def test_the_kernel_reports_errors_by_file() -> None:
    engine.load("lading.kernels.sync")

    class Broken:
        path = Path("broken")

        def fileno(self) -> int:
            return 1 << 20

    class Log:
        on_synced = None
        error: OSError | None = None

        def begin_sync(self) -> list[Broken]:
            return [Broken()]

        def fail_sync(self, error: OSError) -> None:
            self.error = error

    commit = GroupCommit(threads=1)
    log = Log()
    answers: list[OSError | None] = []
    commit.submit(log, answers.append)  # type: ignore[arg-type]
    assert commit.drain()
    assert log.error is not None and log.error.errno == errno.EBADF and answers == [log.error]
    commit.close()


@pytest.mark.parametrize("make", [GroupCommit, SyncNow, WriteOnly])
def test_nothing_to_sync_is_answered_at_once(tmp_path: Path, make: type) -> None:
    log = opened(tmp_path / "p")
    commit: Commit = make()
    answers: list[OSError | None] = []
    commit.submit(log, answers.append)
    assert answers == [None]
    called: list[int] = []
    log.on_synced = lambda: called.append(log.high_watermark)
    add(log, 2)
    log.flush()
    commit.submit(log, answers.append)
    commit.submit(log, answers.append)
    assert commit.drain() and answers == [None, None, None] and called == [2]
    commit.close()


def test_the_next_sync_is_under_way_before_anybody_is_told_of_the_one_before(tmp_path: Path) -> None:
    log = opened(tmp_path / "p")
    commit = GroupCommit(threads=1)
    seen: list[tuple[int, bool]] = []
    log.on_synced = lambda: seen.append((log.high_watermark, not log.begin_sync()))
    answers: list[OSError | None] = []
    for _ in range(2):
        add(log, 2)
        log.flush()
        commit.submit(log, answers.append)
    assert commit.drain()
    # the second was flushed while the first was under way: when that is told, nothing is left to begin
    assert seen == [(2, True), (4, True)]
    assert answers == [None, None]
    commit.close()


def test_the_syncs_of_many_logs_are_taken_in_several_passes(tmp_path: Path) -> None:
    logs = [opened(tmp_path / f"p{number}") for number in range(30)]
    commit = GroupCommit(threads=1)
    synced: list[int] = []
    for log in logs:
        # the first write of a log has another file to sync
        add(log, 1)
        log.flush()
        SyncNow().submit(log)
    for number, log in enumerate(logs):
        add(log, 1)
        log.flush()
        commit.submit(log, lambda _, number=number: synced.append(number))  # type: ignore[misc]
    results, deadline_s = commit._threads[0].answers, time.monotonic() + 30
    while int.from_bytes(fcntl.ioctl(results, termios.FIONREAD, bytes(4)), "little") < len(logs):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    passes = 0
    while len(synced) < len(logs):
        before = len(synced)
        commit.complete()
        assert 0 < len(synced) - before <= 4
        passes += 1
    assert (synced, passes) == (list(range(30)), 8)
    commit.close()


def test_a_log_closed_during_a_sync_keeps_its_file_until_then(tmp_path: Path) -> None:
    class Counted(RealDisk):
        """Knows the numbers of files that are open for writing."""

        numbers: ClassVar[list[int]] = []

        def open(self, path: Path | str, *, write: bool = False) -> File:
            file = super().open(path, write=write)
            if write and Path(path).suffix == ".log":
                self.numbers.append(file.fileno())
            return file

    commit = GroupCommit(threads=1)
    for number in range(20):
        log = opened(tmp_path / f"p{number}", Counted())
        add(log, 3)
        log.flush()
        failed: list[OSError | None] = []
        commit.submit(log, failed.append)
        log.close()
        del log
        # another file could have the number by now, and be synced in its place
        place = Path(f"/proc/self/fd/{Counted.numbers[-1]}").readlink()
        assert place.parent == tmp_path / f"p{number}"
        assert commit.drain() and failed == [None]
    for number in range(20):
        assert len(read_all(opened(tmp_path / f"p{number}"))) == 3
    commit.close()


def test_a_log_closed_during_a_sync_is_not_closed_in_order(tmp_path: Path) -> None:
    """A disk tells each failure to sync once: to the sync under way, whose end the log does not wait for."""
    log = opened(tmp_path / "p", segment_bytes=1000)
    for _ in range(5):
        add(log, 3)
        log.flush()
    assert len(log.begin_sync()) > 1, "segments rolled"
    log.close()
    again = opened(tmp_path / "p", segment_bytes=1000)
    assert not again.recovery.clean and len(read_all(again)) == 15


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_the_first_write_after_a_start_waits_for_the_disk_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    """Each partition's first write held the loop for a sync: 1,000 partitions on a disk of 10 ms, ten seconds."""
    logs = []
    for number in range(10):
        log = opened(tmp_path / f"p{number}")
        add(log, 1)
        log.close()
        logs.append(opened(tmp_path / f"p{number}"))
    syncs: list[int] = []
    monkeypatch.setattr(disk, "_sync_data", syncs.append)
    threads = GroupCommit(threads=1)
    commit: Commit = threads if durability == "fsync" else WriteOnly(threads)
    answers: list[OSError | None] = []
    for log in logs:
        add(log, 1)
        log.flush()
        commit.submit(log, answers.append)
        assert log.high_watermark == 1, "nobody sees messages before the disk knows that the log is written to"
        log.maintain(1)
    assert commit.drain() and answers == [None] * 10 and syncs == []
    for log in logs:
        assert log.high_watermark == 2 and log.is_begun
        mark = watermark.unpack((log.path / watermark.FILE_NAME).read_bytes())
        assert mark is not None and not mark.clean
        # the second write waits as the durability says
        add(log, 1)
        log.flush()
        commit.submit(log)
        assert log.high_watermark == (2 if durability == "fsync" else 3)
    assert commit.drain() and [log.high_watermark for log in logs] == [3] * 10
    commit.close()


def test_readers_notice_that_unsynced_messages_are_lost() -> None:
    """``durability = "os"``: what was visible may be lost in a power cut, and then a new epoch begins."""
    memory = MemoryDisk(log=[])
    log = opened(Path("/data/p"), memory)
    add(log, 2)
    log.close()
    log = opened(Path("/data/p"), memory)
    commit = WriteOnly(SyncNow())
    for _ in range(3):
        add(log, 1)
        log.flush()
        commit.submit(log)
    position = (log.epoch, log.high_watermark)
    assert position == (1, 5) and memory.log is not None
    left = PowerCuts(memory.log).build(len(memory.log), (), 0, "all lost")
    again = opened(Path("/data/p"), left.disk)
    assert again.next_offset < 5
    add(again, 5)
    assert not watermark.is_still_valid(again.epochs, *position)

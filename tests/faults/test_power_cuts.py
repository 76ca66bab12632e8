"""The power is cut at every write, in every way a disk may leave the writes that were not synced (promises 1 and 4)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from lading.chunk.overlay import RangeKind
from lading.kernels import engine
from lading.log.group_commit import SyncNow
from lading.log.partition import DiskPartitionLog
from lading.log.reader import DirectoryReader
from lading.model.errors import CorruptLog
from lading.model.state import State
from tests import case_turns
from tests.faults.power import MemoryDisk, Op, PowerCuts
from tests.log.messages import NOW, add, message, messages_of, opened, read_all

HOME = Path("/data/p")


@dataclass
class Promised:
    """What had been acknowledged when so many operations were made."""

    after: int
    end_offset: int
    first_offset: int
    poisoned: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)


@dataclass
class Story:
    """A recorded life of a partition."""

    disk: MemoryDisk
    promised: list[Promised]

    def at(self, after: int) -> Promised:
        return [promise for promise in self.promised if promise.after <= after][-1]


def tell(seed: int) -> Story:
    """Appends of all sizes, rolls, states, aborted ranges, snapshots, truncation, clean and unclean restarts."""
    random = Random(seed)
    disk = MemoryDisk(log=[])
    commit = SyncNow()
    story = Story(disk, [Promised(0, 0, 0)])
    poisoned: set[int] = set()
    aborted: set[int] = set()
    now = NOW

    def promise(log: DiskPartitionLog) -> None:
        assert disk.log is not None
        story.promised.append(
            Promised(len(disk.log), log.high_watermark, log.first_offset, set(poisoned), set(aborted))
        )

    log = opened(HOME, disk, segment_bytes=6000)
    for step in range(26):
        now += 50_000
        for _ in range(random.choice((1, 1, 2, 4))):
            add(log, random.choice((1, 2, 9)), now_us=log.append_time_us(now), flags=random.choice((0, 0, 1)))
            if random.random() < 0.6:
                log.flush()
        log.flush()
        chosen = random.randrange(12)
        if chosen < 7:
            commit.submit(log)
            promise(log)
        if chosen == 1 and log.high_watermark > 3:
            first = random.randrange(log.high_watermark - 2)
            log.set_state(first, first + 2, State.POISONED, now)
            log.sync_states()
            poisoned |= {first, first + 1}
            promise(log)
        if chosen == 2 and log.high_watermark > 3:
            first = log.high_watermark - 2
            log.add_aborted(first, first + 2, now)
            commit.submit(log)
            aborted |= {first, first + 1}
            promise(log)
        if chosen == 3:
            log.snapshot("sequences", str(log.next_offset).encode())
        if chosen in (4, 5):
            log.maintain(now)
        if chosen == 6 and step > 15:
            log.truncate_before(log.high_watermark // 3)
            promise(log)
        if chosen == 8:
            commit.submit(log)
            log.close()
            promise(log)
            log = opened(HOME, disk, segment_bytes=6000, now_us=now)
        if chosen == 9:
            # the process is killed: what it wrote stays in memory of the system
            log = opened(HOME, disk, segment_bytes=6000, now_us=now)
            promise(log)
    commit.submit(log)
    promise(log)
    return story


def check(story: Story, disk: MemoryDisk, after: int) -> DiskPartitionLog:
    """Recover, and hold everything against what was promised; the log that came out."""
    promised = story.at(after)
    log = opened(HOME, disk, segment_bytes=6000, now_us=NOW + 10**9)
    found = read_all(log)
    wrong = {offset for offset, data in found.items() if data != message(offset)}
    assert not wrong, f"wrong bytes at {sorted(wrong)[:5]}"
    wanted = range(max(promised.first_offset, log.first_offset), promised.end_offset)
    lost = [offset for offset in wanted if offset not in found]
    assert not lost, f"lost {lost[:5]} of what was acknowledged up to {promised.end_offset}"
    later = min(state.first_offset for state in story.promised if state.after >= after) if after else 0
    assert log.first_offset <= max(later, promised.first_offset) or log.first_offset in {
        state.first_offset for state in story.promised
    }
    for kind, offsets in ((RangeKind.STATE, promised.poisoned), (RangeKind.ABORTED, promised.aborted)):
        ranges = log._overlay.ranges(kind, 0, 1 << 60)
        covered = {offset for first, end in ranges for offset in range(first, end)}
        missing = {offset for offset in offsets if offset >= log.first_offset} - covered
        assert not missing, f"{kind.name} forgotten for {sorted(missing)[:5]}"
        assert not covered or max(covered) < log.next_offset
    if promised.after:
        assert not any("epochs so far" in note for note in log.recovery.notes), "the watermark is lost"
    snapshot = log.load_snapshot("sequences")
    if snapshot is not None:
        assert snapshot.data == str(snapshot.end_offset).encode() and snapshot.end_offset <= log.next_offset
    return log


def check_directory(disk: MemoryDisk, log_end: int) -> None:
    """A reader without a broker sees nothing wrong and nothing that a broker would not see."""
    try:
        reader = DirectoryReader(HOME, disk)
    except (CorruptLog, FileNotFoundError):
        return
    assert reader.high_watermark <= log_end
    at = reader.first_offset
    while (span := reader.read(at, 4096)) is not None:
        if not span.damaged:
            for offset, data in messages_of(span).items():
                assert data == message(offset)
        at = span.end_offset


def go_on(log: DiskPartitionLog, disk: MemoryDisk) -> None:
    """After recovery the log takes messages, above all that was promised, and keeps them."""
    first = add(log, 3, salt=7)
    log.flush()
    SyncNow().submit(log)
    again = opened(HOME, disk, segment_bytes=6000)
    found = read_all(again, first)
    assert [found[offset] for offset in range(first, first + 3)] == [message(first + i, 7) for i in range(3)]
    assert again.next_offset == first + 3


def run(story: Story, plans: list[tuple[int, tuple[tuple[int, int], ...], int, str]]) -> dict[str, float]:
    """Build, recover and check every state."""
    assert story.disk.log is not None
    cuts = PowerCuts(story.disk.log)
    figures = {"states": 0.0, "cut tails": 0, "reported damage": 0, "new epochs": 0}
    started = time.perf_counter()
    for number, (after, choice, kept, how) in enumerate(sorted(plans, key=lambda plan: plan[0])):
        cut = cuts.build(after, choice, kept, how)
        try:
            if number % 4 == 0:
                pristine = cuts.build(after, choice, kept, how).disk
            log = check(story, cut.disk, after)
            if number % 4 == 0:
                check_directory(pristine, log.high_watermark)
            if number % 8 == 0:
                go_on(log, cut.disk)
        except Exception as error:
            raise AssertionError(f"power cut after operation {after}: {how}") from error
        figures["states"] += 1
        figures["cut tails"] += bool(log.recovery.cuts)
        figures["reported damage"] += bool(log.recovery.damage)
        figures["new epochs"] += len(log.epochs) > 1
    figures["states/s"] = round(figures["states"] / (time.perf_counter() - started))
    return figures


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    engine.load("lading.chunk.kernels")


@pytest.mark.timeout(3600)
def test_power_cut_at_every_write(full: bool, record_figures: Callable[..., None]) -> None:
    stories = [tell(seed) for seed in (range(1, 5) if full else range(1, 3))]
    total: dict[str, float] = {}
    possible = 0
    for number, story in enumerate(stories):
        assert story.disk.log is not None
        plans = list(PowerCuts(story.disk.log).plans())
        possible += len(plans)
        if not full:
            plans = Random(number).sample(plans, min(1100, len(plans)))
        for key, value in run(story, plans).items():
            total[key] = total.get(key, 0) + value
    total["states/s"] /= len(stories)
    record_figures("power cuts", **total, possible=possible, lost=0, wrong=0)
    assert total["states"] >= (20_000 if full else 2_000)


@pytest.mark.timeout(3600)
def test_power_cut_during_recovery(full: bool, record_figures: Callable[..., None]) -> None:
    """Recovery writes too: a second cut, at every one of its writes, must find a log as good."""
    story = tell(3)
    assert story.disk.log is not None
    cuts = PowerCuts(story.disk.log)
    plans = list(cuts.plans())
    random = Random(4)
    states = 0
    sample = random.sample(plans, 400 if full else 20)
    for after, choice, kept, how in sorted(case_turns.choose_part(sample, 3)):
        first = cuts.build(after, choice, kept, how).disk
        base = MemoryDisk(
            {inode: content.copy() for inode, content in first.contents.items()}, dict(first.names_), log=[]
        )
        base.numbers = iter(range(2_000_000, 3_000_000))
        assert base.log is not None
        # what the first cut left is on disk: it opens the record, synced
        for name, inode in first.names_.items():
            base.log += _existing(inode, name, first.contents[inode].array[: first.contents[inode].size].tobytes())
        start = len(base.log)
        opened(HOME, base, segment_bytes=6000)
        seconds = PowerCuts(base.log)
        later = [plan for plan in seconds.plans() if plan[0] >= start]
        for plan in later if full else sorted(random.sample(later, min(len(later), 36)), key=lambda plan: plan[0]):
            try:
                check(story, seconds.build(*plan).disk, after)
            except Exception as error:
                raise AssertionError(f"cut after {after}: {how}; then after {plan[0] - start}: {plan[3]}") from error
            states += 1
    record_figures("power cuts during recovery", states=states, lost=0, wrong=0)


def _existing(inode: int, name: str, data: bytes) -> list[Op]:
    return [
        Op("create", inode, path=name),
        Op("write", inode, 0, data),
        Op("sync", inode),
        Op("sync", 0),
    ]

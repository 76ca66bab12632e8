"""Power cuts while a segment is rewritten: each leaves the old file or the new one, and what is kept is never lost."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from lading.broker.core.compaction import cleaner
from lading.broker.core.compaction.cleaner import Cleaned, Cleaning, Replace, clean
from lading.chunk.runs import runs
from lading.dialects import codes, registry
from lading.log.group_commit import SyncNow
from lading.log.partition import DiskPartitionLog
from lading.model.scan_request import ScanRequest
from tests.broker.test_compaction import to_batch
from tests.faults.power import MemoryDisk, Op, PowerCuts
from tests.log.messages import NOW, opened

PLACE = Path("/p")
COMMIT = SyncNow()
Rows = dict[int, tuple[bytes, bytes]]


def filled(disk: MemoryDisk, messages: int) -> DiskPartitionLog:
    """A log of four closed segments, in which each of five keys has many messages."""
    log = opened(PLACE, disk)
    for segment in range(4):
        for number in range(24 // messages):
            records = [(b"%d" % (key % 5), b"%d-%d" % (segment, number)) for key in range(number, number + messages)]
            body = registry.dialect(codes.KAFKA).encode(to_batch(records, log.next_offset, NOW))
            log.append(codes.KAFKA, 0, body, len(records), NOW, NOW + 7000)
            if number % 3 == 0:
                log.flush()
        log.flush()
        COMMIT.submit(log)
        log.roll()
        COMMIT.submit(log)
    return log


def rows_of(log: DiskPartitionLog) -> Rows:
    found: Rows = {}
    at = 0
    while (span := log.read(at, 1 << 20)) is not None:
        assert not span.damaged and span.base_offset <= at
        for run in runs(span.region, span.start, span.end):
            for part in registry.decode(run, ScanRequest()):
                rows = registry.to_batch(part).to_pylist()
                found |= {row["offset"]: (row["key"], row["payload"]) for row in rows}
        at = span.end_offset
    return found


def run(log: DiskPartitionLog, segment_bytes: int) -> Cleaned:
    """Clean as the broker does."""
    work, answer = clean(Cleaning(log.list_closed_segments(), 0, 0, 0, (), (), (), 1 << 16, segment_bytes)), None
    while True:
        try:
            step = work.send(answer)
        except StopIteration as end:
            cleaned: Cleaned = end.value
            return cleaned
        answer = log.replace_segment(step.rewritten) if isinstance(step, Replace) else None


@pytest.mark.parametrize(
    ("joined_bytes_max", "merged"),
    [(1 << 20, 1), (0, 1), (1 << 20, 2), (1 << 20, 4)],
    ids=["files that shrink", "files that may grow", "some merged", "all merged"],
)
def test_a_cut_at_any_step_leaves_every_kept_message(
    monkeypatch: pytest.MonkeyPatch,
    joined_bytes_max: int,
    merged: int,
    full: bool,
    record_figures: Callable[..., None],
) -> None:
    monkeypatch.setattr(cleaner, "JOINED_BYTES_MAX", joined_bytes_max)
    disk = MemoryDisk(log=[])
    log = filled(disk, messages=8 if joined_bytes_max else 1)
    before = rows_of(log)
    assert disk.log is not None
    begun = len(disk.log)
    segment_bytes = merged * max(segment.size_bytes for segment in log.list_closed_segments())
    assert run(log, segment_bytes).removed_messages
    assert log.segments_count == 4 // merged + 1
    kept = rows_of(log)
    assert kept and kept.items() < before.items()
    cuts = PowerCuts(disk.log)
    plans = [plan for plan in cuts.plans() if plan[0] >= begun]
    chosen = plans if full else Random(1).sample(plans, min(len(plans), 60))
    for after, choice, names_kept, how in sorted(chosen, key=lambda plan: plan[0]):
        try:
            again = opened(PLACE, cuts.build(after, choice, names_kept, how).disk)
            found = rows_of(again)
            assert kept.items() <= found.items() <= before.items()
            assert not again.recovery.damage and not again.damaged_ranges(0, again.next_offset)
            assert again.next_offset == log.next_offset
            # recovery writes on in the last segment that has messages; it is closed, and cleaned as the first time
            again.roll()
            COMMIT.submit(again)
            run(again, segment_bytes)
            assert rows_of(again) == kept
        except Exception as error:
            raise AssertionError(f"power cut after operation {after - begun}: {how}") from error
    record_figures("power cuts during compaction", states=len(chosen), possible=len(plans), lost=0, wrong=0)


def test_segments_that_were_merged_and_could_not_be_deleted_are_left_out_after_another_merge() -> None:
    disk = MemoryDisk(log=[])
    log = filled(disk, messages=8)
    segments = log.list_closed_segments()
    refused = f"{segments[1].base_offset:020}.log"

    def refuse(op: Op) -> None:
        if op.kind == "remove" and op.path.endswith(refused):
            raise OSError(errno.EIO, "failing")

    disk.before = refuse
    with pytest.raises(OSError, match="failing"):
        run(log, 2 * max(segment.size_bytes for segment in segments))
    disk.before = None
    assert run(log, 1 << 20).removed_messages
    kept = rows_of(log)
    assert log.segments_count == 2
    assert f"{PLACE}/{refused}" in disk.names_
    again = opened(PLACE, PowerCuts(disk.log or []).build(len(disk.log or []), (), 1 << 20, "cut").disk)
    assert rows_of(again) == kept and not again.recovery.damage


def test_a_merged_segment_is_kept_if_messages_are_deleted_before_its_sources_are() -> None:
    disk = MemoryDisk(log=[])
    log = filled(disk, messages=8)
    last = log.list_closed_segments()[-1]

    def refuse(op: Op) -> None:
        if op.kind == "remove" and op.path.endswith(".log"):
            raise OSError(errno.EIO, "failing")

    disk.before = refuse
    with pytest.raises(OSError, match="failing"):
        run(log, 1 << 20)
    disk.before = None
    log.truncate_before(last.base_offset + 1)
    COMMIT.submit(log)
    kept = rows_of(log)
    # of the sources a file system may have deleted the last one only
    disk.remove(PLACE / f"{last.base_offset:020}.log")
    again = opened(PLACE, disk)
    assert kept.items() <= rows_of(again).items() and not again.recovery.damage

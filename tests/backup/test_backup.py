"""Backups: whole or none, segments copied once, every byte checked, and nothing of the data directory changed."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import lading
from lading.backup.back_up import back_up
from lading.backup.point import list_points
from lading.backup.restore import check_backup, restore
from lading.backup.store import BackupStore, DirectoryStore
from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.log.group_commit import SyncNow
from lading.model.errors import CorruptLog, LadingError, LocalError, NewerFormat
from lading.model.state import State
from tests.broker.kafka_batches import committed
from tests.broker.room import CONSUMER, NOW, SECOND, fill, opened
from tests.broker.test_compaction import compacted, put
from tests.broker.test_compaction import contents as compacted_contents
from tests.formats.generate import POISONED, SEEN

COUNT = 600


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.name.endswith("-shm")
    }


def payloads(data: Path) -> list[bytes]:
    return [one.as_py() for one in lading.read_arrow(str(data), "s.t", columns="payload").column("payload")]


def test_everything_that_a_directory_keeps_is_restored(kept: Path, store: BackupStore, tmp_path: Path) -> None:
    before = contents(kept)
    back_up(kept, store)
    assert contents(kept) == before
    assert restore(store, tmp_path / "restored").damage == []
    broker = opened(tmp_path / "restored")
    partition = broker.topology.resolve("s.t").partition(0)
    assert committed(broker, partition) == [*SEEN, POISONED]
    end = partition.log.next_offset
    assert partition.log.unavailable_ranges(0, 99) == [(end - 1, end, State.POISONED)]
    assert partition.positions[CONSUMER.key].offset == 1
    assert broker.postponed.count(partition) == 1
    assert broker.access.table.user("root").is_administrator
    assert [note for note in broker.notes if "was restored from a backup" not in note] == []
    assert all(not report.damage and not report.cuts for _, report in broker.recoveries())
    broker.stop()
    again = opened(tmp_path / "restored")
    assert again.notes == []
    again.stop()


@pytest.mark.parametrize("end", ["restored", "lost"])
def test_no_producer_id_is_given_again(kept: Path, store: BackupStore, tmp_path: Path, end: str) -> None:
    """A producer that has an id of after the backup sends: its batches would be repetitions of the second owner's."""
    back_up(kept, store)
    data, owners = kept, list[int]()
    for second in range(3):
        broker = Broker.open(data, BrokerSettings(), now_us=NOW + second * SECOND, commit=SyncNow())
        owners += [broker.producers.init_producer_id(None, 0, None, now_us=1).value.producer_id for _ in range(3)]
        broker.stop()
        if end == "restored":
            data = tmp_path / f"restored{len(owners)}"
            restore(store, data)
        else:
            for path in kept.glob("catalog.sqlite*"):
                path.unlink()
    assert len(set(owners)) == len(owners)


def test_a_log_that_was_not_closed_is_backed_up_as_far_as_it_was_written(
    segmented: Path, store: BackupStore, tmp_path: Path
) -> None:
    before = contents(segmented)
    report = back_up(segmented, store)
    assert contents(segmented) == before
    assert report.point.messages == COUNT and report.point.damage == []
    restore(store, tmp_path / "restored")
    broker = opened(tmp_path / "restored")
    partition = broker.topology.resolve("s.t").partition(0)
    assert len(committed(broker, partition)) == COUNT
    fill(broker, partition, 1)
    broker.stop()


def test_a_restored_log_begins_an_epoch_that_was_never_given_out(segmented: Path, tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "backups")
    back_up(segmented, store)
    # the broker that was backed up goes on, and is started again several times
    for _ in range(3):
        broker = opened(segmented)
        fill(broker, broker.topology.resolve("s.t").partition(0), 1)
        epochs = {number for number, _ in broker.topology.resolve("s.t").partition(0).log.epochs}
        broker.topology.resolve("s.t").partition(0).log.drop()
    restore(store, tmp_path / "restored")
    broker = opened(tmp_path / "restored")
    assert broker.topology.resolve("s.t").partition(0).log.epoch not in epochs
    broker.stop()


def test_segments_are_copied_once(segmented: Path, store: BackupStore) -> None:
    first = back_up(segmented, store)
    assert first.kept_bytes == 0
    broker = opened(segmented, segment_bytes=3_000)
    fill(broker, broker.topology.resolve("s.t").partition(0), 20)
    broker.stop()
    second = back_up(segmented, store)
    shared = sum(file.size_bytes for file in first.point.files if file.segment is not None)
    assert second.kept_bytes == shared > 10_000
    assert second.point.messages == COUNT + 20
    # the older one is still whole
    assert check_backup(store, first.point.name).damage == []


class _FullDisk:
    """A store whose disk is full after so many bytes."""

    def __init__(self, store: BackupStore, left_bytes: int) -> None:
        self._store, self._left_bytes = store, left_bytes
        self.url, self.lock, self.open = store.url, store.lock, store.open
        self.size_bytes, self.names, self.remove = store.size_bytes, store.names, store.remove
        self.mtime_us = store.mtime_us

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        with self._store.create(name) as file:
            yield self._Limited(self, file)  # type: ignore[misc]

    class _Limited(io.RawIOBase):
        def __init__(self, around: _FullDisk, file: BinaryIO) -> None:
            self._around, self._file = around, file

        def write(self, data: Any) -> int:
            self._around._left_bytes -= len(data)
            if self._around._left_bytes < 0:
                self._file.write(data[: len(data) // 2])
                raise OSError(errno.ENOSPC, "No space left on device")
            return self._file.write(data)


@pytest.mark.parametrize("left_bytes", [0, 8_000, 26_000])
def test_a_full_disk_leaves_no_half_backup_and_the_next_run_goes_on(
    segmented: Path, store: BackupStore, tmp_path: Path, left_bytes: int
) -> None:
    with pytest.raises(OSError, match="No space left"):
        back_up(segmented, _FullDisk(store, left_bytes))
    assert list_points(store) == []
    with pytest.raises(LocalError, match="holds no finished backup"):
        restore(store, tmp_path / "restored")
    report = back_up(segmented, store)
    assert (report.kept_bytes > 0) == (left_bytes > 4_000)
    assert check_backup(store).damage == []


DIES = """
import os, sys
from pathlib import Path
from lading.backup import back_up, store
class Dying(store.DirectoryStore):
    def create(self, name):
        if name.startswith(sys.argv[3]):
            made = super().create(name)
            file = made.__enter__()
            file.write(b"half")
            file.flush()
            os._exit(9)
        return super().create(name)
back_up.back_up(Path(sys.argv[1]), Dying(Path(sys.argv[2])))
"""


@pytest.mark.parametrize("at", ["points/"])
def test_a_killed_backup_is_none_and_the_next_run_goes_on(segmented: Path, tmp_path: Path, at: str) -> None:
    place = tmp_path / "backups"
    done = subprocess.run([sys.executable, "-c", DIES, segmented, place, at], timeout=60)
    assert done.returncode == 9
    assert list(place.rglob("*.part")) != []
    store = DirectoryStore(place)
    with pytest.raises(LocalError, match="holds no finished backup"):
        restore(store, tmp_path / "restored")
    report = back_up(segmented, store)
    assert report.kept_bytes > 0 and list(place.rglob("*.part")) == []
    restore(store, tmp_path / "restored")
    assert len(payloads(tmp_path / "restored")) == COUNT


CHANGES = ("open", "write", "mkdir", "rename", "replace", "unlink", "rmdir")
"""Calls by which a restore changes files."""


def count_restore_calls(store: BackupStore, data: Path, killed_at: int | None = None) -> int | None:
    """Restore in a fork; return how many calls changed files, or None if it was killed before the one given."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        calls = count()

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def count_and_call(*arguments: Any, **named: Any) -> Any:
                if next(calls) == killed_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*arguments, **named)

            return count_and_call

        report = os.write
        try:
            for name in CHANGES:
                setattr(os, name, counted(getattr(os, name)))
            restore(store, data)
            report(write, str(next(calls)).encode())
        except LadingError as error:
            report(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as file:
        text = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert text.isdigit() or status == -signal.SIGKILL, text
    return int(text) if text else None


def test_a_restore_that_is_killed_anywhere_is_done_by_the_same_command(
    segmented: Path, tmp_path: Path, full: bool
) -> None:
    store, data = DirectoryStore(tmp_path / "backups"), tmp_path / "restored"
    back_up(segmented, store)
    total = count_restore_calls(store, data)
    assert total is not None
    chance = random.Random(17)
    points = range(total) if full else sorted({*range(4), *chance.sample(range(total), 4), *range(total - 6, total)})
    killed = 0
    for killed_at in points:
        shutil.rmtree(data)
        killed += count_restore_calls(store, data, killed_at) is None
        # the next run deletes what this one left, and is killed, too
        if not data.exists():
            count_restore_calls(store, data, chance.randrange(total))
        if not data.exists():
            assert restore(store, data).damage == []
        assert len(payloads(data)) == COUNT, killed_at
    print(f"restores: killed at {killed} of {total} calls, lost 0")
    assert killed > len(points) - 4


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def test_damage_is_told_and_nothing_of_it_is_restored(segmented: Path, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    store = DirectoryStore(place)
    back_up(segmented, store)
    (segment, *_) = sorted(place.glob("segments/*/*"))
    flip(segment, 1_000)
    (told,) = check_backup(store).damage
    assert told.endswith(".log: its checksum does not match")
    with pytest.raises(CorruptLog, match="its checksum does not match; restore another one with --point, or what is"):
        restore(store, tmp_path / "restored")
    assert not (tmp_path / "restored").exists() and not (tmp_path / "restored.restoring").exists()
    restore(store, tmp_path / "restored", keep_damaged=True)
    broker = opened(tmp_path / "restored")
    # a flipped bit is mended where it is the only one of its chunk
    assert len(committed(broker, broker.topology.resolve("s.t").partition(0))) >= COUNT - 40
    broker.stop()


def test_a_damaged_archive_or_document_is_told(segmented: Path, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    store = DirectoryStore(place)
    name = back_up(segmented, store).point.name
    archive, document = place / "points" / f"{name}.tar", place / "points" / f"{name}.json"
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 3])
    assert any("missing" in line for line in check_backup(store).damage)
    archive.unlink()
    assert len(check_backup(store).damage) > 3
    archive.write_bytes(whole)
    assert check_backup(store).damage == []
    flip(archive, whole.index(b"SQLite format 3") + 3_000)
    with pytest.raises(CorruptLog, match=r"catalog\.sqlite: its checksum"):
        restore(store, tmp_path / "restored", keep_damaged=True)
    document.write_text(document.read_text().replace('"messages": 600', '"messages": 601'))
    with pytest.raises(CorruptLog, match="its checksum does not match; use another one"):
        check_backup(store)
    document.write_text(json.dumps({"version": 2}))
    with pytest.raises(NewerFormat, match="was written by a later Lading"):
        check_backup(store)


def test_damage_in_the_data_directory_is_copied_and_told(segmented: Path, tmp_path: Path) -> None:
    (log, *_) = sorted(segmented.glob("topics/*/0/*.log"))
    log.write_bytes(log.read_bytes()[:500] + bytes(700) + log.read_bytes()[1200:])
    store = DirectoryStore(tmp_path / "backups")
    for _ in range(2):
        assert any("damaged" in line for line in back_up(segmented, store).point.damage)
    assert check_backup(store).damage == []


def test_nothing_is_overwritten(segmented: Path, tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "backups")
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "letters").touch()
    refusals: list[tuple[str, Callable[[], object]]] = [
        ("holds 'letters', which is not part of a backup", lambda: back_up(segmented, store)),
        ("is inside the data directory", lambda: back_up(segmented, DirectoryStore(segmented / "backups"))),
        ("holds no topics", lambda: back_up(tmp_path / "backups", DirectoryStore(tmp_path / "new"))),
        ("a file is in its place", lambda: back_up(segmented, DirectoryStore(segmented.parent / "file"))),
    ]
    (tmp_path / "file").touch()
    for sentence, call in refusals:
        with pytest.raises(LocalError, match=sentence):
            call()
    (tmp_path / "backups" / "letters").unlink()
    back_up(segmented, store)
    before = contents(segmented)
    with pytest.raises(LocalError, match="already exists and is not empty, and a restore overwrites nothing"):
        restore(store, segmented)
    assert contents(segmented) == before
    with pytest.raises(LocalError, match="has no 'yesterday'"):
        restore(store, tmp_path / "restored", "yesterday")
    with store.lock(), pytest.raises(LocalError, match="another backup is being written to it"):
        back_up(segmented, DirectoryStore(tmp_path / "backups"))


def test_a_topic_that_is_deleted_meanwhile_is_left_out(segmented: Path, tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "backups")
    broker = opened(segmented, segment_bytes=3_000)

    def delete(done: int, total: int) -> None:
        if "t" in [topic.name for topic in broker.topology.topics()]:
            broker.at_once.delete_topic("s", "t")

    report = back_up(segmented, store, delete)
    broker.stop()
    assert report.point.messages == 0 and report.point.topics == 0
    restore(store, tmp_path / "restored")
    opened(tmp_path / "restored").stop()


def test_a_segment_that_compaction_replaces_meanwhile_is_copied_again(tmp_path: Path) -> None:
    broker = opened(tmp_path / "data")
    partition = compacted(broker)
    for number in range(4):
        put(broker, partition, *((b"%d" % key, b"%d" % number) for key in range(50)))
        broker.close_segment(partition)
    partition.log.maintain(1 << 60)
    # none of them becomes one with another, whose file would be missing
    partition.log.segment_bytes = 1
    looks = 0

    def compact_once(done: int, total: int) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            broker.compaction.begin_round(NOW + SECOND)

    store = DirectoryStore(tmp_path / "backups")
    report = back_up(tmp_path / "data", store, compact_once)
    assert report.point.damage == [] and broker.counters.compaction_removed_messages == 150
    kept = compacted_contents(broker, partition)
    restore(store, tmp_path / "restored")
    restored = opened(tmp_path / "restored")
    again = restored.topology.resolve("s.t").partition(0)
    # the offsets are those of the appends
    assert compacted_contents(restored, again) == kept and again.log.next_offset == 200
    assert [offset for offset, _, _ in kept] == list(range(150, 200))
    restored.stop()


def test_the_last_segment_is_copied_again_if_it_is_closed_and_compacted_meanwhile(tmp_path: Path) -> None:
    broker = opened(tmp_path / "data")
    partition = compacted(broker)
    put(broker, partition, (b"other", b"0"))
    broker.close_segment(partition)
    for number in range(4):
        put(broker, partition, *((b"%d" % key, b"%d" % number) for key in range(50)))
    partition.log.maintain(1 << 60)
    partition.log.segment_bytes = 1
    looks = 0

    def compact_once(done: int, total: int) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            # its end was found already
            put(broker, partition, *((b"new %d" % key, b"0") for key in range(500)))
            broker.close_segment(partition)
            broker.compaction.begin_round(NOW + SECOND)
            partition.log.maintain(1 << 61)

    report = back_up(tmp_path / "data", DirectoryStore(tmp_path / "backups"), compact_once)
    assert report.point.damage == [] and broker.counters.compaction_removed_messages == 150
    restore(DirectoryStore(tmp_path / "backups"), tmp_path / "restored")
    restored = opened(tmp_path / "restored")
    again = restored.topology.resolve("s.t").partition(0)
    assert compacted_contents(restored, again) == compacted_contents(broker, partition)
    restored.stop()

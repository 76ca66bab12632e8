"""Old backups go with the segments that they alone need; what stays can be restored."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from lading.backup.back_up import back_up
from lading.backup.point import list_points
from lading.backup.prune import UNLISTED_US, plan_prune, prune
from lading.backup.restore import check_backup, restore
from lading.backup.store import BackupStore, DirectoryStore
from lading.broker.core.upkeep.record_deletion import delete_before
from lading.model.errors import CorruptLog, LocalError, NewerFormat
from tests.broker.kafka_batches import committed
from tests.broker.room import fill, opened

DAY_US = 86_400_000_000


def now_us() -> int:
    return time.time_ns() // 1_000


def segments_in(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.glob("segments/*/*")}


def segments_of(place: Path, name: str) -> set[str]:
    document = json.loads((place / "points" / f"{name}.json").read_text())
    return {file["segment"] for file in document["point"]["files"] if file["segment"]}


@pytest.fixture
def places(segmented: Path, store: BackupStore, tmp_path: Path) -> tuple[Path, list[str]]:
    """Three backups of a topic that grew, and lost its oldest messages before the last one; with their names."""
    names = [back_up(segmented, store).point.name]
    broker = opened(segmented, segment_bytes=3_000)
    partition = broker.topology.resolve("s.t").partition(0)
    for first in range(0, 200, 20):
        fill(broker, partition, 20, prefix=f"more-{first}-")
    broker.stop()
    names.append(back_up(segmented, store).point.name)
    broker = opened(segmented, segment_bytes=3_000)
    delete_before(broker.topology.resolve("s.t").partition(0), 300)
    broker.stop()
    names.append(back_up(segmented, store).point.name)
    return tmp_path / "backups", names


def test_what_a_backup_that_stays_needs_stays(
    places: tuple[Path, list[str]], store: BackupStore, tmp_path: Path
) -> None:
    place, names = places
    needs = [segments_of(place, name) for name in names]
    assert needs[0] - needs[2] and needs[0] & needs[2] and needs[2] - needs[0]
    before = segments_in(place)
    # the oldest one alone: all that it needs, the second one needs too
    plan = plan_prune(store, keep=2, newer_than_us=None, now_us=now_us())
    assert (plan.removed, plan.kept, plan.segments) == (names[:1], names[1:], 0)
    assert segments_in(place) == before and list_points(store) == names
    assert prune(store, keep=2, newer_than_us=None, now_us=now_us()) == plan
    assert list_points(store) == names[1:] and segments_in(place) == before
    sizes = {path: (place / path).stat().st_size for path in before}
    archive = (place / "points" / f"{names[1]}.tar").stat().st_size
    document = (place / "points" / f"{names[1]}.json").stat().st_size
    plan = prune(store, keep=1, newer_than_us=None, now_us=now_us())
    gone = needs[1] - needs[2]
    assert segments_in(place) == needs[2] == before - gone and plan.segments == len(gone) > 0
    assert plan.freed_bytes == sum(sizes[path] for path in gone) + archive + document
    assert sorted(path.name for path in (place / "points").iterdir()) == [f"{names[2]}.json", f"{names[2]}.tar"]
    assert check_backup(store).damage == []
    restore(store, tmp_path / "restored")
    broker = opened(tmp_path / "restored")
    payloads = committed(broker, broker.topology.resolve("s.t").partition(0))
    assert len(payloads) == 500 and payloads[-1] == b"more-180-19"
    broker.stop()


def test_the_next_backup_goes_on_from_what_stayed(
    places: tuple[Path, list[str]], store: BackupStore, segmented: Path
) -> None:
    place, names = places
    prune(store, keep=1, newer_than_us=None, now_us=now_us())
    report = back_up(segmented, store)
    assert report.kept_bytes == sum((place / path).stat().st_size for path in segments_of(place, names[2]))
    assert check_backup(store).damage == []


def test_backups_stay_by_their_age_and_the_newest_always(places: tuple[Path, list[str]], store: BackupStore) -> None:
    _, names = places
    later_us = now_us() + 30 * DAY_US

    def kept(keep: int | None, days: int | None) -> list[str]:
        age_us = None if days is None else days * DAY_US
        return plan_prune(store, keep=keep, newer_than_us=age_us, now_us=later_us).kept

    assert kept(None, 31) == names and kept(None, 29) == names[2:]
    assert kept(2, 29) == names[1:] and kept(1, 31) == names and kept(9, None) == names


def test_segments_that_no_backup_lists_stay_for_a_day(places: tuple[Path, list[str]], store: BackupStore) -> None:
    place, names = places
    half = place / "segments" / "new-0" / "0-4-0.log"
    half.parent.mkdir()
    half.write_bytes(b"half")
    assert prune(store, keep=3, newer_than_us=None, now_us=now_us()).files == []
    written_s = half.stat().st_mtime - UNLISTED_US / 1e6 - 60
    os.utime(half, (written_s, written_s))
    plan = prune(store, keep=3, newer_than_us=None, now_us=now_us())
    assert (plan.files, plan.freed_bytes) == (["segments/new-0/0-4-0.log"], 4)
    assert not half.exists() and check_backup(store, names[0]).damage == []


class _Failing:
    """A store of which the disk fails after so many deletions."""

    def __init__(self, store: BackupStore, left: int) -> None:
        self._store, self._left = store, left
        self.url, self.lock, self.open, self.create = store.url, store.lock, store.open, store.create
        self.size_bytes, self.mtime_us, self.names = store.size_bytes, store.mtime_us, store.names

    def remove(self, name: str) -> None:
        if not self._left:
            raise OSError(5, "Input/output error")
        self._left -= 1
        self._store.remove(name)


def test_what_is_interrupted_leaves_whole_backups(places: tuple[Path, list[str]], store: BackupStore) -> None:
    place, names = places
    for done, kept in ((0, names), (1, names[1:]), (1, names[2:])):
        with pytest.raises(OSError, match="Input/output"):
            prune(_Failing(store, done), keep=1, newer_than_us=None, now_us=now_us())
        assert list_points(store) == kept
        assert all(check_backup(store, name).damage == [] for name in list_points(store))
    # what the next ones find unlisted goes when it is old enough
    prune(store, keep=1, newer_than_us=None, now_us=now_us() + UNLISTED_US + 60_000_000)
    assert list_points(store) == names[2:] and segments_in(place) == segments_of(place, names[2])


def test_nothing_goes_if_what_must_stay_is_not_known(
    places: tuple[Path, list[str]], store: BackupStore, tmp_path: Path
) -> None:
    place, names = places
    shutil.copytree(place, tmp_path / "before")
    damaged = place / "points" / f"{names[1]}.json"
    whole = damaged.read_text()
    damaged.write_text(whole.replace('"messages": ', '"messages": 1'))
    with pytest.raises(CorruptLog, match="damaged"):
        prune(store, keep=2, newer_than_us=None, now_us=now_us())
    # one that goes may be damaged; what it alone lists stays for a day
    plan = plan_prune(store, keep=1, newer_than_us=None, now_us=now_us())
    assert plan.removed == names[:2]
    damaged.write_text(json.dumps({"version": 2}))
    with pytest.raises(NewerFormat, match="was written by a later Lading"):
        prune(store, keep=1, newer_than_us=None, now_us=now_us())
    damaged.write_text(whole)
    (place / "points" / "1.json").write_text(whole)
    with pytest.raises(LocalError, match=r"points/1\.json is not the name of a backup"):
        prune(store, keep=1, newer_than_us=None, now_us=now_us())
    (place / "points" / "1.json").unlink()
    assert segments_in(place) == segments_in(tmp_path / "before") and list_points(store) == names
    with pytest.raises(LocalError, match="holds no finished backup"):
        prune(DirectoryStore(tmp_path / "nothing"), keep=1, newer_than_us=None, now_us=now_us())
    assert not (tmp_path / "nothing").exists()
    mine = DirectoryStore(place)
    with mine.lock(), pytest.raises(LocalError, match="another backup is being written to it"):
        prune(DirectoryStore(place), keep=1, newer_than_us=None, now_us=now_us())

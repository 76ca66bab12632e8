"""The file of a table's snapshots: versions after it is written anew, and a disk that is full for a while."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from lading.topic_tables.layout import RowRange
from lading.topic_tables.snapshots import LINES_MAX, SNAPSHOTS_MAX, SNAPSHOTS_WHOLE, TableHistory
from lading.topic_tables.source import TopicTable
from lading.topic_tables.tables import LiveTables, remove_unused
from lading.transports.interface import TopicMeta


def open_history(path: Path) -> TableHistory:
    return TableHistory.open(path, "uuid", 1 << 20)


def advance(history: TableHistory, first: int, count: int) -> None:
    for end in range(first, first + count):
        history.advance([0], [end], 1_000_000 + end)


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of changes in a second: no waiting for the disk."""
    monkeypatch.setattr("lading.topic_tables.snapshots.os.fdatasync", lambda handle: None)


def test_a_version_never_names_other_snapshots_after_a_restart(tmp_path: Path) -> None:
    history = open_history(tmp_path / "table.jsonl")
    history.use_view("", ())
    advance(history, 1, LINES_MAX // 2)
    history.use_view("carrier string", ())
    advance(history, 1 + LINES_MAX // 2, LINES_MAX // 2 + 20)
    assert len(history.snapshots) < SNAPSHOTS_MAX + 50, "the file was written anew"
    again = open_history(history.path)
    assert (again.version, again.last, again.view) == (history.version, history.last, history.view)
    assert again.versions[again.version] == history.versions[history.version]
    assert again.versions.items() <= history.versions.items()


def test_old_snapshots_are_thinned_out_and_new_ones_are_not(tmp_path: Path) -> None:
    history = open_history(tmp_path / "table.jsonl")
    history.use_view("", ())
    advance(history, 1, 5_000)
    ids = [snapshot.snapshot_id for snapshot in history.snapshots]
    assert len(ids) <= SNAPSHOTS_MAX
    assert ids[-SNAPSHOTS_WHOLE:] == list(range(5_001 - SNAPSHOTS_WHOLE, 5_001)), "streams read each of these"
    # time travel reaches back to the first, in steps that become wider
    steps = [second - first for first, second in pairwise(ids)]
    assert ids[0] == 1 and steps == sorted(steps, reverse=True)
    assert all(history.find(number) for number in ids)
    missing = sorted(set(range(5_001)) - set(ids))
    assert not any(history.find(number) for number in missing)
    assert open_history(history.path).snapshots == history.snapshots


def test_metadata_of_a_version_list_the_same_snapshots_when_some_are_left_out(tmp_path: Path) -> None:
    """After that the same name had other bytes."""
    history = open_history(tmp_path / "table.jsonl")
    history.use_view("", ())
    listed: dict[int, list[int]] = {}
    for end in range(1, SNAPSHOTS_MAX + SNAPSHOTS_WHOLE // 2):
        history.advance([0], [end], 1_000_000 + end)
        listed[history.version] = [snapshot.snapshot_id for snapshot in history.snapshots]
    assert len(history.snapshots) < SNAPSHOTS_MAX
    for opened in (history, open_history(history.path)):
        for version in (3, SNAPSHOTS_MAX - 5, history.version - 1, history.version):
            known = opened.list_snapshots(version)
            assert known is not None and [snapshot.snapshot_id for snapshot in known] == listed[version]
    advance(history, SNAPSHOTS_MAX + SNAPSHOTS_WHOLE // 2, SNAPSHOTS_WHOLE)
    assert history.list_snapshots(3) is None and history.list_snapshots(10**6) is None


def test_versions_do_not_pile_up(tmp_path: Path) -> None:
    history = open_history(tmp_path / "table.jsonl")
    history.use_view("", ())
    advance(history, 1, 4 * LINES_MAX)
    assert len(history.versions) <= 2 * LINES_MAX + 100


def test_snapshots_survive_a_disk_that_is_full_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = open_history(tmp_path / "table.jsonl")
    history.use_view("", ())
    advance(history, 1, 3)

    def fill_up(handle: int) -> None:
        # a part of the line is in the file
        history.path.write_bytes(history.path.read_bytes()[:-5])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("lading.topic_tables.snapshots.os.fdatasync", fill_up)
        advance(history, 4, 1)
    assert history.last is not None and history.last.snapshot_id == 4
    advance(history, 5, 1)
    again = open_history(history.path)
    assert again.snapshots == history.snapshots
    assert again.version == history.version


def test_files_of_an_empty_topic_get_their_size_with_its_first_rows(tmp_path: Path) -> None:
    history = open_history(tmp_path / "table.jsonl")
    history.use_view("", ())
    history.use_seal_rows(1 << 12)
    assert open_history(history.path).seal_rows == 1 << 12
    advance(history, 1, 1)
    history.use_seal_rows(1 << 15)
    assert history.seal_rows == open_history(history.path).seal_rows == 1 << 12


def test_only_ranges_between_cuts_are_files(tmp_path: Path) -> None:
    history = TableHistory.open(tmp_path / "table.jsonl", "uuid", 1 << 10)
    history.use_view("", ())
    history.advance([3, 0], [30, 0], 1_000_000)
    history.advance([5, 0], [50, 9], 1_000_001)
    known = {cut for made in history.snapshots for cut in (*made.cut_added(1 << 10), *made.cut_existing(1 << 10))}
    assert known and all(map(history.has_cut, known))
    spans = [RowRange(0, first, end) for first in range(50) for end in range(first + 1, 51)]
    assert sum(map(history.has_cut, spans)) < 30
    assert not history.has_cut(RowRange(0, 7, 8)) and not history.has_cut(RowRange(1, 3, 9))


def test_states_that_change_often_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lading.topic_tables.snapshots.HIDDEN_RANGES_MAX", 4_000)
    history = open_history(tmp_path / "table.jsonl")
    for number in range(100):
        history.use_view("", (tuple((first, first + 1) for first in range(0, 200, 2)), ((number, number + 1),)))
    assert len(history.views) < 50
    again = open_history(history.path)
    assert (again.view, again.version) == (history.view, history.version)


def test_tables_that_nobody_loads_are_removed(tmp_path: Path) -> None:
    now_s = time.time()
    names = {name: str(uuid4()) for name in ("used", "left", "restarted")}
    for name, number in names.items():
        history = open_history(tmp_path / f"{number}.jsonl")
        if name == "restarted":
            number = str(uuid4())
            history.restart(number)
        (tmp_path / "files" / number).mkdir(parents=True)
        (tmp_path / "files" / number / "0-0-0-1-0.parquet").write_bytes(b"rows")
        age_s = 86_400 * (29 if name == "used" else 31)
        os.utime(history.path, (now_s - age_s, now_s - age_s))
    remove_unused(tmp_path, now_s)
    assert [path.stem for path in tmp_path.glob("*.jsonl")] == [names["used"]]
    assert [path.name for path in (tmp_path / "files").iterdir()] == [names["used"]]


def test_tables_in_use_are_opened_once_and_others_leave_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lading.topic_tables.tables.TABLES_MAX", 3)
    tables = LiveTables("source", tmp_path, workers=1)
    topics = [
        TopicTable("default", f"t{at}", f"uuid-{at}", TopicMeta("", f"t{at}", f"t{at}", None, ())) for at in range(9)
    ]
    used = tables.open_table(topics[0])
    for topic in topics:
        tables.open_table(topic)
    assert tables.open_table(topics[0]) is used
    assert len(tables._tables) <= 4
    tables.close()

"""The file of a table's snapshots: versions after it is written anew, and a disk that is full for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from lading.topic_tables.snapshots import LINES_MAX, SNAPSHOTS_KEPT, TableHistory


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
    assert len(history.snapshots) < SNAPSHOTS_KEPT + 50, "the file was written anew"
    again = open_history(history.path)
    assert (again.version, again.last, again.view) == (history.version, history.last, history.view)
    assert again.versions[again.version] == history.versions[history.version]
    assert again.versions.items() <= history.versions.items()


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

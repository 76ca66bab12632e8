"""What was published is looked at when a run starts: manifests by their checksum, files by their bytes, older ones by
their size."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lading.model.errors import CorruptLog
from lading.tables.commit import table_commit
from lading.tables.commit.state import PipelineStateDirectory
from lading.tables.commit.table_commit import StagedBatch, StagedRange, commit
from lading.tables.engine import RunStart, TableRun, begin, require_files
from lading.tables.formats.directory import hash_of
from lading.tables.formats.manifest import DataFile, Manifest, checksum_of
from lading.tables.formats.parquet import ParquetTable
from lading.tables.plan.ranges import OffsetRange
from lading.tables.storage.files import OWN, STAGED


def published(home: Path, batches: int = 3) -> PipelineStateDirectory:
    """A table with one file a batch."""
    table = home / "table"
    state = PipelineStateDirectory.open(table, "t")
    ParquetTable(table).claim(state.pipeline)
    with state.running() as run:
        for number in range(batches):
            staged = table / OWN / STAGED / f"{number}.parquet"
            staged.write_bytes(b"PAR1" + bytes(100 + number) + b"PAR1")
            file = DataFile(".", staged.name, "", 10, staged.stat().st_size, hash_of(staged))
            piece = OffsetRange("t", 0, "aa" * 16, 1, 10 * number, 10 * number + 10)
            batch = StagedBatch([StagedRange(piece, ((piece.start, file),), {"read": 10})])
            commit(state, run, batch, {}, resume_command="resume")
    return state


def begin_next_run(state: PipelineStateDirectory) -> RunStart:
    return begin(TableRun("the table t", state, [], {}, "resume"), resume=True)


def parquet(state: PipelineStateDirectory) -> list[Path]:
    return sorted(state.directory.glob("*.parquet"))


def test_a_run_that_finds_all_as_it_was_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = published(tmp_path)
    require_files(TableRun("the table t", state, [], {}, "resume"), begin_next_run(state))
    assert not caplog.records and len(parquet(state)) == 3


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:50]), "has 50 bytes instead of 109"),
        (lambda path: path.write_bytes(b""), "has 0 bytes"),
        (lambda path: path.write_bytes(path.read_bytes()[:-5] + b"xPAR1"), "has other bytes than it had"),
    ],
    ids=["deleted", "cut", "emptied", "changed"],
)
def test_a_published_file_that_changed_is_told_by_the_next_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], object], found: str
) -> None:
    state = published(tmp_path)
    path = parquet(state)[1]
    damage(path)
    start = begin_next_run(state)
    (told,) = caplog.records
    assert str(path) in told.getMessage() and found in told.getMessage() and "10 rows" in told.getMessage()
    with pytest.raises(CorruptLog, match=rf"has lost rows, and what is new was added: table file {path} {found}"):
        require_files(TableRun("the table t", state, [], {}, "resume"), start)


def test_the_newest_files_are_read_as_far_as_that_is_quick(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = published(tmp_path)
    for path in parquet(state):
        path.write_bytes(bytes(path.stat().st_size))
    monkeypatch.setattr(table_commit, "HASHED_BYTES_MAX", 2 * 110)
    begin_next_run(state)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2 and all("has other bytes" in one for one in told)
    assert all(str(path) in one for path, one in zip(parquet(state)[1:], told, strict=True))


def test_a_manifest_that_changed_is_refused(tmp_path: Path) -> None:
    state = published(tmp_path)
    path = state.manifests.path(3)
    document = json.loads(path.read_text())
    assert document["checksum"] == checksum_of({k: v for k, v in document.items() if k != "checksum"})
    path.write_text(path.read_text().replace('"read": 10', '"read": 11'))
    with pytest.raises(CorruptLog, match="its checksum does not hold"):
        state.manifests.last()


def test_a_manifest_of_an_older_version_is_read_without_one(tmp_path: Path) -> None:
    state = published(tmp_path)
    path = state.manifests.path(3)
    before = state.manifests.read(3)
    document = json.loads(path.read_text())
    del document["checksum"]
    path.write_text(json.dumps(document))
    assert isinstance(before, Manifest) and state.manifests.read(3) == before


def test_an_older_manifest_that_cannot_be_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = published(tmp_path)
    state.manifests.path(1).write_text("{")
    begin_next_run(state)
    assert str(state.manifests.path(1)) in caplog.text

"""Data directories to back up: of every format that was kept, and one with many segments."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem

from lading.backup.store import BackupStore, DirectoryStore, ObjectStore
from tests.broker.room import fill, opened, topic_of

KEPT = Path(__file__).parents[1] / "formats"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """What an earlier Lading left, with users."""
    shutil.copytree(KEPT / "v1" / "data", tmp_path / "kept")
    shutil.copy(KEPT / "access_v1" / "access.json", tmp_path / "kept")
    return tmp_path / "kept"


@pytest.fixture
def segmented(tmp_path: Path) -> Path:
    """The topic s.t with 600 messages in seven segments or more, not closed in order."""
    broker = opened(tmp_path / "segmented", segment_bytes=3_000)
    partition = topic_of(broker).partition(0)
    for first in range(0, 600, 20):
        fill(broker, partition, 20, prefix=f"{first}-")
    partition.log.maintain(1 << 60)
    shutil.copytree(tmp_path / "segmented", tmp_path / "killed")
    broker.stop()
    return tmp_path / "killed"


@pytest.fixture(params=["directory", "object store"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BackupStore:
    """A place for backups: the directory ``backups``, which an object store takes for its bucket."""
    if request.param == "directory":
        return DirectoryStore(tmp_path / "backups")
    (tmp_path / "backups").mkdir()
    return ObjectStore("local://", LocalFileSystem(), str(tmp_path / "backups"))

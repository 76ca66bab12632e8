"""Data belong to the user who runs the broker: modes whatever the umask, and a lock that cannot be deleted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import lading
from lading import testing
from lading.model.errors import LocalError
from lading.owned_directory import lock_data_directory
from lading.spool import spool_log
from tests.broker.room import fill, opened, topic_of
from tests.listeners import ADMIN_ONLY


@pytest.fixture(params=[0o000, 0o022], ids=["umask 000", "umask 022"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def wide(directory: Path) -> list[str]:
    """What other users may look into."""
    found = [directory, *directory.rglob("*")]
    return [str(path) for path in found if stat.S_IMODE(path.stat().st_mode) != (0o700 if path.is_dir() else 0o600)]


@pytest.mark.usefixtures("umask")
def test_nothing_that_a_broker_writes_is_for_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    running = testing.start(data, ADMIN_ONLY, tmp_path / "stderr.log")
    try:
        with lading.Producer(running.url) as producer:
            producer.send("t", b"secret")
        assert wide(data) == []
    finally:
        running.stop()
        assert running.process.stdout is not None
        running.process.stdout.close()
    assert wide(data) == []


@pytest.mark.usefixtures("umask")
def test_nothing_that_the_log_writes_is_for_others(tmp_path: Path) -> None:
    broker = opened(tmp_path / "data")
    partition = topic_of(broker).partition(0)
    fill(broker, partition, 2)
    broker.states.set(partition, [(0, 1)], 20, now_us=0)
    broker.stop()
    spool_log.Spool(tmp_path / "spool", "q").close()
    assert wide(tmp_path / "data") == [] and wide(tmp_path / "spool") == []


def test_a_deleted_lock_file_lets_nobody_in(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with lock_data_directory(data):
        (data / "lock").unlink()
        with pytest.raises(LocalError, match="is in use by the broker"), lock_data_directory(data):
            pass
    with lock_data_directory(data):
        pass


def test_a_deleted_lock_file_lets_nobody_into_a_spool(tmp_path: Path) -> None:
    with spool_log.lock_spool(tmp_path / "spool"):
        (tmp_path / "spool" / spool_log.LOCK_FILE).unlink()
        with pytest.raises(spool_log.SpoolLocked), spool_log.lock_spool(tmp_path / "spool"):
            pass


def test_a_directory_that_others_may_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    with lock_data_directory(tmp_path / "data"):
        pass
    assert "other users may read it (mode 0755)" in caplog.text and "chmod -R go-rwx" in caplog.text

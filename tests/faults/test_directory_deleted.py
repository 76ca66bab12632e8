"""A data directory that is deleted under a running broker, and one that is somebody else's."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from lading import Producer, testing
from lading.model.errors import LadingError, LocalError
from lading.runtime.owned_directory import DataDirectoryWatch, lock_data_directory

PROBLEM = "was deleted or replaced while the broker ran"
DEADLINE_S = 30


def delete_all(data: Path) -> None:
    shutil.rmtree(data)


def delete_contents(data: Path) -> None:
    for path in data.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def replace_with_a_copy(data: Path) -> None:
    shutil.copytree(data, data.parent / "copy")
    shutil.rmtree(data)
    (data.parent / "copy").rename(data)


@pytest.mark.turns(3)
@pytest.mark.parametrize("lose", [delete_all, delete_contents, replace_with_a_copy])
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_nothing_is_acknowledged_that_nobody_could_read(
    lose: Callable[[Path], None], durability: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with testing.broker(data, durability=durability) as broker, Producer(broker.url, retries=0) as producer:
        producer.send("t", b"before")
        producer.flush()
        health = f"http://{broker.endpoints['admin']}/health"
        assert httpx.get(health).json()["status"] == "ok"
        lose(data)
        deadline_s = time.monotonic() + DEADLINE_S
        while (told := httpx.get(health).json())["status"] == "ok":
            assert time.monotonic() < deadline_s
        assert PROBLEM in told["problems"]["data directory"]
        with pytest.raises(LadingError, match=PROBLEM):
            producer.send("t", b"after")
            producer.flush()
        answer = httpx.post(f"http://{broker.endpoints['admin']}/topics/default/new", json={"partitions": 1})
        assert answer.status_code == 503, answer.text
        stats = httpx.get(f"http://{broker.endpoints['iggy_http']}/stats")
        assert stats.status_code == 200, "they say where the broker is, and 0 for a disk that is not there"
        producer._outboxes.clear()


def test_a_directory_that_is_there_has_no_problem(tmp_path: Path) -> None:
    watch = DataDirectoryWatch(tmp_path / "data")
    assert watch.look() is None, "it is not made yet"
    (tmp_path / "data" / "topics").mkdir(parents=True)
    assert watch.look() is None
    (tmp_path / "data" / "topics" / "t").mkdir()
    (tmp_path / "data" / "lock").touch()
    assert watch.look() is None
    (tmp_path / "data" / "lock").unlink()
    assert watch.look() is None, "the lock is the kernel's, and its file is for people"
    shutil.rmtree(tmp_path / "data" / "topics")
    assert PROBLEM in (watch.look() or "")
    (tmp_path / "data" / "topics").mkdir()
    assert PROBLEM in (watch.look() or ""), "what the broker holds open is not this one"


@pytest.mark.parametrize("names", [["thesis.tex"], ["bin", "etc", "usr"], ["a", "b", "c", "d"]])
def test_a_directory_of_others_is_refused(names: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    sentence = rf"it holds other files \('{names[0]}'.*name an empty or a new directory"
    with pytest.raises(LocalError, match=sentence), lock_data_directory(tmp_path):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == names, "nothing is written into it"


def test_hidden_files_and_those_of_a_file_system_are_no_reason(tmp_path: Path) -> None:
    (tmp_path / ".keep").touch()
    (tmp_path / "lost+found").mkdir()
    tmp_path.chmod(0o700)
    with lock_data_directory(tmp_path):
        pass
    (tmp_path / "notes.txt").touch()
    with lock_data_directory(tmp_path):
        pass

"""A call in a fork: it returns the same, holds nothing, ends in time; and the check of a directory that is one."""

from __future__ import annotations

import errno
import json
import os
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.log.directory import DESCRIPTION
from lading.log.disk import RealDisk
from lading.log.formats import GATE
from lading.log.found_files import FoundFiles
from lading.model.errors import NewerFormat
from lading.runtime.owned_directory import DATA_LOCK_FILE, lock_directory
from lading.serve import serve
from lading.serve.forked_call import calling_in_fork
from tests.broker.room import NOW, payloads, read
from tests.broker.test_start import stopped

TIMEOUT_S = 30


def child_pids() -> set[int]:
    """The processes that this one has made and not yet waited for."""
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def test_it_finds_what_the_gate_finds(tmp_path: Path) -> None:
    stopped(tmp_path, 3)
    with serve._checking_files(tmp_path, topics_min=1) as find_files:
        found = find_files()
    assert isinstance(found, FoundFiles) and len(found.partitions) == 3 * 2
    assert found == GATE.check_directory(tmp_path)


def test_a_broker_starts_from_what_it_found(tmp_path: Path) -> None:
    listed: list[Path | str] = []

    class Disk(RealDisk):
        def names(self, directory: Path | str) -> list[str]:
            listed.append(directory)
            return super().names(directory)

    stopped(tmp_path, 3)
    with serve._checking_files(tmp_path, topics_min=1) as find_files:
        broker = Broker.open(tmp_path, BrokerSettings(), now_us=NOW, disk=Disk(), found=find_files())
    assert listed == []
    for number in range(3):
        assert payloads(read(broker, broker.topology.resolve(f"s.t{number}").partition(0))) == [b"0", b"1"]
    broker.stop()


def test_a_small_directory_and_none_are_left_to_the_gate(tmp_path: Path) -> None:
    stopped(tmp_path / "few", 3)
    for data in (tmp_path / "few", tmp_path / "none"):
        before = child_pids()
        with serve._checking_files(data) as find_files:
            assert child_pids() == before
            assert find_files() is None


def test_a_machine_without_a_process_to_spare_is_left_to_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(tmp_path, 3)

    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refuse)
    files = os.listdir("/proc/self/fd")  # noqa: PTH208
    with serve._checking_files(tmp_path, topics_min=1) as find_files:
        assert find_files() is None
    assert os.listdir("/proc/self/fd") == files  # noqa: PTH208


def test_files_of_a_later_version_are_refused_by_the_gate_as_ever(tmp_path: Path) -> None:
    stopped(tmp_path, 3)
    (described, *_) = sorted(tmp_path.rglob(DESCRIPTION))
    described.write_text(json.dumps(json.loads(described.read_text()) | {"version": 77}))
    with serve._checking_files(tmp_path, topics_min=1) as find_files:
        assert find_files() is None
    with pytest.raises(NewerFormat, match="later Lading"):
        GATE.check_directory(tmp_path)


@pytest.mark.parametrize("asked", [False, True])
def test_its_process_ends_with_the_block(asked: bool, tmp_path: Path) -> None:
    stopped(tmp_path, 3)
    before = child_pids()
    with serve._checking_files(tmp_path, topics_min=1) as find_files:
        assert len(child_pids() - before) == 1
        if asked:
            find_files()
    assert child_pids() == before


def test_it_holds_no_lock_and_hangs_nobody(tmp_path: Path) -> None:
    """A broker that is killed meanwhile leaves its lock to the next one, and one that fails does not wait."""
    began_s = time.monotonic()
    with lock_directory(tmp_path, DATA_LOCK_FILE):
        hanging = calling_in_fork(partial(time.sleep, 10 * TIMEOUT_S))
        hanging.__enter__()
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(lock_directory(tmp_path, DATA_LOCK_FILE))
                break
            except BlockingIOError:
                # the child has not closed it yet
                assert time.monotonic() - began_s < TIMEOUT_S
                time.sleep(0.01)
        hanging.__exit__(None, None, None)
    assert time.monotonic() - began_s < TIMEOUT_S

"""Many files are made durable by one call where that is known to work, and one by one elsewhere."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from lading.log import file_system_sync
from lading.log.disk import File, RealDisk, UnsyncedDisk

MANY = 9
"""More than are synced one by one without a question."""


class Calls:
    """The two calls of the C library, of which one may fail; the type is that of ext4."""

    def __init__(self, type_: int = 0xEF53, error: int = 0) -> None:
        self.type, self.error = type_, error
        self.synced: list[int] = []

    def fstatfs(self, descriptor: int, found: Any) -> int:
        os.fstat(descriptor)
        ctypes.c_ulong.from_buffer(found).value = self.type
        return 0

    def syncfs(self, descriptor: int) -> int:
        self.synced.append(os.fstat(descriptor).st_dev)
        ctypes.set_errno(self.error)
        return -1 if self.error else 0


class CountingDisk(RealDisk):
    """Counts the files that are opened, as each is that is synced by itself."""

    def __init__(self) -> None:
        self.opened = 0

    def open(self, path: Path | str, *, write: bool = False) -> File:
        self.opened += 1
        return super().open(path, write=write)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / str(number) for number in range(MANY)]
    for path in paths:
        path.write_bytes(b"x")
    return paths


def use(monkeypatch: pytest.MonkeyPatch, calls: Calls | None) -> None:
    monkeypatch.setattr(file_system_sync, "_CALLS", calls and (calls.fstatfs, calls.syncfs))


def test_many_files_wait_for_the_disk_once(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    calls, disk = Calls(), CountingDisk()
    use(monkeypatch, calls)
    disk.sync_paths(paths)
    assert (calls.synced, disk.opened) == ([paths[0].stat().st_dev], 0)


def test_few_files_are_synced_alone(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """What others have written to the file system would have to be waited for."""
    calls, disk = Calls(), CountingDisk()
    use(monkeypatch, calls)
    disk.sync_paths(paths[1:])
    assert (calls.synced, disk.opened) == ([], MANY - 1)


@pytest.mark.parametrize("calls", [None, Calls(type_=0x6573_5546)], ids=["no such call", "in user space"])
def test_files_are_synced_one_by_one_where_nothing_is_known_of_the_call(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch, calls: Calls | None
) -> None:
    disk = CountingDisk()
    use(monkeypatch, calls)
    disk.sync_paths(paths)
    assert disk.opened == MANY and (calls is None or not calls.synced)


def test_what_could_not_be_written_is_raised(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Calls(error=errno.EIO))
    with pytest.raises(OSError, match="Input/output error") as raised:
        RealDisk().sync_paths(paths)
    assert raised.value.errno == errno.EIO


@pytest.mark.parametrize(
    ("release", "found"), [("5.7.19-generic", False), ("4.19.0", False), ("5.8.0", True), ("6.1.0-31-amd64", True)]
)
def test_kernels_that_tell_no_errors_are_not_asked(monkeypatch: pytest.MonkeyPatch, release: str, found: bool) -> None:
    kernel = os.uname_result(("Linux", "host", release, "#1", "x86_64"))
    monkeypatch.setattr(os, "uname", lambda: kernel)
    assert (file_system_sync._find_calls() is not None) == found


def test_the_machines_own_call_ends_well_and_leaves_no_file_open(paths: list[Path]) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    disk = RealDisk()
    disk.sync_paths(paths)
    disk.sync_paths([paths[0].parent, *paths])
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_nothing_waits_for_the_disk_without_durability(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(error=errno.EIO)
    use(monkeypatch, calls)
    UnsyncedDisk().sync_paths(paths)
    assert calls.synced == []

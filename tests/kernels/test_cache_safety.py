"""The cache of compiled kernels is executed: only what this user alone can write is used, and nothing that is stale."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from lading.kernels import engine


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package elsewhere, to be changed."""
    target = tmp_path / "src" / "lading"
    shutil.copytree(engine.PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(engine, "PACKAGE", target)
    return target


@pytest.mark.parametrize(
    "name",
    ["chunk/layout.py", "dialects/kafka/layout.py", "dialects/nsq/limits.py", "model/kinds.py", "chunk/kernels.py"],
)
def test_a_changed_constant_makes_another_cache(copy: Path, name: str) -> None:
    before = engine._fingerprint()
    assert engine._fingerprint() == before
    with (copy / name).open("a") as file:
        file.write("\nANOTHER = 1\n")
    assert engine._fingerprint() != before


def test_code_that_is_in_no_kernel_keeps_the_cache(copy: Path) -> None:
    before = engine._fingerprint()
    with (copy / "serve.py").open("a") as file:
        file.write("\nANOTHER = 1\n")
    assert engine._fingerprint() == before


def cache_below(home: Path, caplog: pytest.LogCaptureFixture) -> tuple[Path, str]:
    with caplog.at_level(logging.WARNING):
        return engine._cache_dir.__wrapped__(str(home)), caplog.text


def test_a_cache_of_our_own_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, told = cache_below(tmp_path, caplog)
    assert path.parent == tmp_path / "lading" and not told


@pytest.mark.parametrize("where", ["", "lading"])
def test_a_cache_that_others_may_write_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str) -> None:
    home = tmp_path / "home"
    (home / "lading").mkdir(parents=True)
    (home / where).chmod(0o777)
    path, told = cache_below(home, caplog)
    assert home not in path.parents
    assert str(home / where) in told and "chmod go-w" in told


def test_a_file_in_it_that_others_may_write_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, _ = cache_below(tmp_path, caplog)
    (path / "kernel.nbc").touch()
    (path / "kernel.nbc").chmod(0o666)
    other, told = cache_below(tmp_path, caplog)
    assert other != path and str(path / "kernel.nbc") in told


def test_a_shared_parent_with_the_sticky_bit_is_good_enough(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    (tmp_path / "shared" / "own").mkdir(mode=0o700)
    assert engine.unsafe_path(tmp_path / "shared" / "own") is None

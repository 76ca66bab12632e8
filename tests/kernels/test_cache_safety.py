"""The cache of compiled kernels is executed: only what this user alone can write is used, and nothing that is stale."""

from __future__ import annotations

import ast
import logging
import re
import shutil
from collections.abc import Iterator
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


def _named_modules(source: Path, package: Path) -> Iterator[tuple[str, ...]]:
    """Yield every module that ``source`` may import when it is imported itself, by its parts below ``package``."""
    left: list[ast.AST] = [ast.parse(source.read_text())]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            left += node.orelse
        elif isinstance(node, ast.Import):
            yield from (tuple(name.name.split(".")[1:]) for name in node.names if name.name.startswith("lading."))
        elif isinstance(node, ast.ImportFrom):
            parts = tuple(node.module.split(".")) if node.module else ()
            if node.level:
                parts = (*source.relative_to(package).parts[: -node.level], *parts)
            elif parts[0] == "lading":
                parts = parts[1:]
            else:
                continue
            # what is imported is a name in the module, or a module of the package
            yield from (parts, *((*parts, name.name) for name in node.names))
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # the body of a function runs later, and the compiler takes no import there
            left += ast.iter_child_nodes(node)


def _imported_by_homes(package: Path) -> set[Path]:
    """Return the homes and every module of ours that one of them imports, however far, read with Python's parser."""
    homes = [home.partition(".")[2].replace(".", "/") + ".py" for home in engine.list_kernel_modules()]
    found: set[Path] = set()
    left = [package / home for home in homes]
    while left:
        source = left.pop()
        if source in found:
            continue
        found.add(source)
        for parts in filter(None, _named_modules(source, package)):
            place = package.joinpath(*parts)
            left += [one for one in (place.with_suffix(".py"), place / "__init__.py") if one.is_file()]
    return found


def test_a_change_in_any_module_behind_a_kernel_makes_another_cache(copy: Path) -> None:
    before = engine._fingerprint()
    assert engine._fingerprint() == before
    sources = _imported_by_homes(copy)
    known = {"chunk/layout.py", "dialects/kafka/layout.py", "dialects/nsq/limits.py", "model/kinds.py"}
    assert {str(path.relative_to(copy)) for path in sources} > known | {"chunk/kernels.py", "kernels/sync.py"}
    for path in sources:
        held = path.read_bytes()
        path.write_bytes(held + b"\nANOTHER = 1\n")
        assert engine._fingerprint() != before, path
        path.write_bytes(held)
    assert engine._fingerprint() == before


def test_compiled_code_is_found_by_its_compiler() -> None:
    sources = {Path(name) for name in engine.read_frozen_sources()}
    for path in engine.PACKAGE.rglob("*.py"):
        named = re.search(r"^(import|from) numba\b", path.read_text(), re.MULTILINE)
        assert named is None or path in sources, path


def test_code_that_is_in_no_kernel_keeps_the_cache(copy: Path) -> None:
    before = engine._fingerprint()
    with (copy / "serve" / "serve.py").open("a") as file:
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

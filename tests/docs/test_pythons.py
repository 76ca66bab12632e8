"""``make test-pythons``: which Pythons it finds, and that one that is missing is named instead of passed over."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("test_pythons_script", ROOT / "packaging" / "test_pythons.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def add_python(place: Path, says: str) -> Path:
    """A program that prints a version, as a Python does that is asked for it; a shim without its Python prints none."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\n{says}\n")
    place.chmod(0o755)
    return place


def test_the_versions_are_those_of_the_classifiers(script: ModuleType) -> None:
    assert script.list_versions(ROOT / "pyproject.toml") == ["3.11", "3.12", "3.13", "3.14"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={script.list_versions(ROOT / 'pyproject.toml')[0]}"
    assert all((ROOT / "tests" / room).is_dir() for room in script.ROOMS)


def test_pythons_of_pyenv_and_of_the_path_are_found(script: ModuleType, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "PATH": str(tmp_path / "bin")}
    assert script.find_python("3.99", environment) is None
    add_python(tmp_path / "bin" / "python3.99", "exit 127")
    assert script.find_python("3.99", environment) is None
    add_python(tmp_path / ".pyenv" / "versions" / "3.99.1" / "bin" / "python", "echo 3.98")
    assert script.find_python("3.99", environment) is None
    right = add_python(tmp_path / ".pyenv" / "versions" / "3.99.0" / "bin" / "python", "echo 3.99")
    assert script.find_python("3.99", environment) == right
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert script.find_python(own, environment) == Path(sys.executable)


def test_kernels_are_compiled_before_the_tests(script: ModuleType, tmp_path: Path) -> None:
    """With an empty cache the first tests of a room compiled them, and took longer than a test may."""
    python = add_python(
        tmp_path / "bin" / "python", f'echo "$2" >> {tmp_path}/ran; [ "$2" = pytest ] && exit 3; exit 0'
    )
    assert script.run_tests(tmp_path) == 3
    assert (tmp_path / "ran").read_text().split() == ["lading.kernels.compile", "pytest"]
    add_python(python, "exit 5")
    assert script.run_tests(tmp_path) == 5


def test_what_did_not_run_is_named(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []
    pythons = {"3.11": Path("a"), "3.12": Path("b"), "3.13": Path("c")}
    missing = "No matching distribution found for numba>=0.62"
    monkeypatch.setattr(script, "find_python", lambda version, environment: pythons.get(version))
    monkeypatch.setattr(script, "install", lambda python, place: missing if python == Path("b") else None)

    def run_tests(place: Path) -> int:
        ran.append(place.name)
        return int(place.name == "3.13")

    monkeypatch.setattr(script, "run_tests", run_tests)
    assert script.main() == 1
    assert ran == ["3.11", "3.13"]
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "3.11: passed",
        f"3.12: not run, {missing}",
        "3.13: failed, pytest ended with 1",
        "3.14: not run, this machine has no Python 3.14",
    ]
    pythons.pop("3.13")
    assert script.main() == 0

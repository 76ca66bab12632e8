"""``make install`` says what it does; the list of kernels is for those who ask for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lading.kernels import compile as compile_kernels
from lading.kernels import engine

ROOT = Path(__file__).parents[2]


def test_the_install_names_its_steps_and_their_time() -> None:
    said = subprocess.run(
        ["make", "--dry-run", "--always-make", "install"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    steps = [line for line in said.splitlines() if line.startswith("echo '") and " of 4: " in line]
    assert [line.removeprefix("echo '")[0] for line in steps] == ["1", "2", "3", "4"]
    assert all("minute" in line or "seconds" in line for line in steps)
    # each is said before its work
    places = [
        said.index(word)
        for word in (
            "1 of 4",
            "pip install",
            "2 of 4",
            "kernels.compile",
            "3 of 4",
            "compileall",
            "4 of 4",
            "class_archive",
        )
    ]
    assert places == sorted(places)


def test_types_are_read_once_beside_the_other_steps_of_an_install() -> None:
    """`make test` of a new clone took two minutes of CPU more; the install ends after mypy, whatever mypy finds."""
    said = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "--always-make", "install"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    (began,) = [number for number, line in enumerate(said) if "nice .venv/bin/mypy" in line and line.endswith("&")]
    (waited,) = [number for number, line in enumerate(said) if ".types.read ] && break" in line]
    assert "2 of 4" in said[began + 1]
    assert waited == len(said) - 2 and said[-1] == "touch .venv/.installed"


@pytest.mark.parametrize(("arguments", "lines"), [([], 1), (["-v"], 3)])
def test_the_list_of_kernels_is_for_those_who_ask(
    arguments: list[str], lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is compiled, which takes a minute: the second process is one that does nothing."""
    monkeypatch.setattr(engine, "list_kernel_modules", lambda: ["one", "two"])
    monkeypatch.setattr(engine, "load", lambda home: None)
    monkeypatch.setattr(engine, "mark_complete", lambda: None)
    monkeypatch.setattr(sys, "executable", "true")
    assert compile_kernels.main(arguments) == 0
    assert len(capsys.readouterr().out.splitlines()) == lines

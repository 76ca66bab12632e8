"""Figures of the fault tests, printed at the end of the run, and a disk that can be filled."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FIGURES = "figures"


@pytest.fixture
def record_figures(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Note figures under a title; they are printed with the summary of the run."""

    def note(title: str, **figures: Any) -> None:
        shown = ", ".join(f"{key.replace('_', ' ')} {value:,.10g}" for key, value in figures.items())
        # a test's properties travel to the process that prints the summary
        request.node.user_properties.append((FIGURES, f"{title}: {shown}"))

    return note


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """After the tests, whether they passed or not."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    lines = [value for report in reports for name, value in report.user_properties if name == FIGURES]
    if lines:
        terminalreporter.section("figures of the fault tests")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("a file system of 8 MiB can only be mounted by root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], check=False, capture_output=True, timeout=20
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True, timeout=20)

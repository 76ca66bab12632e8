"""Figures of the fault tests, printed at the end of the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

_figures: list[str] = []


@pytest.fixture(scope="session")
def record_figures() -> Callable[..., None]:
    """Note figures under a title; they are printed with the summary of the run."""

    def note(title: str, **figures: Any) -> None:
        shown = ", ".join(f"{key.replace('_', ' ')} {value:,.10g}" for key, value in figures.items())
        _figures.append(f"{title}: {shown}")

    return note


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """After the tests, whether they passed or not."""
    if _figures:
        terminalreporter.section("figures of the fault tests")
        for line in _figures:
            terminalreporter.write_line(line)

"""Figures of the fault tests, printed at the end of the run."""

from __future__ import annotations

from collections.abc import Callable
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

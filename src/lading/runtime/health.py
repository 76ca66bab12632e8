"""Faults of a running broker, other than those of partitions, for ``GET /health``."""

from __future__ import annotations

from collections.abc import Callable

Check = Callable[[], str | None]
"""Return a sentence about the present problem, or None."""


class Health:
    """Checks by subject, run at each request."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}

    def add_check(self, subject: str, check: Check) -> None:
        """Add the check of a subject, which each request runs; a subject has one."""
        self._checks[subject] = check

    def problems(self) -> dict[str, str]:
        """Return a sentence for each subject that has a problem."""
        return {subject: problem for subject, check in self._checks.items() if (problem := check()) is not None}

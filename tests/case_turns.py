"""Slow cases that take turns: ``make test`` runs every n-th case of a test with ``@pytest.mark.turns(n)``.

Each day has another part of them, so that all have run after n days; one case of each test runs every day. Which part
follows from the day alone; ``LADING_TEST_DAY`` repeats it. ``make test-full`` runs all, and so does pytest if it is
given files or directories.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import pytest

DAY: Final = "LADING_TEST_DAY"
"""Environment variable with the number of a day: cases take turns in this run."""
REASON: Final = "its turn is on another day; LADING_TEST_FULL=1 runs all"


def begin(config: pytest.Config) -> None:
    """Let cases take turns in this run and its processes if nobody has chosen what runs."""
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and os.environ.get("LADING_TEST_FULL") != "1":
        os.environ.setdefault(DAY, str(datetime.now(UTC).toordinal()))


def skip_others(items: Sequence[pytest.Item]) -> None:
    """Mark the cases whose turn it is not."""
    day = os.environ.get(DAY)
    if day is None or os.environ.get("LADING_TEST_FULL") == "1":
        return
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("turns"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for name, of_test in cases.items():
        marker = of_test[0].get_closest_marker("turns")
        assert marker is not None
        for number in choose_others(int(day) + sum(name.encode()), len(of_test), marker.args[0]):
            of_test[number].add_marker(pytest.mark.skip(reason=REASON))


def choose_others(day: int, count: int, turns: int) -> list[int]:
    """Return the numbers of the cases that do not run on a day."""
    turns = min(turns, count)
    return [number for number in range(count) if (number + day) % turns]

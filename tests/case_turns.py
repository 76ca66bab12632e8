"""Slow cases that take turns: ``make test`` runs every n-th case of a test with ``@pytest.mark.turns(n)``.

Each day has another part of them, so that all have run after n days; one case of each test runs every day. Tests that
pass the same code in different ways take turns with each other: ``@pytest.mark.turns(n, part=k)`` runs all cases of one
on the days of part k, from 0 to n - 1. A test that goes through many cases by itself asks ``choose_part``. Tests
without a mark that ``slow_tests.txt`` lists have seven turns: those of one case by their places in the list. Which part
runs follows from the day alone; ``LADING_TEST_DAY`` repeats it. ``make test-full`` runs all, and so does pytest if it
is given files or directories.
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

import pytest

from tests import slow_tests

Case = TypeVar("Case")
DAY: Final = "LADING_TEST_DAY"
"""Environment variable with the number of a day: cases take turns in this run."""
SLOW_TURNS: Final = 7
"""Each slow test has its day of the week: a run of all of them takes six minutes longer on two cores."""
REASON: Final = "its turn is on another day; LADING_TEST_FULL=1 runs all"


def begin(config: pytest.Config) -> None:
    """Let cases take turns in this run and its processes if nobody has chosen what runs."""
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and os.environ.get("LADING_TEST_FULL") != "1":
        os.environ.setdefault(DAY, str(datetime.now(UTC).toordinal()))


def vary_examples() -> None:
    """Have Hypothesis choose other examples each day, and the same ones again on the same day."""
    day = read_day()
    if day is None:
        return
    from hypothesis import core, settings

    # Hypothesis has a profile for CI, with the same examples for ever
    settings.register_profile("day", settings(settings.default, derandomize=False))
    settings.load_profile("day")
    vars(core)["global_force_seed"] = day


def read_day() -> int | None:
    """Return the number of the day whose cases run; None if all of them run."""
    day = os.environ.get(DAY)
    return None if day is None or os.environ.get("LADING_TEST_FULL") == "1" else int(day)


def skip_others(items: Sequence[pytest.Item]) -> None:
    """Mark the cases whose turn it is not."""
    day = read_day()
    if day is None:
        return
    cases: defaultdict[str, list[tuple[pytest.Item, int]]] = defaultdict(list)
    slow = {function: number for number, function in enumerate(slow_tests.read_list())}
    case_counts = Counter(slow_tests.name_function(item.nodeid) for item in items)
    for item in items:
        function = slow_tests.name_function(item.nodeid)
        marker = item.get_closest_marker("turns")
        part = None
        if marker is not None:
            turns, part = marker.args[0], marker.kwargs.get("part")
        elif function in slow:
            turns = SLOW_TURNS
            if case_counts[function] == 1:
                # the list goes from the slowest down, so that each day has as much work as the others
                part = slow[function] % turns
        else:
            continue
        if part is None:
            cases[function].append((item, turns))
        elif day % turns != part:
            item.add_marker(pytest.mark.skip(reason=REASON))
    for name, of_test in cases.items():
        # parameters vary in a rhythm of their own, which every n-th case may fall in with
        order = random.Random(name).sample(of_test, len(of_test))
        for number in choose_others(day + sum(name.encode()), len(of_test), of_test[0][1]):
            order[number][0].add_marker(pytest.mark.skip(reason=REASON))


def choose_part(cases: Sequence[Case], turns: int) -> Sequence[Case]:
    """Return every n-th of the cases that one test goes through, or all if all run; each day has another part."""
    day = read_day()
    return cases if day is None else cases[day % min(turns, len(cases)) :: turns]


def choose_others(day: int, count: int, turns: int) -> list[int]:
    """Return the numbers of the cases that do not run on a day."""
    turns = min(turns, count)
    return [number for number in range(count) if (number + day) % turns]

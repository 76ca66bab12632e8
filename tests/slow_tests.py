"""The list of slow tests, ``slow_tests.txt``, and how it is written: by a run that measures, and a command after it.

    LADING_TEST_COSTS=costs python -m pytest tests -p tests.slow_tests -n 3 --dist loadfile
    python -m tests.slow_tests costs

Tests that became slow since then run each day until the list is written again. Tests with a mark ``turns`` are not in
it.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

LIST: Final = Path(__file__).with_suffix(".txt")
DIRECTORY: Final = "LADING_TEST_COSTS"
"""Environment variable with the directory of what a run measures, one file for each of its processes."""
CPU_S: Final = 0.4
WAIT_S: Final = 2.0
"""A function whose cases together take at least this much, of the CPU or of the clock, is slow: some 530 of 4,200,
which take half of a run."""
EVERY_DAY: Final = tuple(
    f"tests/house/test_{rule}.py"
    for rule in ("error_remedies", "hot_path", "imports_acyclic", "kernels", "names", "rooms", "words")
)
"""Rules of the house: to break one is easy, so that they are looked at each time."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure a test with its fixtures, and the processes that it started and that have ended."""
    cpu_s, began_s = _read_cpu_s(), time.monotonic()
    try:
        return (yield)
    finally:
        if item.get_closest_marker("turns") is None:
            costs = f"{_read_cpu_s() - cpu_s:.3f}\t{time.monotonic() - began_s:.3f}"
            with Path(os.environ[DIRECTORY], f"{os.getpid()}.txt").open("a") as file:
                file.write(f"{name_function(item.nodeid)}\t{costs}\n")


def read_list() -> list[str]:
    """Return the slow test functions, the slowest first."""
    return LIST.read_text().split()


def name_function(test_id: str) -> str:
    """Return the id of a test without its case."""
    return test_id.partition("[")[0]


def choose_slow(lines: list[str]) -> list[str]:
    """Return the slow functions among what a run has measured, the slowest first."""
    costs: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for line in lines:
        function, cpu_s, took_s = line.split("\t")
        costs[function][0] += float(cpu_s)
        costs[function][1] += float(took_s)
    slow = {name: cost for name, cost in costs.items() if cost[0] >= CPU_S or cost[1] >= WAIT_S}
    return sorted((name for name in slow if not name.startswith(EVERY_DAY)), key=lambda name: slow[name], reverse=True)


def main(directory: Path) -> None:
    """Write the list from what a run left in ``directory``."""
    lines = [line for file in sorted(directory.glob("*.txt")) for line in file.read_text().splitlines()]
    slow = choose_slow(lines)
    LIST.write_text("".join(f"{name}\n" for name in slow))
    print(f"{len(slow)} slow functions are in {LIST.name}")


def _read_cpu_s() -> float:
    both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

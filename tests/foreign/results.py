"""What a suite said of each test, and the table of several: passed, failed on both, failed or skipped here alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

Outcomes = Mapping[str, str]
"""Test to ``pass``, ``fail``, ``skip``, or ``unfinished`` if the suite ended in it."""
_BAD: Final = ("fail", "unfinished")


def read_go_events(lines: Iterable[str]) -> dict[str, str]:
    """Return the outcome of each test, subtests included, from the events of ``go tool test2json``."""
    outcomes: dict[str, str] = {}
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        name, action = event.get("Test"), event.get("Action")
        if name is None:
            continue
        if action in ("pass", "fail", "skip"):
            outcomes[name] = action
        elif action == "run":
            outcomes.setdefault(name, "unfinished")
    return outcomes


class Comparison(NamedTuple):
    """One row of the table; without a real server what failed and was skipped counts as here alone."""

    suite: str
    version: str
    passed: int
    failed_on_both: list[str]
    failed_here: list[str]
    skipped_here: list[str]
    failed_there: list[str]


def compare(suite: str, version: str, ours: Outcomes, real: Outcomes | None) -> Comparison:
    """Return how the outcomes of two runs differ."""
    there = real or {}
    bad = [name for name, outcome in ours.items() if outcome in _BAD]
    return Comparison(
        suite,
        version,
        sum(outcome == "pass" for outcome in ours.values()),
        sorted(name for name in bad if there.get(name) in _BAD),
        sorted(name for name in bad if there.get(name) not in _BAD),
        sorted(name for name, outcome in ours.items() if outcome == "skip" and there.get(name) != "skip"),
        sorted(name for name, outcome in there.items() if outcome in _BAD and ours.get(name) not in _BAD),
    )


def write_table(rows: Iterable[Comparison], *, has_control: bool) -> str:
    """Return the rows as a table of Markdown, and below it the names of what failed."""
    rows = list(rows)
    lines = [
        "| suite | passed | failed on both | failed here alone | skipped here alone | failed there alone |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        counts = [len(names) if has_control else "–" for names in (row.failed_on_both, row.failed_there)]
        lines.append(
            f"| {row.suite} {row.version} | {row.passed} | {counts[0]} | {len(row.failed_here)} | "
            f"{len(row.skipped_here)} | {counts[1]} |"
        )
    for row in rows:
        for words, names in (("on both", row.failed_on_both), ("here alone", row.failed_here)):
            lines += [f"{row.suite}: {name} failed {words}" for name in names]
    return "\n".join(lines)

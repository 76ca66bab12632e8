"""What a suite said of each test, and the table of several: passed, failed on both, failed or skipped here alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

Outcomes = Mapping[str, str]
"""Test to ``pass``, ``fail``, ``skip``, or ``unfinished`` if the suite ended in it."""
_BAD: Final = ("fail", "unfinished")
_PYTEST_LINE: Final = re.compile(r"^(\S+\.py::.*?)(?: (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b.*)?$")
_PYTEST_OUTCOMES: Final = {"PASSED": "pass", "XPASS": "pass", "FAILED": "fail", "ERROR": "fail"}
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_RDKAFKA_STARTED: Final = re.compile(r"=+ Running test (\S+)")
_RDKAFKA_ENDED: Final = re.compile(r"=+ Test (\S+) (PASSED|SKIPPED|FAILED)")
_RDKAFKA_FAILED: Final = re.compile(r'### Test "(\S+?)(?: \(.*\))?" failed')


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


def read_pytest(text: str) -> dict[str, str]:
    """Return the outcome of each test from what ``pytest -v`` prints; one that it did not end is unfinished."""
    outcomes: dict[str, str] = {}
    for line in text.splitlines():
        found = _PYTEST_LINE.match(line)
        if found is None:
            continue
        name, word = found[1].strip(), found[2]
        if word is None:
            # begun, or named in the summary of warnings
            outcomes.setdefault(name, "unfinished")
        # a test that passed may fail in its teardown, on a line of its own
        elif outcomes.get(name) != "fail":
            outcomes[name] = _PYTEST_OUTCOMES.get(word, "skip")
    return outcomes


def read_librdkafka(text: str) -> dict[str, str]:
    """Return the outcome of each test from what librdkafka's ``test-runner`` prints."""
    outcomes: dict[str, str] = {}
    for line in _COLOUR.sub("", text).splitlines():
        if started := _RDKAFKA_STARTED.search(line):
            outcomes.setdefault(started[1], "unfinished")
        for name, word in _RDKAFKA_ENDED.findall(line):
            outcomes[name] = {"PASSED": "pass", "FAILED": "fail"}.get(word, "skip")
        if failed := _RDKAFKA_FAILED.search(line):
            outcomes[failed[1]] = "fail"
    # the runner, as a test of its own, fails if one of the others does
    outcomes.pop("<MAIN>", None)
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

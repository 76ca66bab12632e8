"""The last words of a run: why tests were skipped, counted, and one line of figures that `make test` ends with."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

REASONS: Final = (
    (r"LADING_TEST_FULL|make test-full", "run only in `make test-full`"),
    (r"(is|are) not installed|does not build here|fails here", "need a program that is missing here"),
    (r"", "do not apply"),
)  # fmt: skip
"""What a reason of a skipped test looks like, and what it is counted as; the first that fits."""
LISTED_MAX: Final = 12
FILE: Final = "summary"


def count_reasons(reports: Sequence[pytest.TestReport]) -> tuple[Counter[str], Counter[str]]:
    """Return how many tests were skipped for each reason, and for each kind of reason."""
    texts = Counter(_read_reason(report) for report in reports)
    kinds: Counter[str] = Counter()
    for text, count in texts.items():
        kinds[next(kind for pattern, kind in REASONS if re.search(pattern, text))] += count
    return texts, kinds


def _read_reason(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def write_line(stats: dict[str, list[Any]], kinds: Counter[str]) -> str:
    """Return the figures of a run in one line."""
    counts = {name: len(stats.get(name, ())) for name in ("passed", "failed", "error", "skipped", "xfailed", "xpassed")}
    parts = [f"{counts['passed']:,} passed", f"{counts['failed'] + counts['error']:,} failed"]
    reasons = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    parts.append(f"{counts['skipped']:,} skipped" + (f" ({reasons})" if reasons else ""))
    parts.append(f"{counts['xfailed']:,} that a client or protocol cannot do")
    if counts["xpassed"]:
        parts.append(f"{counts['xpassed']:,} that pass although they should not")
    return ", ".join(parts)


def print_summary(reporter: Any, cache: pytest.Cache | None) -> None:
    """Print the commonest reasons and the line of figures, and leave the line for the Makefile."""
    texts, kinds = count_reasons(reporter.stats.get("skipped", []))
    if texts:
        reporter.section("skipped, by reason")
        for text, count in texts.most_common(LISTED_MAX):
            reporter.line(f"{count:5,}  {text}")
        if len(texts) > LISTED_MAX:
            rest = sum(count for _, count in texts.most_common()[LISTED_MAX:])
            reporter.line(f"{rest:5,}  for {len(texts) - LISTED_MAX} other reasons; `pytest -rs` lists all")
    line = write_line(reporter.stats, kinds)
    reporter.line(line)
    if cache is not None:
        Path(cache.mkdir(FILE), "line.txt").write_text(line + "\n")

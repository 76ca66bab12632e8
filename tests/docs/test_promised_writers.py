"""What pages promise of a writer is what the crash matrix holds it to, for each writer and target."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.crashes.command_lines import COMMANDS
from tests.crashes.writers import AT_LEAST_ONCE, MARKED, ONCE, ONCE_IN_A_PROCESS, WHOLE, WRITERS, Writer

DOCS: Final = Path(__file__).parents[2] / "docs"
TARGETS: Final = ("lading", "kafka", "iggy", "nsq")
WORDS: Final = {
    "once": ONCE, "whole or not at all": WHOLE, "at least once, marked": MARKED, "at least once": AT_LEAST_ONCE,
}  # fmt: skip
PROMISES: Final = {writer.name: writer.promises for writer in (*WRITERS, *COMMANDS)}
ROWS: Final = {
    "Spark `writeStream`": ("Spark stream",),
    "Spark `df.write`": ("Spark batch",),
    "`lading mirror`": ("mirror", "lading mirror"),
    "`good`, routes and quarantine copies of a pipeline": ("routes to topics", "lading pipeline run --local"),
    "`lading quarantine redrive`, `lading dead-letters redrive`": (
        "redrive of dead letters", "redrive of a quarantine",
        "lading dead-letters redrive", "lading quarantine redrive",
    ),
    "`send_once` of `lading.client.delivery`": ("send_once",),
    "`lading message send --lines`, `--json`, run again from its first line": ("lading message send",),
}  # fmt: skip
"""Rows of the table in promises.md, and the writers of the matrix."""


def table_rows(page: str, heading: str) -> dict[str, list[str]]:
    """Return the cells of a page's table after a heading, by the first of each row."""
    text = (DOCS / page).read_text()
    text = text[text.index(heading) :]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells}


def promise_of(cell: str) -> str:
    """Return the promise that a cell begins with; a transactional id is what the matrix gives."""
    plain = re.sub(r" with `transactionalId`.*| ¹", "", cell)
    return WORDS[plain]


@pytest.mark.parametrize("row", ROWS)
def test_the_table_of_promises_is_what_the_matrix_checks(row: str) -> None:
    cells = table_rows("explanation/promises.md", "## Writers that end anywhere")[row]
    for writer in ROWS[row]:
        checked = {target: PROMISES[writer][target] for target in TARGETS}
        assert dict(zip(TARGETS, map(promise_of, cells), strict=True)) == checked, writer


def test_a_producer_is_exact_while_its_process_lives() -> None:
    cells = table_rows("explanation/promises.md", "## Writers that end anywhere")[
        "`Producer`, `write_arrow`, while the process lives"
    ]
    exact = {target for _, target in ONCE_IN_A_PROCESS}
    assert dict(zip(TARGETS, cells, strict=True)) == {
        target: "once" if target in exact else "at least once" for target in TARGETS
    }


@pytest.mark.parametrize(
    ("page", "heading", "writer"),
    [
        ("how-to/mirror.md", "", "mirror"),
        ("how-to/route-to-topics.md", "", "routes to topics"),
    ],
)
def test_the_pages_of_targets_say_the_same(page: str, heading: str, writer: str) -> None:
    rows = table_rows(page, heading)
    for target in TARGETS:
        said = rows[f"`{target}://`"][0]
        word = re.match(r"at least once|once", said)
        assert word is not None, said
        expected = "at least once" if PROMISES[writer][target] in (AT_LEAST_ONCE, MARKED) else "once"
        assert word[0] == expected, (target, said)


def test_the_page_of_redrive_names_the_targets_of_which_it_promises_less() -> None:
    text = " ".join((DOCS / "how-to" / "redrive.md").read_text().split())
    sentence = re.search(r"[^.]*delivery is at least once[^.]*", text)
    assert sentence is not None
    for target in TARGETS:
        less = PROMISES["redrive of a quarantine"][target] == AT_LEAST_ONCE
        assert (f"`{target}://`" in sentence[0]) == less, (target, sentence[0])


SHORT_WORDS: Final = {
    "once": ONCE, "whole": WHOLE, "marked": MARKED, "at least once": AT_LEAST_ONCE,
}  # fmt: skip
"""Promises as the tables of reliability.md have them."""
PLACES: Final = {"directory": "directory", "a table": "table"}


@pytest.mark.parametrize(
    ("heading", "end", "writers"),
    [
        ("\n## Writers that end anywhere", "### Command lines", WRITERS),
        ("### Command lines", "### Into Apache", COMMANDS),
    ],
)
def test_the_last_whole_run_has_every_writer_and_adds_up(heading: str, end: str, writers: Sequence[Writer]) -> None:
    text = (DOCS / "explanation" / "reliability.md").read_text()
    text = text[text.index(heading) :]
    text = text[: text.index(end)]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    measured, ends_count, once_count = dict[str, dict[str, str]](), 0, 0
    for name, targets, promise, ends, lost, doubled in rows[2:]:
        assert lost == "0" and (promise != "once" or doubled == "0"), (name, targets)
        ends_count += int(ends)
        once_count += int(ends) * (promise == "once")
        for target in targets.split(", "):
            # the table has an option more of some commands
            writer = next((one.name for one in writers if one.name == name or name.startswith(f"`{one.name}")), name)
            measured.setdefault(writer, {})[PLACES.get(target, target)] = SHORT_WORDS[promise]
    plain = " ".join(text.replace("**", "").split())
    assert f"{ends_count:,} points" in plain
    assert re.search(rf"lost 0; doubled 0 at the {once_count} where once is promised", plain)
    promises = {writer.name: dict(writer.promises) for writer in writers}
    for of_writer in promises.values():
        # into Apache Kafka: a section of its own
        of_writer.pop("apache", None)
    assert measured == promises

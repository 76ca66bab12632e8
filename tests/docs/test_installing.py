"""No page and no error advises an installation that does not work: Lading is installed from its clone."""

from __future__ import annotations

import re
import sys
from importlib.metadata import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNPUBLISHED = re.compile(r"install (--[a-z-]+ )*[\"']?lading\b")


def written_files() -> list[Path]:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    return [*pages, *ROOT.glob("src/**/*.py"), *ROOT.glob("packaging/**/*.service")]


def test_nothing_is_installed_from_an_index_that_does_not_have_it() -> None:
    advised = {
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in written_files()
        if path.name != "CHANGELOG.md"
        for line in path.read_text().splitlines()
        if UNPUBLISHED.search(line)
    }
    assert advised == set()


def test_pip_show_names_author_versions_and_licence() -> None:
    facts = metadata("lading")
    assert (facts["Author"], facts["License-Expression"]) == ("The Lading developers", "Apache-2.0")
    named = set(facts.get_all("Classifier") or ())
    running = f"Programming Language :: Python :: {sys.version_info.major}.{sys.version_info.minor}"
    assert {running, "Programming Language :: Python :: 3.14"} <= named

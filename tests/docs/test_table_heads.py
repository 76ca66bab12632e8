"""Every table of the pages says what its columns are."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_column_is_without_a_head(page: Path) -> None:
    lines = page.read_text().splitlines()
    heads = [head for head, rule in pairwise(lines) if rule.startswith("|-")]
    bare = [head for head in heads if not all(cell.strip() for cell in head.strip().strip("|").split("|"))]
    assert not bare

"""The site that ``make docs`` builds has every page, once."""

from __future__ import annotations

import re
from collections import Counter

from tests.docs.test_snippets import ROOT


def test_the_navigation_has_every_page_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert Counter(re.findall(r"[\w/-]+\.md\b", nav)) == Counter(pages)

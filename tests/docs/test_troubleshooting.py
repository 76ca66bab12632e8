"""The page of symptoms quotes texts that the code has: who searches for what he sees has to find it there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from lading.pipeline.reasons import SENTENCES
from tests.house.sources import read_sources

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "troubleshooting.md"
JOINT = re.compile(r'"\s*\n\s*f?"')
"""Where a text goes on in the next line of the source."""
OF_PROTOCOLS = {"MESSAGE_TOO_LARGE", "E_BAD_MESSAGE"}


def _quotes(page: str) -> Iterator[str]:
    """Yield what first cells of tables have between backticks."""
    for line in page.splitlines():
        if line.startswith("| ") and not line.startswith("|---"):
            yield from re.findall(r"`([^`]+)`", line.split(" | ")[0])


def test_texts_of_the_page_are_in_the_code() -> None:
    sources = "\n".join(JOINT.sub("", text) for text in read_sources().values())
    texts = [quote for quote in _quotes(PAGE.read_text()) if " " in quote]
    pieces = [piece.strip() for text in texts for piece in text.split("…") if len(piece.strip()) > 6]
    assert len(texts) > 20
    assert [piece for piece in pieces if piece not in sources] == []


def test_reasons_of_quarantine_are_on_the_page() -> None:
    """All but those that the user chose himself: an expectation, a route, and what a target cannot hold."""
    names = {quote for quote in _quotes(PAGE.read_text()) if re.fullmatch(r"[a-z]+_[a-z_]+", quote)}
    others = {"expectation", "route", "refused_by_target", "unreadable_time"}
    assert names - {"read_committed", "auto_offset_reset"} == SENTENCES.keys() - others

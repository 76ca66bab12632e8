"""Plain English: words that made readers read twice, counted in docstrings and comments; the counts may only shrink.

Whoever rewrites a sentence lowers the number here. What counts is prose alone: code in double backticks is left out.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.house.test_names import _is_accessor, _is_participle

SOURCE: Final = Path(__file__).parents[2] / "src" / "lading"

WORDS: Final[dict[str, tuple[str, int]]] = {
    "where, for if": (r"\bwhere\b", 13),
    "is no, is none": (r"\b(?:is|are|was|were) (?:no|none)\b", 1),
    "who, without a head": (r"(?:^|[.;:,(] |\b(?:to|by|of|for|from|than|that|and|or|with) )who\b", 0),
    "what, at the beginning of a sentence": (r"(?:^|[.;:] )What\b", 0),
    "answer, for response": (r"\banswer(?:s|ed|ing)?\b", 0),
    "face, for endpoint": (r"\bfaces?\b", 0),
    "twin, for fallback": (r"\btwins?\b", 0),
    "behind, for after": (r"\bbehind\b", 0),
    "tell, for report": (r"\b(?:tells?|told|telling)\b", 0),
    "so many, for at most": (r"\b[Ss]o (?:many|much|long|often)\b(?! (?:as|that))", 0),
}
"""By what is meant: what it looks like, and how often it may be there."""

PARTICIPLES_MAX: Final = 0
"""Private functions that are named by a participle (``_made``) instead of a verb with its object."""


def _read_docstrings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else ():
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                yield one.value.value


def _read_comments(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("#")


@cache
def read_prose() -> str:
    """Return all docstrings and comments, one a line, without code."""
    texts = []
    for path in sorted(SOURCE.rglob("*.py")):
        source = path.read_text()
        texts += [*_read_docstrings(ast.parse(source)), *_read_comments(source)]
    return "\n".join(" ".join(re.sub(r"``.*?``", "X", text, flags=re.DOTALL).split()) for text in texts)


@pytest.mark.parametrize("meaning", WORDS)
def test_a_word_that_is_read_twice_becomes_rarer(meaning: str) -> None:
    pattern, count_max = WORDS[meaning]
    found = [match.group() for match in re.finditer(rf".{{0,40}}(?:{pattern}).{{0,40}}", read_prose(), re.MULTILINE)]
    assert len(found) <= count_max, f"{len(found)} instead of {count_max}, such as: {found[:3]}"


def test_private_functions_are_named_by_verbs() -> None:
    found = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("_")
        and not node.name.startswith("__")
        and not _is_accessor(node)
        and _is_participle(node.name.strip("_").split("_")[0])
    )
    assert found.total() <= PARTICIPLES_MAX, f"{found.total()} instead of {PARTICIPLES_MAX}: {sorted(found)[:20]}"

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
from typing import Final

import pytest

from tests.house.sources import parse_source, parse_sources, read_sources, walk_statements
from tests.house.test_names import _is_accessor, _is_participle

WORDS: Final[dict[str, tuple[str, int]]] = {
    "where, for if": (r"(?<!--)\b[Ww]here\b", 5),
    "is no, is none": (r"\b(?:is|are|was|were) (?:no|none)\b", 0),
    "who, without a head": (r"(?:^|[.;:,(] |\b(?:to|by|of|for|from|than|that|and|or|with) )who\b", 0),
    "what, at the beginning of a sentence": (r"(?:^|[.;:] )What\b", 0),
    "answer, for response": (r"\b[Aa]nswer(?:s|ed|ing)?\b", 0),
    "face, for endpoint": (r"\b[Ff]aces?\b", 0),
    "twin, for fallback": (r"\b[Tt]wins?\b", 0),
    "behind, for after": (r"\b[Bb]ehind\b", 2),
    "tell, for report": (r"\b[Tt](?:ells?|old|elling)\b", 0),
    "go on, for continue": (r"\b(?:[Gg]o|goes|going|gone) on\b", 2),
    "let go, for release": (r"\b[Ll]et(?:s|ting)? go\b", 0),
    "gone, for deleted or disconnected": (r"\bgone\b", 0),
    "how many or whether, after a semicolon": (r"; (?:how many|how much|how far|whether)\b", 4),
    "by, as or with, without a head": (r"^(?:By|As|With|Such as) [a-z]", 2),
    "of, without a head": (r"^(?:Of|That of|Those|Whom|Nor)\b", 1),
    "so many, for at most": (r"\b[Ss]o (?:many|much|long|often)\b(?! (?:as|that))", 0),
}
"""By what is meant: what it looks like, and how often it may be there. The option --where is not a word."""

PARTICIPLES_MAX: Final = 0
"""Private functions that are named by a participle (``_made``) instead of a verb with its object."""


COMMENT: Final = re.compile(
    r"""\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#([^\n]*)""",
    re.DOTALL,
)
"""A string, so that a # in it is no comment, or a comment: what Python's tokenizer finds, at a tenth of its time."""


def _read_docstrings(tree: ast.AST) -> Iterator[str]:
    for node in walk_statements(tree):
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else ():
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                yield one.value.value


def _read_comments(source: str) -> Iterator[str]:
    for found in COMMENT.finditer(source):
        if found[1] is not None:
            yield found[1].lstrip("#")


@cache
def read_prose() -> list[str]:
    """Return all docstrings and comments, one a line, without code."""
    texts: list[str] = []
    for path, source in read_sources().items():
        texts += [*_read_docstrings(parse_source(path)), *_read_comments(source)]
    return [" ".join(re.sub(r"``.*?``", "X", text, flags=re.DOTALL).split()) for text in texts]


def test_comments_are_those_of_the_tokenizer() -> None:
    source = (
        "x = 'a # b'  # one\n## two\ny = f'{x!r:#x} #'\nz = b\"\\\"#\" #three\n"
        "'''# no\n\\''' #'''  # four\nw = \"\"\"'#\"\"\" #\n"
    )
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string.lstrip("#") for token in tokens if token.type == tokenize.COMMENT]
    assert len(comments) == 5
    assert list(_read_comments(source)) == comments


@pytest.mark.parametrize("meaning", WORDS)
def test_a_word_that_is_read_twice_becomes_rarer(meaning: str) -> None:
    pattern, count_max = WORDS[meaning]
    # with what is around it only where it is: most of the time went to lines that have none
    lines = [line for line in read_prose() if re.search(pattern, line)]
    around = rf".{{0,40}}(?:{pattern}).{{0,40}}"
    found = [match.group() for line in lines for match in re.finditer(around, line)]
    assert len(found) <= count_max, f"{len(found)} instead of {count_max}, such as: {found[:3]}"


def test_private_functions_are_named_by_verbs() -> None:
    found = Counter(
        node.name
        for tree in parse_sources().values()
        for node in walk_statements(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("_")
        and not node.name.startswith("__")
        and _is_participle(node.name.strip("_").split("_")[0])
        and not _is_accessor(node)
    )
    assert found.total() <= PARTICIPLES_MAX, f"{found.total()} instead of {PARTICIPLES_MAX}: {sorted(found)[:20]}"

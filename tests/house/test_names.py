"""Names: a public class name stands for one class, and public functions are verbs, not participles.

What is listed is allowed, with the reason; a name that no longer exists is to be removed from the list too.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from tests.house.sources import parse_sources

IRREGULAR: Final = re.compile(
    "begun|bent|bound|bought|brought|built|caught|chosen|done|drawn|driven|fallen|felt|forgotten|found|frozen|given|gone|"
    "grown|heard|held|hidden|kept|known|laid|led|left|lent|lost|made|meant|met|paid|said|seen|sent|shown|sold|sought|"
    "spent|stood|struck|stuck|sunk|swept|taken|taught|thought|thrown|told|understood|undone|unknown|woken|won|worn|"
    "wound|written"
)
VERBS: Final = re.compile("bleed|breed|embed|exceed|feed|need|proceed|seed|shed|speed|succeed")
"""Verbs that only look like participles."""

PARTICIPLES_ALLOWED: Final[dict[str, set[str]]] = {
    "public Python API": {
        "spark/functions.py:typed",
    },
    "the protocol's own name: Partitioning::balanced() of Iggy's SDK": {
        "dialects/iggy/classic/primitives.py:balanced",
    },
    "plain accessor of a log, beside control_ranges and unavailable_ranges": {
        "broker/core/empty_log.py:aborted_ranges",
        "broker/core/empty_log.py:damaged_ranges",
        "log/interface.py:aborted_ranges",
        "log/interface.py:damaged_ranges",
        "log/partition.py:damaged_ranges",
        "log/reader.py:aborted_ranges",
        "log/reader.py:damaged_ranges",
        "log/partition.py:aborted_ranges",
    },
}
"""By the reason why a function may be named so: file and name."""


def _public_definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from _public_definitions(node.body, prefix)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from _public_definitions(node.body, f"{prefix}{node.name}.")


@cache
def _definitions() -> Sequence[tuple[str, str, ast.AST]]:
    return [
        (path, name, node) for path, tree in parse_sources().items() for name, node in _public_definitions(tree.body)
    ]


def _is_participle(word: str) -> bool:
    if IRREGULAR.fullmatch(word):
        return True
    return len(word) > 3 and word.endswith("ed") and not VERBS.fullmatch(word)


def _is_accessor(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Properties are read like attributes, and named like them."""
    return any("property" in (text := ast.unparse(one)) or text.endswith(".setter") for one in node.decorator_list)


def _participles() -> set[tuple[str, str]]:
    """Return the functions that are named by one, but for builders of errors (``unknown_topic_error``)."""
    return {
        (path, name)
        for path, name, node in _definitions()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and _is_participle(node.name.split("_")[0])
        and not _is_accessor(node)
        and not node.name.endswith("_error")
    }


def _public_classes() -> dict[str, list[str]]:
    found = defaultdict(list)
    for path, name, node in _definitions():
        if isinstance(node, ast.ClassDef):
            found[name.rpartition(".")[2]].append(path)
    return found


def test_no_public_function_is_named_by_a_participle() -> None:
    """Only the functions that are listed are; none is listed that does not exist."""
    found = {f"{path}:{name.rpartition('.')[2]}" for path, name in _participles()}
    listed = set().union(*PARTICIPLES_ALLOWED.values())
    assert sorted(found - listed) == []
    assert sorted(listed - found) == []


def test_a_public_class_name_stands_for_one_class() -> None:
    """No two modules define public classes of one name."""
    assert {name: paths for name, paths in _public_classes().items() if len(paths) > 1} == {}

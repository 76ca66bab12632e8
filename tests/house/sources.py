"""The sources of the package, read and parsed once for all tests of this room."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[2] / "src" / "lading"
PARSES_MAX: Final = 10
SUITES: Final = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields of a statement that hold statements."""


@cache
def read_sources() -> Mapping[str, str]:
    """Return the text of each module, by its path in the package."""
    return {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


@cache
def parse_source(path: str) -> ast.Module:
    """Return the tree of a module, parsed again if need be.

    Python 3.11 counts the depth of its parser for all threads together: one that parses meanwhile, such as Numba's in
    a test before, has it fail with SystemError (CPython issue 106905).
    """
    for _ in range(PARSES_MAX):
        with suppress(SystemError):
            return ast.parse(read_sources()[path])
    return ast.parse(read_sources()[path])


@cache
def parse_sources() -> Mapping[str, ast.Module]:
    """Return the tree of each module, by its path in the package."""
    return {path: parse_source(path) for path in read_sources()}


def walk_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a tree and the statements in it, but no expressions, which are nine tenths of its nodes."""
    yield node
    for field in SUITES:
        suite = getattr(node, field, None)
        for one in suite if isinstance(suite, list) else ():
            yield from walk_statements(one)

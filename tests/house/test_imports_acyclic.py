"""Imports: modules do not import each other in a circle, imports for types and imports inside functions counted.

The import contracts compare packages; this compares files. What is listed here is left from before the rule, and may
only shrink.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import grimp

CIRCLES_LEFT: Final[Mapping[str, int]] = {}
"""How many modules of a package import each other in a circle."""


def find_circles(imports: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Return the groups of two and more modules in which each reaches all others."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    circles: list[set[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for imported in imports[module]:
            if imported not in order:
                visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in path:
                lowest[module] = min(lowest[module], order[imported])
        if lowest[module] == order[module]:
            at = path.index(module)
            circle, path[at:] = set(path[at:]), []
            if len(circle) > 1:
                circles.append(circle)

    for module in imports:
        if module not in order:
            visit(module)
    return circles


def test_circles_are_found() -> None:
    assert find_circles({"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["e"], "e": ["e"]}) == [{"a", "b", "c"}]
    assert find_circles({"a": ["b", "c"], "b": ["c"], "c": []}) == []


def test_no_module_imports_itself_over_others() -> None:
    graph = grimp.build_graph("lading", cache_dir=None)
    imports = {module: sorted(graph.find_modules_directly_imported_by(module)) for module in sorted(graph.modules)}
    circles = find_circles(imports)
    found: Counter[str] = Counter()
    for circle in circles:
        found[min(circle).rpartition(".")[0]] += len(circle)
    assert found == CIRCLES_LEFT, circles

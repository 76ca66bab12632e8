"""The architecture page walks through code that exists, and shows the layers that the import contract holds."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
STEPS: Final = re.findall(r"^\|[^|]+\| `([\w/]+\.py)` `([\w.]+)` \|$", PAGE, re.MULTILINE)


def defined(path: Path) -> set[str]:
    """Functions and methods of a module, methods with their class."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{one.name}"
                for one in node.body
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return found


def test_there_are_six_walks() -> None:
    assert len(re.findall(r"^\| step \| code \|$", PAGE, re.MULTILINE)) == 6
    assert len(STEPS) == len(re.findall(r"^\|[^|]+\| `[^|]+\.py` `[^|]+` \|$", PAGE, re.MULTILINE)) > 35


def test_each_walk_says_what_is_copied_who_waits_and_where_it_can_fail() -> None:
    walks = [part for part in PAGE.split("\n## ") if "| step | code |" in part]
    silent = [
        (walk.partition("\n")[0], word)
        for walk in walks
        for word in ("Copied:", "Waits:", "can\\s+fail")
        if re.search(word, walk) is None
    ]
    assert len(walks) == 6 and not silent


@pytest.mark.parametrize(("file", "name"), STEPS)
def test_a_step_is_in_the_code(file: str, name: str) -> None:
    path = ROOT / "src" / "lading" / file
    assert path.is_file(), f"{file} is not there"
    assert name in defined(path), f"{file} has no {name}"


def test_the_layers_are_those_of_the_import_contract() -> None:
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (rule["layers"] for rule in rules if rule["name"] == "layers")
    shown = "\n".join(f"    {layer}" for layer in layers)
    assert shown in PAGE, f"the page should show:\n{shown}"

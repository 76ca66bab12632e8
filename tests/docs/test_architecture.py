"""The architecture page walks through code that exists, and shows the layers that the import contract holds."""

from __future__ import annotations

import ast
import configparser
import re
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


def test_there_are_five_walks() -> None:
    assert len(re.findall(r"^\| step \| code \|$", PAGE, re.MULTILINE)) == 5
    assert len(STEPS) == len(re.findall(r"^\|[^|]+\| `[^|]+\.py` `[^|]+` \|$", PAGE, re.MULTILINE)) > 35


@pytest.mark.parametrize(("file", "name"), STEPS)
def test_a_step_is_in_the_code(file: str, name: str) -> None:
    path = ROOT / "src" / "lading" / file
    assert path.is_file(), f"{file} is not there"
    assert name in defined(path), f"{file} has no {name}"


def test_the_layers_are_those_of_the_import_contract() -> None:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    layers = [
        section["layers"].strip()
        for name, section in parser.items()
        if name.startswith("importlinter:contract") and section.get("type") == "layers" and "layers" in section
    ]
    if not layers:
        pytest.skip("the import contract has no layers yet: it lists what each room may not import")
    shown = "\n".join(f"    {line.strip()}" for line in layers[0].splitlines())
    assert shown in PAGE, f"the page should show:\n{shown}"

"""Kernels can be read: types are named once, numbers of a layout are imported, no load goes without its reason."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from types import ModuleType

import lading
from lading.model.kinds import Kind
from lading.model.state import State

PACKAGE = Path(lading.__file__).parent
LAYOUTS = ("layout", "send_layout", "window_layout", "limits", "chunk_table", "rules")
UNCHECKED = ("load8", "load16", "load32", "load64", "loadi64", "store8", "store16", "store32", "store64", "memcpy")
LINES_MAX = 600


def sources() -> list[Path]:
    """Modules of kernels and of the routines that they share, which take their types or decorators from one place."""
    return sorted(path for path in PACKAGE.rglob("*.py") if "kernels.signature import" in path.read_text())


def layouts() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages([str(PACKAGE)], "lading."):
        if found.name.rpartition(".")[2] in LAYOUTS:
            yield importlib.import_module(found.name)


def numbers() -> set[tuple[str, int]]:
    """Name and value of every number that a layout, a limit or an enumeration of the model has."""
    found = {(name, value) for module in layouts() for name, value in vars(module).items() if isinstance(value, int)}
    members: list[IntEnum] = [*Kind, *State]
    return found | {(member.name, int(member)) for member in members}


def typed(path: Path) -> Iterator[tuple[str, int]]:
    """Names that a module gives to numbers typed there: in an assignment, or in one of a range or a tuple."""
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.Assign):
            continue
        try:
            value = eval(ast.unparse(node.value), {"__builtins__": {"range": range}})
        except Exception:  # names of other modules are what it should be made of
            continue
        target = node.targets[0]
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        values = list(value) if isinstance(target, ast.Tuple) else [value]
        for name, number in zip(names, values, strict=True):
            if isinstance(name, ast.Name) and isinstance(number, int):
                yield name.id.lstrip("_"), number


def test_no_number_of_a_layout_is_typed_again() -> None:
    known = numbers()
    again = {
        (path.relative_to(PACKAGE).as_posix(), *pair) for path in sources() for pair in typed(path) if pair in known
    }
    assert not again, "import these from their layout"


def test_types_are_named_once() -> None:
    own = [path.relative_to(PACKAGE).as_posix() for path in sources() if "numba" in path.read_text().split('"""')[2]]
    assert not own, "take types and decorators from lading.kernels.signature"


def test_every_unchecked_load_has_its_reason() -> None:
    """A module that loads or stores unchecked says ``in bounds`` in each function that does so, or once for all."""
    silent = []
    for path in sources():
        text = path.read_text()
        tree = ast.parse(text)
        if "in bounds" in (ast.get_docstring(tree) or "").lower():
            continue
        for node in tree.body:
            # what is decorated there is compiled: kernels, and the routines and steps that they call
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                body = ast.get_source_segment(text, node) or ""
                called = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
                if called & {*UNCHECKED, "base"} and "in bounds" not in body:
                    silent.append(f"{path.relative_to(PACKAGE)}:{node.name}")
    assert not silent


def test_files_are_of_a_size_to_be_read() -> None:
    long = {path.relative_to(PACKAGE).as_posix(): text.count("\n") for path in sources() if (text := path.read_text())}
    assert not {name: lines for name, lines in long.items() if lines > LINES_MAX}

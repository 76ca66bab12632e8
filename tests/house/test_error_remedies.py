"""Errors of our own name the remedy: ``<object> <value>: <problem>; <remedy>``. Others may only become fewer.

Counted are the literal texts of LocalError, SettingError and Refusal. Texts that a real server defines count too: they
stay as they are, and are part of the number of their room.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[2] / "src" / "lading"
ERRORS: Final = {"LocalError", "SettingError", "Refusal"}
WITHOUT_REMEDY_MAX: Final[dict[str, int]] = {
    "aio.py": 2,
    "broker": 66,
    "cli": 27,
    "client": 36,
    "columns": 15,
    "console": 6,
    "dialects": 4,
    "endpoints": 50,
    "filter": 3,
    "log": 3,
    "mirror": 2,
    "model": 15,
    "pipeline": 15,
    "settings": 2,
    "spark": 8,
    "tables": 16,
    "testing": 4,
    "transports": 18,
}
"""By room: how many texts have no ``;`` and remedy after it. Lower the number with each text that gets one."""


def _read_text(node: ast.expr) -> str:
    """Return the literal parts of a text, ``{}`` for the others; empty if it has none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_read_text(part) or "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _read_text(node.left) + _read_text(node.right)
    return ""


def list_texts(source: str) -> list[str]:
    """Return the literal texts of errors that a source makes."""
    texts = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
            texts += [text for argument in node.args if (text := _read_text(argument))][:1]
    return texts


def test_the_texts_of_errors_are_found() -> None:
    source = 'raise Refusal(Reason.X, f"topic {name!r}: missing; " + "create it")\nLocalError(other)\nLocalError("no")'
    assert list_texts(source) == ["topic {}: missing; create it", "no"]


def test_errors_of_our_own_name_the_remedy() -> None:
    found: Counter[str] = Counter()
    texts: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0]
        without = [text for text in list_texts(path.read_text()) if ";" not in text]
        found[room] += len(without)
        texts.setdefault(room, []).extend(without)
    more = {room: texts[room] for room, count in found.items() if count > WITHOUT_REMEDY_MAX.get(room, 0)}
    assert more == {}, "an error ends with '; ' and what to do"

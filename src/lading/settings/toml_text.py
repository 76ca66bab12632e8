"""TOML that people write: the remedy for the usual slip, a text without quotes."""

from __future__ import annotations

import re
from typing import Final

_LINE: Final = re.compile(r"at line (\d+)")
_ASSIGNMENT: Final = re.compile(r"""\s*([\w."'-]+)\s*=\s*([^\s"'\[{#].*)""")
_BOOLEANS: Final = frozenset({"true", "false"})


def find_toml_remedy(error: ValueError, content: bytes) -> str:
    """Return what to do about ``content`` that is not TOML: what to write if the line has a text without quotes.

    The value is not repeated: it may be a secret.
    """
    numbered = _LINE.search(str(error))
    lines = content.decode(errors="replace").splitlines()
    if numbered is None or not 1 <= int(numbered[1]) <= len(lines):
        return "correct that line"
    assignment = _ASSIGNMENT.match(lines[int(numbered[1]) - 1])
    if assignment is None:
        return "correct that line"
    key, value = assignment.groups()
    if value.strip().lower() in _BOOLEANS:
        return f"write {key} = {value.strip().lower()}"
    return f'text needs quotes: {key} = "…"'

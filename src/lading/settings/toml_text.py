"""TOML that people write: files of it, and the remedy for the usual slip, a text without quotes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from ..model.errors import SettingError

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


def read_toml(file: Path, kind: str) -> dict[str, Any]:
    """Return the content of a TOML file. Raises SettingError, in which ``kind`` ("pipeline file") names the file."""
    try:
        content = file.read_bytes()
        return tomllib.loads(content.decode())
    except OSError as error:
        raise SettingError(f"cannot read the {kind} {file}: {error.strerror}; check its path and rights") from None
    except UnicodeDecodeError as error:
        raise SettingError(f"{kind} {file}: not valid UTF-8: {error.reason}; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{kind} {file}: invalid TOML: {error}; {find_toml_remedy(error, content)}") from None

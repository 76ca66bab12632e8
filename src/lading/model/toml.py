"""Formatting of values as TOML, which the standard library only reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_BEYOND_ASCII: Final = re.compile(r"[^\x20-\x7e]")


def toml_key(name: str) -> str:
    """Return ``name`` as a key: bare if that is allowed, else in quotes."""
    return name if _BARE_KEY.fullmatch(name) else toml_text(name)


def toml_text(text: str) -> str:
    """Return a basic string in ASCII. Unlike JSON, TOML has no surrogate pairs; a lone surrogate becomes U+FFFD."""
    quoted = json.dumps(text, ensure_ascii=False)
    return _BEYOND_ASCII.sub(_escape_match, quoted)


def toml_value(value: Any) -> str:
    """Return the text of a value: strings, numbers, booleans, lists, and mappings as inline tables."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case Mapping():
            return "{ " + ", ".join(f"{toml_key(str(key))} = {toml_value(one)}" for key, one in value.items()) + " }"
        case str():
            return toml_text(value)
        case Sequence():
            return "[" + ", ".join(map(toml_value, value)) + "]"
    return toml_text(str(value))


def _escape_match(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xD800 <= code <= 0xDFFF:
        return "\\ufffd"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"

"""Optional parts of Lading: the sentence that says how one is installed."""

from __future__ import annotations

from typing import Final

CLONE: Final = "in the clone of Lading run: pip install -c constraints.txt"


def describe_install(extra: str) -> str:
    """Return how an extra of ``pyproject.toml`` is installed. It works from the clone: no index has Lading."""
    return f"{CLONE} '.[{extra}]'"

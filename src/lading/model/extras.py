"""Optional parts of Lading: the sentence that says how one is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from .errors import LocalError

CLONE: Final = "in the clone of Lading run: pip install -c constraints.txt"


def describe_install(extra: str) -> str:
    """Return how an extra of ``pyproject.toml`` is installed. It works from the clone: no index has Lading."""
    return f"{CLONE} '.[{extra}]'"


def require_spark(remedy: str) -> None:
    """Raise LocalError if Spark is not installed; ``remedy`` says what works without it."""
    if find_spec("pyspark") is None:
        raise LocalError(f"Spark is not installed; {remedy}, or {describe_install('spark')}")

"""What the broker's rooms call where something happens, until somebody listens."""

from __future__ import annotations


def ignore() -> None:
    """Nobody listens."""

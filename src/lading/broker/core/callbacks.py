"""Default for callbacks that are not set."""

from __future__ import annotations


def ignore(*news: object) -> None:
    """Do nothing: the default of every ``on_*`` callback."""

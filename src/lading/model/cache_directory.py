"""The directory in the user's cache in which Lading keeps files that it can make again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "XDG_CACHE_HOME"
"""Environment variable with the directory of all caches of a user."""
DEFAULT: Final = "~/.cache"


def find_cache_directory(xdg_cache_home: str | None = None) -> Path:
    """Return ``lading`` in ``XDG_CACHE_HOME``, or in ``~/.cache`` if that is unset or empty; it may not exist yet.

    ``xdg_cache_home`` is used instead of the variable if it is given. Raises RuntimeError if the user has no home.
    """
    base = os.environ.get(VARIABLE) if xdg_cache_home is None else xdg_cache_home
    return (Path(base) if base else Path(DEFAULT).expanduser()) / "lading"

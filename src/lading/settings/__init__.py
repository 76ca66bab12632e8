"""Settings: every key with its type, bounds and default, read from files, environment and command line.

``from lading.settings import Settings`` loads the models only when they are used: a command that needs none of them
starts without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .settings import Settings

__all__ = ["Settings"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .settings import Settings

    return Settings

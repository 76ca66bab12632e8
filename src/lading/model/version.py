"""The version of Lading, as packages and reports name it."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.1.0"

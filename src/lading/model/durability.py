"""The promise of an acknowledgement."""

from __future__ import annotations

from typing import Literal

Durability = Literal["fsync", "os", "none"]
"""``fsync``: an acknowledged message is on disk. ``os``: it is in the page cache; a power cut may take it. ``none``:
nothing is ever synced; a power cut may take the whole directory."""

"""The library's message classes, imported by one thread at a time: its modules import each other.

A server imports them in a thread while its loop may need one too; two imports that wait for each other would both fail.
"""

from __future__ import annotations

import threading
from functools import cache
from importlib import import_module
from typing import Any

_importing = threading.Lock()


@cache
def message(module: str, name: str) -> Any:
    """Return the class ``name`` of ``kafka.protocol.module``, or of a module of ours by its whole name."""
    place = module if module.startswith("lading.") else f"kafka.protocol.{module}"
    with _importing:
        return getattr(import_module(place), name)

"""Valid topic names in Kafka."""

from __future__ import annotations

import re
from typing import Final

TOPIC_NAME_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_legal(name: str) -> bool:
    """Return whether a name is valid: letters, digits, ``.``, ``_`` and ``-``, at most 249 of them, but not ``.`` or
    ``..``.
    """
    return _LEGAL.fullmatch(name) is not None and name not in (".", "..")


def why_illegal(name: str) -> str:
    """Return the sentence for a client that used an invalid name."""
    return (
        f"{name[:60]!r} is not a topic name: letters, digits, '.', '_' and '-' make one, at most {TOPIC_NAME_MAX}, "
        "and not '.' or '..' alone"
    )

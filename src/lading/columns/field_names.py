"""Names of message fields as people mistype them, for hints.

A header may have any name: `key_1` and `value` are read as headers. If no message has such a header, the hint names the
field that was probably meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_ALIASES: Final = {"value": "payload"}
"""Words of other systems for a field: the value of Kafka's records is the payload here."""
_EMPTY_KEY_COLUMN: Final = "header_"
"""The column of a header whose key is empty, which Kafka allows (KIP-82)."""
_TYPO_LENGTH_MIN: Final = 3
"""Shorter names have too many others that differ by one letter."""


def field_meant(name: str, fields: Iterable[str]) -> str | None:
    """Return the field of ``fields`` that ``name`` is probably meant to be; None if it is a field, or unlike all.

    A near miss differs in upper case, ``_`` or ``-``, or by one letter after the first: added, left out, replaced or
    swapped with its neighbour. ``value`` means ``payload``.
    """
    known = list(fields)
    if name in known:
        return None
    plain = _normalize_name(name)
    if _ALIASES.get(plain) in known:
        return _ALIASES[plain]
    return next((field for field in known if plain == field or _is_one_letter_off(plain, field)), None)


def choose_column_name(key: str, taken: set[str]) -> str:
    """Return the name of a column for the header ``key`` that is not ``taken``, in any case, and note it there.

    It is the key, unless that is empty or taken, as by a message field.
    """
    name = key or _EMPTY_KEY_COLUMN
    while name.lower() in taken:
        name = f"header_{name}"
    taken.add(name.lower())
    return name


def _normalize_name(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _is_one_letter_off(name: str, field: str) -> bool:
    if len(field) < _TYPO_LENGTH_MIN or name[:1] != field[:1] or abs(len(name) - len(field)) > 1:
        return False
    start = 0
    while start < min(len(name), len(field)) and name[start] == field[start]:
        start += 1
    left, right = name[start:], field[start:]
    while left and right and left[-1] == right[-1]:
        left, right = left[:-1], right[:-1]
    return max(len(left), len(right)) <= 1 or (len(left) == len(right) == 2 and left == right[::-1])

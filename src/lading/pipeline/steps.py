"""The messages and columns that SQL steps can see."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ..columns.contract import FIELD_TYPES, Projection

BEFORE_HEADERS = ("topic", "partition", "offset", "timestamp", "key")
AFTER_HEADERS = ("payload",)
"""The message fields of a table without columns of its own, before and after the headers of the contract."""
MESSAGES: Final = "messages"
"""The view that a step reads: messages that passed the checks, with the default columns, or the previous step."""
EVERY: Final = "messages_all"
"""The view, for every step, of the messages that passed the checks with every message field."""
_COUNTED = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)
_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)


def default_columns(contract: Projection) -> tuple[str, ...]:
    """Return the columns of a table without columns of its own."""
    return (*BEFORE_HEADERS, *(column.name for column in contract.typed), *AFTER_HEADERS)


def every_column(contract: Projection) -> Projection:
    """Return all columns that a step can see."""
    names = default_columns(contract)
    order = (*names, *(name for name in FIELD_TYPES if name not in names))
    return _select_columns(order, contract)


def select_step_columns(texts: Sequence[str], contract: Projection) -> Projection:
    """Return the columns that these steps may read, without those that no step names and no ``*`` includes.

    It rather returns too many: a name anywhere in the text counts, and so does every asterisk.
    """
    statements = " ".join(_QUOTED.sub(" ", _COUNTED.sub(" ", text)) for text in texts).lower()
    every = every_column(contract).order
    if "*" in statements or re.search(r"\bnatural\b", statements):
        names = every if EVERY in statements else default_columns(contract)
        starred = set(names)
    else:
        starred = set()
    wanted = {name for name in every if name in starred or name.lower() in statements}
    return _select_columns(tuple(name for name in every if name in wanted | {"offset"}), contract)


def _select_columns(order: tuple[str, ...], contract: Projection) -> Projection:
    headers = tuple(column for column in contract.headers if column.name in order)
    members = tuple(column for column in contract.payload if column.name in order)
    return Projection(
        tuple(name for name in order if name in FIELD_TYPES), headers, order, contract.texts, members, contract.form
    )

"""Parts of each message that columns and a condition need: the fields to decode and the header keys to locate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.batch import FIELDS, SCHEMA_WITH_ORIGIN

if TYPE_CHECKING:
    from ..columns.contract import Projection
    from .filter import Filter


def select_fields(projection: Projection | None, condition: Filter | None, *others: str) -> frozenset[str]:
    """Return the message fields that projection and condition read, and ``others``; all FIELDS without a projection."""
    if projection is None:
        return frozenset(FIELDS)
    asked = {*projection.message_fields, *(condition.fields if condition else ()), *others}
    return frozenset(asked.intersection(SCHEMA_WITH_ORIGIN.names))


def select_keys(projection: Projection | None, condition: Filter | None) -> tuple[str, ...]:
    """Return the header keys that projection and condition read, each once."""
    shown = projection.header_keys if projection else ()
    return tuple(dict.fromkeys((*shown, *(condition.header_keys if condition else ()))))

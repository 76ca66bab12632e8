"""Declared headers that the messages of a run had: a name that none had is reported, with the names that exist."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

import pyarrow.compute as pc

from .contract import FIELD_TYPES, did_you_mean
from .field_names import field_meant

BYTES: Final = ("key", "payload")
"""Message fields that are bytes, and may be JSON."""
NAMES_SHOWN_MAX: Final = 20
NAME_CHARACTERS_MAX: Final = 60
_ABSENT: Final = -1


class SeenHeaders:
    """The declared header keys, those that some message had, and the header names of the messages read.

    Parts of a run keep one each, which ``merge`` joins; it can be pickled.
    """

    def __init__(self, declared: Iterable[str]) -> None:
        self.declared = tuple(dict.fromkeys(declared))
        self.messages = 0
        self._present: set[str] = set()
        # a dict keeps the order of appearance
        self._names: dict[str, None] = {}

    def add_headers(self, headers: Any) -> None:
        """Count in messages by their ``headers`` column, an Arrow list array, and note the names of their headers."""
        self.messages += len(headers)
        names = pc.unique(headers.flatten().field("key")).to_pylist()
        self._names.update(dict.fromkeys(names))
        self._present.update(set(names) & set(self.declared))

    def merge(self, other: SeenHeaders) -> None:
        """Add the headers that another part of the run saw."""
        self.messages += other.messages
        self._present |= other._present
        self._names.update(other._names)

    @property
    def unseen(self) -> tuple[str, ...]:
        """The declared keys that no message had so far."""
        return tuple(key for key in self.declared if key not in self._present)

    @property
    def names(self) -> tuple[str, ...]:
        """Header names of the messages given to ``add_headers``, in order of appearance."""
        return tuple(self._names)

    def sentences(self, among: str, unquoted: Collection[str] = ()) -> list[str]:
        """Return one sentence for each unseen key; ``among`` names the messages, such as ``the 12 messages of
        'flights'``.

        ``unquoted`` are the keys that a filter compares with without quotes, although a text may be meant
        (``Filter.unquoted``).
        """
        return [unseen_sentence(key, self.names, among, quote=key in unquoted) for key in self.unseen]


def unseen_sentence(key: str, names: Collection[str] | None, among: str, *, quote: bool = False) -> str:
    """Return the sentence on a header that no message had, with the nearest of ``names`` and the names themselves.

    None means that names were not looked at. With ``quote`` the advice is to write the key as a text instead.
    """
    if quote:
        text = key.replace("'", "''")
        return f"none of {among} has a header {key!r}; for the text write it in single quotes: '{text}'"
    field = field_meant(key, FIELD_TYPES)
    opened, dot, _ = key.partition(".")
    if dot and opened == "payload":
        return (
            f"none of {among} has a header {key!r}; a member of the JSON payload is written without quotes, as the "
            f"column `NAME string from {key}`"
        )
    if dot and opened in BYTES:
        return (
            f"none of {among} has a header {key!r}, and the members of a JSON {opened} are not columns: read "
            f"`{opened} string`, and take them from it afterwards, in Spark by get_json_object({opened}, '$.NAME'), in "
            f"lading sql by decode({opened}) ->> 'NAME'"
        )
    hint = f" (did you mean the field {field!r}?)" if field is not None else ""
    if names is None:
        return f"none of {among} has a header {key!r}{hint}"
    shown = ", ".join(_show(name) for name in list(names)[:NAMES_SHOWN_MAX])
    more = f" and {len(names) - NAMES_SHOWN_MAX:,} more" if len(names) > NAMES_SHOWN_MAX else ""
    seen = f"the headers seen are {shown}{more}" if names else "no header was seen at all"
    return f"none of {among} has a header {key!r}{hint or did_you_mean(key, names)}; {seen}"


def _show(name: str) -> str:
    """Return a name as people read it: whole, unless it is long."""
    return repr(name) if len(name) <= NAME_CHARACTERS_MAX else f"{name[:NAME_CHARACTERS_MAX]!r}…"

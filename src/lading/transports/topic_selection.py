"""A selection of topics: those that it names, or all that match its pattern, with the few requests that this takes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ..model.errors import SettingError
from .interface import TopicMeta, Transport
from .topics import UnknownTopic

INTERNAL: Final = "__"
"""Topics whose names begin with this are a server's own (``__consumer_offsets``): no pattern matches them."""
NAMES_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Topics by their names, or by a regular expression that matches whole flat names; one of both is given."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    _compiled: re.Pattern[str] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def parse(cls, names: Iterable[str], pattern: str | None, option: str = "topic_pattern") -> TopicSelection:
        """Return the selection. Raises SettingError, which names ``option``, for an invalid regular expression."""
        if pattern is None:
            return cls(tuple(dict.fromkeys(names)))
        try:
            return cls((), pattern, re.compile(pattern))
        except re.error as error:
            raise SettingError(
                f"{option} {pattern!r}: invalid regular expression: {error}; write for example 'flights\\..*'"
            ) from None

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics that match {self.pattern!r}"
        return f"topic{'s' * (len(self.names) > 1)} {list_names(self.names)}"

    def matches(self, name: str) -> bool:
        """Return whether a flat name is one of the selection's, or matches its pattern."""
        if self._compiled is None:
            return name in self.names
        return not name.startswith(INTERNAL) and self._compiled.fullmatch(name) is not None

    def find(self, transport: Transport) -> list[TopicMeta]:
        """Return the topics as they are now, by name; none if nothing matches the pattern.

        Raises UnknownTopic for a name that does not exist.
        """
        found = {meta.name: meta for meta in transport.topics(self.matches)}
        for name in self.names:
            if name not in found:
                # one of the server's own, or of the stream that the URL names
                meta = transport.topic(name)
                found[meta.name] = meta
        return [found[name] for name in sorted(found)]

    def nothing_found_error(self, transport: Transport) -> UnknownTopic:
        """Build the error for a pattern that matches nothing, with names of the topics that exist."""
        known = sorted(meta.name for meta in transport.topics())
        there = (
            f"there {'is' if len(known) == 1 else 'are'} {list_names(known)}" if known else "there are no topics yet"
        )
        return UnknownTopic(f"topic_pattern {self.pattern!r}: matches no topic at {transport.url}; {there}")


def list_names(names: Iterable[str]) -> str:
    """Return the first names in quotes, and how many more there are."""
    every = list(names)
    shown = ", ".join(map(repr, every[:NAMES_SHOWN]))
    return shown + (f" and {len(every) - NAMES_SHOWN} more" if len(every) > NAMES_SHOWN else "")

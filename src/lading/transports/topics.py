"""Topic names in transports: the place of a new topic, and the error for an unknown one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from ..model.errors import LocalError
from ..model.names import spellings


class UnknownTopic(LocalError):
    """The topic does not exist; the message has the nearest names that do."""


def require_topic_name(name: str) -> None:
    """Raise LocalError for an empty name, which servers treat as if a name were missing from the request."""
    if not name:
        raise LocalError("topic name '': empty; name a topic")


def split_new_name(name: str) -> tuple[str, str]:
    """Return the stream and topic that creating the flat ``name`` makes: ``s.t`` makes t in s, else in ``default``.

    Raises LocalError for an empty name.
    """
    require_topic_name(name)
    choices = spellings(name)
    return choices[1] if len(choices) > 1 else choices[0]


def unknown_topic_error(name: str, known: Iterable[str], url: str) -> UnknownTopic:
    """Build the error for a topic that does not exist, with the nearest names that do."""
    names = sorted(known)
    near = get_close_matches(name, names, 3, 0.6)
    if near:
        hint = f"did you mean {' or '.join(map(repr, near))}?"
    elif names:
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        hint = f"there {'is' if len(names) == 1 else 'are'} {shown}."
    else:
        hint = "there are no topics yet."
    return UnknownTopic(f"topic {name!r} does not exist at {url}; {hint}")

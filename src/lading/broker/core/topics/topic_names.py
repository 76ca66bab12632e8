"""Valid ids and names of streams and topics, apart from whether they are taken."""

from __future__ import annotations

from typing import Final

from ....model.errors import Reason, Refusal, SettingError
from ..settings import TopicSettings
from ..topology import ID_MAX, Topic

NAME_BYTES_MAX: Final = 255
"""Size limit of a name (iggy.md A6)."""


def require_id(ident: int, what: str, reason: Reason) -> None:
    """Raise Refusal with ``reason`` if a stream or topic may not have this id."""
    if not 1 <= ident <= ID_MAX:
        raise Refusal(reason, f"a {what} id is 1 to {ID_MAX}, not {ident}")


def require_name(name: str, what: str, reason: Reason) -> None:
    """Raise Refusal with ``reason`` if a stream or topic may not have this name."""
    size_bytes = len(name.encode(errors="replace"))
    if not 1 <= size_bytes <= NAME_BYTES_MAX:
        raise Refusal(reason, f"a {what} name has 1 to {NAME_BYTES_MAX} bytes, not {size_bytes}")


def require_other_target(name: str, settings: TopicSettings) -> None:
    """Raise SettingError if a topic of this name would be its own dead letter topic."""
    if settings.dead_letter_topic == name:
        raise SettingError(f"topic {name!r} cannot be its own dead_letter_topic; name another")


def require_other_name(topic: Topic, name: str) -> None:
    """Raise Refusal if a renamed topic would be its own dead letter topic."""
    if topic.settings.dead_letter_topic == name:
        raise Refusal(Reason.AMBIGUOUS_NAME, f"{name!r} is the dead_letter_topic of {topic.flat_name!r}; name another")

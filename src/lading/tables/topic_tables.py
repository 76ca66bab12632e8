"""One table a topic: ``{topic}`` in a target stands for the topic's flat name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ..model.errors import LocalError, SettingError
from .storage.object_path import ObjectPath, TablePath

TOPIC: Final = "{topic}"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Names that are the same directory on every file system, and that readers do not skip as hidden."""


def has_topic(place: object) -> bool:
    """Return whether a target, or the place of a table, stands for one table a topic."""
    return TOPIC in str(place)


def table_of_topic(place: TablePath, topic: str) -> TablePath:
    """Return the table of a topic; a place without ``{topic}`` is the table of all.

    Raises LocalError for a topic whose name cannot be a part of the table's.
    """
    if not has_topic(place):
        return place
    if _NAME.fullmatch(topic) is None:
        raise LocalError(
            f"topic {topic!r}: its name cannot be a part of the table {place}: that takes letters, digits and . _ - "
            "after a letter or digit; read it as a source of its own, or leave it out"
        )
    text = str(place).replace(TOPIC, topic)
    return ObjectPath.parse(text) if isinstance(place, ObjectPath) else Path(text)


def parent_of_topic_tables(place: str) -> str:
    """Return the directory around the tables of all topics, in which their common state is kept."""
    return place[: place.index(TOPIC)].rpartition("/")[0] or "."


def require_topic_alone(name: str, target: str) -> None:
    """Raise SettingError for braces that stand for anything but a topic."""
    if (word := re.search(r"\{(?!topic\})[^}]*\}?", target)) is not None:
        raise SettingError(f"{name} {target!r}: {word[0]} stands for nothing; {TOPIC} is the name of a topic")

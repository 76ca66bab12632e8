"""Targets of a pipeline as its file writes them: a table, a topic at a server, or the quarantine."""

from __future__ import annotations

import re
from difflib import get_close_matches

from ..dialects.protocols import SCHEMES
from ..model.errors import SettingError
from ..tables.formats.registry import FORMATS, split_target
from ..tables.storage.files import has_scheme, spell_location, table_location
from ..transports.topic_address import TopicAddress, is_url

QUARANTINE = "quarantine"
"""Value of a route's ``to`` that puts messages into quarantine."""


def parse_target(value: object) -> object:
    """Return a valid table or topic. Raises ValueError for anything else."""
    if isinstance(value, str) and _is_unformed_table(value):
        place = spell_location(value)
        try:
            table_location("table", place)
        except SettingError as error:
            raise ValueError(str(error)) from None
        raise ValueError(f"a table begins with its form; write {next(iter(FORMATS))}:{place}")
    if isinstance(value, str) and is_url(value) and not value.startswith(_table_prefixes()):
        try:
            TopicAddress.parse(value)
        except SettingError as error:
            raise ValueError(f"{error}, or name a table such as {next(iter(FORMATS))}:./tables/flights") from None
        return value
    if not isinstance(value, str) or not value.startswith(_table_prefixes()):
        path = value.partition(":")[2] if isinstance(value, str) and re.match(r"\w{2,}:", value) else value
    else:
        path = split_target(value)[1]
        if path.strip():
            return value
    forms = " or ".join(f"{name}:DIRECTORY" for name in FORMATS)
    raise ValueError(f"a table is {forms}, for example {next(iter(FORMATS))}:{path or './tables/flights'}")


def parse_route_target(value: object) -> object:
    """Return a valid table or topic, or the word for the quarantine. Raises ValueError for anything else."""
    return value if value == QUARANTINE else parse_target(value)


def table_of(to: str | None) -> str | None:
    """Return the target if it is a table."""
    return None if to is None or to == QUARANTINE or topic_of(to) is not None else to


def topic_of(to: str | None) -> TopicAddress | None:
    """Return the address of the topic that a target is, None if it is something else."""
    if to is None or not is_url(to) or to.startswith(_table_prefixes()):
        return None
    return TopicAddress.parse(to)


def _is_unformed_table(value: str) -> bool:
    """Return whether a target is the place of a table with a scheme that no topic has, without the table's form."""
    scheme = value.partition(":")[0].lower()
    known = (*FORMATS, *SCHEMES, "http", "https")
    # a word and a directory, as in orc:./late, is a form that does not exist
    is_place = "://" in value or scheme == "dbfs"
    return is_place and has_scheme(value) and scheme not in known and not get_close_matches(scheme, known, 1, 0.5)


def _table_prefixes() -> tuple[str, ...]:
    return tuple(f"{name}:" for name in FORMATS)

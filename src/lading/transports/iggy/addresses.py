"""URLs, names and ids of streams and topics, as an Iggy server takes them."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import unquote, urlsplit

from ...dialects.iggy.classic.validation import is_name, normalise_name
from ...model.errors import LocalError, SettingError
from ..open import address


def split_url(url: str) -> tuple[str, int, str | None]:
    """Return host, port and stream of an ``iggy://`` URL. Raises SettingError if the URL contains more."""
    try:
        path = urlsplit(url).path.strip("/")
    except ValueError:
        path = ""
    bare = url[: url.rindex(path)] if path else url
    if "/" in path:
        raise SettingError(f"{url!r} names more than a stream; write it like iggy://127.0.0.1:8090/stream")
    return *address(bare, "iggy"), unquote(path) or None


def check_name(name: str) -> None:
    """Raise LocalError for a name that Iggy would refuse, or store under another name."""
    if not is_name(name):
        raise LocalError(f"Iggy takes names of 1 to 255 bytes of letters, digits, '_', '.' and '-', not {name!r}")
    if normalise_name(name) != name:
        raise LocalError(f"Iggy would store the name {name!r} as {normalise_name(name)!r}; use that")


def find_free_id(taken: Collection[int]) -> int:
    """Return the lowest id from 1 that is not taken."""
    return next(number for number in range(1, len(taken) + 2) if number not in taken)

"""Options of transports that were written as text: in ``transport.NAME``, in a pipeline file, after ``?`` in a URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..model.errors import SettingError

_FLAGS: Final[Mapping[str, bool]] = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _parse_flag(text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise ValueError(text)
    return _FLAGS[text.lower()]


_TYPES: Final[Mapping[str, tuple[Callable[[str], Any], str]]] = {
    "timeout_s": (float, "a number"),
    "retries": (int, "a number"),
    "in_flight": (int, "a number"),
    "message_timeout_s": (float, "a number"),
    "session_timeout_s": (float, "a number"),
    "reading_timeout_s": (float, "a number"),
    "keeps_order": (_parse_flag, "true or false"),
    "tls": (_parse_flag, "true or false"),
}
"""Parser of an option, and its values; all others are text."""


def parse_option(name: str, text: str, *, prefix: str = "") -> Any:
    """Return the value of an option; SettingError, which calls it ``prefix`` and ``name``, if it cannot have it."""
    parse, takes = _TYPES.get(name, (str, ""))
    try:
        return parse(text)
    except ValueError:
        raise SettingError(f"{prefix}{name} is {text!r}; it takes {takes}") from None

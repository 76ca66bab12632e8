"""Options of streams and topics in bodies, some of which are members of their own (iggy-current.md B5)."""

from __future__ import annotations

import json
import struct
from typing import Any, Final

from ....model.kinds import Kind
from ..current.options import UNLIMITED, Option, parse_option
from .documents import TEXT, U64, Form, form_of
from .errors import wrong_document
from .text import Members

_BOUNDS: Final = ("message_expiry", "max_topic_size")
_ALGORITHM: Final = "compression_algorithm"


def _options_of(value: Any, where: str) -> dict[str, Option]:
    return {key: _parse_option(key, text, where) for key, text in form_of(value, where, Members).items()}


def _parse_option(key: str, value: Any, where: str) -> Option:
    """Return one option of a topic from its text; an unknown one stays text, and is refused by name later."""
    # clients of protocol 0.12 send numbers and booleans as such
    text = json.dumps(value) if isinstance(value, bool | int) else form_of(value, f"{where}.{key}", str)
    return parse_option(key, text)


def _u64_of(value: Any, where: str) -> Any:
    # clients of protocol 0.12 send numbers as text that other JSON readers would round
    try:
        return U64.from_text(value) if isinstance(value, str) else U64.of(value, where)
    except ValueError as error:
        raise wrong_document(f"{where}: {error}") from None


OPTIONS: Final = Form(_options_of, TEXT.from_text)
U64_OR_TEXT: Final = Form(_u64_of, U64.from_text)


def join_options(values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a command with all its options in one; options that are reset have no bound."""
    named = {key: values.pop(key, None) for key in (*_BOUNDS, _ALGORITHM)}
    given = {key: _to_option(value) for key, value in named.items() if value is not None}
    reset = {key: _to_option(UNLIMITED) for key in values.pop("reset", None) or () if key in _BOUNDS}
    return {**values, "options": {**given, **values["options"], **reset}}


def _to_option(value: int | str) -> Option:
    if isinstance(value, str):
        return Option(Kind.STRING, value.encode())
    return Option(Kind.UINT64, struct.pack("<Q", value))

"""The ext of one message as headers: a lenient reader of JSON that loses nothing (nsq.md 3.2).

The fork's server takes JSON as its parser does: control characters, unknown escapes, odd numbers and bytes that are not
UTF-8 all pass. So they are stored, and readers must get a value for them. Proper JSON becomes typed: text, int64,
float64, bool and null. Nested or improper JSON becomes a string of the JSON text itself, or raw bytes if that is not
UTF-8. A mark after all headers lists the strings that were not strings in JSON (``json_mark``). No input is refused
here; ``json_text.is_json`` finds JSON that a server refuses.
"""

from __future__ import annotations

import base64
import binascii
import re
from contextlib import suppress
from itertools import starmap
from typing import Final

from lading.model.headers import Header as BatchHeader
from lading.model.kinds import Kind
from lading.model.names import key_text

from ..carrier.encoding import NAME as CARRIER
from . import json_mark
from .json_text import NotJson, members, read_value, text_of, unescape
from .layout import JSON_EXT, NO_EXT, TAG_EXT
from .limits import CARRIER_NAME, TAG_NAME, TRACE_NAME

Header = tuple[str, int, bytes | None]
"""Key as a Batch has it, kind and value."""

WHOLE_NAME: Final = "##ext"
"""The name in place of a member's if the ext is not a JSON object; its value is the whole ext."""

_CARRIER: Final = CARRIER_NAME.encode()
_STRING: Final = Kind.STRING
_OPENERS: Final = (b"{", b"[")
_TRACE: Final = re.compile(rb"[0-9]{1,20}")
_TRACE_MAX: Final = (1 << 64) - 1


def headers_of(version: int, ext: bytes) -> list[Header]:
    """Return the headers of a message, in the order of its ext; repeated names are kept."""
    if version == NO_EXT:
        return []
    if version == TAG_EXT:
        return [(TAG_NAME, *text_of(ext))]
    try:
        found = members(ext) if version == JSON_EXT else None
    except NotJson:
        found = None
    if found is None:
        return [(WHOLE_NAME, *text_of(ext))]
    headers: list[Header] = []
    # an object or array was already read as a whole
    beyond: list[int] = []
    for name, text in found:
        kind, value, is_beyond = read_value(text)
        if b"\\" in name:
            name = unescape(name)
        if name == _CARRIER and kind == _STRING and value is not None:
            with suppress(binascii.Error):
                headers.append((CARRIER, Kind.RAW, base64.b64decode(value, validate=True)))
                continue
        if is_beyond or (kind == _STRING and text[:1] in _OPENERS):
            beyond.append(len(headers))
        headers.append((key_text(name), kind, value))
    return [*headers, json_mark.mark(list(starmap(BatchHeader, headers)), beyond)] if beyond else headers


def first_text(ext: bytes, name: str) -> tuple[bool, bytes | None]:
    """Return whether the ext has a member of this name without escapes, and the text of the first one.

    The text is None if the value is not a string. Servers use the first one; escapes in it are not undone. Raises
    NotJson if the ext is invalid and may have the member.
    """
    if b'"%s"' % name.encode() not in ext:
        return False, None
    for member in members(ext) or ():
        if member.name == name.encode():
            return True, member.value[1:-1] if member.value[:1] == b'"' else None
    return False, None


def trace_of(ext: bytes) -> tuple[bool, int | None]:
    """Return whether the ext has a trace id, and its number; None if it is not the text of a u64."""
    present, text = first_text(ext, TRACE_NAME)
    if not present or text is None or _TRACE.fullmatch(text) is None or int(text) > _TRACE_MAX:
        return present, None
    return True, int(text)

"""JSON documents that carry a checksum of themselves, so that a flipped bit is damage and never another value.

The checksum is the CRC-32C of all bytes of the file, with its own digits read as zeros. It stands first in the file, so
that a reader finds it without parsing, and the document stays one that people can read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import google_crc32c

FIELD: Final = "checksum"
_NO_DIGITS: Final = b"00000000"
_HEAD: Final = re.compile(rb'\{\s*"checksum": "([0-9a-f]{8})"')


def pack_document(document: Mapping[str, Any]) -> bytes:
    """Return the file of a document, which has no field ``checksum`` of its own."""
    assert FIELD not in document
    text = f"{json.dumps({FIELD: _NO_DIGITS.decode(), **document}, indent=1)}\n".encode()
    at = text.index(_NO_DIGITS)
    return text[:at] + b"%08x" % google_crc32c.value(text) + text[at + len(_NO_DIGITS) :]


def is_checksum(value: object) -> bool:
    """Return whether a document's field is such a checksum, or what a flipped bit has made of one."""
    return isinstance(value, str) and len(value) == len(_NO_DIGITS)


def is_intact(data: bytes) -> bool:
    """Return whether a file has a checksum, and it matches."""
    head = _HEAD.match(data)
    if head is None:
        return False
    start, end = head.span(1)
    return bool(google_crc32c.value(data[:start] + _NO_DIGITS + data[end:]) == int(head[1], 16))

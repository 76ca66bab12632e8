"""The mark of headers whose text is JSON: what NSQ had as an object, an array or a large number.

A Batch holds such a value as text, and NSQ gets it back as it was: a last header, ``lading-json``, lists these texts
(docs/reference/carrier.md). For other targets the mark is an ordinary raw header; JSON shows the value itself.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Sequence
from typing import Final

from ...model.headers import Header
from ...model.kinds import Kind
from ..carrier.encoding import fingerprint, fingerprints, is_reserved
from .json_text import is_beyond

NAME: Final = "lading-json"

_MARK: Final = struct.Struct("<I")
_DIGITS: Final = re.compile(rb"(?:[0-9a-f]{8})+")
_OCCURRENCES_MAX: Final = 8
"""Only this many headers of one name are compared with the mark."""


def mark(headers: Sequence[Header], places: Collection[int]) -> Header:
    """Return the mark to add after these headers; those at ``places`` are text that is JSON."""
    found = fingerprints(headers)
    return Header(NAME, int(Kind.RAW), b"".join(_MARK.pack(found[at]) for at in places).hex().encode())


def _read_words(mark: bytes) -> list[int]:
    """Return the fingerprints in a mark: hexadecimal digits, or the bytes themselves, as earlier releases
    wrote them.
    """
    data = bytes.fromhex(mark.decode()) if _DIGITS.fullmatch(mark) else mark
    return [] if len(data) % _MARK.size else [word for (word,) in _MARK.iter_unpack(data)]


def tells(mark: bytes, header: Header) -> bool:
    """Return whether a mark names this header, which may be a later one of its name."""
    found = {fingerprint(header, occurrence) for occurrence in range(_OCCURRENCES_MAX)}
    return any(word in found for word in _read_words(mark))


def find_marked(headers: Sequence[Header]) -> frozenset[int]:
    """Return the indexes of the headers that the mark names; none if the mark is not last, or names other headers.

    An invalid mark is a raw header like any other.
    """
    others = [header for header in headers if not is_reserved(header.key)]
    last = others.pop() if others else None
    if last is None or last.key != NAME or last.kind != Kind.RAW or not last.value:
        return frozenset()
    words = _read_words(last.value)
    wanted = set(words)
    places = [
        at
        for at, found in enumerate(fingerprints(others))
        if found in wanted and others[at].kind == Kind.STRING and is_beyond(others[at].value or b"")
    ]
    if not words or _read_words(mark(others, places).value or b"") != words:
        return frozenset()
    shown = [at for at, header in enumerate(headers) if not is_reserved(header.key)]
    return frozenset(shown[at] for at in places)

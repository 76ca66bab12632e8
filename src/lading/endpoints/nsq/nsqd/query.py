"""Query of a request to NSQ's HTTP endpoints, parsed as Go's servers do.

A piece between two ``&`` that has a ``;``, or a ``%`` without two digits to base 16, makes the whole query invalid;
nsqd and nsqlookupd refuse such a request when they read a parameter of it. If a name has several values, the first one
counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

_INVALID: Final = re.compile(rb";|%(?![0-9A-Fa-f]{2})")
_KEY: Final = "lading.nsq_query"


class NsqQuery(NamedTuple):
    """The first value of each name in the valid pieces of a query; ``is_valid`` if all pieces are."""

    values: Mapping[str, str]
    is_valid: bool


def parse_query(text: bytes) -> NsqQuery:
    """Return the parameters of a query; in text that is not UTF-8 each bad byte becomes U+FFFD."""
    values: dict[str, str] = {}
    is_valid = True
    for piece in text.split(b"&"):
        if _INVALID.search(piece):
            is_valid = False
        elif piece:
            name, _, value = piece.partition(b"=")
            values.setdefault(_decode(name), _decode(value))
    return NsqQuery(values, is_valid)


def read_query(request: Request) -> NsqQuery:
    """Return the query of a request, parsed once."""
    query: NsqQuery | None = request.scope.get(_KEY)
    if query is None:
        query = request.scope[_KEY] = parse_query(request.scope["query_string"])
    return query


def _decode(text: bytes) -> str:
    return unquote_to_bytes(text.replace(b"+", b" ")).decode(errors="replace")

"""The ``-H`` option: ``key=value``, ``key:kind=value`` and ``key`` alone for a null value."""

from __future__ import annotations

import difflib

from ..model.errors import LocalError
from ..model.headers import Headers
from ..model.kinds import KIND_BY_WORD
from ..model.value_parsing import PARSERS
from ..model.values import string

TYPES_ELSEWHERE = {
    "str": "string", "text": "string", "bytes": "raw", "binary": "raw", "boolean": "bool", "int": "int64",
    "integer": "int64", "long": "int64", "short": "int16", "byte": "int8", "float": "float64", "double": "float64",
    "number": "float64", "decimal": "string", "timestamp": "int64", "uuid": "uint128",
}  # fmt: skip
"""Names of the kinds elsewhere. A word after a colon that is none of these may be part of a key."""
FORMS = "write -H key=value (string), -H key:uint16=3 (typed), -H key:raw=0x00ff (bytes) or -H key (null)"


def parse_headers(options: list[str]) -> Headers:
    """Parse repeated ``-H`` options, in order, keeping duplicates. Raises LocalError, which says what to write."""
    headers = Headers()
    for option in options:
        name, equals, text = option.partition("=")
        if not equals:
            headers.add(name, None)
            continue
        key, colon, word = name.rpartition(":")
        if not colon:
            headers.add(name, string(text))
            continue
        kind = KIND_BY_WORD.get(word)
        if kind is None:
            near = TYPES_ELSEWHERE.get(word.lower()) or next(
                iter(difflib.get_close_matches(word, KIND_BY_WORD, n=1)), ""
            )
            if near:
                raise LocalError(f"-H {option}: {word!r} is not a header kind; did you mean {near!r}? ({FORMS})")
            headers.add(name, string(text))
            continue
        try:
            headers.add(key, PARSERS[kind](text))
        except LocalError as error:
            # a number out of range: the error knows the kind's bounds, and not which of many headers it is
            raise LocalError(f"-H {option}: {error}") from None
        except (ValueError, KeyError):
            raise LocalError(f"-H {option}: {text!r} is no {word}; {FORMS}") from None
    if "" in headers:
        raise LocalError(f"a header needs a key; {FORMS}")
    return headers

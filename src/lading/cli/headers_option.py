"""The ``-H`` option: ``key=value``, ``key:kind=value`` and ``key`` alone for a null value."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

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
"""Names of the kinds in other systems. A word after a colon that is not one of these may be part of a key."""
FORMS = "write -H key=value (string), -H key:uint16=3 (typed), -H key:raw=0x00ff (bytes) or -H key (null)"


def describe_colons(options: list[str]) -> Iterator[str]:
    """Yield a sentence for each ``-H`` option whose colon looks like that of a kind, but belongs to the key.

    Otherwise a mistyped kind would go unnoticed: the message is sent, with a wrong key. A colon before anything but a
    word, as in ``http://host=1``, is not taken for one.
    """
    for option in options:
        name, equals, _ = option.partition("=")
        key, _, word = name.rpartition(":")
        if not key or not (word == "" or word.isidentifier()):
            continue
        if equals and word not in KIND_BY_WORD:
            problem = f"{word!r} is not a header kind" if word else "no kind follows the colon"
            yield f"-H {option} is sent with the key {name!r}: {problem}; write {name}:string=… if that is meant"
        elif not equals and word in KIND_BY_WORD:
            yield f"-H {option} is sent with the key {name!r} and a null; a null has no kind: write -H {key}"


def parse_headers(options: list[str]) -> Headers:
    """Parse repeated ``-H`` options, in order, keeping duplicates. Raises LocalError that shows the right form."""
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
            # a number out of range: the error names the kind's bounds, but not the header
            raise LocalError(f"-H {option}: {error}") from None
        except (ValueError, KeyError):
            raise LocalError(f"-H {option}: {text!r} is not a valid {word}; {FORMS}") from None
    if "" in headers:
        raise LocalError(f"a header needs a key; {FORMS}")
    return headers

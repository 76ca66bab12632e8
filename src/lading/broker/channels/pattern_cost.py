"""Cost limit of patterns: RE2 matches in linear time, but compiling a pattern of many optional parts is quadratic.

``a{0,1000}`` forty times, 360 bytes, takes six seconds to compile. So an upper bound of the size of RE2's program is
computed before compiling: a pattern with a bound of PATTERN_COST_MAX compiles in a few milliseconds.
"""

from __future__ import annotations

import re
from typing import Final

PATTERN_COST_MAX: Final = 1024
"""The limit also bounds the time per byte of text: RE2 takes up to 8 ns for each part (``pattern_matches``)."""

_REPEATED: Final = 4
"""Factor for the cost of a part that may be left out or repeated."""
_CLASS: Final = 2
_UNICODE_CLASS: Final = 200

_QUANTIFIER: Final = re.compile(r"(?:[*+?]|\{(\d{1,6})(?:,(\d{0,6}))?\})\??")
_CLASS_BODY: Final = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]?", re.DOTALL)
_GROUP_HEAD: Final = re.compile(r"\?(?:P?<\w+>|[a-zA-Z-]*[:)]?)")
_FOLDING: Final = re.compile(r"\(\?[a-zA-Z]*i")


def pattern_cost(pattern: str) -> int:
    """Return an upper bound of the program that RE2 makes of a pattern, in unrepeated characters."""
    groups = [0]
    part = at = 0
    while at < len(pattern):
        letter = pattern[at]
        if quantifier := _QUANTIFIER.match(pattern, at):
            most = quantifier[2] or quantifier[1]
            times = _REPEATED * int(most or 1)
            groups[-1] += part * (times - 1)
            part *= times
            at = quantifier.end()
        elif letter == "(":
            head = _GROUP_HEAD.match(pattern, at + 1)
            at = head.end() if head else at + 1
            groups.append(1)
            part = 0
        else:
            if letter == ")" and len(groups) > 1:
                part, at = groups.pop(), at + 1
            elif letter == "[":
                body = _CLASS_BODY.match(pattern, at)
                assert body is not None
                part, at = _CLASS + _UNICODE_CLASS * body[0].lower().count("\\p"), body.end()
            elif letter == "\\":
                part, at = _escape_cost(pattern[at + 1 : at + 2]), at + 2
            else:
                part, at = _CLASS if letter == "." else 1, at + 1
            groups[-1] += part
    return sum(groups) * (2 if _FOLDING.search(pattern) else 1)


def _escape_cost(letter: str) -> int:
    return _UNICODE_CLASS if letter in ("p", "P") else _CLASS if letter.isalpha() else 1

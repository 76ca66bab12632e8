"""LIKE in time linear in the text: the patterns of a client do not decide how long the broker computes.

``%`` needs no backtracking: between two of them is a segment, and the first place at which a segment fits, after the
one before it, leaves the most room for the others. A segment without ``_`` is found by ``str.find``; one with ``_`` by
Shift-And, whose state is one integer with a bit for each character of the segment.

RE2, which Arrow uses for patterns with wildcards inside, takes time in proportion to the pattern times the text. It is
faster for short patterns, and matches those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

PATTERN_CHARACTERS_MAX: Final = 4096
ARROW_CHARACTERS_MAX: Final = 64
"""Longer patterns with wildcards are matched by this module, shorter ones by Arrow."""

_Segment = tuple[str | None, ...]
"""Characters between two ``%``; None is any one character."""


def match_like(texts: Any, pattern: str) -> Any:
    """Return for each text of an Arrow array, or for a scalar, whether it matches; null for null."""
    if len(pattern) <= ARROW_CHARACTERS_MAX:
        return pc.match_like(texts, pattern)
    like = LikePattern(pattern)
    if isinstance(texts, pa.Scalar):
        text: Any = texts.as_py()
        return pa.scalar(None if text is None else like.matches(text), pa.bool_())
    results: dict[str | None, bool | None] = {None: None}
    found = []
    for text in texts.to_pylist():
        if text not in results:
            results[text] = like.matches(text)
        found.append(results[text])
    return pa.array(found, pa.bool_())


class LikePattern:
    """One pattern, taken apart at its ``%``."""

    def __init__(self, pattern: str) -> None:
        first, *others = _split(pattern)
        self._first = first
        self._last = others.pop() if others else None
        """The characters after the last ``%``; None in a pattern without ``%``."""
        self._characters_min = sum(map(len, (first, *others, self._last or ())))
        self._between = [_finder_of(segment) for segment in others if segment]

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches."""
        start, end = len(self._first), len(text)
        if end < self._characters_min:
            return False
        if not _fits(self._first, text, 0):
            return False
        if self._last is None:
            return start == end
        end -= len(self._last)
        if not _fits(self._last, text, end):
            return False
        for find in self._between:
            start = find(text, start, end)
            if start < 0:
                return False
        return True


class _LiteralFinder:
    def __init__(self, literal: str) -> None:
        self._literal = literal

    def __call__(self, text: str, start: int, end: int) -> int:
        """Return the end of the first match of the segment, or -1."""
        found = text.find(self._literal, start, end)
        return found if found < 0 else found + len(self._literal)


class _WildcardFinder:
    """Shift-And: bit n of the state is set if the last n + 1 characters fit the first n + 1 of the segment."""

    def __init__(self, segment: _Segment) -> None:
        self._size = len(segment)
        self._any_bits = sum(1 << at for at, character in enumerate(segment) if character is None)
        self._bits: dict[str, int] = {}
        for at, character in enumerate(segment):
            if character is not None:
                self._bits[character] = self._bits.get(character, self._any_bits) | 1 << at

    def __call__(self, text: str, start: int, end: int) -> int:
        """Return the end of the first match of the segment, or -1."""
        if not self._bits:
            return start + self._size if start + self._size <= end else -1
        state, last, bits, any_bits = 0, 1 << (self._size - 1), self._bits, self._any_bits
        for at in range(start, end):
            state = (state << 1 | 1) & bits.get(text[at], any_bits)
            if state & last:
                return at + 1
        return -1


def _finder_of(segment: _Segment) -> _LiteralFinder | _WildcardFinder:
    literal = [character for character in segment if character is not None]
    return _LiteralFinder("".join(literal)) if len(literal) == len(segment) else _WildcardFinder(segment)


def _fits(segment: _Segment, text: str, start: int) -> bool:
    """Return whether the segment fits at exactly this place."""
    if start + len(segment) > len(text):
        return False
    return all(wanted is None or wanted == text[start + at] for at, wanted in enumerate(segment))


def _split(pattern: str) -> Sequence[_Segment]:
    segments: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            segments.append([])
        elif character == "_":
            segments[-1].append(None)
        else:
            segments[-1].append(next(characters, character) if character == "\\" else character)
    return [tuple(segment) for segment in segments]

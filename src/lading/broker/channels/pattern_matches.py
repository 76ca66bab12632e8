"""Matches of one pattern in a page, computed as far as a pass of the event loop has time for.

RE2's time is linear in the text, but in the worst case it grows with the size of the pattern's program as well:
``.*a.{100}c`` takes 162 ms for a text of 30 kB. So time is counted in steps, one for each byte of the text and part of
the pattern (``pattern_cost``); a step takes at most 8 ns. All channels share the steps of a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...filter.like import LikePattern

Mask = NDArray[np.bool_]

STEPS_AT_ONCE: Final = 3 << 18
"""Steps in one pass of the event loop: 6 ms at most, and 12 ms more for the last text, which may exceed them."""
TEXT_STEPS_MAX: Final = 1 << 20
"""A text that takes more steps does not match: texts are matched whole."""
COMPILE_BYTES: Final = 512
"""Compiling a pattern takes as long as matching a text of this many bytes."""
LITERAL_COST: Final = 2
WILDCARD_COST: Final = 32
"""Steps per byte of a glob of ``*`` and ``?``: the first with a ``?``, for which Python matches, the second without."""


class PatternBudget:
    """The steps that all channels may still use in this pass of the event loop."""

    __slots__ = ("steps_left",)

    def __init__(self) -> None:
        self.steps_left = STEPS_AT_ONCE

    def begin_pass(self) -> None:
        """Give the channels the steps of another pass."""
        self.steps_left = STEPS_AT_ONCE


class Matcher(Protocol):
    """Matches the texts of a filter."""

    cost: int
    """Steps for each byte of a text."""

    def match(self, texts: Sequence[bytes]) -> Mask:
        """Return whether each text matches."""


class PatternMatches:
    """The texts of a page that match; each is matched once."""

    __slots__ = ("_known", "_matched", "_matcher", "_texts")

    def __init__(self, texts: Sequence[bytes | None], matcher: Matcher) -> None:
        self._texts = texts
        self._matcher = matcher
        self._matched = np.zeros(len(texts), np.bool_)
        self._known = np.zeros(len(texts), np.bool_)

    def match(self, places: NDArray[np.int64], budget: PatternBudget) -> Mask:
        """Return whether each text at ``places`` matches, for as many of them as the steps of the pass allow."""
        unknown = places[~self._known[places]]
        if len(unknown):
            known_count = self._match_some(unknown, budget)
            if known_count < len(unknown):
                places = places[: int(np.argmin(self._known[places]))]
        return self._matched[places]

    def _match_some(self, places: NDArray[np.int64], budget: PatternBudget) -> int:
        """Match the first of these texts; return how many are matched now."""
        if budget.steps_left <= 0:
            return 0
        cost, texts, count = self._matcher.cost, list[bytes](), 0
        steps = cost * COMPILE_BYTES
        matched_places = []
        for place in places.tolist():
            text = self._texts[place] or b""
            text_steps = cost * (len(text) + 1)
            if text_steps <= TEXT_STEPS_MAX:
                if texts and steps + text_steps > budget.steps_left:
                    break
                steps += text_steps
                texts.append(text)
                matched_places.append(place)
            count += 1
        budget.steps_left -= steps
        if texts:
            self._matched[matched_places] = self._matcher.match(texts)
        self._known[places[:count]] = True
        return count


class RegexMatcher:
    """A pattern of RE2."""

    __slots__ = ("_pattern", "cost")

    def __init__(self, pattern: str, cost: int) -> None:
        self._pattern = pattern
        # for compiling, repeated parts count four times; for matching they do not
        self.cost = max(cost, 4 * len(pattern))

    def match(self, texts: Sequence[bytes]) -> Mask:
        """Return whether each text matches. Raises ArrowInvalid if the pattern is not valid."""
        column: Any = pa.array(texts, pa.binary())
        with suppress(pa.ArrowInvalid):  # text that is not UTF-8 is matched byte by byte
            column = column.cast(pa.string())
        matched: Any = pc.match_substring_regex(column, self._pattern)
        mask: Mask = matched.to_numpy(zero_copy_only=False)
        return mask


class LiteralMatcher:
    """A pattern without special characters: a search whose time does not grow with the pattern."""

    __slots__ = ("_pattern", "cost")

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern.encode()
        self.cost = LITERAL_COST

    def match(self, texts: Sequence[bytes]) -> Mask:
        """Return whether each text contains the pattern."""
        pattern = self._pattern
        return np.fromiter((pattern in text for text in texts), np.bool_, len(texts))


class GlobMatcher:
    """A glob with the wildcards ``*`` and ``?`` alone, so that its time does not grow with the pattern."""

    __slots__ = ("_matches", "cost")

    def __init__(self, glob: str) -> None:
        self._matches: Callable[[str], bool] = LikePattern(_to_like(glob)).matches
        self.cost = WILDCARD_COST if "?" in glob else LITERAL_COST

    def match(self, texts: Sequence[bytes]) -> Mask:
        """Return whether each text matches; a byte that is not UTF-8 counts as a character."""
        matches = self._matches
        return np.fromiter((matches(text.decode(errors="surrogateescape")) for text in texts), np.bool_, len(texts))


def is_literal(pattern: str) -> bool:
    """Return whether a pattern of RE2 has no special characters."""
    return not any(letter in pattern for letter in r"\.^$*+?{}[]()|")


def has_only_simple_wildcards(glob: str) -> bool:
    """Return whether ``GlobMatcher`` takes a glob: it has neither brackets nor braces, escaped or not."""
    return not any(letter in glob for letter in "[]{},")


def _to_like(glob: str) -> str:
    out = []
    letters = iter(glob)
    for letter in letters:
        if letter == "\\":
            letter = next(letters, "")
            out.append("\\" + letter if letter else "")
        elif letter in "*?":
            out.append("%" if letter == "*" else "_")
        else:
            out.append("\\" + letter if letter in "%_" else letter)
    return "".join(out)
